//! Backends on real sockets, each connection served by a thread.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::client::Seen;
use crate::rig::PATIENCE;

/// What a backend's connection got, and how it ended.
pub(crate) type Got = (Vec<u8>, Seen);

/// A listening backend; its thread ends with the process.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    /// Who connected, and what that connection got.
    got: Receiver<(SocketAddr, Got)>,
    /// Connections that were accepted, and those whose result was taken out of `got`.
    accepted: Arc<AtomicUsize>,
    taken: Cell<usize>,
}

impl Backend {
    /// Serves each connection with `serve`.
    pub(crate) fn start(serve: impl Fn(TcpStream) -> Got + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, got) = channel();
        let accepted = Arc::new(AtomicUsize::new(0));
        let accepting = Arc::clone(&accepted);
        std::thread::spawn(move || {
            while let Ok((socket, peer)) = listener.accept() {
                accepting.fetch_add(1, Ordering::SeqCst);
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.set_write_timeout(Some(PATIENCE)).unwrap();
                let (sender, serve) = (sender.clone(), serve.clone());
                std::thread::spawn(move || {
                    // The test may be over.
                    let _ = sender.send((peer, serve(socket)));
                });
            }
        });
        Self { address, got, accepted, taken: Cell::new(0) }
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
        self.next().1
    }

    /// What all other connections got that were made before this call, as late as they may end.
    pub(crate) fn drain(&self) -> Vec<Got> {
        // Connections are accepted in order: once this one has ended, all before it are counted.
        let last = TcpStream::connect(self.address).unwrap();
        let own = last.local_addr().unwrap();
        drop(last);
        let (mut drained, mut own_ended) = (Vec::new(), false);
        while !own_ended || self.taken.get() < self.accepted.load(Ordering::SeqCst) {
            match self.next() {
                (peer, _) if peer == own => own_ended = true,
                (_, got) => drained.push(got),
            }
        }
        drained
    }

    fn next(&self) -> (SocketAddr, Got) {
        let next = self.got.recv_timeout(PATIENCE).expect("a backend's connection ends");
        self.taken.set(self.taken.get() + 1);
        next
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
