//! TLS as a client for programs in C: `include/sealane_client.h`, with the functions of
//! [`exports`].
//!
//! ```text
//! sealane_options --> Contexts: one context for equal options
//!                        |
//!                        v
//!                     Client: the context that is current --> Session: bytes in, bytes out
//!                        ^ swapped at any time                 one thread at a time
//! ```
//! [`exports`] turns C's arguments into references and slices, and [`options`] does the same for
//! the struct of options. Both are unsafe, and nothing else is.
#![deny(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

mod client;
pub mod exports;
mod failure;
#[cfg(test)]
mod header_tests;
pub mod options;
mod session;
mod system_roots;
mod waiting;

pub use client::{Client, Contexts};
pub use failure::{ERROR_TEXT_BYTES, Error, Status};
pub use session::Session;
