//! Drives rustls until it needs more bytes: through a handshake, and afterwards where rustls reads
//! the records too.

use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{AlertDescription, ProtocolVersion};

use super::driver::Role;
use super::one_by_one::OneByOne;
use super::unfinished::{Bounds, Unfinished};
use super::{CONTROL_RECORDS_BYTES, Fed, RECORD_OVERHEAD_MAX, SessionError};
use crate::alert::{self, ALERT_RECORD_LEN};
use crate::buffer::Buffer;
use crate::provider::with_last_word;
use crate::record::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, RECORD_HEADER_LEN};

/// rustls' connection, with notes about its work so far.
pub(super) struct Crank<R: Role> {
    pub(super) end: R,
    pub(super) awaited: R::Awaited,
    /// Whether a record was written under keys, after which the peer reads none in the clear.
    encrypts: bool,
    one_by_one: Option<OneByOne>,
}

impl<R: Role> Crank<R> {
    pub(super) fn of(end: R) -> Self {
        Self { end, awaited: R::Awaited::default(), encrypts: false, one_by_one: None }
    }

    /// Expects records under a key that is not ours, until the handshake is complete.
    pub(super) fn skip_early_data(&mut self) {
        self.one_by_one = Some(OneByOne::new(true));
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.end.negotiated().is_handshaking()
    }

    fn is_tls13(&self) -> bool {
        self.end.negotiated().protocol_version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// Whether rustls has done its part. Later bytes are not for it.
    pub(super) fn is_through(&self) -> bool {
        !self.is_handshaking() && self.end.hands_over()
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.end.bounds(&self.awaited)
    }

    /// Runs rustls over `incoming` until it needs more or is through; returns how many bytes it is
    /// done with. Tickets go to `held`, if they may wait.
    pub(super) fn process(
        &mut self,
        incoming: &mut [u8],
        (plain, wire): (&mut Buffer, &mut Buffer),
        fed: &mut Fed,
        mut held: Option<&mut Box<[u8]>>,
    ) -> (usize, Result<(), SessionError>) {
        let mut done = 0;
        loop {
            if !self.is_handshaking() {
                // From here on rustls may see all records at once, or none.
                self.one_by_one = None;
            }
            let is_through = self.is_through();
            let waiting = &incoming[done..];
            let shown = match &mut self.one_by_one {
                // It still gets its turn, because it may have records to write.
                None if is_through => 0,
                None => waiting.len(),
                Some(one_by_one) => one_by_one.shown_len(waiting),
            };
            let UnbufferedStatus { mut discard, state } =
                self.end.turn(&mut incoming[done..done + shown]);
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
                // rustls waits: for bytes, or for data to encrypt.
                Ok(_) => Ok(Step::Idle),
                Err(error) => Err(error.into()),
            };
            if let Some(one_by_one) = &mut self.one_by_one {
                one_by_one.note_discarded(discard);
            }
            done += discard;
            match step {
                Ok(Step::Continue) => {}
                Ok(Step::Encoded(len)) => {
                    self.note_written(&wire.filled()[wire.len() - len..]);
                    if let Some(held) = held.as_deref_mut() {
                        self.hold_tickets(held, wire, len);
                    }
                }
                Ok(Step::Idle) => {
                    let left = &incoming[done..done + shown - discard];
                    let has_keys = self.encrypts;
                    let one_by_one = self.one_by_one.as_mut();
                    match one_by_one.and_then(|one_by_one| one_by_one.go_on(left, has_keys)) {
                        Some(unwanted) => done += unwanted,
                        None => return (done, Ok(())),
                    }
                }
                Err(error) => return (done, Err(self.end.explain(error))),
            }
        }
    }

    /// Tickets are the only thing a TLS 1.3 server writes at the moment its handshake completes.
    /// Alone they would cost a separate send, so they wait for the first response.
    fn hold_tickets(&self, held: &mut Box<[u8]>, wire: &mut Buffer, encoded_len: usize) {
        if !self.is_handshaking() && self.is_tls13() {
            let keep = wire.len() - encoded_len;
            *held = [held, &wire.filled()[keep..]].concat().into();
            wire.truncate(keep);
        }
    }

    /// Notes whether `record`, which was just written, is the last that we send in the clear.
    fn note_written(&mut self, record: &[u8]) {
        let encrypts = match record.first() {
            Some(&APPLICATION_DATA) => true,
            // In TLS 1.2 the next records are encrypted. In TLS 1.3 it means nothing.
            Some(&CHANGE_CIPHER_SPEC) => !self.is_tls13(),
            _ => false,
        };
        if encrypts && !self.encrypts && self.end.hands_over() {
            // The next flight completes the handshake, and more may come with it.
            self.one_by_one.get_or_insert_with(|| OneByOne::new(false));
        }
        self.encrypts |= encrypts;
    }

    /// Writes the alert that ends the session: `why` if rustls has none for the fault, and
    /// `corrected` in place of the one that it has. `rest` is the input that waited at the failure.
    pub(super) fn write_last_words(
        &mut self,
        (why, corrected): (AlertDescription, Option<AlertDescription>),
        rest: &[u8],
        wire: &mut Buffer,
    ) {
        let is_written = self.write_alert(why, &mut spoilt(rest), wire);
        if self.encrypts {
            return;
        }
        let is_readable = alert::at_end_of(wire.filled()).is_some();
        let corrected = corrected.filter(|_| is_readable);
        if is_written && corrected.is_some() {
            wire.truncate(wire.len() - ALERT_RECORD_LEN);
        }
        let missing = if is_written { corrected } else { Some(why) };
        if let Some(description) = missing {
            wire.append(&alert::fatal(description));
        }
    }

    /// Writes the alert that refuses `unfinished` as too much.
    pub(super) fn refuse_unfinished(
        &mut self,
        unfinished: &Unfinished,
        error: &SessionError,
        wire: &mut Buffer,
    ) {
        if let Some(why) = error.alert() {
            self.write_last_words((why, None), &unfinished.bytes, wire);
        }
    }

    /// Collects the alert that rustls queued when it failed; returns whether there was one. Once
    /// there are keys, only rustls can write an alert: if it queued none, `spoilt` makes it write
    /// one with `why`.
    fn write_alert(&mut self, why: AlertDescription, spoilt: &mut [u8], wire: &mut Buffer) -> bool {
        // rustls hands out queued messages, the alert last, before it looks at input again.
        for _ in 0..ALERTS_MAX {
            match with_last_word(why, || self.end.turn(spoilt).state) {
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
                Err(_) if self.encrypts => {}
                _ => return false,
            }
        }
        false
    }

    /// Encrypts the front of `plain`. The partial record must be shown to rustls even here: it
    /// remembers how much of it it has seen, and indexes into it.
    pub(super) fn seal(
        &mut self,
        plain: &[u8],
        partial: &mut [u8],
        wire: &mut Buffer,
    ) -> Result<usize, SessionError> {
        let (mut taken, record_max) = (0, self.end.record_bytes_max());
        while taken < plain.len() {
            let records = wire.spare_len().saturating_sub(CONTROL_RECORDS_BYTES)
                / (record_max + RECORD_OVERHEAD_MAX);
            let chunk_len = match records {
                0 => wire
                    .spare_len()
                    .saturating_sub(CONTROL_RECORDS_BYTES + RECORD_OVERHEAD_MAX)
                    .min(plain.len() - taken),
                _ => (records * record_max).min(plain.len() - taken),
            };
            if chunk_len == 0 {
                break;
            }
            let chunk = &plain[taken..taken + chunk_len];
            self.encrypt(Said::Data(chunk), partial, wire)?;
            taken += chunk_len;
        }
        Ok(taken)
    }

    pub(super) fn close(
        &mut self,
        partial: &mut [u8],
        wire: &mut Buffer,
    ) -> Result<(), SessionError> {
        self.encrypt(Said::End, partial, wire)
    }

    /// Brings rustls to the state in which it encrypts, and lets it.
    fn encrypt(
        &mut self,
        said: Said<'_>,
        partial: &mut [u8],
        wire: &mut Buffer,
    ) -> Result<(), SessionError> {
        for _ in 0..QUEUED_MESSAGES_MAX {
            match self.end.turn(partial).state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let room = wire.spare_mut();
                    let written = match said {
                        Said::Data(plain) => traffic.encrypt(plain, room),
                        Said::End => traffic.queue_close_notify(room),
                    };
                    let written = written.map_err(|error| match error {
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
}

/// The content to encrypt.
#[derive(Clone, Copy)]
enum Said<'p> {
    Data(&'p [u8]),
    /// close_notify.
    End,
}

/// The result of one turn of rustls.
enum Step {
    Continue,
    Encoded(usize),
    Idle,
}

/// Bytes in place of `records` and of a header behind them, in which rustls finds no record,
/// whichever of them it has read already.
fn spoilt(records: &[u8]) -> Vec<u8> {
    vec![0xff; records.len() + RECORD_HEADER_LEN]
}

/// Whether `record` holds an alert. Under TLS 1.3 an encrypted alert is recognized by its length:
/// level, description, content type and tag. No other record of either end is as short.
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
