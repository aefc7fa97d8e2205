//! What takes a while is done beside the server's thread, which goes on serving: [`Workers`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::message::{Response, Status};

/// Threads with one request each, and the bell that they ring when they have its response.
pub(super) struct Workers {
    heard: UnixStream,
    /// Each thread that works holds one too.
    bell: Arc<UnixStream>,
}

/// What makes a response, and may take a while.
pub(super) type Work = Box<dyn FnOnce() -> Response + Send>;

/// Requests that are worked on at the same time.
pub const WORKERS_MAX: usize = 8;

impl Workers {
    pub(super) fn new() -> io::Result<Self> {
        let (bell, heard) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok(Self { heard, bell: Arc::new(bell) })
    }

    /// Gives `work` to a thread of its own. Its response comes before the bell does.
    ///
    /// # Errors
    /// What the client gets instead, if too many work already, or there is no thread.
    pub(super) fn start(&self, work: Work) -> Result<Receiver<Response>, Response> {
        if Arc::strong_count(&self.bell) > WORKERS_MAX {
            let words = format!("{WORKERS_MAX} orders are being carried out; try again");
            return Err(Response::text(Status::ServiceUnavailable, words));
        }
        let (sender, response) = channel();
        let ring = Ring(Arc::clone(&self.bell));
        let worker = move || {
            // In this order, so that a panic shows before it rings.
            let (_ring, sender) = (ring, sender);
            // Whoever asked may have left.
            let _ = sender.send(work());
        };
        let started = thread::Builder::new().name("order".into()).spawn(worker);
        match started {
            Ok(_) => Ok(response),
            Err(error) => Err(Response::text(
                Status::InternalError,
                format_args!("a thread cannot be started: {error}"),
            )),
        }
    }

    /// Empties the bell, before the responses are looked for.
    pub(super) fn silence(&self) {
        // Each thread rings once; what is left rings again.
        let _ = rustix::io::read(&self.heard, &mut [0; WORKERS_MAX][..]);
    }
}

impl AsFd for Workers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.heard.as_fd()
    }
}

/// Rings when its thread is done, or has panicked.
struct Ring(Arc<UnixStream>);

impl Drop for Ring {
    fn drop(&mut self) {
        // If it is full, it rings already.
        let _ = rustix::io::write(&self.0, &[0]);
    }
}
