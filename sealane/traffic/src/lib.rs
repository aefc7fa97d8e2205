//! What lanes and the control plane share of connections: backends and how one is chosen, counters,
//! orders, the PROXY header, the access log, health checks, and the HTTP server for challenges and
//! the admin address.
#![forbid(unsafe_code)]

pub mod access_log;
pub mod admission;
pub mod backends;
pub mod challenges;
pub mod checks;
pub mod connection_events;
pub mod connection_number;
pub mod http;
pub mod lane_orders;
pub mod notices;
pub mod proxy_header;
