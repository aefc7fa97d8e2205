//! A ClientHello that arrives in more than one read, or in more than one record.

use super::message::{is_whole, parse};
use super::records::Records;
use super::{OTHER_BYTES_MAX, Peek, peek_other};
use crate::record::{HANDSHAKE, RECORD_HEADER_LEN, RECORD_PLAIN_MAX};

/// The start of a ClientHello that has not arrived to its end.
///
/// Each byte is looked at and copied once, as it arrives. The message is parsed once, when it is
/// whole. The headers of its records are not kept: afterwards the message is in as few records as
/// possible.
#[derive(Debug, Default)]
pub struct Gathering {
    records: Records,
    /// The handshake message so far, or the first bytes of something else.
    message: Vec<u8>,
    is_other: bool,
}

impl Gathering {
    /// Takes the next bytes of the connection. Returns how many of them belong to the hello, and
    /// the state that it is in now.
    pub fn take(&mut self, bytes: &[u8], message_bytes_max: usize) -> (usize, Peek) {
        let is_first = self.message.is_empty() && self.records.is_fresh();
        if is_first && bytes.first().is_some_and(|first| *first != HANDSHAKE) {
            self.is_other = true;
        }
        if self.is_other {
            let wanted = OTHER_BYTES_MAX.saturating_sub(self.message.len()).min(bytes.len());
            self.message.extend_from_slice(&bytes[..wanted]);
            return (bytes.len(), peek_other(&self.message));
        }
        let mut rest = bytes;
        let peeked = self.take_records(&mut rest, message_bytes_max);
        (bytes.len() - rest.len(), peeked)
    }

    fn take_records(&mut self, rest: &mut &[u8], message_bytes_max: usize) -> Peek {
        loop {
            let payload = match self.records.next(rest) {
                Ok(Some(payload)) => payload,
                Ok(None) => return Peek::NeedMore,
                Err(fault) => return Peek::Refused(fault),
            };
            if self.message.capacity() < self.message.len() + payload.len() {
                // Grows by quarters, not to the double: the length of held bytes counts against a
                // limit.
                self.message.reserve_exact(self.message.len() / 4 + payload.len());
            }
            self.message.extend_from_slice(payload);
            #[cfg(test)]
            super::tests::WORK.with_borrow_mut(|work| work.copied += payload.len());
            match is_whole(&self.message, self.records.left(), message_bytes_max) {
                Ok(true) => return parse(&self.message).map_or_else(Peek::Refused, Peek::Hello),
                Ok(false) => {}
                Err(fault) => return Peek::Refused(fault),
            }
        }
    }

    /// The handshake message so far.
    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Bytes of the hello in its new records, as far as it has arrived.
    pub fn framed_len(&self) -> usize {
        self.message.len() + RECORD_HEADER_LEN * self.message.len().div_ceil(RECORD_PLAIN_MAX)
    }

    /// The room to reserve: no less than [`Gathering::framed_len`] grows by beyond the bytes that
    /// it takes from now on.
    pub fn room_len(&self) -> usize {
        self.message.len() + RECORD_HEADER_LEN * RECORDS_MAX
    }

    /// Writes the hello in its new records to the front of `into`, which has
    /// [`Gathering::framed_len`] bytes or more.
    pub fn frame(&self, mut into: &mut [u8]) {
        for chunk in self.message.chunks(RECORD_PLAIN_MAX) {
            let len = u16::try_from(chunk.len()).unwrap_or(u16::MAX).to_be_bytes();
            let (header, behind) = into.split_at_mut(RECORD_HEADER_LEN);
            header.copy_from_slice(&[HANDSHAKE, 3, 1, len[0], len[1]]);
            let (payload, behind) = behind.split_at_mut(chunk.len());
            payload.copy_from_slice(chunk);
            #[cfg(test)]
            super::tests::WORK.with_borrow_mut(|work| work.copied += chunk.len());
            into = behind;
        }
    }
}

/// New records of the longest hello that rustls takes: 64 KiB and the message's own header.
const RECORDS_MAX: usize = (64 * 1024usize).div_ceil(RECORD_PLAIN_MAX) + 1;
