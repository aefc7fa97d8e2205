//! Early data under a key that is not ours: a client resumes with a ticket of another server, and
//! has sent its first request before it learns that nobody here can read it.
//!
//! rustls 0.24 tries its own key on each record once, and counts it once. But it lets go of none
//! before one opens, and indexes into all of them meanwhile. So what did not open is dropped here,
//! and zeros stand in for it.

use crate::record::{RECORD_HEADER_LEN, record_end};

/// What was dropped of the bytes that rustls indexes into.
#[derive(Debug, Default)]
pub(super) struct EarlyData {
    dropped: usize,
}

impl EarlyData {
    /// What rustls is to be shown for `incoming`.
    pub(super) fn shown(&self, incoming: &[u8]) -> Vec<u8> {
        let mut shown = vec![0; self.dropped];
        shown.extend_from_slice(incoming);
        shown
    }

    /// Takes back what was `shown`; returns with how much of `incoming` rustls is done, of which it
    /// says that it used `used` bytes of what it was shown.
    pub(super) fn take_back(&mut self, shown: &[u8], used: usize, incoming: &mut [u8]) -> usize {
        incoming.copy_from_slice(&shown[self.dropped..]);
        let done = used.saturating_sub(self.dropped);
        self.dropped = self.dropped.saturating_sub(used);
        done
    }

    /// How many bytes at the front of `left`, which rustls has seen, it will never want.
    pub(super) fn drop_unopened(&mut self, left: &[u8]) -> usize {
        let mut unopened = 0;
        while let Some(end) = record_end(&left[unopened..])
            && let Some(record) = left[unopened..].get(..end)
            && did_not_open(record)
        {
            unopened += end;
        }
        self.dropped += unopened;
        unopened
    }
}

/// Whether `record` was tried and did not open: then decryption has wiped it, so that nothing
/// unauthentic is ever read. What opens holds at least its own type, which is not 0, and is kept:
/// it is the start of a message. What its header says that it is does not matter to rustls.
fn did_not_open(record: &[u8]) -> bool {
    let Some(payload) = record.get(RECORD_HEADER_LEN..) else { return false };
    let sealed_len = payload.len().saturating_sub(TAG_LEN);
    payload[..sealed_len].iter().all(|byte| *byte == 0)
}

/// Bytes of the tag of each suite in TLS 1.3.
const TAG_LEN: usize = 16;
