//! Machines of a fleet against real servers of etcd, with TLS, users and a role, and a real
//! authority: what they share, and what happens when the cluster, a machine or a key is gone.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by panicking, and prints its figures"
)]

mod demand;
mod disasters;
#[allow(dead_code, reason = "it is for all that starts agents")]
#[path = "../pebble/harness/mod.rs"]
mod harness;
mod losses;
mod machines;
mod many;
mod orders;
mod outages;
mod removals;
mod resumption;
mod serving;
mod shared;
mod strangers;
mod tickets;
mod week;
