//! A lane with the real kernel and real clients; JavaScript's end of the rings is played here.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod bytes;
mod ends;
mod rig;
mod script;
