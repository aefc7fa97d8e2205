//! What both ends have in common: rustls fed until it needs more bytes.

use rustls_next::crypto::{Identity, VerifiedIdentity};
use rustls_next::enums::ProtocolVersion;
use rustls_next::error::Error;
use rustls_next::pki_types::CertificateDer;
use rustls_next::{Connection, HandshakeKind, SideData, SliceInput, Tcp};

use super::early_data::EarlyData;
use super::names;
use super::unfinished::{Bounds, ESTABLISHED_PARTIAL_BYTES_MAX, Unfinished};
use super::{Fed, RECORD_OVERHEAD_MAX, RECORD_PLAIN_MAX, Session, SessionError};
use crate::buffer::Buffer;

/// One end of a TLS connection; [`ServerSession`](super::ServerSession) and
/// [`ClientSession`](super::ClientSession) say which.
pub struct TlsSession<R: Role> {
    tls: Connection<R, Tcp>,
    /// Start of a record whose end has not arrived, or of a message spread over records. A pointer,
    /// because most connections have none, and every connection has room for it.
    unfinished: Option<Box<Unfinished>>,
    /// Encrypted session tickets that wait for company, or a hello that waits for the first call.
    held: Box<[u8]>,
    pub(super) awaited: R::Awaited,
    established: bool,
    /// Behind the clean end rustls would read on, if it were shown more.
    peer_closed: bool,
    /// A pointer, because hardly any client sends such, and every connection has room for it.
    early_data: Option<Box<EarlyData>>,
}

/// rustls' name for one end: the little in which the two differ.
pub trait Role: SideData {
    /// What its peer may still send before the handshake is complete.
    type Awaited: Default;
    /// Whether what is written as the handshake completes may wait for the first data.
    const HOLDS_TICKETS: bool;

    /// Takes note of bytes that are about to be processed in the handshake.
    fn note(_tls: &Connection<Self, Tcp>, _awaited: &mut Self::Awaited, _incoming: &[u8]) {}

    /// How much may wait for its end before the handshake is complete.
    fn bounds(tls: &Connection<Self, Tcp>, awaited: &Self::Awaited) -> Bounds;
}

impl<R: Role> TlsSession<R> {
    pub(super) fn start(tls: Connection<R, Tcp>, hello: Box<[u8]>) -> Self {
        Self {
            tls,
            unfinished: None,
            held: hello,
            awaited: R::Awaited::default(),
            established: false,
            peer_closed: false,
            early_data: None,
        }
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
        self.tls.protocol_version()?;
        Some(if self.is_tls13() { "TLSv1.3" } else { "TLSv1.2" })
    }

    /// IANA name of the cipher suite, once known.
    pub fn suite(&self) -> Option<&'static str> {
        names::of_suite(self.tls.negotiated_cipher_suite()?.suite())
    }

    /// The key exchange group by its name in TLS, once known; `None` for a resumed TLS 1.2 session.
    pub fn group(&self) -> Option<&'static str> {
        names::of_group(self.tls.negotiated_key_exchange_group()?.name())
    }

    /// The application protocol that was agreed on.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol().map(AsRef::as_ref)
    }

    /// Whether a ticket replaced the certificate and signature.
    pub fn resumed(&self) -> bool {
        use HandshakeKind as K;
        matches!(self.tls.handshake_kind(), Some(K::Resumed | K::ResumedWithHelloRetryRequest))
    }

    /// The peer's certificates, its own first; none before they have been verified, none of a
    /// client that was not asked.
    pub fn peer_certificates(&self) -> Vec<&CertificateDer<'static>> {
        match self.tls.peer_identity().map(VerifiedIdentity::identity) {
            Some(Identity::X509(chain)) => {
                std::iter::once(&chain.end_entity).chain(&chain.intermediates).collect()
            }
            _ => Vec::new(),
        }
    }

    fn is_tls13(&self) -> bool {
        self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// Runs rustls over `incoming` until it needs more; returns how many bytes it is done with.
    fn process(
        &mut self,
        incoming: &mut [u8],
        plain: &mut Buffer,
        wire: &mut Buffer,
        fed: &mut Fed,
    ) -> (usize, Result<(), SessionError>) {
        let Some(mut early_data) = self.early_data.take() else {
            return self.turn(incoming, plain, wire, fed);
        };
        let mut shown = early_data.shown(incoming);
        let (used, outcome) = self.turn(&mut shown, plain, wire, fed);
        let mut done = early_data.take_back(&shown, used, incoming);
        if self.tls.is_handshaking() {
            // Before there are keys rustls tries none, and lets go of early data by itself.
            if self.is_tls13() && self.tls.handshake_kind().is_some() {
                done += early_data.drop_unopened(&incoming[done..]);
            }
            self.early_data = Some(early_data);
        }
        (done, outcome)
    }

    /// The only place where rustls reads.
    fn turn(
        &mut self,
        shown: &mut [u8],
        plain: &mut Buffer,
        wire: &mut Buffer,
        fed: &mut Fed,
    ) -> (usize, Result<(), SessionError>) {
        #[cfg(test)]
        SHOWN.set(SHOWN.get() + shown.len());
        let mut input = SliceInput::new(shown);
        let mut messages = self.tls.read_tls(&mut input, wire.vec_mut());
        let mut outcome = Ok(());
        while let Some(payload) = messages.next_payload() {
            match payload {
                Ok(payload) => {
                    if plain.append(payload.bytes()) < payload.bytes().len() {
                        outcome = Err(SessionError::PlainTooSmall);
                    }
                }
                Err(error) => outcome = Err(error.into()),
            }
        }
        fed.peer_closed = messages.state().peer_has_closed();
        (input.into_used(), outcome)
    }

    /// Puts in order what was held back, and what rustls wrote behind the first `before` bytes of
    /// `wire`: tickets are the only thing that a TLS 1.3 server writes in the call that completes
    /// its handshake. Alone they would cost a send of their own, so they wait for the first
    /// response.
    fn hold_or_release(&mut self, before: usize, just_established: bool, wire: &mut Buffer) {
        let holds = just_established && R::HOLDS_TICKETS && self.is_tls13();
        if wire.len() == before || (self.held.is_empty() && !holds) {
            return;
        }
        let written: Box<[u8]> = wire.filled()[before..].into();
        wire.truncate(before);
        if holds {
            self.held = written;
        } else {
            self.release_held(wire);
            wire.append(&written);
        }
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
            let _ = self.process(&mut spoilt, &mut Buffer::default(), wire, &mut Fed::default());
            return Err(error);
        }
        self.unfinished = Some(Box::new(unfinished));
        Ok(())
    }

    fn bounds(&self) -> Bounds {
        if self.established {
            return Bounds::of_all(ESTABLISHED_PARTIAL_BYTES_MAX);
        }
        R::bounds(&self.tls, &self.awaited)
    }
}

impl<R: Role> Session for TlsSession<R> {
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
        if self.peer_closed {
            return Ok(fed);
        }
        let arrived = unfinished.count_records(incoming);
        if !self.established {
            self.release_held(wire);
            R::note(&self.tls, &mut self.awaited, incoming);
        }
        let before = wire.len();
        let (done, outcome) = self.process(incoming, plain, wire, &mut fed);
        fed.established = outcome.is_ok() && !self.established && !self.tls.is_handshaking();
        if fed.established {
            self.established = true;
            // Nobody asks for keys to export, and every connection would keep the means.
            drop(self.tls.exporter());
        }
        self.hold_or_release(before, fed.established, wire);
        outcome?;
        // Behind close_notify nothing counts (RFC 8446 section 6.1).
        self.peer_closed = fed.peer_closed;
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
        if self.tls.is_handshaking() {
            return Err(SessionError::NotEstablished);
        }
        self.release_held(wire);
        let records = wire.spare_len().saturating_sub(CONTROL_RECORDS_BYTES)
            / (RECORD_PLAIN_MAX + RECORD_OVERHEAD_MAX);
        let room = match records {
            0 => wire.spare_len().saturating_sub(CONTROL_RECORDS_BYTES + RECORD_OVERHEAD_MAX),
            _ => records * RECORD_PLAIN_MAX,
        };
        let chunk = &plain[..room.min(plain.len())];
        match self.tls.write(chunk.into(), wire.vec_mut()) {
            Ok(()) => Ok(chunk.len()),
            Err(Error::EncryptError) => Err(SessionError::KeysExhausted),
            Err(error) => Err(error.into()),
        }
    }

    fn close(&mut self, wire: &mut Buffer) -> Result<(), SessionError> {
        if self.tls.is_handshaking() {
            return Err(SessionError::NotEstablished);
        }
        self.release_held(wire);
        Ok(self.tls.send_close_notify(wire.vec_mut())?)
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

/// Room kept free when data is sealed: a key update that leaves first, and an alert behind.
const CONTROL_RECORDS_BYTES: usize = 256;

#[cfg(test)]
thread_local! {
    /// Bytes that rustls' sessions of this thread were shown, those shown again counted again.
    pub(crate) static SHOWN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;

    use super::*;
    use crate::record::{ALERT, APPLICATION_DATA, RECORD_HEADER_LEN};
    use crate::session::tests::World;
    use crate::session::tests::fragments::established;

    #[test]
    fn nothing_is_read_behind_the_clean_end() {
        let world = World::new();
        let (mut server, mut tx, _) = established(&world).next().unwrap();
        assert!(server.feed(&tx.record(ALERT, &CLOSE_NOTIFY)).unwrap().peer_closed);
        let fed = server.feed(&tx.record(APPLICATION_DATA, b"late")).unwrap();
        assert_eq!((fed, server.plain.len()), (Fed::default(), 0));
        server.feed(&[APPLICATION_DATA; RECORD_HEADER_LEN]).unwrap();
        assert_eq!(server.session.partial_len(), 0);
    }

    #[test]
    fn an_idle_session_keeps_little() {
        let world = World::new();
        let (server, _, _) = established(&world).next().unwrap();
        let session = Box::new(server.session);
        let freed = measure(|| drop(session));
        assert!(-freed.bytes_current <= IDLE_BYTES_MAX, "{freed:?}");
    }

    /// Bytes on the heap, the session itself included; more with what keys are exported from.
    const IDLE_BYTES_MAX: i64 = 1_540;

    /// A warning.
    const CLOSE_NOTIFY: [u8; 2] = [1, 0];
}
