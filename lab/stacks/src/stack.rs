//! A TLS library under test: the traits that every file of `stacks/` implements.
//!
//! ```text
//! Stack --prepare(scenario)--> Prepared --worker(), per thread--> Worker --> Endpoint, Endpoint
//! what it is                   what threads share                one thread's  server, client
//! ```
//! Bytes go in and out in memory; a trial loads one stack, in a process of its own.

use std::any::Any;

use sealane_lab_harness::credentials::Credentials;
use sealane_lab_model::{
    error::Error,
    library::Identity,
    scenario::{Negotiated, Scenario},
};

/// One TLS library, loaded.
pub trait Stack: Send + Sync {
    /// Which library this is, so that the figures can be traced to it.
    fn identity(&self) -> Identity;

    /// Builds contexts for `scenario`: all of them if threads share them, else none yet.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the library cannot do what the scenario asks.
    fn prepare(
        &self,
        scenario: &Scenario,
        credentials: &Credentials,
    ) -> Result<Box<dyn Prepared>, Error>;
}

/// What the threads of a trial may share.
pub trait Prepared: Send + Sync {
    /// The contexts of one thread, which calls this itself: with [`Share::Thread`] they are built
    /// here.
    ///
    /// # Errors
    /// What the library tells.
    ///
    /// [`Share::Thread`]: sealane_lab_model::scenario::Share::Thread
    fn worker(&self) -> Result<Box<dyn Worker>, Error>;
}

/// Makes connections on one thread.
pub trait Worker: Send {
    /// A server at the start of a connection.
    ///
    /// # Errors
    /// What the library tells.
    fn server(&mut self) -> Result<Box<dyn Endpoint>, Error>;

    /// A client at the start of a connection, which offers `session`, verifies the server's chain
    /// and asks for [`SERVER_NAME`](sealane_lab_harness::credentials::SERVER_NAME). With
    /// [`Share::Session`] it offers what all threads share, and `session` is shared from now on if
    /// nothing was.
    ///
    /// # Errors
    /// What the library tells.
    ///
    /// [`Share::Session`]: sealane_lab_model::scenario::Share::Session
    fn client(&mut self, session: Option<Session>) -> Result<Box<dyn Endpoint>, Error>;
}

/// One end of one connection. All of `incoming` is taken, whatever it holds; `outgoing` and
/// `plaintext` are appended to, never cleared and never zero-filled.
pub trait Endpoint: Send {
    /// Goes on with the handshake. A client starts it with no bytes.
    ///
    /// # Errors
    /// What the library tells.
    fn handshake(&mut self, incoming: &[u8], outgoing: &mut Vec<u8>) -> Result<Progress, Error>;

    /// Encrypts `plaintext` into records.
    ///
    /// # Errors
    /// What the library tells.
    fn send(&mut self, plaintext: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error>;

    /// Decrypts; takes in tickets too. `true`: the peer has said that it sends no more.
    ///
    /// # Errors
    /// What the library tells.
    fn receive(
        &mut self,
        incoming: &[u8],
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<bool, Error>;

    /// What was agreed on, read back from the library after the handshake.
    ///
    /// # Errors
    /// If the library names something that a scenario has no word for.
    fn negotiated(&self) -> Result<Negotiated, Error>;

    /// A client's session for [`Worker::client`], if the server has given one.
    fn session(&mut self) -> Option<Session>;
}

/// Whether a handshake is over at this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Application data may be sent.
    Done,
    /// The peer's next bytes are needed.
    Wants,
}

/// What a client needs to resume, in its library's own form.
pub struct Session(pub Box<dyn Any + Send>);
