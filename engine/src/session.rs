//! One TLS connection: ciphertext in, plaintext out, and back. Only here rustls is driven.
//!
//! [`ServerSession`] and [`ClientSession`] are the two ends of one [`TlsSession`], which wraps
//! rustls' unbuffered connection. Behind a server's handshake under TLS 1.3 its own record layer
//! replaces that, unless the client has a certificate. It owns no large buffer: the caller lends
//! one for each call. Between calls it keeps an incomplete record. For at most a few milliseconds
//! it also keeps session tickets that wait for the first response (see [`Session::held_len`]).

mod client;
mod crank;
mod driver;
mod error;
mod faults;
mod interface;
mod one_by_one;
mod server;
#[cfg(test)]
mod subject;
mod traffic;
mod unfinished;
mod words;

pub use crate::record::RECORD_PLAIN_MAX;
pub(crate) use client::is_bound_to_handshake;
pub use client::{ClientEnd, ClientSession};
pub use driver::{Role, TlsSession};
pub use error::SessionError;
pub(crate) use error::is_authority_as_leaf;
pub use interface::{FLIGHT_BYTES_MAX, Fed, RECORD_OVERHEAD_MAX, RECORD_WIRE_MAX, Session};
#[cfg(test)]
pub(crate) use server::SHOWN;
pub use server::{Awaited, ServerEnd, ServerSession};
pub use unfinished::{
    ESTABLISHED_PARTIAL_BYTES_MAX, HANDSHAKE_PARTIAL_BYTES_MAX, PARTIAL_BYTES_MAX,
};

/// Room kept free when data is sealed: a key update that leaves first, and an alert behind.
const CONTROL_RECORDS_BYTES: usize = 256;

#[cfg(test)]
pub(crate) mod tests;
