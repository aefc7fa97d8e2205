//! The real loop over a kernel that fails, and with peers that fail: what is cut never looks whole,
//! nothing is left behind, and the next connection is served.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod backend;
mod client;
mod contexts;
mod ends;
mod handover;
mod hellos;
mod hostile;
mod kernel;
mod limits;
mod openings;
mod ordered;
mod ordered_echo;
mod orders;
mod rig;
mod sealed;
mod service;
mod storm;
mod systematic;
mod timeouts;
mod unfinished;
mod waiting;
