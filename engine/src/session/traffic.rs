//! TLS 1.3 behind a server's handshake, in records of our own (RFC 8446 sections 4.6.3, 5 and 6).
//!
//! rustls does the handshake, and keeps the secrets that further keys are made of. The rest of it
//! is for handshakes: an idle connection would keep more than a kilobyte for that. Few kinds of
//! records are left for a connection now: data, alerts, and of all messages KeyUpdate.

use rustls::crypto::SupportedKxGroup;
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{
    AlertDescription, CipherSuite, ContentType, Error, HandshakeKind, HandshakeType,
    InvalidMessage, NamedGroup, PeerMisbehaved,
};

use super::error::Refusal;
#[cfg(test)]
use super::server::SHOWN;
use super::{CONTROL_RECORDS_BYTES, Fed, RECORD_PLAIN_MAX, SessionError};
use crate::buffer::Buffer;
use crate::provider::{CONTENT_TYPE_LEN, TAG_LEN, Tls13Direction, tls13_header};
use crate::record::{
    ALERT, APPLICATION_DATA, HANDSHAKE, RECORD_HEADER_LEN, RECORD_SEALED_MAX, record_len,
};
use crate::tickets::Binding;

/// A server's connection after a complete handshake.
pub(super) struct Traffic {
    pub(super) negotiated: Negotiated,
    /// Has the secrets that the next keys are made of.
    secrets: KernelConnection<ServerConnectionData>,
    reading: Tls13Direction,
    writing: Tls13Direction,
    /// The start of a KeyUpdate that is spread over records.
    begun: [u8; KEY_UPDATE_LEN],
    begun_len: usize,
    /// The peer wants our next keys, before we send anything more.
    owes_update: bool,
    /// We have sent close_notify or a fatal alert.
    is_closed: bool,
    /// The keys are gone: nothing is read or written any more.
    has_failed: bool,
    is_peer_closed: bool,
    /// Bytes of plaintext in a record that is written.
    record_bytes_max: u16,
    empty_records_left: u8,
    key_updates_left: u8,
    warnings_left: u8,
}

/// The agreed parameters that are asked for later.
pub(super) struct Negotiated {
    pub(super) alpn: Option<Box<[u8]>>,
    pub(super) binding: Binding,
    pub(super) group: Option<NamedGroup>,
    pub(super) resumed: bool,
    pub(super) suite: CipherSuite,
}

impl Traffic {
    /// Takes over where the handshake is complete, and all that rustls had to write is written.
    ///
    /// # Errors
    /// rustls does not let go of the secrets.
    pub(super) fn of(
        tls: UnbufferedServerConnection,
        binding: Binding,
        record_bytes_max: u16,
    ) -> Result<Box<Self>, Error> {
        let alpn = tls.alpn_protocol().map(Box::from);
        let group = tls.negotiated_key_exchange_group().map(SupportedKxGroup::name);
        let resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
        let (extracted, secrets) = tls.dangerous_into_kernel_connection()?;
        let suite = secrets.negotiated_cipher_suite().suite();
        // In its place before it has a key, so that none is ever moved.
        let mut traffic = Box::new(Self {
            negotiated: Negotiated { alpn, binding, group, resumed, suite },
            secrets,
            reading: Tls13Direction::blank(),
            writing: Tls13Direction::blank(),
            begun: [0; KEY_UPDATE_LEN],
            begun_len: 0,
            owes_update: false,
            is_closed: false,
            has_failed: false,
            is_peer_closed: false,
            record_bytes_max,
            empty_records_left: EMPTY_RECORDS_MAX,
            key_updates_left: KEY_UPDATES_MAX,
            warnings_left: WARNINGS_MAX,
        });
        traffic.reading.take_on(&extracted.rx)?;
        traffic.writing.take_on(&extracted.tx)?;
        Ok(traffic)
    }

    /// Whether a message waits for its end, which nothing else may precede.
    pub(super) fn is_amid_message(&self) -> bool {
        self.begun_len > 0
    }

    /// Whether the peer has sent close_notify.
    pub(super) fn is_peer_closed(&self) -> bool {
        self.is_peer_closed
    }

    /// Takes the whole records at the front of `incoming`; returns how many bytes that is.
    ///
    /// # Errors
    /// The peer ends the connection, or broke the protocol.
    pub(super) fn receive(
        &mut self,
        incoming: &mut [u8],
        plain: &mut Buffer,
        fed: &mut Fed,
    ) -> Result<usize, Refusal> {
        if self.has_failed {
            return Err(SessionError::NotEstablished.into());
        }
        #[cfg(test)]
        SHOWN.set(SHOWN.get() + incoming.len());
        let mut done = 0;
        while !self.is_peer_closed {
            let waiting = &mut incoming[done..];
            let Some(header) = waiting.first_chunk() else { return Ok(done) };
            let len = judged_len(*header)?;
            let Some(record) = waiting.get_mut(..len) else { return Ok(done) };
            self.open(record, plain)?;
            done += len;
            fed.peer_closed |= self.is_peer_closed;
        }
        // Bytes behind close_notify are ignored.
        Ok(incoming.len())
    }

    /// Takes one record (sections 5.2 and 5.4).
    fn open(&mut self, record: &mut [u8], plain: &mut Buffer) -> Result<(), Refusal> {
        let (header, sealed) = record.split_at_mut(RECORD_HEADER_LEN);
        let opened = self.reading.open_next(header, sealed);
        let inner_len =
            opened.map_err(|error| Refusal::new(AlertDescription::BadRecordMac, error))?;
        if inner_len > RECORD_PLAIN_MAX + CONTENT_TYPE_LEN {
            return Err(overflow());
        }
        let inner = &sealed[..inner_len];
        // The type is the last byte that is not padding.
        let Some(end) = inner.iter().rposition(|byte| *byte != 0) else {
            return Err(unexpected(PeerMisbehaved::IllegalTlsInnerPlaintext));
        };
        let (content, kind) = (&inner[..end], inner[end]);
        if self.is_amid_message() && kind != HANDSHAKE {
            return Err(unexpected(PeerMisbehaved::MessageInterleavedWithHandshakeMessage));
        }
        if content.is_empty() {
            if kind != APPLICATION_DATA {
                return Err(unexpected(InvalidMessage::InvalidEmptyPayload));
            }
            let left = self.empty_records_left.checked_sub(1);
            self.empty_records_left =
                left.ok_or_else(|| unexpected(PeerMisbehaved::TooManyEmptyFragments))?;
        } else {
            self.empty_records_left = EMPTY_RECORDS_MAX;
        }
        match kind {
            ALERT => self.take_alert(content),
            APPLICATION_DATA => {
                // Only a peer that sends key updates and no data uses them up.
                self.key_updates_left = KEY_UPDATES_MAX;
                if plain.append(content) < content.len() {
                    return Err(SessionError::PlainTooSmall.into());
                }
                Ok(())
            }
            HANDSHAKE => self.take_message(content),
            kind => Err(unexpected_record(kind)),
        }
    }

    /// Takes an alert (section 6). Any but those that end nothing is fatal, independent of its
    /// level. One with the level of a warning is no alert of TLS 1.3.
    fn take_alert(&mut self, content: &[u8]) -> Result<(), Refusal> {
        let [level, description] = content else {
            return Err(malformed(match content.len() {
                0 | 1 => InvalidMessage::MessageTooShort,
                _ => InvalidMessage::TrailingData("alert"),
            }));
        };
        let description = AlertDescription::from(*description);
        let received = Error::AlertReceived(description);
        match (*level, description) {
            (LEVEL_WARNING | LEVEL_FATAL, AlertDescription::CloseNotify) => {
                self.is_peer_closed = true;
                Ok(())
            }
            (LEVEL_WARNING, AlertDescription::UserCanceled) => {
                let left = self.warnings_left.checked_sub(1);
                self.warnings_left =
                    left.ok_or_else(|| unexpected(PeerMisbehaved::TooManyWarningAlertsReceived))?;
                Ok(())
            }
            (LEVEL_WARNING, _) => Err(Refusal::new(AlertDescription::DecodeError, received)),
            (LEVEL_FATAL, _) => Err(Refusal::in_silence(received)),
            _ => Err(Refusal::new(AlertDescription::IllegalParameter, received)),
        }
    }

    /// Takes a message, or a part of one: nothing but KeyUpdate comes to a server (section 4.6).
    fn take_message(&mut self, content: &[u8]) -> Result<(), Refusal> {
        let part_len = content.len().min(KEY_UPDATE_LEN - self.begun_len);
        let (part, behind) = content.split_at(part_len);
        self.begun[self.begun_len..][..part_len].copy_from_slice(part);
        self.begun_len += part_len;
        // As soon as they are there.
        let begun = &self.begun[..self.begun_len];
        if begun[0] != KEY_UPDATE {
            return Err(unexpected(Error::InappropriateHandshakeMessage {
                expect_types: vec![HandshakeType::KeyUpdate],
                got_type: HandshakeType::from(begun[0]),
            }));
        }
        if begun.len() >= KEY_UPDATE_HEADER.len() && !begun.starts_with(&KEY_UPDATE_HEADER) {
            return Err(malformed(InvalidMessage::InvalidKeyUpdate));
        }
        if begun.len() < KEY_UPDATE_LEN {
            return Ok(());
        }
        self.begun_len = 0;
        if !behind.is_empty() {
            // They would be under the old key (section 5.1).
            return Err(unexpected(PeerMisbehaved::KeyEpochWithPendingFragment));
        }
        self.take_key_update()
    }

    /// Reads under the peer's next key (section 4.6.3). However many it asks for while we are
    /// silent, it gets one of ours.
    fn take_key_update(&mut self) -> Result<(), Refusal> {
        let left = self.key_updates_left.checked_sub(1);
        self.key_updates_left =
            left.ok_or_else(|| unexpected(PeerMisbehaved::TooManyKeyUpdateRequests))?;
        match self.begun[KEY_UPDATE_HEADER.len()] {
            NOT_REQUESTED => {}
            REQUESTED => self.owes_update = true,
            _ => {
                let error = InvalidMessage::InvalidKeyUpdate;
                return Err(Refusal::new(AlertDescription::IllegalParameter, error));
            }
        }
        let next = self.secrets.update_rx_secret();
        Ok(next.and_then(|next| self.reading.take_on(&next)).map_err(SessionError::from)?)
    }

    /// Encrypts the front of `plain` into `wire`, as much as has room. Returns how much that is.
    ///
    /// # Errors
    /// The session is closed, or there is no room for records that must precede the data.
    pub(super) fn seal(&mut self, plain: &[u8], wire: &mut Buffer) -> Result<usize, SessionError> {
        const OVERHEAD: usize = RECORD_HEADER_LEN + CONTENT_TYPE_LEN + TAG_LEN;
        if self.is_closed {
            return Err(SessionError::NotEstablished);
        }
        let mut taken = 0;
        while taken < plain.len() {
            let room = wire.spare_len().saturating_sub(CONTROL_RECORDS_BYTES + OVERHEAD);
            let len = room.min(self.record_bytes_max.into()).min(plain.len() - taken);
            if len == 0 {
                break;
            }
            // Our answer is due before the next data (section 4.6.3).
            if self.owes_update {
                self.write_key_update(NOT_REQUESTED, wire)?;
            }
            // With the last record under a key the peer learns that (section 5.5).
            if self.writing.sequence() >= self.records_max() - 1 {
                self.write_key_update(REQUESTED, wire)?;
            }
            self.write(APPLICATION_DATA, &plain[taken..taken + len], wire)?;
            taken += len;
        }
        Ok(taken)
    }

    /// Writes close_notify, unless the session is closed.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn close(&mut self, wire: &mut Buffer) -> Result<(), SessionError> {
        self.write_alert(LEVEL_WARNING, AlertDescription::CloseNotify, wire)
    }

    /// Writes the alert that ends the connection, if the peer is to get one, and forgets the keys.
    /// Bytes behind a fault are not read, and nothing is written after it.
    pub(super) fn fail(&mut self, why: Option<AlertDescription>, wire: &mut Buffer) {
        if let Some(why) = why {
            // The connection ends either way.
            let _ = self.write_alert(LEVEL_FATAL, why, wire);
        }
        (self.is_closed, self.has_failed) = (true, true);
        (self.reading, self.writing) = (Tls13Direction::blank(), Tls13Direction::blank());
    }

    fn write_alert(
        &mut self,
        level: u8,
        description: AlertDescription,
        wire: &mut Buffer,
    ) -> Result<(), SessionError> {
        if self.is_closed {
            return Ok(());
        }
        self.write(ALERT, &[level, description.into()], wire)?;
        self.is_closed = true;
        Ok(())
    }

    /// Announces that the next records are under our next key.
    fn write_key_update(&mut self, asks: u8, wire: &mut Buffer) -> Result<(), SessionError> {
        let [kind, high, middle, low] = KEY_UPDATE_HEADER;
        self.write(HANDSHAKE, &[kind, high, middle, low, asks], wire)?;
        let next = self.secrets.update_tx_secret()?;
        self.writing.take_on(&next)?;
        self.owes_update = false;
        Ok(())
    }

    /// Writes one record.
    fn write(&mut self, kind: u8, content: &[u8], wire: &mut Buffer) -> Result<(), SessionError> {
        let inner_len = content.len() + CONTENT_TYPE_LEN;
        let len = RECORD_HEADER_LEN + inner_len + TAG_LEN;
        let room = wire.spare_mut().get_mut(..len).ok_or(SessionError::WireTooSmall(len))?;
        let (header, sealed) = room.split_at_mut(RECORD_HEADER_LEN);
        header.copy_from_slice(&tls13_header(inner_len + TAG_LEN));
        let (inner, tag) = sealed.split_at_mut(inner_len);
        let (start, end) = inner.split_at_mut(content.len());
        start.copy_from_slice(content);
        // The type is encrypted. The header always has that of data (section 5.2).
        end.fill(kind);
        tag.copy_from_slice(&self.writing.seal_next(header, inner)?);
        wire.fill(len);
        Ok(())
    }

    /// Records that a key may protect (section 5.5).
    fn records_max(&self) -> u64 {
        let suite = self.secrets.negotiated_cipher_suite();
        let limit = suite.tls13().map_or(0, |suite| suite.common.confidentiality_limit);
        limit.clamp(1, SEQUENCE_MAX)
    }
}

/// Bytes of the record that begins with `header`, as soon as that is there.
fn judged_len(header: [u8; RECORD_HEADER_LEN]) -> Result<usize, Refusal> {
    if header[0] != APPLICATION_DATA {
        return Err(unexpected_record(header[0]));
    }
    match record_len(header) {
        len if len > RECORD_SEALED_MAX => Err(overflow()),
        len => Ok(len),
    }
}

fn unexpected_record(kind: u8) -> Refusal {
    unexpected(Error::InappropriateMessage {
        expect_types: vec![ContentType::ApplicationData],
        got_type: ContentType::from(kind),
    })
}

fn unexpected(error: impl Into<Error>) -> Refusal {
    Refusal::new(AlertDescription::UnexpectedMessage, error)
}

fn malformed(error: InvalidMessage) -> Refusal {
    Refusal::new(AlertDescription::DecodeError, error)
}

fn overflow() -> Refusal {
    Refusal::new(AlertDescription::RecordOverflow, Error::PeerSentOversizedRecord)
}

/// Type of the message, and length of its content.
const KEY_UPDATE_HEADER: [u8; 4] = [KEY_UPDATE, 0, 0, 1];
const KEY_UPDATE_LEN: usize = KEY_UPDATE_HEADER.len() + 1;
const KEY_UPDATE: u8 = 24;
const NOT_REQUESTED: u8 = 0;
const REQUESTED: u8 = 1;

const LEVEL_WARNING: u8 = 1;
const LEVEL_FATAL: u8 = 2;

/// Records without content that may come one after the other, as with rustls.
const EMPTY_RECORDS_MAX: u8 = 32;
/// KeyUpdates that may come without data in between, as with rustls.
const KEY_UPDATES_MAX: u8 = 32;
/// Warnings that may come in all, as with rustls.
const WARNINGS_MAX: u8 = 4;
/// Numbers of records must not wrap, independent of a suite's own limit: section 5.3.
const SEQUENCE_MAX: u64 = u64::MAX - 0xffff;

#[cfg(test)]
mod tests;
