//! Sealane ends TLS on every core and relays plaintext to backends.
#![forbid(unsafe_code)]

pub mod config;
pub mod http;
pub mod timestamp;
