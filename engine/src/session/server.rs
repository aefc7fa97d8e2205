//! The server's end.

use std::sync::Arc;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::UnbufferedStatus;
use rustls::{CommonState, HandshakeKind, ProtocolVersion, ServerConfig};

use super::driver::{HandedOver, Layer, Role, TlsSession};
use super::error::SessionError;
use super::faults::{Error, PeerIncompatible};
use super::traffic::Traffic;
use super::unfinished::{
    Bounds, HANDSHAKE_PARTIAL_BYTES_MAX, MESSAGE_RECORDS_MAX, PARTIAL_BYTES_MAX,
};
use super::{RECORD_PLAIN_MAX, RECORD_WIRE_MAX};
use crate::certificates::LeafTraits;
use crate::policy::Scheme;
use crate::record::RECORD_HEADER_LEN;
use crate::tickets::Binding;

/// The server's side of a TLS connection.
pub type ServerSession = TlsSession<ServerEnd>;

/// rustls' connection, and the certificate that the session's tickets are bound to.
pub struct ServerEnd {
    binding: Binding,
    tls: UnbufferedServerConnection,
    /// Whether rustls lets go of the connection's secrets.
    hands_over: bool,
    /// Whether the client offers no extended master secret.
    lacks_extended_master_secret: bool,
    /// Bytes of plaintext in a record that is written.
    record_bytes_max: u16,
}

impl ServerSession {
    /// A session that expects a ClientHello. It reads and writes its own records behind a handshake
    /// under TLS 1.3 if `config` lets it have the keys (`enable_secret_extraction`).
    ///
    /// # Errors
    /// The configuration is unusable: a fault of ours.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, SessionError> {
        let hands_over = config.enable_secret_extraction;
        let record_bytes_max = match config.max_fragment_size {
            Some(bytes) => bytes.saturating_sub(RECORD_HEADER_LEN).min(RECORD_PLAIN_MAX),
            None => RECORD_PLAIN_MAX,
        };
        let record_bytes_max = u16::try_from(record_bytes_max).unwrap_or(u16::MAX);
        let tls = UnbufferedServerConnection::new(config)?;
        let binding = Binding::default();
        Ok(Self::start(ServerEnd {
            binding,
            tls,
            hands_over,
            lacks_extended_master_secret: false,
            record_bytes_max,
        }))
    }

    /// The kind of certificate that the client was served, or would have been if it had not resumed
    /// a session that began with it.
    pub fn served(&self) -> Option<LeafTraits> {
        self.binding()?.traits()
    }

    /// The scheme of the server's signature in the handshake. `None` in a session that was resumed,
    /// which has no signature.
    pub fn signature_scheme(&self) -> Option<Scheme> {
        self.binding()?.scheme().filter(|_| !self.resumed())
    }

    /// Whether the client was asked to repeat its hello: the signature is still to come.
    pub fn awaits_second_hello(&self) -> bool {
        matches!(&self.layer, Layer::Rustls(crank) if crank.end.awaits_second_hello())
    }

    /// The same session, of a client that offers an extended master secret (RFC 7627), or `lacks`
    /// it.
    #[must_use]
    pub fn noting_extended_master_secret(mut self, lacks: bool) -> Self {
        if let Layer::Rustls(crank) = &mut self.layer {
            crank.end.lacks_extended_master_secret = lacks;
        }
        self
    }

    /// Whether TLS 1.2 was chosen for a client without extended master secret, also where the
    /// client was refused for that.
    pub fn lacks_extended_master_secret(&self) -> bool {
        match &self.layer {
            Layer::Rustls(crank) => {
                let version = crank.end.tls.protocol_version();
                crank.end.lacks_extended_master_secret && version == Some(ProtocolVersion::TLSv1_2)
            }
            Layer::Nobody | Layer::Ours(_) => false,
        }
    }

    fn binding(&self) -> Option<&Binding> {
        match &self.layer {
            Layer::Nobody => None,
            Layer::Ours(traffic) => Some(&traffic.negotiated.binding),
            Layer::Rustls(crank) => Some(&crank.end.binding),
        }
    }

    /// The same session, where the client sends more than the few short messages that each does.
    #[must_use]
    pub fn awaiting(mut self, awaited: Awaited) -> Self {
        if let Layer::Rustls(crank) = &mut self.layer {
            if awaited.early_data {
                crank.skip_early_data();
            }
            crank.awaited = awaited;
        }
        self
    }
}

/// The messages that a server awaits of a client before the handshake is complete. They bound the
/// bytes that may wait for their end.
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
    /// By the server's request for a certificate, and by the client's hello.
    pub fn new(certificate: bool, early_data: bool) -> Self {
        Self { certificate, early_data, hello_len: 0 }
    }
}

impl ServerEnd {
    fn awaits_second_hello(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest)
            && self.tls.negotiated_key_exchange_group().is_none()
    }
}

impl Role for ServerEnd {
    type Data = ServerConnectionData;
    type Awaited = Awaited;
    // Tickets are the only thing that a TLS 1.3 server writes at that moment.
    const HOLDS_TICKETS: bool = true;

    fn turn<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        #[cfg(test)]
        SHOWN.set(SHOWN.get() + incoming.len());
        let Self { binding, tls, .. } = self;
        if tls.is_handshaking() {
            return binding.during(|| tls.process_tls_records(incoming));
        }
        binding.release();
        tls.process_tls_records(incoming)
    }

    fn negotiated(&self) -> &CommonState {
        &self.tls
    }

    fn note(&self, awaited: &mut Awaited, incoming: &[u8]) {
        // By its header: bytes behind the hello are not part of it.
        if self.tls.protocol_version().is_none()
            && let Some([high, middle, low]) =
                incoming.get(RECORD_HEADER_LEN + 1..).and_then(<[u8]>::first_chunk)
        {
            awaited.hello_len = u32::from_be_bytes([0, *high, *middle, *low]);
        }
    }

    fn bounds(&self, awaited: &Awaited) -> Bounds {
        if self.tls.protocol_version().is_none() {
            // Lanes look at the hello before there is a session, and bound it themselves.
            return Bounds::of_all(PARTIAL_BYTES_MAX);
        }
        let mut others_max = HANDSHAKE_PARTIAL_BYTES_MAX;
        let kind = self.tls.handshake_kind();
        if self.awaits_second_hello() {
            // It may come in records of single bytes.
            let hello_len = (awaited.hello_len as usize).min(PARTIAL_BYTES_MAX);
            let second_len = hello_len + SECOND_HELLO_MORE_BYTES_MAX;
            others_max += second_len + RECORD_HEADER_LEN * second_len.min(MESSAGE_RECORDS_MAX);
        }
        // Also while it waits with others: the messages of one record go together.
        let is_due = awaited.certificate && kind != Some(HandshakeKind::Resumed);
        let bytes_max = if is_due { PARTIAL_BYTES_MAX } else { others_max };
        let is_tls13 = self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let is_sealed_long = awaited.early_data && is_tls13;
        let sealed_max = if is_sealed_long { bytes_max.max(RECORD_WIRE_MAX) } else { bytes_max };
        Bounds { bytes_max, others_max, sealed_max }
    }

    fn record_bytes_max(&self) -> usize {
        self.record_bytes_max.into()
    }

    fn hands_over(&self) -> bool {
        // A connection with the client's certificates stays with rustls: only rustls has them.
        self.hands_over
            && self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_3)
            && self.tls.peer_certificates().is_none()
    }

    fn explain(&self, error: SessionError) -> SessionError {
        match error {
            // It got no certificate, because the client can check no signature by its key.
            SessionError::Tls(Error::General(_)) if self.binding.is_unsigned() => {
                SessionError::Tls(PeerIncompatible::NoSignatureSchemesInCommon.into())
            }
            error => error,
        }
    }

    fn hand_over(mut self) -> Result<HandedOver, SessionError> {
        self.binding.release();
        Ok(HandedOver(Traffic::of(self.tls, self.binding, self.record_bytes_max)?))
    }
}

/// The most bytes that a second hello has more than the first: another key share, of which the
/// longest, X25519MLKEM768's, has 1,216, and the fields around it.
const SECOND_HELLO_MORE_BYTES_MAX: usize = 1_280;

#[cfg(test)]
thread_local! {
    /// Bytes that servers of this thread were handed, rustls' or ours, those handed again counted
    /// again.
    pub(crate) static SHOWN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
