//! Base64 of PEM, decoded without a branch or a table that depends on a key's bytes.

use zeroize::Zeroizing;

/// Decodes line by line.
#[derive(Default)]
pub(super) struct Decoder {
    /// Decoded bytes. Growing copies them, so the old buffer is zeroed.
    bytes: Zeroizing<Vec<u8>>,
    /// Characters of the group that is not complete.
    group: Zeroizing<[u8; GROUP]>,
    /// The count of those characters.
    held: usize,
    /// Padding so far.
    padding: usize,
}

/// Text that is not base64.
pub(super) struct Invalid;

impl Decoder {
    /// Adds a line; spaces in it are skipped.
    pub(super) fn add(&mut self, line: &[u8]) -> Result<(), Invalid> {
        self.reserve(line.len());
        for byte in line.iter().copied().filter(|byte| !matches!(byte, b' ' | b'\t' | b'\r')) {
            if byte == b'=' {
                self.padding += 1;
                if self.padding > PADDING_MAX {
                    return Err(Invalid);
                }
                continue;
            }
            if self.padding > 0 {
                return Err(Invalid);
            }
            self.group[self.held] = byte;
            self.held += 1;
            if self.held == GROUP {
                let decoded = Zeroizing::new(decode(&self.group).ok_or(Invalid)?);
                self.bytes.extend_from_slice(&*decoded);
                self.held = 0;
            }
        }
        Ok(())
    }

    /// Everything that was decoded.
    pub(super) fn finish(mut self) -> Result<Zeroizing<Vec<u8>>, Invalid> {
        match (self.held, self.padding) {
            (0, 0) => return Ok(self.bytes),
            (held, padding) if held >= 2 && held + padding == GROUP => {}
            _ => return Err(Invalid),
        }
        self.group[self.held..].fill(b'A');
        let decoded = Zeroizing::new(decode(&self.group).ok_or(Invalid)?);
        let (whole, rest) = decoded.split_at(self.held - 1);
        // Bits that no encoder leaves there.
        if rest.iter().any(|byte| *byte != 0) {
            return Err(Invalid);
        }
        self.reserve(whole.len());
        self.bytes.extend_from_slice(whole);
        Ok(self.bytes)
    }

    /// Makes room for the bytes of `characters`, without leaving a copy of a key behind.
    fn reserve(&mut self, characters: usize) {
        let needed = self.bytes.len() + characters;
        if needed > self.bytes.capacity() {
            let mut larger = Vec::with_capacity(needed.max(2 * self.bytes.capacity()).max(FIRST));
            larger.extend_from_slice(&self.bytes);
            self.bytes = Zeroizing::new(larger);
        }
    }
}

/// The three bytes of four characters.
fn decode(group: &[u8; GROUP]) -> Option<[u8; 3]> {
    let [a, b, c, d] = group.map(|byte| sextet(i32::from(byte)));
    let bits = (a << 18) | (b << 12) | (c << 6) | d;
    let [sign, bytes @ ..] = bits.to_be_bytes();
    (sign == 0).then_some(bytes)
}

/// The six bits of a character, or -1: arithmetic in place of branches.
fn sextet(c: i32) -> i32 {
    // All ones where `low <= c <= high`.
    let within = |low: i32, high: i32| ((low - 1 - c) & (c - high - 1)) >> 31;
    let mut bits = -1;
    bits += within(0x41, 0x5a) & (c - 0x41 + 1);
    bits += within(0x61, 0x7a) & (c - 0x61 + 26 + 1);
    bits += within(0x30, 0x39) & (c - 0x30 + 52 + 1);
    bits += within(0x2b, 0x2b) & (62 + 1);
    bits += within(0x2f, 0x2f) & (63 + 1);
    bits
}

/// Bytes that most keys fit into.
const FIRST: usize = 2048;
/// Characters that are decoded together.
const GROUP: usize = 4;
const PADDING_MAX: usize = 2;
