//! Plain TCP backends of a test's own, for what no server does on demand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A backend that gives each connection to a function, on a thread of its own.
pub struct Backend {
    pub address: SocketAddr,
}

impl Backend {
    /// Listens until the test's process ends.
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, serve) = (stream.unwrap(), Arc::clone(&serve));
                stream.set_read_timeout(Some(super::PATIENCE)).unwrap();
                stream.set_nodelay(true).unwrap();
                let small = thread::Builder::new().stack_size(128 << 10);
                small.spawn(move || serve(stream)).unwrap();
            }
        });
        Self { address }
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

    /// Sends back what it gets, for any number of connections on one thread, as long as each has
    /// sent before the next is made.
    pub fn echo_in_turn() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut kept: Vec<TcpStream> = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                stream.set_read_timeout(Some(super::PATIENCE)).unwrap();
                let mut buffer = [0; 4096];
                let Ok(len) = stream.read(&mut buffer) else { continue };
                if len > 0 && stream.write_all(&buffer[..len]).is_ok() {
                    kept.push(stream);
                }
                // Now and then, forget those that have ended.
                if kept.len().is_power_of_two() {
                    kept.retain(is_open);
                }
            }
        });
        Self { address }
    }
}

fn is_open(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_micros(1))).unwrap();
    let end = stream.peek(&mut [0]);
    matches!(end, Err(ref error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Ends a connection with RST instead of FIN.
pub fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}
