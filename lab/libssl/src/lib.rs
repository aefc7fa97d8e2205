//! Any libssl by its path, loaded while the program runs: a [`Library`] makes a [`Context`], which
//! makes [`Connection`]s that take and give bytes in memory.
//!
//! ```text
//! Library::open(path)     Context::new(settings)     context.connect() / accept()
//! one per process   --->  shared by threads    --->  Connection: handshake, send, receive
//! ```
//! All of this workspace's calls into C are here, and the rest of it sees safe functions. A macro
//! of one libssl is a function of another: what differs is looked up, in `api`.
//!
//! One process loads one libssl. The dynamic linker hands a second one with the same name of its
//! libcrypto the first one's libcrypto, without a word, and every figure after that is wrong.
#![deny(unsafe_op_in_unsafe_fn)]

mod agreed;
mod api;
mod census;
mod connection;
mod context;
mod error;
pub mod heap;
mod library;
mod loader;
mod session;

pub use agreed::Agreed;
pub use census::Census;
pub use connection::{Connection, Step};
pub use context::{Context, Identification, Resumption, Settings, Side};
pub use error::Error;
pub use library::{Flavour, Library};
pub use session::Session;
