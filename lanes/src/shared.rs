//! Everything that passes between the control plane and a lane: generations, mail, sockets and
//! counters.

pub mod counters;
pub mod generation;
pub mod handover;
pub mod limits;
pub mod mailbox;
pub mod orders;
pub mod timeouts;
