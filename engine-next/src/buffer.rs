//! A byte buffer that rustls 0.24 can append to: the engine's, on a vector.

/// Owned bytes that are appended at the end.
///
/// The engine's buffer never grows. rustls 0.24 appends to a vector as much as it likes, so this
/// one's capacity is what callers count on, and not a bound.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    capacity: usize,
}

impl Buffer {
    /// An empty buffer for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), capacity }
    }

    /// The bytes that were appended.
    pub fn filled(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, mutable: records are decrypted in place.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Bytes of room behind them.
    pub fn spare_len(&self) -> usize {
        self.capacity.saturating_sub(self.bytes.len())
    }

    /// Number of filled bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is filled.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends as much of `content` as fits and returns how much that was.
    pub fn append(&mut self, content: &[u8]) -> usize {
        let count = content.len().min(self.spare_len());
        self.bytes.extend_from_slice(&content[..count]);
        count
    }

    /// The filled bytes, for rustls to append to.
    pub fn vec_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Drops the filled bytes behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}
