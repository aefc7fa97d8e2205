//! The agent against a real authority, Pebble, with its challenge server: orders of every kind,
//! refused numbers, failing validations, and agents killed at every step.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by panicking, and prints its figures"
)]

mod failures;
#[allow(dead_code, reason = "it is for all that starts agents")]
mod harness;
mod killed;
mod many;
mod on_demand;
mod orders;
mod served;
