//! The code that both ends share: layers of the connection, bytes that wait for their end, and the
//! agreed parameters.

use rustls::crypto::SupportedKxGroup;
use rustls::pki_types::CertificateDer;
use rustls::unbuffered::UnbufferedStatus;
use rustls::{CipherSuite, CommonState, HandshakeKind, ProtocolVersion};

use super::crank::Crank;
use super::error::Refusal;
use super::traffic::Traffic;
use super::unfinished::{Bounds, ESTABLISHED_PARTIAL_BYTES_MAX, Unfinished};
use super::{Fed, RECORD_PLAIN_MAX, Session, SessionError};
use crate::buffer::Buffer;

/// One end of a TLS connection: [`ServerSession`](super::ServerSession) or
/// [`ClientSession`](super::ClientSession).
pub struct TlsSession<R: Role> {
    pub(super) layer: Layer<R>,
    /// Start of a record that has not arrived to its end, or of a message spread over records. A
    /// pointer, because most connections have none, and every connection has room for it.
    unfinished: Option<Box<Unfinished>>,
    /// Encrypted session tickets that wait for company.
    held: Box<[u8]>,
    established: bool,
}

/// The layer that has the connection. In boxes, because a handshake needs several times the memory
/// of the records behind it.
#[derive(Default)]
pub(super) enum Layer<R: Role> {
    /// The hand-over failed, and the connection is lost.
    #[default]
    Nobody,
    Ours(Box<Traffic>),
    Rustls(Box<Crank<R>>),
}

/// rustls' connection in one role, client or server: the little in which the two differ.
pub trait Role: Sized {
    /// rustls' name for the role.
    type Data;
    /// The messages that its peer may still send before the handshake is complete.
    type Awaited: Default;
    /// Whether records that are written as the handshake completes may wait for the first data.
    const HOLDS_TICKETS: bool;

    /// Takes one turn.
    fn turn<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// The negotiated parameters.
    fn negotiated(&self) -> &CommonState;

    /// Takes note of bytes that are about to be processed in the handshake.
    fn note(&self, _awaited: &mut Self::Awaited, _incoming: &[u8]) {}

    /// The most bytes that may wait for their end before the handshake is complete.
    fn bounds(&self, awaited: &Self::Awaited) -> Bounds;

    /// Bytes of plaintext in a record that it writes.
    fn record_bytes_max(&self) -> usize {
        RECORD_PLAIN_MAX
    }

    /// Whether its records are ours to read and to write from the end of the handshake on, as far
    /// as is known by now.
    fn hands_over(&self) -> bool {
        false
    }

    /// The fault, in more detail than rustls gives.
    fn explain(&self, error: SessionError) -> SessionError {
        error
    }

    /// Hands them over.
    ///
    /// # Errors
    /// rustls does not let go of them.
    fn hand_over(self) -> Result<HandedOver, SessionError> {
        Err(SessionError::NotEstablished)
    }
}

/// The record layer that a role hands over.
pub struct HandedOver(pub(super) Box<Traffic>);

impl<R: Role> TlsSession<R> {
    pub(super) fn start(end: R) -> Self {
        Self {
            layer: Layer::Rustls(Box::new(Crank::of(end))),
            unfinished: None,
            held: Box::default(),
            established: false,
        }
    }

    /// Whether the handshake is complete.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// `TLSv1.2` or `TLSv1.3`, once known.
    pub fn version(&self) -> Option<&'static str> {
        match &self.layer {
            Layer::Nobody => None,
            Layer::Ours(_) => Some("TLSv1.3"),
            Layer::Rustls(crank) => match crank.end.negotiated().protocol_version()? {
                ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
                _ => Some("TLSv1.2"),
            },
        }
    }

    /// IANA name of the cipher suite, once known.
    pub fn suite(&self) -> Option<&'static str> {
        let suite = match &self.layer {
            Layer::Nobody => return None,
            Layer::Ours(traffic) => traffic.negotiated.suite,
            Layer::Rustls(crank) => crank.end.negotiated().negotiated_cipher_suite()?.suite(),
        };
        // rustls writes TLS13_… where IANA writes TLS_….
        Some(match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
            CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
            tls12 => tls12.as_str()?,
        })
    }

    /// The key exchange group by its name in TLS, once known; `None` for a resumed TLS 1.2 session.
    pub fn group(&self) -> Option<&'static str> {
        let group = match &self.layer {
            Layer::Nobody => None,
            Layer::Ours(traffic) => traffic.negotiated.group,
            Layer::Rustls(crank) => {
                crank.end.negotiated().negotiated_key_exchange_group().map(SupportedKxGroup::name)
            }
        };
        group?.as_str()
    }

    /// The application protocol that was agreed on.
    pub fn alpn(&self) -> Option<&[u8]> {
        match &self.layer {
            Layer::Nobody => None,
            Layer::Ours(traffic) => traffic.negotiated.alpn.as_deref(),
            Layer::Rustls(crank) => crank.end.negotiated().alpn_protocol(),
        }
    }

    /// Whether a ticket replaced the certificate and signature.
    pub fn resumed(&self) -> bool {
        match &self.layer {
            Layer::Nobody => false,
            Layer::Ours(traffic) => traffic.negotiated.resumed,
            Layer::Rustls(crank) => {
                crank.end.negotiated().handshake_kind() == Some(HandshakeKind::Resumed)
            }
        }
    }

    /// The peer's certificates, its own first; none before they have been verified, none of a
    /// client that was not asked.
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        match &self.layer {
            // A connection with a peer's certificates stays with rustls, which has them.
            Layer::Nobody | Layer::Ours(_) => &[],
            Layer::Rustls(crank) => crank.end.negotiated().peer_certificates().unwrap_or_default(),
        }
    }

    /// Hands `incoming` to the layer that has the connection. Returns how many bytes are done with.
    fn process(
        &mut self,
        incoming: &mut [u8],
        plain: &mut Buffer,
        wire: &mut Buffer,
        fed: &mut Fed,
    ) -> (usize, Result<(), Refusal>) {
        let mut done = 0;
        if let Layer::Rustls(crank) = &mut self.layer {
            let held = (R::HOLDS_TICKETS && !self.established).then_some(&mut self.held);
            let outcome;
            (done, outcome) = crank.process(incoming, (plain, wire), fed, held);
            if outcome.is_err() || !crank.is_through() {
                return (done, outcome.map_err(Refusal::from));
            }
            if let Err(error) = self.hand_over() {
                return (done, Err(error.into()));
            }
        }
        let Layer::Ours(traffic) = &mut self.layer else {
            return (done, Err(SessionError::NotEstablished.into()));
        };
        match traffic.receive(&mut incoming[done..], plain, fed) {
            Ok(more) => (done + more, Ok(())),
            Err(refusal) => (done, Err(refusal)),
        }
    }

    fn hand_over(&mut self) -> Result<(), SessionError> {
        if let Layer::Rustls(crank) = std::mem::take(&mut self.layer) {
            self.layer = Layer::Ours(crank.end.hand_over()?.0);
        }
        Ok(())
    }

    /// Keeps the bytes that wait for their end. If there are too many, an alert gives the peer the
    /// reason.
    fn keep_unfinished(
        &mut self,
        mut unfinished: Unfinished,
        (incoming, done): (&[u8], usize),
        wire: &mut Buffer,
    ) -> Result<(), SessionError> {
        let rest = &incoming[done..];
        if rest.is_empty() {
            return Ok(());
        }
        unfinished.keep(rest, done);
        if let Err(error) = unfinished.check(self.bounds()) {
            self.release_held(wire);
            // Ours refuses earlier, by a record's header.
            if let Layer::Rustls(crank) = &mut self.layer {
                crank.refuse_unfinished(&unfinished, &error, wire);
            }
            return Err(error);
        }
        self.unfinished = Some(Box::new(unfinished));
        Ok(())
    }

    fn bounds(&self) -> Bounds {
        match &self.layer {
            Layer::Rustls(crank) if !self.established => crank.bounds(),
            _ => Bounds::of_all(ESTABLISHED_PARTIAL_BYTES_MAX),
        }
    }

    fn is_handshaking(&self) -> bool {
        matches!(&self.layer, Layer::Rustls(crank) if crank.is_handshaking())
    }

    /// Whether a message has begun, and nothing but its end may come.
    fn is_amid_message(&self) -> bool {
        let amid_record = self.unfinished.as_ref().is_some_and(|unfinished| unfinished.whole > 0);
        amid_record || matches!(&self.layer, Layer::Ours(traffic) if traffic.is_amid_message())
    }
}

impl<R: Role> Session for TlsSession<R> {
    fn feed(
        &mut self,
        incoming: &mut [u8],
        plain: &mut Buffer,
        wire: &mut Buffer,
    ) -> Result<Fed, SessionError> {
        if matches!(&self.layer, Layer::Ours(traffic) if traffic.is_peer_closed()) {
            // Behind close_notify nothing counts (RFC 8446 section 6.1).
            return Ok(Fed::default());
        }
        // By value: most calls leave nothing over, and need no place on the heap.
        let mut unfinished = self.unfinished.take().map_or_else(Unfinished::default, |kept| *kept);
        debug_assert!(unfinished.bytes.is_empty(), "take_partial comes before feed");
        let mut fed = Fed::default();
        let arrived = unfinished.count_records(incoming);
        if let Layer::Rustls(crank) = &mut self.layer
            && !self.established
        {
            crank.end.note(&mut crank.awaited, incoming);
        }
        let (done, outcome) = self.process(incoming, plain, wire, &mut fed);
        if let Err(Refusal { error, alert }) = outcome {
            // They were encrypted before the alert is.
            self.release_held(wire);
            match (&mut self.layer, alert) {
                (Layer::Rustls(crank), Some(why)) => {
                    let corrected = error.corrected_alert();
                    crank.write_last_words((why, corrected), &incoming[done..], wire);
                }
                (Layer::Ours(traffic), why) => traffic.fail(why, wire),
                // The peer spoke last.
                (Layer::Nobody, _) | (Layer::Rustls(_), None) => {}
            }
            return Err(error);
        }
        if !self.established && !self.is_handshaking() {
            self.established = true;
            fed.established = true;
        }
        // Nothing counts behind close_notify, also in the bytes that came with it.
        if !fed.peer_closed {
            self.keep_unfinished(unfinished, (incoming, done), wire)?;
        }
        fed.records = arrived && !self.is_amid_message();
        Ok(fed)
    }

    fn partial_len(&self) -> usize {
        self.unfinished.as_ref().map_or(0, |unfinished| unfinished.bytes.len())
    }

    fn take_partial(&mut self, into: &mut Buffer) {
        if let Some(unfinished) = &mut self.unfinished {
            into.append(&std::mem::take(&mut unfinished.bytes));
        }
    }

    fn append_partial(&mut self, more: &[u8]) -> bool {
        let Some(mut unfinished) = self.unfinished.take() else { return false };
        let bounds = self.bounds();
        let is_appended = unfinished.append(more, bounds);
        self.unfinished = Some(unfinished);
        is_appended
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Buffer) -> Result<usize, SessionError> {
        self.release_held(wire);
        match &mut self.layer {
            Layer::Nobody => Err(SessionError::NotEstablished),
            Layer::Ours(traffic) => traffic.seal(plain, wire),
            Layer::Rustls(crank) => crank.seal(plain, shown(&mut self.unfinished), wire),
        }
    }

    fn close(&mut self, wire: &mut Buffer) -> Result<(), SessionError> {
        self.release_held(wire);
        match &mut self.layer {
            Layer::Nobody => Err(SessionError::NotEstablished),
            Layer::Ours(traffic) => traffic.close(wire),
            Layer::Rustls(crank) => crank.close(shown(&mut self.unfinished), wire),
        }
    }

    fn held_len(&self) -> usize {
        self.held.len()
    }

    fn release_held(&mut self, wire: &mut Buffer) {
        if !self.held.is_empty() {
            let written = wire.append(&self.held);
            debug_assert_eq!(written, self.held.len());
            self.held = Box::default();
        }
    }
}

impl<R: Role> std::fmt::Debug for TlsSession<R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TlsSession")
            .field("version", &self.version())
            .field("suite", &self.suite())
            .field("established", &self.established)
            .finish_non_exhaustive()
    }
}

/// The bytes that rustls must be shown even when it only writes.
fn shown(unfinished: &mut Option<Box<Unfinished>>) -> &mut [u8] {
    unfinished.as_mut().map_or(&mut [], |unfinished| &mut unfinished.bytes)
}
