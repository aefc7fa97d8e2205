//! Listening sockets: one per lane and address, all bound to the same port with SO_REUSEPORT. Of a
//! unix socket, or of one that was opened elsewhere, there is one that all lanes take from.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::sockopt;
use sealane_file_table::Descriptor;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::kernel::liveness::Liveness;
use crate::kernel::reuseport::Steer;

/// Opens one listening socket for each of `lanes` lanes on `address`.
///
/// With port 0 the first socket's port is used for all. The kernel spreads new connections over the
/// sockets by a hash of both addresses, so a connection stays with the lane that it fell to.
///
/// Before that a bind that shares nothing sees whether anyone is there: another process of ours
/// would otherwise silently get a part of the connections.
///
/// # Errors
/// The address is in use, not ours, or not permitted.
pub fn bind(address: SocketAddr, lanes: usize) -> io::Result<(Vec<Descriptor>, SocketAddr)> {
    bind_as(&Bind::to(address), lanes)
}

/// What to listen on, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// Where; port 0 is any free one.
    pub address: SocketAddr,
    /// Connections that may wait for accept; the kernel caps it at net.core.somaxconn.
    pub backlog: u32,
    /// Whether `[::]` leaves IPv4 to others.
    pub ipv6_only: bool,
    /// Whether other programs of this user may share the port. For an address that overlaps with
    /// another that this process listens on, such as 0.0.0.0 and 127.0.0.1 with one port, it has to
    /// be: whoever else is there cannot be told from ourselves.
    pub reuse_port: bool,
    /// How the kernel finds out that clients are gone.
    pub liveness: Liveness,
    /// How clients are spread over the sockets.
    pub steer: Steer,
}

impl Bind {
    /// A socket of the terminator's: a long queue, nobody beside it, and a second listener for IPv4
    /// on the port of one for IPv6 is not a clash.
    pub fn to(address: SocketAddr) -> Self {
        Self {
            address,
            backlog: BACKLOG,
            ipv6_only: true,
            reuse_port: false,
            liveness: Liveness::default(),
            steer: Steer::Connection,
        }
    }
}

/// Opens one listening socket for each of `lanes` lanes, as [`bind`] does.
///
/// # Errors
/// The address is in use, not ours, or not permitted.
pub fn bind_as(wanted: &Bind, lanes: usize) -> io::Result<(Vec<Descriptor>, SocketAddr)> {
    bind_among(wanted, (0..lanes).map(|_| None).collect())
}

/// Opens a listening socket for each lane that has none in `kept`, as [`bind_as`] does; those are
/// as [`is_bound_at`] wants them, have whoever waits in their queues, and behave as `wanted` says
/// from now on.
///
/// # Errors
/// The address is in use, not ours, or not permitted.
pub fn bind_among(
    wanted: &Bind,
    kept: Vec<Option<OwnedFd>>,
) -> io::Result<(Vec<Descriptor>, SocketAddr)> {
    let mut bound = *wanted;
    let first = kept.iter().flatten().next();
    if let Some(local) = first.and_then(|fd| address_of(fd.as_fd())) {
        bound.address = local;
    } else if !wanted.reuse_port && wanted.address.port() != 0 {
        socket(wanted)?.bind(&wanted.address.into())?;
    }
    // Of sockets that were kept nobody knows how clients were spread over them.
    let before = if first.is_some() { None } else { Some(Steer::Connection) };
    let mut sockets = Vec::with_capacity(kept.len());
    for kept in kept {
        let socket = match kept {
            Some(fd) => resume(fd.into(), wanted)?,
            None => open(&bound)?,
        };
        if sockets.is_empty() {
            let local = socket.local_addr()?.as_socket();
            bound.address =
                local.ok_or_else(|| io::Error::other("the kernel named no bound address"))?;
        }
        sockets.push(OwnedFd::from(socket).into());
    }
    if let Some(socket) = sockets.first() {
        wanted.steer.apply(socket, wanted.address.is_ipv6(), before)?;
    }
    Ok((sockets, bound.address))
}

/// Whether `fd` listens at `address`, where port 0 is any, as sockets do that [`bind_as`] opened.
pub fn is_bound_at(fd: BorrowedFd<'_>, address: SocketAddr) -> bool {
    let listens = sockopt::socket_acceptconn(fd) == Ok(true);
    let shares = sockopt::socket_reuseport(fd) == Ok(true);
    let is_there = address_of(fd).is_some_and(|local| {
        local.ip() == address.ip() && (local.port() == address.port() || address.port() == 0)
    });
    listens && shares && is_there
}

/// Listens on the unix socket `path`, which may be of the abstract kind, for `lanes` lanes: one
/// socket that all take from. Whoever calls removes the file in the end.
///
/// # Errors
/// The path is in use, too long or empty, or not permitted.
pub fn bind_unix(path: &Path, backlog: u32, lanes: usize) -> io::Result<Vec<Descriptor>> {
    if path.as_os_str().is_empty() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the path of the socket is empty"));
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    Ok(adopt(socket.as_fd(), backlog, lanes)?.0)
}

/// Listens on a socket that was opened elsewhere, TCP or unix, for `lanes` lanes: one socket that
/// all take from, and so does whoever opened it, for whom it does not block from now on either.
/// Returns its address, if it is a TCP socket.
///
/// # Errors
/// It is no stream socket, or cannot listen.
pub fn adopt(
    fd: BorrowedFd<'_>,
    backlog: u32,
    lanes: usize,
) -> io::Result<(Vec<Descriptor>, Option<SocketAddr>)> {
    if sockopt::socket_type(fd)? != rustix::net::SocketType::STREAM {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a stream socket"));
    }
    // A connected one refuses; one that listens already only changes its backlog.
    rustix::net::listen(fd, backlog_of(backlog))?;
    rustix::io::ioctl_fionbio(fd, true)?;
    // Accepted sockets inherit it; it fails on a unix socket, which does not gather small writes.
    let _ = sockopt::set_tcp_nodelay(fd, true);
    let copy = |_| Ok(fd.try_clone_to_owned()?.into());
    let sockets = (0..lanes).map(copy).collect::<io::Result<_>>()?;
    Ok((sockets, address_of(fd)))
}

/// The address of a TCP socket.
pub fn address_of(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd).ok()?).ok()
}

/// Connections that may wait for accept of a terminator; the kernel caps it at net.core.somaxconn.
pub const BACKLOG: u32 = 4096;

fn backlog_of(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

fn open(wanted: &Bind) -> io::Result<Socket> {
    let socket = socket(wanted)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_port(true)?;
    // Accepted sockets inherit it, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    wanted.liveness.apply(&socket, Some(Liveness::default()))?;
    socket.bind(&wanted.address.into())?;
    socket.listen(backlog_of(wanted.backlog))?;
    Ok(socket)
}

/// A socket that listens already, as [`open`] opened it.
fn resume(socket: Socket, wanted: &Bind) -> io::Result<Socket> {
    wanted.liveness.apply(&socket, None)?;
    socket.listen(backlog_of(wanted.backlog))?;
    Ok(socket)
}

/// A socket that is not bound yet.
fn socket(wanted: &Bind) -> io::Result<Socket> {
    let domain = Domain::for_address(wanted.address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if wanted.address.is_ipv6() {
        socket.set_only_v6(wanted.ipv6_only)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
    use std::time::Duration;

    use sealane_reserved_port::ReservedPort;

    use super::*;
    use crate::kernel::liveness::KeepAlive;
    use crate::kernel::{Kernel, Linux};

    #[test]
    fn all_lanes_share_one_port_even_a_chosen_one() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (sockets, bound) = bind(address.parse().unwrap(), 3).unwrap();
            assert_eq!(sockets.len(), 3);
            assert_ne!(bound.port(), 0);
        }
    }

    #[test]
    fn an_address_that_others_share_among_themselves_is_in_use() {
        let (_sockets, bound) = bind("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        assert_eq!(bind(bound, 2).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn every_address_of_one_family_leaves_the_other_family_free() {
        let both = ReservedPort::on(Ipv6Addr::UNSPECIFIED.into()).unwrap();
        let of_ipv4 = (Ipv4Addr::UNSPECIFIED, both.address().port()).into();
        let _sockets = bind(of_ipv4, 2).unwrap();
        bind(both.address(), 2).unwrap();
    }

    #[test]
    fn an_address_within_one_of_ours_can_be_bound_beside_it() {
        let reserved = ReservedPort::on(Ipv4Addr::UNSPECIFIED.into()).unwrap();
        let _sockets = bind(reserved.address(), 2).unwrap();
        let within = (Ipv4Addr::LOCALHOST, reserved.address().port()).into();
        assert_eq!(bind(within, 2).unwrap_err().kind(), ErrorKind::AddrInUse);
        bind_as(&Bind { reuse_port: true, ..Bind::to(within) }, 2).unwrap();
    }

    #[test]
    fn an_address_that_is_not_ours_is_an_error() {
        let error = bind("192.0.2.1:0".parse().unwrap(), 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    }

    fn takes(listener: &Descriptor) -> bool {
        match Linux.accept(listener.as_fd()) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn every_ipv6_address_takes_ipv4_too_unless_it_must_not() {
        for ipv6_only in [false, true] {
            let address = "[::]:0".parse().unwrap();
            let wanted = Bind { ipv6_only, ..Bind::to(address) };
            let (sockets, bound) = bind_as(&wanted, 1).unwrap();
            let came = TcpStream::connect(("127.0.0.1", bound.port())).is_ok();
            assert_eq!((came, takes(&sockets[0])), (!ipv6_only, !ipv6_only));
        }
    }

    #[test]
    fn a_port_is_shared_with_those_who_share_it() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (_sockets, bound) = bind_as(&Bind::to(any), 2).unwrap();
        let alone = Bind::to(bound);
        assert_eq!(bind_as(&alone, 1).unwrap_err().kind(), ErrorKind::AddrInUse);
        bind_as(&Bind { reuse_port: true, ..alone }, 1).unwrap();
    }

    /// Connections that are let in though nobody accepts any.
    fn queue_len(connect: impl Fn() -> bool) -> usize {
        (0..8).take_while(|_| connect()).count()
    }

    #[test]
    fn the_backlog_is_the_wanted_one() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let queue_at = |address: SocketAddr| {
            let sockets = std::cell::RefCell::new(Vec::new());
            queue_len(|| {
                let socket = TcpStream::connect_timeout(&address, Duration::from_millis(50));
                socket.map(|socket| sockets.borrow_mut().push(socket)).is_ok()
            })
        };
        let (_short, address) = bind_as(&Bind { backlog: 1, ..Bind::to(any) }, 1).unwrap();
        assert!(queue_at(address) < 4);
        let (_long, address) = bind(any, 1).unwrap();
        assert_eq!(queue_at(address), 8);
        let opened = TcpListener::bind(any).unwrap();
        adopt(opened.as_fd(), 1, 1).unwrap();
        assert!(queue_at(opened.local_addr().unwrap()) < 4);
    }

    #[test]
    fn all_lanes_take_from_an_adopted_socket_without_waiting() {
        let opened = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = opened.local_addr().unwrap();
        let (lanes, local) = adopt(opened.as_fd(), 16, 3).unwrap();
        assert_eq!((lanes.len(), local), (3, Some(address)));
        drop(opened);
        assert!(!lanes.iter().any(takes), "nobody has come");
        for lane in &lanes {
            let _client = TcpStream::connect(address).unwrap();
            assert!(takes(lane));
            assert!(!lanes.iter().any(takes), "it is taken");
        }
        let _client = TcpStream::connect(address).unwrap();
        let (accepted, _) = Linux.accept(lanes[0].as_fd()).unwrap();
        assert!(sockopt::tcp_nodelay(&accepted).unwrap(), "small writes leave at once");
    }

    #[test]
    fn all_lanes_take_from_a_unix_socket() {
        let name = format!("sealane-lanes-{}.socket", std::process::id());
        let file = std::env::temp_dir().join(&name);
        let hidden = std::path::PathBuf::from(format!("\0{name}"));
        for path in [&file, &hidden] {
            let lanes = bind_unix(path, 16, 2).unwrap();
            assert_eq!(bind_unix(path, 16, 2).unwrap_err().kind(), ErrorKind::AddrInUse);
            for lane in &lanes {
                assert!(!takes(lane), "nobody has come");
                let client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
                client.connect(&SockAddr::unix(path).unwrap()).unwrap();
                let (_, address) = Linux.accept(lane.as_fd()).unwrap();
                assert_eq!(address, None);
            }
        }
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn what_cannot_be_listened_on_is_an_error() {
        for path in [String::new(), "x".repeat(200)] {
            let error = bind_unix(Path::new(&path), 16, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{path}");
        }
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = adopt(datagrams.as_fd(), 16, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(adopt(connected.as_fd(), 16, 1).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(adopt(file.as_fd(), 16, 1).is_err());
    }

    #[test]
    fn sockets_that_were_kept_serve_whoever_waits_there_beside_new_ones() {
        let any = Bind::to("127.0.0.1:0".parse().unwrap());
        let (before, bound) = bind_as(&any, 2).unwrap();
        let copies = before.iter().map(|fd| fd.as_fd().try_clone_to_owned().unwrap());
        let mut kept: Vec<_> = copies.map(Some).collect();
        assert!(
            is_bound_at(before[0].as_fd(), bound) && is_bound_at(before[0].as_fd(), any.address)
        );
        let _waiting: Vec<_> = (0..8).map(|_| TcpStream::connect(bound).unwrap()).collect();
        drop(before);
        kept.push(None);
        let user_timeout = Some(secs(20));
        let wanted = Liveness { user_timeout, ..Liveness::default() };
        let again = Bind { liveness: wanted, ..Bind::to(bound) };
        let (sockets, local) = bind_among(&again, kept).unwrap();
        assert_eq!((sockets.len(), local), (3, bound));
        let waited: usize = sockets.iter().map(|fd| (0..8).take_while(|_| takes(fd)).count()).sum();
        assert_eq!(waited, 8);
        for fd in &sockets {
            assert_eq!(sockopt::tcp_user_timeout(fd).unwrap(), 20_000);
        }
    }

    #[test]
    fn a_socket_that_is_elsewhere_or_does_not_listen_is_not_bound_there() {
        let (sockets, bound) = bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        for other in ["127.0.0.2:0", "[::1]:0", "127.0.0.1:1"] {
            assert!(!is_bound_at(sockets[0].as_fd(), other.parse().unwrap()), "{other}");
        }
        let alone = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!is_bound_at(alone.as_fd(), alone.local_addr().unwrap()), "nobody can join it");
        let client = TcpStream::connect(bound).unwrap();
        assert!(!is_bound_at(client.as_fd(), client.local_addr().unwrap()));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_bound_at(file.as_fd(), bound));
    }

    #[test]
    fn clients_have_the_liveness_of_the_socket_that_took_them() {
        let asked = KeepAlive { idle: secs(60), every: secs(10), count: 6 };
        let wanted = Liveness { keep_alive: Some(asked), user_timeout: Some(secs(20)) };
        let any = Bind::to("127.0.0.1:0".parse().unwrap());
        let (sockets, bound) = bind_as(&Bind { liveness: wanted, ..any }, 1).unwrap();
        let mut before = wanted;
        for liveness in [wanted, Liveness::default(), wanted] {
            liveness.apply(&sockets[0], Some(before)).unwrap();
            before = liveness;
            let _client = TcpStream::connect(bound).unwrap();
            let (accepted, _) = Linux.accept(sockets[0].as_fd()).unwrap();
            let is_on = sockopt::socket_keepalive(&accepted).unwrap();
            assert_eq!(is_on, liveness.keep_alive.is_some());
            if is_on {
                assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), asked.idle);
                assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap(), asked.every);
                assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), asked.count);
            }
            let timeout_ms = liveness.user_timeout.unwrap_or_default().as_millis();
            let accepted_ms = sockopt::tcp_user_timeout(&accepted).unwrap();
            assert_eq!(u128::from(accepted_ms), timeout_ms);
        }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}
