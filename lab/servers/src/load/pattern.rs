//! The [`Pattern`] that all transfers consist of, so that both ends check every byte.

/// The most bytes that `Pattern::at` gives at once.
pub const PATTERN_CHUNK_BYTES: usize = 256 * 1024;

/// An endless sequence of bytes that repeats only after `PERIOD_BYTES`, which no record or
/// buffer size divides: a lost, repeated or swapped block shows.
pub struct Pattern(Vec<u8>);

impl Default for Pattern {
    /// Computes it; the same in every process.
    fn default() -> Self {
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
}

impl Pattern {
    /// The bytes from `offset` on, at most [`PATTERN_CHUNK_BYTES`] and not beyond `end`.
    pub(crate) fn at(&self, offset: u64, end: u64) -> &[u8] {
        let start = usize::try_from(offset % PERIOD_BYTES as u64).unwrap_or(0);
        let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        &self.0[start..start + left.min(PATTERN_CHUNK_BYTES)]
    }

    /// Whether `bytes`, at most [`PATTERN_CHUNK_BYTES`], are those at `offset`.
    pub fn matches(&self, offset: u64, bytes: &[u8]) -> bool {
        self.at(offset, offset + bytes.len() as u64) == bytes
    }
}

/// A prime.
const PERIOD_BYTES: usize = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_tells_a_shifted_block() {
        let pattern = Pattern::default();
        let block = pattern.at(1_000_000, 1_016_384).to_vec();
        assert_eq!(block.len(), 16_384);
        assert!(pattern.matches(1_000_000, &block));
        assert!(!pattern.matches(1_000_001, &block));
        assert!(!pattern.matches(1_000_000 + 16_384, &block));
        assert_eq!(pattern.at(0, u64::MAX).len(), PATTERN_CHUNK_BYTES);
    }
}
