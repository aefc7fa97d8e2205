//! The server's end.

use std::sync::Arc;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::UnbufferedStatus;
use rustls::{CommonState, ServerConfig};

use super::driver::{End, TlsSession};
use super::error::SessionError;
use crate::tickets::Binding;

/// The server's side of a TLS connection.
pub type ServerSession = TlsSession<ServerEnd>;

/// rustls' connection, and what the session's tickets are bound to.
pub struct ServerEnd {
    binding: Binding,
    tls: UnbufferedServerConnection,
}

impl ServerSession {
    /// A session that expects a ClientHello.
    ///
    /// # Errors
    /// The configuration is unusable: a fault of ours.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, SessionError> {
        let tls = UnbufferedServerConnection::new(config)?;
        Ok(Self::start(ServerEnd { binding: Binding::default(), tls }))
    }
}

impl End for ServerEnd {
    type Data = ServerConnectionData;
    // Tickets are the only thing that a TLS 1.3 server writes at that moment.
    const HOLDS_TICKETS: bool = true;

    fn turn<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        let Self { binding, tls } = self;
        if tls.is_handshaking() {
            return binding.during(|| tls.process_tls_records(incoming));
        }
        binding.release();
        tls.process_tls_records(incoming)
    }

    fn negotiated(&self) -> &CommonState {
        &self.tls
    }
}
