//! Plaintext out of rustls's own buffer, copied once.

use std::io::BufRead;

use rustls::Reader;

/// Takes all that is there, behind `plaintext`.
pub(super) fn take(mut reader: Reader<'_>, plaintext: &mut Vec<u8>) {
    // An error means here: nothing more for now.
    while let Ok(bytes) = reader.fill_buf() {
        if bytes.is_empty() {
            break;
        }
        plaintext.extend_from_slice(bytes);
        let length = bytes.len();
        reader.consume(length);
    }
}
