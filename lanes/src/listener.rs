//! Listening sockets: one per lane and address, all bound to the same port with SO_REUSEPORT.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};

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
pub fn bind(address: SocketAddr, lanes: usize) -> io::Result<(Vec<OwnedFd>, SocketAddr)> {
    if address.port() != 0 {
        socket(address)?.bind(&address.into())?;
    }
    bind_beside(address, lanes)
}

/// The same for an address that overlaps with another that this process listens on, such as
/// 0.0.0.0 and 127.0.0.1 with one port: whoever else is there cannot be told from ourselves.
///
/// # Errors
/// The address is in use by a program that does not share it, not ours, or not permitted.
pub fn bind_beside(address: SocketAddr, lanes: usize) -> io::Result<(Vec<OwnedFd>, SocketAddr)> {
    let mut bound = address;
    let mut sockets = Vec::with_capacity(lanes);
    for _ in 0..lanes {
        let socket = open(bound)?;
        if sockets.is_empty() {
            let local = socket.local_addr()?.as_socket();
            bound = local.ok_or_else(|| io::Error::other("the kernel named no bound address"))?;
        }
        sockets.push(socket.into());
    }
    Ok((sockets, bound))
}

/// Connections that may wait for accept; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 4096;

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_port(true)?;
    // Accepted sockets inherit it, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// A socket that is not bound yet.
fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // An IPv6 listener takes IPv6 only: a second one for IPv4 on the same port is not a clash.
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(bind(bound, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn every_address_of_one_family_leaves_the_other_family_free() {
        let (_sockets, bound) = bind("0.0.0.0:0".parse().unwrap(), 2).unwrap();
        bind(format!("[::]:{}", bound.port()).parse().unwrap(), 2).unwrap();
    }

    #[test]
    fn an_address_within_one_of_ours_can_be_bound_beside_it() {
        let (_sockets, bound) = bind("0.0.0.0:0".parse().unwrap(), 2).unwrap();
        let within = format!("127.0.0.1:{}", bound.port()).parse().unwrap();
        assert_eq!(bind(within, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        bind_beside(within, 2).unwrap();
    }

    #[test]
    fn an_address_that_is_not_ours_is_an_error() {
        let error = bind("192.0.2.1:0".parse().unwrap(), 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
