//! Records as they lie on the wire: their types, and where one ends.

pub(super) use crate::hello::RECORD_HEADER_LEN;

pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;

/// Where the record at the front of `bytes` ends, once its header is there.
pub(super) fn record_end(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|header| record_len(*header))
}

/// Bytes of a record, its header included.
pub(super) fn record_len(header: [u8; RECORD_HEADER_LEN]) -> usize {
    RECORD_HEADER_LEN + usize::from(u16::from_be_bytes([header[3], header[4]]))
}
