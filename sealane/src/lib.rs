//! Sealane ends TLS on every core and relays plaintext to backends.
#![forbid(unsafe_code)]

pub mod access_log;
pub mod admin;
pub mod config;
pub mod http;
pub mod metrics;
pub mod timestamp;
