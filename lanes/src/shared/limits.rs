//! The limits of a lane that a generation brings, by name, with their defaults.

use std::time::Duration;

/// Limits of one lane. "In all" limits are divided among the lanes by whoever starts them, because
/// a shared counter would be a cache line that every lane writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From accept to the end of a connection that is still established; without it there is no
    /// end. The client gets close_notify, the backend a reset.
    pub connection_age_max: Option<Duration>,
    /// Open client connections, of which a lane has never more than 16,777,213. At the limit the
    /// newest suffers: it is accepted and reset.
    pub connections_max: usize,
    /// Handshakes in flight. At the limit the oldest suffers: it is reset, the new one goes on.
    pub handshakes_max: usize,
    /// Bytes of a ClientHello as a message: the headers of its records do not count.
    pub hello_bytes_max: usize,
    /// Bytes of unfinished hellos, messages and records that connections keep. At the limit the
    /// connection suffers that has waited longest for the rest of its bytes: it is reset.
    pub unfinished_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connection_age_max: None,
            connections_max: 100_000,
            handshakes_max: 4_096,
            hello_bytes_max: 64 * 1024,
            unfinished_bytes_max: 64 * 1024 * 1024,
        }
    }
}
