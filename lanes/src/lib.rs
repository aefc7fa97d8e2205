//! One event loop per core: nothing on the path of a byte is shared between them.
//!
//! A [lane](start::start) is a thread that owns its listening sockets, its connections, buffers,
//! timers and counters, and its own replica of the TLS context. Who takes the plaintext is a
//! [`service::Service`]; it sees a connection as a [`link::Link`]. The control plane never touches
//! a lane's memory: it posts [`mailbox::Mail`], which the lane reads between two events.
//!
//! ```text
//!  lane/         the event loop: accept, admission of handshakes, generations, orders, drain
//!    |
//!  turn/         what a connection does in a turn: hello, session, plaintext, deadlines
//!    |
//!  service       takes the plaintext: the terminator's relay, or the Node addon
//!    |
//!  connection/   the state of a connection, its sockets, buffers, and what a service sees of it
//!    |
//!  reactor/      poll, timers, clock           shared/   generations, mail, counters, handover
//!    |
//!  kernel/       accept, recv, send, connect: the only system calls on the path of a byte
//! ```
#![forbid(unsafe_code)]

pub mod cause;
mod connection;
pub mod failure;
pub mod kernel;
mod lane;
mod reactor;
mod replica;
pub mod service;
mod shared;
mod turn;

pub use connection::link;
pub use kernel::{listener, liveness, reuseport as steer};
pub use lane::{arena, start, thread};
pub use service::LaneEnd;
pub use shared::{counters, generation, handover, limits, mailbox, orders, timeouts};
