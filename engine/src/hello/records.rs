//! The records of a ClientHello, split in any way.

use super::Fault;
use crate::record::{HANDSHAKE, RECORD_HEADER_LEN, RECORD_PLAIN_MAX};

/// The state of a stream of records between two reads.
#[derive(Debug, Default)]
pub(super) struct Records {
    header: [u8; RECORD_HEADER_LEN],
    header_len: usize,
    /// Bytes of the current record's payload that have not arrived.
    left: usize,
}

impl Records {
    /// The next piece of payload, which is taken off the front of `bytes`; `None` if nothing is
    /// left of them.
    ///
    /// # Errors
    /// A record that cannot be part of a hello, as soon as its header shows it.
    pub(super) fn next<'b>(&mut self, bytes: &mut &'b [u8]) -> Result<Option<&'b [u8]>, Fault> {
        while self.left == 0 {
            let Some((byte, rest)) = bytes.split_first() else { return Ok(None) };
            self.header[self.header_len] = *byte;
            self.header_len += 1;
            *bytes = rest;
            self.look_at_header()?;
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let (payload, rest) = bytes.split_at(self.left.min(bytes.len()));
        self.left -= payload.len();
        *bytes = rest;
        Ok(Some(payload))
    }

    /// Whether no byte has been taken yet, or none since the last whole record.
    pub(super) fn is_fresh(&self) -> bool {
        self.header_len == 0 && self.left == 0
    }

    /// Bytes of the current record that have not arrived.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Judges the byte of the header that came last.
    fn look_at_header(&mut self) -> Result<(), Fault> {
        let [kind, major, _, long, short] = self.header;
        match self.header_len {
            1 if kind != HANDSHAKE => Err(Fault::Unexpected),
            2 if major != VERSION_MAJOR => Err(Fault::OldVersion),
            RECORD_HEADER_LEN => {
                self.header_len = 0;
                self.left = usize::from(u16::from_be_bytes([long, short]));
                match self.left {
                    0 => Err(Fault::Unexpected),
                    1..=RECORD_PLAIN_MAX => Ok(()),
                    _ => Err(Fault::RecordTooLong),
                }
            }
            _ => Ok(()),
        }
    }
}

/// The major version of every TLS. The byte behind it is not looked at (RFC 8446 section 5.1).
const VERSION_MAJOR: u8 = 3;
