//! A header of version 2 as it is being written, which never outgrows what a reader takes.

use super::crc32c::{self, CHECKSUM_LEN};
use super::{FIXED_LEN, REST_BYTES_MAX, SIGNATURE, TYPE_CRC32C, VERSION2_PROXY};

/// A header of version 2 that is being written.
pub(super) struct Writer {
    bytes: Vec<u8>,
    /// Where the checksum goes, if there is to be one.
    checksum_at: Option<usize>,
}

impl Writer {
    /// Begins a header with addresses of `family`, which come in parts.
    pub(super) fn new(family: u8, addresses: &[&[u8]]) -> Self {
        let mut bytes = Vec::with_capacity(USUAL_LEN);
        bytes.extend_from_slice(&SIGNATURE);
        bytes.extend_from_slice(&[VERSION2_PROXY, family, 0, 0]);
        for part in addresses {
            bytes.extend_from_slice(part);
        }
        Self { bytes, checksum_at: None }
    }

    /// Makes room for a checksum.
    pub(super) fn append_checksum(&mut self) {
        self.append(TYPE_CRC32C, &[0; CHECKSUM_LEN]);
        self.checksum_at = Some(self.bytes.len() - CHECKSUM_LEN);
    }

    /// Appends a value; one for which there is no room is left out.
    pub(super) fn append(&mut self, kind: u8, value: &[u8]) {
        let room = LEN_MAX - self.bytes.len();
        if let Ok(len) = u16::try_from(value.len())
            && VALUE_HEAD_LEN + value.len() <= room
        {
            self.bytes.push(kind);
            self.bytes.extend_from_slice(&len.to_be_bytes());
            self.bytes.extend_from_slice(value);
        }
    }

    /// Appends a value that begins with `front` and goes on with those that `append` appends.
    pub(super) fn append_group(&mut self, kind: u8, front: &[u8], append: impl FnOnce(&mut Self)) {
        let at = self.bytes.len();
        self.append(kind, front);
        if self.bytes.len() > at {
            append(self);
            self.write_len(at + 1, at + VALUE_HEAD_LEN);
        }
    }

    /// The bytes to send.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.write_len(FIXED_LEN - 2, FIXED_LEN);
        if let Some(at) = self.checksum_at {
            let sum = crc32c::of_header(&self.bytes, at);
            self.bytes[at..at + CHECKSUM_LEN].copy_from_slice(&sum.to_be_bytes());
        }
        self.bytes
    }

    /// Writes at `at` how many bytes there are from `from` on: fewer than [`LEN_MAX`].
    fn write_len(&mut self, at: usize, from: usize) {
        let len = u16::try_from(self.bytes.len() - from).unwrap_or_default();
        self.bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }
}

/// Bytes of type and length.
const VALUE_HEAD_LEN: usize = 3;
/// Bytes of a header with what it tells by default.
const USUAL_LEN: usize = 256;
/// Bytes of any header.
const LEN_MAX: usize = FIXED_LEN + REST_BYTES_MAX;
