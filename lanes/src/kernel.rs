//! Every system call that a lane makes on the path of a byte, behind one trait.
//!
//! [`Linux`] is the real thing. The trait exists so that the tests can run the same loop over a
//! kernel that reads and writes short, says "try again" at any point, or resets a connection.

pub mod listener;
pub mod liveness;
pub mod processors;
pub mod reuseport;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use sealane_file_table::Descriptor;

/// Where somebody listens: a lane, or whom it connects to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IPv4 or IPv6 address and port.
    Tcp(SocketAddr),
    /// The path of a unix stream socket; or, behind a NUL, the name of one that has no file.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// The system calls of a lane's data path; none of them blocks.
pub trait Kernel {
    /// Takes the next connection off a listener's queue.
    ///
    /// # Errors
    /// `WouldBlock` when the queue is empty; otherwise what accept4(2) says.
    fn accept(&mut self, listener: BorrowedFd<'_>) -> io::Result<(Descriptor, Option<SocketAddr>)>;

    /// Opens a stream to `address`; it may still be connecting when this returns.
    ///
    /// # Errors
    /// What socket(2) or connect(2) say at once.
    fn connect(&mut self, address: &Address) -> io::Result<Descriptor>;

    /// Reads what has arrived; 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has arrived; otherwise what recv(2) says.
    fn recv(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize>;

    /// Reads what has arrived, and leaves it to be read again.
    ///
    /// # Errors
    /// As [`Kernel::recv`].
    fn peek(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize>;

    /// Writes the front of `bytes` and returns how much the kernel took. With `end_follows` the
    /// caller will shut or close the socket as soon as all are taken, so that the end may share
    /// their last segment.
    ///
    /// # Errors
    /// `WouldBlock` when it takes nothing; otherwise what send(2) says.
    fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        end_follows: bool,
    ) -> io::Result<usize>;

    /// Reports `socket` to `poll` under `token`, edge-triggered: what arrives, and with `writable`
    /// also that it takes bytes again.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    fn watch(
        &mut self,
        poll: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        token: u64,
        writable: bool,
    ) -> io::Result<()>;

    /// From now on also reports that `socket`, watched so far for what arrives, takes bytes again;
    /// if it already does, that is reported.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    fn watch_writable(
        &mut self,
        poll: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        token: u64,
    ) -> io::Result<()>;
}

/// The running kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Kernel for Linux {
    fn accept(&mut self, listener: BorrowedFd<'_>) -> io::Result<(Descriptor, Option<SocketAddr>)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer) = net::acceptfrom_with(listener, flags)?;
        Ok((socket.into(), peer.and_then(|address| SocketAddr::try_from(address).ok())))
    }

    fn connect(&mut self, address: &Address) -> io::Result<Descriptor> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let open = |family| net::socket_with(family, SocketType::STREAM, flags, None);
        match address {
            Address::Tcp(address) => {
                let family =
                    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let socket = open(family)?;
                match net::connect(&socket, address) {
                    Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket.into()),
                    Err(error) => Err(error.into()),
                }
            }
            Address::Unix(path) => {
                let address = match path.as_os_str().as_bytes().strip_prefix(b"\0") {
                    Some(name) => net::SocketAddrUnix::new_abstract_name(name)?,
                    None => net::SocketAddrUnix::new(path.as_path())?,
                };
                let socket = open(AddressFamily::UNIX)?;
                net::connect(&socket, &address)?;
                Ok(socket.into())
            }
        }
    }

    fn recv(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        let (_, len) = net::recv(socket, into, RecvFlags::empty())?;
        Ok(len)
    }

    fn peek(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        let (_, len) = net::recv(socket, into, RecvFlags::PEEK)?;
        Ok(len)
    }

    fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        end_follows: bool,
    ) -> io::Result<usize> {
        // Held back, the bytes leave with the FIN: one segment, and one wake-up of the peer, less.
        let more = if end_follows { SendFlags::MORE } else { SendFlags::empty() };
        Ok(net::send(socket, bytes, SendFlags::NOSIGNAL | more)?)
    }

    fn watch(
        &mut self,
        poll: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        token: u64,
        writable: bool,
    ) -> io::Result<()> {
        let interest = if writable { ARRIVALS | EventFlags::OUT } else { ARRIVALS };
        Ok(epoll::add(poll, socket, EventData::new_u64(token), interest)?)
    }

    fn watch_writable(
        &mut self,
        poll: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        token: u64,
    ) -> io::Result<()> {
        let interest = ARRIVALS | EventFlags::OUT;
        Ok(epoll::modify(poll, socket, EventData::new_u64(token), interest)?)
    }
}

/// Bytes, the urgent mark, at which reads end short, and the end of the stream; errors are always
/// reported.
const ARRIVALS: EventFlags =
    EventFlags::IN.union(EventFlags::PRI).union(EventFlags::RDHUP).union(EventFlags::ET);

/// Makes the close of `socket` a reset: the peer sees an error, never a clean end.
pub(crate) fn reset_on_close(socket: impl AsFd) {
    // It can only fail on something that is not a socket; the close that follows still ends it.
    let _ = net::sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO));
}

/// Sends FIN: nothing more will be written.
pub(crate) fn shut_write(socket: impl AsFd) {
    // Fails only when the peer has already reset the connection, which the next read reports.
    let _ = net::shutdown(socket, net::Shutdown::Write);
}
