//! How long the connections of a listener may take, and be still.

use std::time::Duration;

/// The timeouts of one listener's connections. Whichever ends first ends the connection, with a
/// cause of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Without a byte of plaintext from the attached socket, once a connection is established; none
    /// unless asked for. While the client does not take what came before, it does not run.
    pub backend: Option<Duration>,
    /// Without a byte of plaintext from the client, once a connection is established; none unless
    /// asked for. While the service does not take what came before, it does not run.
    pub client: Option<Duration>,
    /// Without plaintext or a whole record, on a connection of which one direction has ended.
    pub half_closed: Duration,
    /// From accept to the end of the handshake.
    pub handshake: Duration,
    /// Without plaintext or a whole record in either direction on an established connection.
    pub idle: Duration,
}

impl Timeouts {
    /// For a service that has its own: nothing but a handshake ends by itself.
    pub fn of_handshake(handshake: Duration) -> Self {
        Self {
            backend: None,
            client: None,
            half_closed: Duration::MAX,
            handshake,
            idle: Duration::MAX,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            backend: None,
            client: None,
            half_closed: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(300),
        }
    }
}
