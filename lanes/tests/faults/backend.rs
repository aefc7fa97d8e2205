//! Backends on real sockets, each connection served by a thread.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::client::Seen;
use crate::rig::PATIENCE;

/// What a backend's connection got, and how it ended.
pub(crate) type Got = (Vec<u8>, Seen);

/// A listening backend; its thread ends with the process.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    got: Receiver<Got>,
}

impl Backend {
    /// Serves each connection with `serve`.
    pub(crate) fn start(serve: impl Fn(TcpStream) -> Got + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, got) = channel();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let socket = socket.unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.set_write_timeout(Some(PATIENCE)).unwrap();
                let (sender, serve) = (sender.clone(), serve.clone());
                std::thread::spawn(move || {
                    // The test may be over.
                    let _ = sender.send(serve(socket));
                });
            }
        });
        Self { address, got }
    }

    /// Takes everything up to the end and then sends `answer` and the end, if it was a clean one.
    pub(crate) fn answering(answer: Vec<u8>) -> Self {
        Self::start(move |mut socket| {
            let got = read_to_end(&mut socket);
            if got.1 == Seen::Clean {
                // The lane may be gone by now; the client's view of it is what counts.
                let _ = socket.write_all(&answer);
                let _ = socket.shutdown(Shutdown::Write);
            }
            got
        })
    }

    /// What the next connection got.
    pub(crate) fn got(&self) -> Got {
        self.got.recv_timeout(PATIENCE).expect("a backend's connection ends")
    }

    /// What the next connection got, if one ends soon.
    pub(crate) fn got_within(&self, patience: Duration) -> Option<Got> {
        self.got.recv_timeout(patience).ok()
    }
}

/// Reads up to the end, whatever it is.
pub(crate) fn read_to_end(socket: &mut TcpStream) -> Got {
    let mut bytes = Vec::new();
    let seen = match socket.read_to_end(&mut bytes) {
        Ok(_) => Seen::Clean,
        Err(error) => Seen::Failed(error.kind()),
    };
    (bytes, seen)
}

/// Closes the socket with a reset.
pub(crate) fn reset(socket: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    drop(socket);
}

/// How a reset looks to whoever reads.
pub(crate) const RESET: Seen = Seen::Failed(ErrorKind::ConnectionReset);
