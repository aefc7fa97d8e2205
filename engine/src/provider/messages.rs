//! The positions where handshake messages under keys begin, to find a Finished of a wrong length:
//! rustls takes it for one with a wrong digest.

use rustls::{Error, InvalidMessage};

use super::expanded::Aead;

/// The messages of one direction, as far as they have come.
pub(super) struct Messages {
    finished_len: usize,
    header: [u8; HEADER_LEN],
    header_len: usize,
    /// Bytes of the current message that have not come.
    left: usize,
}

impl Messages {
    pub(super) fn new(finished_len: usize) -> Self {
        Self { finished_len, header: [0; HEADER_LEN], header_len: 0, left: 0 }
    }

    /// Takes the content of the next record with handshake messages.
    ///
    /// # Errors
    /// A Finished is longer or shorter than it has to be (RFC 8446 section 4.4.4).
    pub(super) fn take(&mut self, mut content: &[u8]) -> Result<(), Error> {
        while let Some((byte, behind)) = content.split_first() {
            if self.left > 0 {
                let part_len = self.left.min(content.len());
                self.left -= part_len;
                content = &content[part_len..];
                continue;
            }
            self.header[self.header_len] = *byte;
            self.header_len += 1;
            content = behind;
            if self.header_len == HEADER_LEN {
                self.header_len = 0;
                let [kind, high, middle, low] = self.header;
                self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
                if kind == FINISHED && self.left != self.finished_len {
                    return Err(Error::InvalidMessage(InvalidMessage::TrailingData("Finished")));
                }
            }
        }
        Ok(())
    }
}

/// Bytes of a Finished: a digest of the hash that belongs to the cipher in each suite of TLS 1.3.
pub(super) fn finished_len(aead: Aead) -> usize {
    match aead {
        Aead::Aes128Gcm | Aead::ChaCha20Poly1305 => 32,
        Aead::Aes256Gcm => 48,
    }
}

const FINISHED: u8 = 20;
const HEADER_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_of_another_length_is_found() {
        let finished = |len: u8| [vec![20, 0, 0, len], vec![20; usize::from(len)]].concat();
        // Behind another message that looks like one from within.
        for (len, is_right) in [(31, false), (32, true), (33, false), (0, false)] {
            let bytes = [vec![11, 0, 0, 5, 20, 0, 0, 1, 20], finished(len)].concat();
            for part_len in 1..=bytes.len() {
                let mut messages = Messages::new(32);
                let all = bytes.chunks(part_len).try_for_each(|part| messages.take(part));
                assert_eq!(all.is_ok(), is_right, "{len} in parts of {part_len}");
            }
        }
    }
}
