//! The client's end.

use std::cell::Cell;
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::unbuffered::UnbufferedStatus;
use rustls::{ClientConfig, CommonState};

use super::driver::{Role, TlsSession};
use super::error::SessionError;
use super::unfinished::{Bounds, PARTIAL_BYTES_MAX};
use crate::hello::has_extended_master_secret;

/// The client's side of a TLS connection.
///
/// The client speaks first: [`Session::feed`](super::Session::feed) without a byte writes its
/// ClientHello. The last of its handshake is in `wire` when `feed` reports the session established.
/// So the first request that is sealed behind it leaves in the same send.
pub type ClientSession = TlsSession<ClientEnd>;

/// rustls' connection, and whether its sessions may be resumed.
pub struct ClientEnd {
    /// Whether the server's hello has extended master secret.
    is_bound: bool,
    pub(super) tls: UnbufferedClientConnection,
}

impl ClientSession {
    /// A session with the server `name`: the ClientHello asks for it, and the server's certificate
    /// must be valid for it.
    ///
    /// `config` must leave early data off, as it is by default.
    ///
    /// # Errors
    /// The configuration is unusable: a fault of ours.
    pub fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, SessionError> {
        let tls = UnbufferedClientConnection::new(config, name)?;
        Ok(Self::start(ClientEnd { is_bound: false, tls }))
    }
}

impl Role for ClientEnd {
    type Data = ClientConnectionData;
    type Awaited = ();
    // A client's Finished must not wait: without it the server cannot send anything.
    const HOLDS_TICKETS: bool = false;

    fn turn<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        if self.tls.protocol_version().is_none() && has_extended_master_secret(incoming) {
            self.is_bound = true;
        }
        IS_BOUND.set(self.is_bound);
        let status = self.tls.process_tls_records(incoming);
        IS_BOUND.set(false);
        status
    }

    fn negotiated(&self) -> &CommonState {
        &self.tls
    }

    fn bounds(&self, (): &()) -> Bounds {
        // A server's certificates may begin in the record of another message.
        Bounds::of_all(PARTIAL_BYTES_MAX)
    }
}

/// Whether the current TLS 1.2 session has a master secret that is bound to its handshake
/// (RFC 7627). rustls does not pass this to its session store.
pub(crate) fn is_bound_to_handshake() -> bool {
    IS_BOUND.get()
}

thread_local! {
    static IS_BOUND: Cell<bool> = const { Cell::new(false) };
}
