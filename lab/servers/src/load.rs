//! The load client of `servers` and `connect`: a [`Crew`] of threads, each with one epoll and as
//! many connections in flight as the load asks for, none of which blocks another.
//!
//! ```text
//! Crew --a thread each--> Driver --a slab of--> Slot: connect, handshake, request, answer, close
//!                         when to start what    one connection, every byte of it checked
//! ```
//! What came out is a [`Tally`]. In an open loop operations start by a schedule that is fixed
//! before the first one, and their latency counts from the scheduled time on, whatever the server
//! or this client did meanwhile.

mod crew;
mod driver;
mod exchange;
pub(crate) mod flood;
mod offer;
mod pattern;
mod slot;
mod tally;

pub use crew::Crew;
pub use driver::{Load, Pace, Plan, Tls, Until, Work};
pub use exchange::Request;
pub use offer::{Offer, Roots};
pub use pattern::{PATTERN_CHUNK_BYTES, Pattern};
pub use slot::Expect;
pub use tally::{Negotiation, Tally};
