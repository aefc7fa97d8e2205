//! Records that rustls is shown one after the other, for two reasons.
//!
//! First, the record that completes a handshake. rustls must not see the next one, because records
//! behind a handshake are not for rustls to read.
//!
//! Second, early data under a key that is not ours: a client resumes with a ticket of another
//! server, and has sent its first request before it learns that this server cannot read it. RFC
//! 8446 section 4.2.10 wants it skipped. rustls does so by trying its own key on each record. But
//! it counts a record again whenever it is shown it again, which is at each call until a record
//! opens. So records that did not open are dropped here.

use crate::provider::TAG_LEN;
use crate::record::{RECORD_HEADER_LEN, record_end};

/// The part of the waiting bytes that rustls has seen.
#[derive(Debug)]
pub(super) struct OneByOne {
    /// Whether a record has just been shown for the first time.
    is_news: bool,
    /// Bytes that rustls has been shown and left where they are: the start of a message.
    seen: usize,
    /// Whether a record that does not open is early data.
    skips: bool,
}

impl OneByOne {
    /// If `skips`, records that do not open are early data.
    pub(super) fn new(skips: bool) -> Self {
        Self { is_news: false, seen: 0, skips }
    }

    /// The count of the waiting bytes that rustls may be shown: up to the end of the first record
    /// that it has not seen.
    pub(super) fn shown_len(&mut self, waiting: &[u8]) -> usize {
        let unseen = waiting.get(self.seen..).unwrap_or_default();
        let next_len = record_end(unseen).filter(|len| *len <= unseen.len());
        self.is_news = next_len.is_some();
        self.seen + next_len.unwrap_or(0)
    }

    /// Takes note that rustls is done with `discard` bytes.
    pub(super) fn note_discarded(&mut self, discard: usize) {
        self.seen = self.seen.saturating_sub(discard);
    }

    /// Decides about `left`, the bytes that rustls was shown and left, if it waits for more.
    /// Returns how many of them to drop, or `None` if rustls has seen all bytes. Before there are
    /// keys (`has_keys`) rustls tries none, and skips early data by itself.
    pub(super) fn go_on(&mut self, left: &[u8], has_keys: bool) -> Option<usize> {
        if !self.is_news {
            return None;
        }
        if self.skips && self.seen == 0 && has_keys && did_not_open(left) {
            return Some(left.len());
        }
        self.seen = left.len();
        Some(0)
    }
}

/// Whether `record` was tried and did not open. Then decryption has wiped it, so that nothing
/// unauthentic is ever read. A record that opens holds at least its own type, which is not 0, and
/// is kept: it is the start of a message. The type in its header does not matter to rustls.
fn did_not_open(record: &[u8]) -> bool {
    let Some(payload) = record.get(RECORD_HEADER_LEN..) else { return false };
    let sealed_len = payload.len().saturating_sub(TAG_LEN);
    payload[..sealed_len].iter().all(|byte| *byte == 0)
}
