//! The binary `sealane` as people run it, as a process: everything that it must do, one file each.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints its figures"
)]

mod acme;
mod backend_tls;
mod bytes;
mod clients;
mod config_errors;
mod demo;
mod drain;
mod harness;
mod limits;
mod listener_limits;
mod proxy_header;
mod reload;
mod resumption;
mod secrets;
mod service;
mod settings;
mod store;
mod store_faults;
mod store_watch;
