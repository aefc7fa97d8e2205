//! Records as they lie on the wire: their types and bounds, and where one ends.

/// Type, version and length.
pub const RECORD_HEADER_LEN: usize = 5;
/// RFC 8446 section 5.1: a record carries at most 2^14 bytes of plaintext.
pub const RECORD_PLAIN_MAX: usize = 1 << 14;

/// Bytes of a protected record of TLS 1.3, its header included: section 5.2 allows the content 256
/// more than its own.
pub(crate) const RECORD_SEALED_MAX: usize = RECORD_HEADER_LEN + RECORD_PLAIN_MAX + 256;

pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;

/// The end of the record at the front of `bytes`, if its header has arrived.
pub(crate) fn record_end(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|header| record_len(*header))
}

/// Bytes of a record, its header included.
pub(crate) fn record_len(header: [u8; RECORD_HEADER_LEN]) -> usize {
    RECORD_HEADER_LEN + usize::from(u16::from_be_bytes([header[3], header[4]]))
}
