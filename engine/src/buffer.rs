//! A byte buffer of fixed capacity: bytes are appended at the end and consumed from the front.

use std::ops::Range;

/// Owned bytes with a filled part in the middle: `[consumed | filled | spare]`.
///
/// It never grows. A lane owns a few large ones; a connection owns one only while bytes are
/// pending for it.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Box<[u8]>,
    filled: Range<usize>,
}

impl Buffer {
    /// An empty buffer for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity].into_boxed_slice(), filled: 0..0 }
    }

    /// A full buffer that owns exactly the bytes of `content`.
    pub fn holding(content: &[u8]) -> Self {
        Self { bytes: content.into(), filled: 0..content.len() }
    }

    /// The bytes that were appended and not yet consumed.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.filled.clone()]
    }

    /// The filled bytes, mutable: records are decrypted in place.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled.clone()]
    }

    /// Room behind the filled bytes; after writing into it call [`Buffer::fill`].
    pub fn spare_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled.end..]
    }

    /// Bytes of room behind the filled part.
    pub fn spare_len(&self) -> usize {
        self.bytes.len() - self.filled.end
    }

    /// Number of filled bytes.
    pub fn len(&self) -> usize {
        self.filled.len()
    }

    /// Whether nothing is filled.
    pub fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    /// Bytes that the buffer can hold in all.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Declares the first `count` bytes of the spare part as filled, at most all of them.
    pub fn fill(&mut self, count: usize) {
        self.filled.end = self.bytes.len().min(self.filled.end + count);
    }

    /// Appends as much of `content` as fits and returns how much that was.
    pub fn append(&mut self, content: &[u8]) -> usize {
        let spare = self.spare_mut();
        let count = content.len().min(spare.len());
        spare[..count].copy_from_slice(&content[..count]);
        self.fill(count);
        count
    }

    /// Drops the first `count` filled bytes, at most all of them.
    pub fn consume(&mut self, count: usize) {
        self.filled.start = self.filled.end.min(self.filled.start + count);
        if self.filled.is_empty() {
            self.filled = 0..0;
        }
    }

    /// Drops the filled bytes behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.filled.end = self.filled.end.min(self.filled.start + len);
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.filled = 0..0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_takes_what_fits_and_consume_gives_it_back_from_the_front() {
        let mut buffer = Buffer::with_capacity(4);
        assert_eq!(buffer.append(b"abcdef"), 4);
        assert_eq!(buffer.append(b"x"), 0);
        buffer.consume(1);
        assert_eq!(buffer.filled(), b"bcd");
        buffer.consume(100);
        assert!(buffer.is_empty());
        assert_eq!(buffer.spare_len(), 4, "an empty buffer starts over at the front");
    }

    #[test]
    fn fill_never_passes_the_capacity() {
        let mut buffer = Buffer::with_capacity(2);
        buffer.fill(9);
        assert_eq!(buffer.len(), 2);
    }

    #[test]
    fn truncate_drops_the_tail_only() {
        let mut buffer = Buffer::holding(b"abcd");
        buffer.consume(1);
        buffer.truncate(2);
        assert_eq!(buffer.filled(), b"bc");
        assert_eq!(buffer.capacity(), 4);
    }
}
