//! Listening sockets: one per lane and address, all bound to the same port with SO_REUSEPORT.

use std::io;
use std::net::{SocketAddr, TcpListener};
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
        drop(TcpListener::bind(address)?);
    }
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
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Accepted sockets inherit it, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    if address.is_ipv6() {
        // An IPv6 listener takes IPv6 only: a second one for IPv4 on the same port is not a clash.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
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
    fn an_address_that_is_not_ours_is_an_error() {
        let error = bind("192.0.2.1:0".parse().unwrap(), 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
