//! Bytes that wait to be fetched.

/// Bytes in the order in which they came; no memory while there are none.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    bytes: Vec<u8>,
    /// The start of the bytes that were not fetched.
    start: usize,
}

impl Waiting {
    pub(crate) fn front(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn append(&mut self, more: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(more);
    }

    /// Drops the first `count` bytes, at most all of them.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = self.bytes.len().min(self.start + count);
        if self.start == self.bytes.len() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came() {
        let mut waiting = Waiting::default();
        waiting.append(b"abc");
        waiting.consume(2);
        waiting.append(b"de");
        assert_eq!(waiting.front(), b"cde");
        waiting.consume(9);
        assert_eq!((waiting.front(), waiting.bytes.capacity()), (&b""[..], 0));
    }
}
