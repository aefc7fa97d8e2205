//! Sealane ends TLS on every core and relays plaintext to backends.
#![forbid(unsafe_code)]

pub mod access_log;
pub mod admin;
pub mod args;
pub mod backend_trust;
pub mod backends;
pub mod certificate_files;
pub mod certificate_store;
pub mod certificates;
pub mod check;
pub mod config;
pub mod control;
pub mod demo;
pub mod exit;
pub mod http;
pub mod man;
pub mod metrics;
pub mod proxy_header;
pub mod relay;
pub mod serve;
pub mod timestamp;
