//! The server's end.

use std::sync::Arc;

use rustls_next::enums::ProtocolVersion;
use rustls_next::server::{ServerConfig, ServerSide};
use rustls_next::{Connection, HandshakeKind, Tcp};

use super::RECORD_WIRE_MAX;
use super::driver::{Role, TlsSession};
use super::error::SessionError;
use super::unfinished::{
    Bounds, HANDSHAKE_PARTIAL_BYTES_MAX, MESSAGE_RECORDS_MAX, PARTIAL_BYTES_MAX,
};
use crate::record::RECORD_HEADER_LEN;

/// The server's side of a TLS connection.
pub type ServerSession = TlsSession<ServerSide>;

impl ServerSession {
    /// A session that expects a ClientHello.
    ///
    /// # Errors
    /// The configuration is unusable: a fault of ours.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, SessionError> {
        Ok(Self::start(Connection::new(config)?, Box::default()))
    }

    /// The same session, where the client sends more than the few short messages that each does.
    #[must_use]
    pub fn awaiting(mut self, awaited: Awaited) -> Self {
        if awaited.early_data {
            self.skip_early_data();
        }
        self.awaited = awaited;
        self
    }
}

/// What a server awaits of a client before the handshake is complete: it bounds what may wait for
/// its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Awaited {
    /// Certificates, because they were asked for.
    certificate: bool,
    /// Data that it sent too early for us, of a whole record at most at a time: it is thrown away.
    early_data: bool,
    /// Bytes of the hello, in case that there is a second one.
    hello_len: u32,
}

impl Awaited {
    /// From what was asked of the client, and what it said that it does.
    pub fn new(certificate: bool, early_data: bool) -> Self {
        Self { certificate, early_data, hello_len: 0 }
    }
}

impl Role for ServerSide {
    type Awaited = Awaited;
    // Tickets are the only thing that a TLS 1.3 server writes at that moment.
    const HOLDS_TICKETS: bool = true;

    fn note(tls: &Connection<Self, Tcp>, awaited: &mut Awaited, incoming: &[u8]) {
        // By its header: what lies behind it is not the hello's.
        if tls.protocol_version().is_none()
            && let Some([high, middle, low]) =
                incoming.get(RECORD_HEADER_LEN + 1..).and_then(<[u8]>::first_chunk)
        {
            awaited.hello_len = u32::from_be_bytes([0, *high, *middle, *low]);
        }
    }

    fn bounds(tls: &Connection<Self, Tcp>, awaited: &Awaited) -> Bounds {
        let Some(version) = tls.protocol_version() else {
            // Lanes look at the hello before there is a session, and bound it themselves.
            return Bounds::of_all(PARTIAL_BYTES_MAX);
        };
        let is_tls13 = version == ProtocolVersion::TLSv1_3;
        let kind = tls.handshake_kind();
        let mut others_max = HANDSHAKE_PARTIAL_BYTES_MAX;
        // A hello that was read and has settled nothing is answered with the wish for another.
        if is_tls13 && kind.is_none() {
            // It may come in records of single bytes.
            let hello_len = (awaited.hello_len as usize).min(PARTIAL_BYTES_MAX);
            let second_len = hello_len + SECOND_HELLO_MORE_BYTES_MAX;
            others_max += second_len + RECORD_HEADER_LEN * second_len.min(MESSAGE_RECORDS_MAX);
        }
        // Also while it waits with what it came with: the messages of one record go together.
        let is_resumed = matches!(
            kind,
            Some(HandshakeKind::Resumed | HandshakeKind::ResumedWithHelloRetryRequest)
        );
        let is_due = awaited.certificate && !is_resumed;
        let bytes_max = if is_due { PARTIAL_BYTES_MAX } else { others_max };
        let is_sealed_long = awaited.early_data && is_tls13;
        let sealed_max = if is_sealed_long { bytes_max.max(RECORD_WIRE_MAX) } else { bytes_max };
        Bounds { bytes_max, others_max, sealed_max }
    }
}

/// Bytes that a second hello has more than the first: another key share, of which the longest,
/// X25519MLKEM768's, has 1,216, and what stands around it.
const SECOND_HELLO_MORE_BYTES_MAX: usize = 1_280;
