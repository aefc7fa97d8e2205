//! One connection's TLS, [`Tls`]: the same in every strategy, on whichever thread.

use sealane_lab_model::error::Error;
use sealane_lab_stacks::stack::{Endpoint, Worker};

/// A server's end at the start of a connection, or anywhere later. It stays on the thread that made
/// it.
pub(super) struct Tls {
    endpoint: Box<dyn Endpoint>,
    answered: bool,
}

impl Tls {
    /// A server that expects a hello.
    ///
    /// # Errors
    /// The library's own.
    pub(super) fn new(worker: &mut dyn Worker) -> Result<Self, Error> {
        Ok(Self { endpoint: worker.server()?, answered: false })
    }

    /// Takes all of `incoming`; appends what it says to `plaintext` and what is to go back to
    /// `outgoing`. `true`: the client sends no more.
    ///
    /// # Errors
    /// The client broke the protocol; `outgoing` may hold the alert that says so.
    pub(super) fn open(
        &mut self,
        incoming: &[u8],
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        if self.answered {
            return self.endpoint.receive(incoming, plaintext, outgoing);
        }
        // Before the first answer there is nothing but a hello. After it, the client may send data
        // right behind its end of the handshake.
        let before = outgoing.len();
        self.endpoint.handshake(incoming, outgoing)?;
        self.answered = outgoing.len() > before;
        Ok(false)
    }

    /// Encrypts `plaintext`.
    ///
    /// # Errors
    /// The library's own.
    pub(super) fn seal(&mut self, plaintext: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
        self.endpoint.send(plaintext, outgoing)
    }
}
