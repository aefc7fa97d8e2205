//! The commands of the lab as people run them, as a process: one file each.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and some are read by a person"
)]

mod built;
mod bulk;
mod certificates;
mod connect;
mod contexts;
mod count;
mod findings;
mod forecast;
mod gate;
mod handshake;
mod node;
mod offload;
mod quick;
mod record;
mod report;
mod ring;
mod schema;
mod servers;
mod stacks;
mod tickets;
mod why;
