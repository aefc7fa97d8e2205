//! Bytes that a session keeps between two calls: a record that has not arrived to its end, behind
//! the records over which a handshake message is spread. Here are their limits too.

use super::{RECORD_PLAIN_MAX, RECORD_WIRE_MAX, SessionError};
use crate::record::{APPLICATION_DATA, HANDSHAKE, RECORD_HEADER_LEN, record_end, record_len};

/// Bytes that wait for their end. A session that waits for none has no such thing.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    pub(super) bytes: Vec<u8>,
    /// Whole records at the front of `bytes`: rustls has seen them, and joins their message.
    pub(super) whole: usize,
    /// The count of those records. One that comes behind a length of them counts as more, because
    /// they are all moved for it.
    records: usize,
}

/// The most that a session may keep. See [`Unfinished::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes in all.
    pub bytes_max: usize,
    /// Bytes in all while the message is another than a certificate, where its header can be read.
    pub others_max: usize,
    /// Bytes in all while a record waits alone that cannot be read before its end.
    pub sealed_max: usize,
}

impl Bounds {
    /// The same for every message.
    pub(super) fn of_all(bytes_max: usize) -> Self {
        Self { bytes_max, others_max: bytes_max, sealed_max: bytes_max }
    }
}

/// Unfinished bytes that a session keeps where a certificate may come: the longest message that
/// rustls takes, in records.
pub const PARTIAL_BYTES_MAX: usize = 64 * 1024 + RECORD_WIRE_MAX;
/// Unfinished bytes of any other message of a handshake; keys, signatures and digests are short.
pub const HANDSHAKE_PARTIAL_BYTES_MAX: usize = 4 * 1024;
/// Unfinished bytes on an established session: one record, behind the start of a short message.
pub const ESTABLISHED_PARTIAL_BYTES_MAX: usize = RECORD_WIRE_MAX + 512;
/// Records over which a message may be spread. That is 55 KB in fragments of 64 bytes, the smallest
/// that peers may announce (RFC 8449 section 4). Or it is a second hello with a post-quantum key
/// share in single bytes.
pub(super) const MESSAGE_RECORDS_MAX: usize = 2_048;

impl Unfinished {
    /// Takes note of the records that `incoming` completes behind the first `self.whole` bytes.
    /// Returns whether there are any.
    pub(super) fn count_records(&mut self, incoming: &[u8]) -> bool {
        let before = self.whole;
        while let Some(end) = record_end(&incoming[self.whole.min(incoming.len())..])
            && self.whole + end <= incoming.len()
        {
            self.whole += end;
            self.records += 1 + self.whole / RECORD_PLAIN_MAX;
        }
        self.whole > before
    }

    /// Keeps `rest`, the remainder of the counted bytes when rustls is done with the first `done`
    /// of them.
    pub(super) fn keep(&mut self, rest: &[u8], done: usize) {
        self.whole = self.whole.saturating_sub(done);
        if self.whole == 0 {
            self.records = 0;
        }
        self.bytes = rest.to_vec();
    }

    /// Appends `more` if that does not complete the record that waits, and is allowed: nothing can
    /// come of it but more waiting. Returns whether it did.
    pub(super) fn append(&mut self, more: &[u8], bounds: Bounds) -> bool {
        let mut header = [0; RECORD_HEADER_LEN];
        let begun = self.bytes[self.whole..].iter().chain(more);
        let known = header.iter_mut().zip(begun).map(|(to, from)| *to = *from).count();
        let record = if known < header.len() { header.len() } else { record_len(header) };
        let (before, room) = (self.bytes.len(), self.whole + record - self.bytes.len());
        if more.len() >= room {
            return false;
        }
        if self.bytes.capacity() < before + more.len() {
            // By parts, so that bytes which come one by one are not copied each time.
            self.bytes.reserve_exact((before / 4 + more.len()).min(room));
        }
        self.bytes.extend_from_slice(more);
        let is_allowed = self.check(bounds).is_ok();
        if !is_allowed {
            self.bytes.truncate(before);
        }
        is_allowed
    }

    /// Checks that this much may wait. Bytes that headers announce count as if they were there.
    ///
    /// # Errors
    /// It is more.
    pub(super) fn check(&self, bounds: Bounds) -> Result<(), SessionError> {
        let begun = &self.bytes[self.whole..];
        let announced = self.whole + record_end(begun).unwrap_or(begun.len());
        let (kind, message_end) = match self.message() {
            Some((kind, len)) => (Some(kind), RECORD_HEADER_LEN + MESSAGE_HEADER_LEN + len),
            None => (None, 0),
        };
        let bytes_max = match kind {
            Some(CERTIFICATE) => bounds.bytes_max,
            Some(_) => bounds.others_max,
            None if self.whole == 0 && begun.first() == Some(&APPLICATION_DATA) => {
                bounds.sealed_max
            }
            None => bounds.bytes_max,
        };
        // A message that ends within a record has its headers counted already.
        if self.bytes.len().max(announced) > bytes_max
            || message_end > bytes_max
            || self.records > MESSAGE_RECORDS_MAX
        {
            return Err(SessionError::PartialTooLong(bytes_max));
        }
        Ok(())
    }

    /// Kind and length of the message that waits, where its header is readable: in a record of
    /// handshake messages in the clear, or in one that rustls has opened in place.
    fn message(&self) -> Option<(u8, usize)> {
        let (header, content) = self.bytes.split_first_chunk::<RECORD_HEADER_LEN>()?;
        let is_readable = match header[0] {
            HANDSHAKE => true,
            APPLICATION_DATA => self.whole > 0,
            _ => false,
        };
        // A short one may be sealed, or hold less than a message's header.
        if !is_readable || record_len(*header) <= SEALED_FINISHED_MAX {
            return None;
        }
        let [kind, len @ ..] = content.first_chunk::<MESSAGE_HEADER_LEN>()?;
        Some((*kind, usize::from(len[0]) << 16 | usize::from(len[1]) << 8 | usize::from(len[2])))
    }
}

/// The handshake message (RFC 8446 section 4).
const CERTIFICATE: u8 = 11;
const MESSAGE_HEADER_LEN: usize = 4;
/// Bytes of a record that may be a Finished under TLS 1.2, which begins with a nonce and not with
/// the header of a message.
const SEALED_FINISHED_MAX: usize = 128;

const _: () = assert!(ESTABLISHED_PARTIAL_BYTES_MAX > RECORD_PLAIN_MAX);
