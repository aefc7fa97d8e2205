//! One event loop per core: nothing on the path of a byte is shared between them.
//!
//! A [lane](start::start) is a thread that owns its listening sockets, its connections, buffers,
//! timers and counters, and its own replica of the TLS context. Who takes the plaintext is a
//! [`service::Service`]; it sees a connection as a [`link::Link`]. The control plane never touches
//! a lane's memory: it posts [`mailbox::Mail`], which the lane reads between two events.
//!
//! ```text
//!  kernel::Kernel   accept, recv, send, connect: the only system calls on the path of a byte
//!      |
//!  lane + accept    epoll, fairness: one read per direction and turn, then the next connection
//!      |
//!  progress         hellos -> session -> plaintext; deadlines; orders from another thread
//!      |
//!  service + link   the terminator's relay, or the Node addon
//! ```
#![forbid(unsafe_code)]

mod accept;
mod admission;
pub mod arena;
mod attached;
mod buffers;
pub mod cause;
mod connection;
mod core;
pub mod counters;
mod drain;
pub mod failure;
pub mod generation;
pub mod handover;
mod hellos;
pub mod kernel;
mod lane;
pub mod limits;
pub mod link;
pub mod listener;
pub mod liveness;
pub mod mailbox;
pub mod orders;
mod outbox;
mod plain;
mod pool;
mod progress;
mod publish;
mod replicas;
mod revoked;
pub mod service;
pub mod start;
pub mod steer;
pub mod thread;
pub mod timeouts;
mod token;
mod turn;
mod unfinished;
mod wheel;

pub use lane::LaneEnd;
