//! Everything that passes between the control plane and a lane: generations, mail, sockets, counters.

pub mod counters;
pub mod generation;
pub mod handover;
pub mod limits;
pub mod mailbox;
pub mod timeouts;
