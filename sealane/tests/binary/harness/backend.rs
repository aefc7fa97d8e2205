//! Plain TCP backends of a test's own, for what no server does on demand.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::epoll;

/// A backend that gives each connection to a function, on a thread of its own.
pub struct Backend {
    pub address: SocketAddr,
    listener: Arc<TcpListener>,
}

impl Backend {
    /// Listens until the test's process ends.
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), serve)
    }

    /// The same at an address of the test's choice.
    pub fn start_at(
        address: SocketAddr,
        serve: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (listener, serve) = (Arc::new(listener), Arc::new(serve));
        let accepts = Arc::clone(&listener);
        thread::spawn(move || {
            for stream in accepts.incoming().map_while(Result::ok) {
                let serve = Arc::clone(&serve);
                stream.set_read_timeout(Some(super::PATIENCE)).unwrap();
                stream.set_nodelay(true).unwrap();
                let small = thread::Builder::new().stack_size(128 << 10);
                small.spawn(move || serve(stream)).unwrap();
            }
        });
        Self { address, listener }
    }

    /// Sends back what it gets, and ends when the client has ended.
    pub fn echo() -> Self {
        Self::start(|mut stream| {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(len @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..len]).is_err() {
                    return;
                }
            }
        })
    }

    /// The same for thousands of connections and short messages, on one thread.
    pub fn echo_for_many() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Arc::new(listener);
        let accepts = Arc::clone(&listener);
        thread::spawn(move || serve_many(&accepts));
        Self { address, listener }
    }

    /// Refuses whoever connects from now on; it serves on whom it has.
    pub fn refuse(self) {
        rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both).unwrap();
    }
}

fn serve_many(listener: &TcpListener) {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let watch = |fd: BorrowedFd<'_>, number: u64| {
        epoll::add(&poll, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN).unwrap();
    };
    watch(listener.as_fd(), 0);
    let mut streams = HashMap::new();
    let mut accepted = 0;
    let mut events = Vec::with_capacity(64);
    let mut bytes = vec![0; 4096];
    loop {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
        for number in events.iter().map(|event: &epoll::Event| { event.data }.u64()) {
            if number == 0 {
                let (stream, _) = listener.accept().unwrap();
                accepted += 1;
                watch(stream.as_fd(), accepted);
                streams.insert(accepted, stream);
            } else if let Some(stream) = streams.get_mut(&number) {
                let echoed = match stream.read(&mut bytes) {
                    Ok(len @ 1..) => stream.write_all(&bytes[..len]).is_ok(),
                    Ok(0) | Err(_) => false,
                };
                if !echoed {
                    streams.remove(&number);
                }
            }
        }
    }
}

/// Ends a connection with RST instead of FIN.
pub fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}
