//! A look at a ServerHello, for facts that rustls does not expose.

use super::message::{EXTENSION_EXTENDED_MASTER_SECRET, HANDSHAKE_HEADER_LEN, Reader};
use crate::record::{HANDSHAKE, RECORD_HEADER_LEN};

/// Whether `bytes` begin with a record in which a whole ServerHello has extended master secret
/// (RFC 7627). One that is spread over records counts as one that has it not.
pub(crate) fn has_extended_master_secret(bytes: &[u8]) -> bool {
    let [HANDSHAKE, _, _, high, low, message @ ..] = bytes else { return false };
    let record_len = usize::from(u16::from_be_bytes([*high, *low]));
    message.get(..record_len).and_then(in_message).unwrap_or(false)
}

fn in_message(message: &[u8]) -> Option<bool> {
    let [SERVER_HELLO, long @ ..] = message.first_chunk::<HANDSHAKE_HEADER_LEN>()? else {
        return None;
    };
    let [high, middle, low] = long.map(usize::from);
    let mut reader = Reader(message.get(HANDSHAKE_HEADER_LEN..)?);
    let mut reader = Reader(reader.take(high << 16 | middle << 8 | low)?);
    reader.take(VERSION_AND_RANDOM_LEN)?;
    let _session_id = reader.vector8()?;
    reader.take(SUITE_AND_COMPRESSION_LEN)?;
    let mut extensions = Reader(reader.vector16()?);
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        extensions.vector16()?;
        if kind == EXTENSION_EXTENDED_MASTER_SECRET {
            return Some(true);
        }
    }
    Some(false)
}

const SERVER_HELLO: u8 = 2;
const SUITE_AND_COMPRESSION_LEN: usize = 3;
const VERSION_AND_RANDOM_LEN: usize = 34;
const _: () = assert!(RECORD_HEADER_LEN == 5);

#[cfg(test)]
mod tests {
    use super::*;

    /// A ServerHello of TLS 1.2 with these extensions, in one record.
    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0xc0, 0x2b, 0]);
        body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend(extensions);
        let len = u8::try_from(body.len()).unwrap();
        let mut record = vec![HANDSHAKE, 3, 3, 0, len + 4, SERVER_HELLO, 0, 0, len];
        record.extend(body);
        record
    }

    #[test]
    fn extended_master_secret_is_found_only_if_whole() {
        let with = hello(&[0xff, 1, 0, 1, 0, 0, 23, 0, 0]);
        assert!(has_extended_master_secret(&with));
        for len in 0..with.len() {
            assert!(!has_extended_master_secret(&with[..len]), "{len}");
        }
        assert!(!has_extended_master_secret(&hello(&[0xff, 1, 0, 1, 0])));
        assert!(!has_extended_master_secret(&hello(&[])));
    }
}
