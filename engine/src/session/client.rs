//! The client's end.

use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::unbuffered::UnbufferedStatus;
use rustls::{ClientConfig, CommonState};

use super::driver::{Role, TlsSession};
use super::error::SessionError;
use super::unfinished::{Bounds, PARTIAL_BYTES_MAX};

/// The client's side of a TLS connection.
///
/// The client speaks first: [`Session::feed`](super::Session::feed) without a byte writes its
/// ClientHello. The last of its handshake is in `wire` when `feed` reports the session established,
/// so the first request that is sealed behind it leaves in the same send.
pub type ClientSession = TlsSession<UnbufferedClientConnection>;

impl ClientSession {
    /// A session with the server `name`: what the ClientHello asks for, and what the server's
    /// certificate must be valid for.
    ///
    /// `config` must leave early data off, as it is by default.
    ///
    /// # Errors
    /// The configuration is unusable: a fault of ours.
    pub fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, SessionError> {
        Ok(Self::start(UnbufferedClientConnection::new(config, name)?))
    }
}

impl Role for UnbufferedClientConnection {
    type Data = ClientConnectionData;
    type Awaited = ();
    // A client's Finished must not wait: without it the server has nobody to answer.
    const HOLDS_TICKETS: bool = false;

    fn turn<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn negotiated(&self) -> &CommonState {
        self
    }
    fn bounds(&self, (): &()) -> Bounds {
        // A server's certificates may begin in the record of another message.
        Bounds::of_all(PARTIAL_BYTES_MAX)
    }
}
