//! The server's end.

use std::sync::Arc;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::UnbufferedStatus;
use rustls::{CommonState, ServerConfig};

use super::driver::{End, TlsSession};
use super::error::SessionError;

/// The server's side of a TLS connection.
pub type ServerSession = TlsSession<UnbufferedServerConnection>;

impl ServerSession {
    /// A session that expects a ClientHello.
    ///
    /// # Errors
    /// The configuration is unusable: a fault of ours.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, SessionError> {
        Ok(Self::start(UnbufferedServerConnection::new(config)?))
    }
}

impl End for UnbufferedServerConnection {
    type Data = ServerConnectionData;
    // Tickets are the only thing that a TLS 1.3 server writes at that moment.
    const HOLDS_TICKETS: bool = true;

    fn turn<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn negotiated(&self) -> &CommonState {
        self
    }
}
