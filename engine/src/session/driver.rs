//! What both ends have in common: rustls turned until it needs more bytes.

use rustls::pki_types::CertificateDer;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, HandshakeKind, ProtocolVersion};

use super::early_data::EarlyData;
use super::unfinished::{Bounds, ESTABLISHED_PARTIAL_BYTES_MAX, Unfinished};
use super::{Fed, RECORD_OVERHEAD_MAX, RECORD_PLAIN_MAX, Session, SessionError};
use crate::alert;
use crate::buffer::Buffer;
use crate::record::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, RECORD_HEADER_LEN};

/// One end of a TLS connection; [`ServerSession`](super::ServerSession) and
/// [`ClientSession`](super::ClientSession) say which.
pub struct TlsSession<E: End> {
    tls: E,
    /// Start of a record whose end has not arrived, or of a message spread over records. A pointer,
    /// because most connections have none, and every connection has room for it.
    unfinished: Option<Box<Unfinished>>,
    /// Encrypted session tickets that wait for company.
    held: Box<[u8]>,
    pub(super) awaited: E::Awaited,
    established: bool,
    /// Whether a record was written under keys, after which the peer reads none in the clear.
    encrypts: bool,
    /// A pointer, because hardly any client sends such, and every connection has room for it.
    early_data: Option<Box<EarlyData>>,
}

/// rustls' connection of one end: the little in which the two differ.
pub trait End {
    /// rustls' name for the end.
    type Data;
    /// What its peer may still send before the handshake is complete.
    type Awaited: Default;
    /// Whether what is written as the handshake completes may wait for the first data.
    const HOLDS_TICKETS: bool;

    /// Takes one turn.
    fn turn<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// What was negotiated.
    fn negotiated(&self) -> &CommonState;

    /// Takes note of bytes that are about to be processed in the handshake.
    fn note(&self, _awaited: &mut Self::Awaited, _incoming: &[u8]) {}

    /// How much may wait for its end before the handshake is complete.
    fn bounds(&self, awaited: &Self::Awaited) -> Bounds;
}

impl<E: End> TlsSession<E> {
    pub(super) fn start(tls: E) -> Self {
        Self {
            tls,
            unfinished: None,
            held: Box::default(),
            awaited: E::Awaited::default(),
            established: false,
            encrypts: false,
            early_data: None,
        }
    }

    pub(super) fn end(&self) -> &E {
        &self.tls
    }

    /// Expects records under a key that is not ours, until the handshake is complete.
    pub(super) fn skip_early_data(&mut self) {
        self.early_data = Some(Box::default());
    }

    /// Whether the handshake is complete.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// `TLSv1.2` or `TLSv1.3`, once known.
    pub fn version(&self) -> Option<&'static str> {
        match self.tls.negotiated().protocol_version()? {
            ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
            _ => Some("TLSv1.2"),
        }
    }

    /// IANA name of the cipher suite, once known.
    pub fn suite(&self) -> Option<&'static str> {
        let suite = self.tls.negotiated().negotiated_cipher_suite()?.suite();
        // rustls writes TLS13_… where IANA writes TLS_….
        let name = suite.as_str()?;
        Some(match name {
            "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
            "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
            "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
            tls12 => tls12,
        })
    }

    /// The key exchange group by its name in TLS, once known; `None` for a resumed TLS 1.2 session.
    pub fn group(&self) -> Option<&'static str> {
        self.tls.negotiated().negotiated_key_exchange_group()?.name().as_str()
    }

    /// The application protocol that was agreed on.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls.negotiated().alpn_protocol()
    }

    /// Whether a ticket replaced the certificate and signature.
    pub fn resumed(&self) -> bool {
        self.tls.negotiated().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The peer's certificates, its own first; none before they have been verified, none of a
    /// client that was not asked.
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.negotiated().peer_certificates().unwrap_or_default()
    }

    /// Runs rustls over `incoming` until it needs more; returns how many bytes it is done with.
    fn process(
        &mut self,
        incoming: &mut [u8],
        plain: &mut Buffer,
        wire: &mut Buffer,
        fed: &mut Fed,
    ) -> (usize, Result<(), SessionError>) {
        let mut done = 0;
        loop {
            if self.early_data.is_some() && !self.tls.negotiated().is_handshaking() {
                self.early_data = None;
            }
            let waiting = &incoming[done..];
            let early_data = self.early_data.as_deref_mut();
            let shown = early_data.map_or(waiting.len(), |early| early.shown_len(waiting));
            let UnbufferedStatus { mut discard, state } =
                self.tls.turn(&mut incoming[done..done + shown]);
            let step = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    let mut step = Ok(Step::Continue);
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                if plain.append(record.payload) < record.payload.len() {
                                    step = Err(SessionError::PlainTooSmall);
                                }
                            }
                            Err(error) => step = Err(error.into()),
                        }
                    }
                    step
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(|room| data.encode(room), wire).map(Step::Encoded)
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    Ok(Step::Continue)
                }
                Ok(ConnectionState::PeerClosed) => {
                    fed.peer_closed = true;
                    Ok(Step::Continue)
                }
                Ok(_) => Ok(Step::Idle),
                Err(error) => Err(error.into()),
            };
            if let Some(early) = &mut self.early_data {
                early.note_discarded(discard);
            }
            done += discard;
            match step {
                Ok(Step::Continue) => {}
                Ok(Step::Encoded(len)) => {
                    self.note_written(&wire.filled()[wire.len() - len..]);
                    self.hold_tickets(wire, len);
                }
                Ok(Step::Idle) => {
                    let left = &incoming[done..done + shown - discard];
                    let has_keys = self.encrypts;
                    let early_data = self.early_data.as_mut();
                    match early_data.and_then(|early| early.go_on(left, has_keys)) {
                        Some(undecryptable) => done += undecryptable,
                        None => return (done, Ok(())),
                    }
                }
                Err(error) => return (done, Err(error)),
            }
        }
    }

    /// Tickets are the only thing a TLS 1.3 server writes at the moment its handshake completes.
    /// Alone they would cost a send of their own, so they wait for the first response.
    fn hold_tickets(&mut self, wire: &mut Buffer, encoded_len: usize) {
        let just_established =
            E::HOLDS_TICKETS && !self.established && !self.tls.negotiated().is_handshaking();
        let tls13 = self.tls.negotiated().protocol_version() == Some(ProtocolVersion::TLSv1_3);
        if just_established && tls13 {
            let keep = wire.len() - encoded_len;
            self.held = [&self.held, &wire.filled()[keep..]].concat().into();
            wire.truncate(keep);
        }
    }

    /// Takes note whether `record`, which was just written, ends what we send in the clear.
    fn note_written(&mut self, record: &[u8]) {
        let tls13 = self.tls.negotiated().protocol_version() == Some(ProtocolVersion::TLSv1_3);
        self.encrypts |= match record.first() {
            Some(&APPLICATION_DATA) => true,
            // What follows it in TLS 1.2 is encrypted; in TLS 1.3 it means nothing.
            Some(&CHANGE_CIPHER_SPEC) => !tls13,
            _ => false,
        };
    }

    /// Says with an alert why the session ends.
    fn write_last_words(&mut self, error: &SessionError, rest: &mut [u8], wire: &mut Buffer) {
        if self.write_alert(rest, wire) || self.encrypts {
            return;
        }
        // rustls has none for every fault.
        if let Some(description) = error.alert() {
            wire.append(&alert::fatal(description));
        }
    }

    /// Collects the alert that rustls queued when it failed; tells whether there was one.
    fn write_alert(&mut self, rest: &mut [u8], wire: &mut Buffer) -> bool {
        // rustls hands out queued messages, the alert last, before it looks at input again. It must
        // not get that far: it would fail over the same record and queue another alert.
        for _ in 0..ALERTS_MAX {
            match self.tls.turn(rest).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    match encode(|room| data.encode(room), wire) {
                        Ok(len) => {
                            let record = &wire.filled()[wire.len() - len..];
                            if is_alert(record) {
                                return true;
                            }
                            self.note_written(record);
                        }
                        Err(_) => return false,
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                _ => return false,
            }
        }
        false
    }

    /// Keeps what waits for its end, unless it is more than may wait: then the peer is told why.
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
            // rustls writes the alert itself, under the keys of the moment, if it meets a record
            // that cannot be.
            self.release_held(wire);
            let mut spoilt = unfinished.spoilt();
            if self.tls.turn(&mut spoilt).state.is_err() {
                self.write_last_words(&error, &mut spoilt, wire);
            }
            return Err(error);
        }
        self.unfinished = Some(Box::new(unfinished));
        Ok(())
    }

    fn bounds(&self) -> Bounds {
        if self.established {
            return Bounds::of_all(ESTABLISHED_PARTIAL_BYTES_MAX);
        }
        self.tls.bounds(&self.awaited)
    }
}

impl<E: End> Session for TlsSession<E> {
    fn feed(
        &mut self,
        incoming: &mut [u8],
        plain: &mut Buffer,
        wire: &mut Buffer,
    ) -> Result<Fed, SessionError> {
        // By value: most calls leave nothing over, and need no place on the heap.
        let mut unfinished = self.unfinished.take().map_or_else(Unfinished::default, |kept| *kept);
        debug_assert!(unfinished.bytes.is_empty(), "take_partial comes before feed");
        let mut fed = Fed::default();
        let arrived = unfinished.count_records(incoming);
        if !self.established {
            self.tls.note(&mut self.awaited, incoming);
        }
        let (done, outcome) = self.process(incoming, plain, wire, &mut fed);
        if let Err(error) = outcome {
            // They were encrypted before the alert is.
            self.release_held(wire);
            self.write_last_words(&error, &mut incoming[done..], wire);
            return Err(error);
        }
        if !self.established && !self.tls.negotiated().is_handshaking() {
            self.established = true;
            fed.established = true;
        }
        // Behind close_notify nothing counts (RFC 8446 section 6.1).
        if !fed.peer_closed {
            self.keep_unfinished(unfinished, (incoming, done), wire)?;
        }
        fed.records = arrived && self.unfinished.as_ref().is_none_or(|kept| kept.whole == 0);
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
        let mut taken = 0;
        while taken < plain.len() {
            let records = wire.spare_len().saturating_sub(CONTROL_RECORDS_BYTES)
                / (RECORD_PLAIN_MAX + RECORD_OVERHEAD_MAX);
            let chunk_len = match records {
                0 => wire
                    .spare_len()
                    .saturating_sub(CONTROL_RECORDS_BYTES + RECORD_OVERHEAD_MAX)
                    .min(plain.len() - taken),
                _ => (records * RECORD_PLAIN_MAX).min(plain.len() - taken),
            };
            if chunk_len == 0 {
                break;
            }
            let chunk = &plain[taken..taken + chunk_len];
            // The partial record must be shown to rustls even here: it remembers how much of it it
            // has seen, and indexes into it.
            let partial = shown(&mut self.unfinished);
            encrypt(&mut self.tls, partial, wire, |traffic, room| traffic.encrypt(chunk, room))?;
            taken += chunk_len;
        }
        Ok(taken)
    }

    fn close(&mut self, wire: &mut Buffer) -> Result<(), SessionError> {
        self.release_held(wire);
        encrypt(&mut self.tls, shown(&mut self.unfinished), wire, |traffic, room| {
            traffic.queue_close_notify(room)
        })
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

impl<E: End> std::fmt::Debug for TlsSession<E> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TlsSession")
            .field("version", &self.version())
            .field("suite", &self.suite())
            .field("established", &self.established)
            .finish_non_exhaustive()
    }
}

/// What rustls must be shown even when it is only to write.
fn shown(unfinished: &mut Option<Box<Unfinished>>) -> &mut [u8] {
    unfinished.as_mut().map_or(&mut [], |unfinished| &mut unfinished.bytes)
}

/// One turn of the crank: what rustls did.
enum Step {
    Continue,
    Encoded(usize),
    Idle,
}

/// Whether `record` holds an alert. Encrypted under TLS 1.3 it is told by its length: level,
/// description, content type and tag; nothing else that either end sends is as short.
fn is_alert(record: &[u8]) -> bool {
    match record.first() {
        Some(&ALERT) => true,
        Some(&APPLICATION_DATA) => record.len() == RECORD_HEADER_LEN + 2 + 1 + 16,
        _ => false,
    }
}

/// Alerts (and messages queued before them) that a failing session may write.
const ALERTS_MAX: usize = 16;
/// Turns that rustls may take before it is ready to encrypt: it hands out queued messages first.
const QUEUED_MESSAGES_MAX: usize = 64;

/// Brings rustls to the state in which it encrypts, and lets `operation` do it.
fn encrypt<E: End>(
    tls: &mut E,
    partial: &mut [u8],
    wire: &mut Buffer,
    operation: impl Fn(&mut WriteTraffic<'_, E::Data>, &mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), SessionError> {
    for _ in 0..QUEUED_MESSAGES_MAX {
        match tls.turn(partial).state? {
            ConnectionState::WriteTraffic(mut traffic) => {
                let written = operation(&mut traffic, wire.spare_mut()).map_err(|e| match e {
                    EncryptError::InsufficientSize(size) => {
                        SessionError::WireTooSmall(size.required_size)
                    }
                    EncryptError::EncryptExhausted => SessionError::KeysExhausted,
                })?;
                wire.fill(written);
                return Ok(());
            }
            ConnectionState::EncodeTlsData(mut data) => {
                encode(|room| data.encode(room), wire)?;
            }
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => {}
            _ => return Err(SessionError::NotEstablished),
        }
    }
    Err(SessionError::NotEstablished)
}

fn encode(
    mut message: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
    wire: &mut Buffer,
) -> Result<usize, SessionError> {
    match message(wire.spare_mut()) {
        Ok(written) => {
            wire.fill(written);
            Ok(written)
        }
        Err(EncodeError::InsufficientSize(size)) => {
            Err(SessionError::WireTooSmall(size.required_size))
        }
        Err(EncodeError::AlreadyEncoded) => Ok(0),
    }
}

/// Room kept free when data is sealed: a key update that leaves first, and an alert behind.
const CONTROL_RECORDS_BYTES: usize = 256;
