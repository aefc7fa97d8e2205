//! A port of this machine for a server that needs a known one: [`ReservedPort`].
#![forbid(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// A TCP port that the kernel gives to no other socket as long as this value lives.
///
/// A server can listen at the address, again and again: it only needs `SO_REUSEADDR` or
/// `SO_REUSEPORT`, of which servers set one. Until one does, connections are refused. A socket that
/// asks for any free port, to listen or to connect from, in this process or in another, never gets
/// this one.
///
/// Finding a free port and releasing it is not the same: until the server has it, another server
/// may take it and answer there.
#[derive(Debug)]
pub struct ReservedPort {
    // Bound, and never listens: that is the reservation.
    _held: OwnedFd,
    address: SocketAddr,
}

impl ReservedPort {
    /// Reserves a port of 127.0.0.1.
    ///
    /// # Errors
    /// No descriptor or no port is left.
    pub fn on_loopback() -> io::Result<Self> {
        Self::on(Ipv4Addr::LOCALHOST.into())
    }

    /// Reserves a port of one of this machine's addresses; of `[::]`, for IPv4 too.
    ///
    /// # Errors
    /// No descriptor or no port is left, or the address is not this machine's.
    pub fn on(address: IpAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let held =
            rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Two sockets share a port only if both allow it. The server may set either option.
        sockopt::set_socket_reuseaddr(&held, true)?;
        sockopt::set_socket_reuseport(&held, true)?;
        rustix::net::bind(&held, &SocketAddr::new(address, 0))?;
        let address = SocketAddr::try_from(rustix::net::getsockname(&held)?)?;
        Ok(Self { _held: held, address })
    }

    /// The address at which the server is to listen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::ErrorKind;
    use std::net::{Ipv6Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_server_that_is_told_it_gets_it_and_again_after_its_end() {
        let reserved = ReservedPort::on_loopback().unwrap();
        for _ in 0..2 {
            let server = TcpListener::bind(reserved.address()).unwrap();
            let client = TcpStream::connect(reserved.address()).unwrap();
            let (_, from) = server.accept().unwrap();
            assert_eq!(client.local_addr().unwrap(), from);
            let second = TcpListener::bind(reserved.address()).unwrap_err();
            assert_eq!(second.kind(), ErrorKind::AddrInUse);
        }
    }

    /// Among this many of some 28,000 ports one that is released comes again, about 17 times.
    #[test]
    fn nobody_else_gets_it() {
        let reserved: Vec<_> = (0..400).map(|_| ReservedPort::on_loopback().unwrap()).collect();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listeners: Vec<_> = (0..400).map(|_| TcpListener::bind(any).unwrap()).collect();
        let own: HashSet<_> = reserved.iter().map(ReservedPort::address).collect();
        assert_eq!(own.len(), reserved.len());
        assert!(listeners.iter().all(|other| !own.contains(&other.local_addr().unwrap())));
    }

    #[test]
    fn a_server_of_several_listeners_gets_it() {
        let reserved = ReservedPort::on_loopback().unwrap();
        let listeners: Vec<_> = (0..2).map(|_| sharing(reserved.address())).collect();
        TcpStream::connect(reserved.address()).unwrap();
        assert_eq!(listeners.len(), 2);
    }

    /// A listener that sets `SO_REUSEPORT` alone.
    fn sharing(address: SocketAddr) -> OwnedFd {
        let listener = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseport(&listener, true).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 8).unwrap();
        listener
    }

    #[test]
    fn nobody_listens_until_the_server_does() {
        let reserved = ReservedPort::on_loopback().unwrap();
        let error = TcpStream::connect(reserved.address()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn of_every_address_it_is_reserved_for_both_families() {
        let reserved = ReservedPort::on(Ipv6Addr::UNSPECIFIED.into()).unwrap();
        let port = reserved.address().port();
        let _server = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn an_address_that_is_not_ours_is_an_error() {
        let elsewhere = Ipv4Addr::new(192, 0, 2, 1);
        let error = ReservedPort::on(elsewhere.into()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    }
}
