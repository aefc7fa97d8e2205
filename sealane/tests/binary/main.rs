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
mod admin_page;
mod asked_names;
mod backend_checks;
mod backend_tls;
mod backends;
mod backends_told;
mod bytes;
mod calls;
mod challenges;
mod client_certificates;
mod clients;
mod config_errors;
mod convert;
mod demo;
mod drain;
mod file_tables;
mod harness;
mod host_names;
mod limits;
mod listener_limits;
mod log;
mod materials;
mod moving;
mod names_socket;
mod pages;
mod plain_sides;
mod process;
mod proxy_header;
mod proxy_in;
mod reload;
mod restart;
mod resumption;
mod resumption_fleet;
mod routes;
mod running;
mod sandbox;
mod secrets;
mod service;
mod settings;
mod store;
mod store_copies;
mod store_export;
mod store_faults;
mod store_socket;
mod store_stream;
mod store_vouched;
mod store_watch;
mod storm;
mod unix_listeners;
