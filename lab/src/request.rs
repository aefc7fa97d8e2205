//! What a client asks of the backend, through the server under test: a [`Request`] of 64 bytes,
//! and the [`Pattern`] that all larger transfers consist of, so that both ends check every byte.

/// Bytes of every request, of an echo and of the answer to an upload.
pub(crate) const REQUEST_BYTES: usize = 64;
/// The most bytes that [`Pattern::at`] gives at once.
pub(crate) const PATTERN_CHUNK_BYTES: usize = 256 * 1024;

/// One request; the nonce makes its bytes differ from those of every other connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) action: Action,
    pub(crate) nonce: u64,
}

/// What the backend does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Sends this many bytes of the pattern.
    Download(u64),
    /// Sends the request back.
    Echo,
    /// Reads this many bytes of the pattern, then sends the request back if all were right.
    Upload(u64),
}

impl Request {
    /// The request as it travels.
    pub(crate) fn encode(self) -> [u8; REQUEST_BYTES] {
        let (mark, length) = match self.action {
            Action::Download(length) => (b'd', length),
            Action::Echo => (b'e', 0),
            Action::Upload(length) => (b'u', length),
        };
        let mut bytes = [mark; REQUEST_BYTES];
        bytes[8..16].copy_from_slice(&length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.nonce.to_le_bytes());
        bytes
    }

    /// The request in these bytes, or nothing if no [`Request::encode`] wrote them.
    pub(crate) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let length = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
        let nonce = u64::from_le_bytes(bytes[16..24].try_into().ok()?);
        let action = match bytes[0] {
            b'd' => Action::Download(length),
            b'e' => Action::Echo,
            b'u' => Action::Upload(length),
            _ => return None,
        };
        let request = Self { action, nonce };
        (request.encode() == *bytes).then_some(request)
    }
}

/// An endless sequence of bytes that repeats only after [`PERIOD_BYTES`], which no record or
/// buffer size divides: a lost, repeated or swapped block shows.
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    /// Computes it; the same in every process.
    pub(crate) fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let period: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .take(PERIOD_BYTES)
        .collect();
        Self(period.iter().copied().cycle().take(PERIOD_BYTES + PATTERN_CHUNK_BYTES).collect())
    }

    /// The bytes from `offset` on, at most [`PATTERN_CHUNK_BYTES`] and not beyond `end`.
    pub(crate) fn at(&self, offset: u64, end: u64) -> &[u8] {
        let start = usize::try_from(offset % PERIOD_BYTES as u64).unwrap_or(0);
        let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        &self.0[start..start + left.min(PATTERN_CHUNK_BYTES)]
    }

    /// Whether `bytes`, at most [`PATTERN_CHUNK_BYTES`], are those at `offset`.
    pub(crate) fn matches(&self, offset: u64, bytes: &[u8]) -> bool {
        self.at(offset, offset + bytes.len() as u64) == bytes
    }
}

/// A prime.
const PERIOD_BYTES: usize = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_way_and_a_changed_one_does_not() {
        for action in [Action::Download(7), Action::Echo, Action::Upload(u64::MAX)] {
            let request = Request { action, nonce: 42 };
            let mut bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Some(request));
            bytes[63] ^= 1;
            assert_eq!(Request::decode(&bytes), None);
        }
    }

    #[test]
    fn the_pattern_tells_a_shifted_block() {
        let pattern = Pattern::new();
        let block = pattern.at(1_000_000, 1_016_384).to_vec();
        assert_eq!(block.len(), 16_384);
        assert!(pattern.matches(1_000_000, &block));
        assert!(!pattern.matches(1_000_001, &block));
        assert!(!pattern.matches(1_000_000 + 16_384, &block));
        assert_eq!(pattern.at(0, u64::MAX).len(), PATTERN_CHUNK_BYTES);
    }
}
