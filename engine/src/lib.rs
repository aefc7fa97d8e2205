//! TLS without I/O: bytes in, bytes out. No socket, no clock, no lock.
//!
//! ```text
//!   control plane                                a lane's thread
//!   -------------                                ---------------
//!   certificates::IndexBuilder --+
//!   policy::Policy --------------+-> context::Context --> context::LaneContext
//!   tickets::TicketRoot -----------------------------> context::LaneResources
//!                                                            |
//!   bytes of a client --> hello::peek --> session::ServerSession --> plaintext
//!
//!   client::ClientOptions --> client::ClientContext --> client::LaneClient
//!                                                            |
//!   bytes of a server ------------------> session::ClientSession --> plaintext
//! ```
//!
//! A [`context::Context`] is built whole, validated and published. Each lane makes its own replica
//! of it, so that no handshake writes a cache line that another lane writes. Time is an argument
//! everywhere: a lane sets its [`tickets::LaneClock`].
#![forbid(unsafe_code)]

pub mod alert;
mod anchors;
pub mod buffer;
pub mod certificates;
pub mod client;
pub mod client_certificates;
pub mod context;
#[cfg(test)]
#[path = "../tests/costs/mod.rs"]
mod costs;
pub mod days;
mod der;
mod handshake_signatures;
pub mod hello;
mod name_constraints;
pub mod peer_chain;
pub mod pem;
mod pinned;
pub mod policy;
pub mod provider;
mod record;
mod revocation;
pub mod session;
mod signed;
pub mod text;
pub mod tickets;
