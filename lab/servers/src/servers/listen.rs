//! Several listeners on one address, [`share`], for programs of the lab that run a thread per
//! processor.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Gives as many listeners as asked for; the kernel deals connections out among them. Port 0 is any
/// free port, the same for all.
pub(crate) fn share(mut address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let listener = TcpListener::from(socket);
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// The backlog of every server under test.
const BACKLOG: i32 = 4_096;
