//! One TLS connection: ciphertext in, plaintext out, and back. Only here rustls 0.24 is driven.
//!
//! [`ServerSession`] and [`ClientSession`] are the two ends of one [`TlsSession`], which wraps
//! rustls' connection. What it is to its caller, [`Session`], is the engine's.

mod client;
mod driver;
mod early_data;
mod error;
mod faults;
#[path = "../../engine/src/session/interface.rs"]
mod interface;
mod names;
mod server;
#[cfg(test)]
pub(crate) mod subject;
#[path = "../../engine/src/session/unfinished.rs"]
mod unfinished;
#[path = "../../engine/src/session/words.rs"]
mod words;

pub use crate::record::RECORD_PLAIN_MAX;
pub use client::ClientSession;
#[cfg(test)]
pub(crate) use driver::SHOWN;
pub use driver::{Role, TlsSession};
pub use error::SessionError;
pub use interface::{FLIGHT_BYTES_MAX, Fed, RECORD_OVERHEAD_MAX, RECORD_WIRE_MAX, Session};
pub use server::{Awaited, ServerSession};
pub use unfinished::{
    ESTABLISHED_PARTIAL_BYTES_MAX, HANDSHAKE_PARTIAL_BYTES_MAX, PARTIAL_BYTES_MAX,
};

#[cfg(test)]
#[path = "../../engine/src/session/tests.rs"]
pub(crate) mod tests;
