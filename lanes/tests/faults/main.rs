//! The real loop over a kernel that fails, and with peers that fail: what is cut never looks whole,
//! nothing is left behind, and the next connection is served.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails as the test")]
#![allow(clippy::cast_possible_truncation, reason = "patterns and dice want only some bits")]

mod backend;
mod client;
mod ends;
mod hellos;
mod hostile;
mod kernel;
mod limits;
mod rig;
mod service;
mod systematic;
