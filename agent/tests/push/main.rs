//! The agent's listener: real clients with certificates of several authorities push, read back and
//! remove, and others try to; and a running `sealane serve` serves what came.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    dead_code,
    reason = "a test fails by panicking, and prints its figures; the harness is another's too"
)]

mod bounds;
#[path = "../pebble/harness/mod.rs"]
mod harness;
mod memory;
mod quoted;
mod roles;
mod schema;
mod site;
mod streams;
