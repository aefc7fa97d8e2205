//! The client's end.

use std::sync::Arc;

use rustls_next::client::{ClientConfig, ClientSide};
use rustls_next::pki_types::ServerName;
use rustls_next::{Connection, Tcp};

use super::driver::{Role, TlsSession};
use super::error::SessionError;
use super::unfinished::{Bounds, PARTIAL_BYTES_MAX};

/// The client's side of a TLS connection.
///
/// The client speaks first: [`Session::feed`](super::Session::feed) without a byte writes its
/// ClientHello. The last of its handshake is in `wire` when `feed` reports the session established,
/// so the first request that is sealed behind it leaves in the same send.
pub type ClientSession = TlsSession<ClientSide>;

impl ClientSession {
    /// A session with the server `name`: what the ClientHello asks for, and what the server's
    /// certificate must be valid for.
    ///
    /// `config` must leave early data off, as it is by default.
    ///
    /// # Errors
    /// The configuration is unusable: a fault of ours.
    #[expect(clippy::needless_pass_by_value, reason = "as the engine has it")]
    pub fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, SessionError> {
        let mut hello = Vec::new();
        let tls = config.connect(name).build(&mut hello)?;
        Ok(Self::start(tls, hello.into()))
    }
}

impl Role for ClientSide {
    type Awaited = ();
    // A client's Finished must not wait: without it the server has nobody to answer.
    const HOLDS_TICKETS: bool = false;

    fn bounds(_: &Connection<Self, Tcp>, (): &()) -> Bounds {
        // A server's certificates may begin in the record of another message.
        Bounds::of_all(PARTIAL_BYTES_MAX)
    }
}
