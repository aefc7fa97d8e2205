//! Sealane ends TLS on every core and relays plaintext to backends.
#![forbid(unsafe_code)]

pub mod access_log;
pub mod admin;
pub mod admission;
pub mod args;
pub mod backends;
pub mod challenges;
pub mod checks;
pub mod commands;
pub mod config;
pub mod connection_number;
pub mod control;
pub mod convert;
pub mod cost;
pub mod exit;
pub mod file_tables;
pub mod http;
pub mod lane_orders;
pub mod listener;
pub mod metrics;
pub mod networks;
pub mod notices;
mod own_log;
pub mod process;
pub mod proxy_header;
pub mod relay;
pub mod sandbox;
pub mod state;
pub mod stores;
pub mod systemd;
pub mod timestamp;
pub mod unix_socket;

pub use sealane_operator as operator;
