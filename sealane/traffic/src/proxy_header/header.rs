//! A header that was read: [`Header`].

use std::net::SocketAddr;

use super::crc32c::{self, CHECKSUM_LEN};
use super::malformed::Malformed;
use super::values::{Reader, Value, Values};
use super::{
    AUTHORITY_BYTES_MAX, TYPE_AUTHORITY, TYPE_CRC32C, TYPE_UNIQUE_ID, UNIQUE_ID_BYTES_MAX,
};

/// A header that was read: untrusted bytes about another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    authority: Option<&'a str>,
    /// Bytes of the header; what follows them is the client's.
    pub len: usize,
    /// Whose connection it announces.
    pub origin: Origin,
    unique_id: Option<&'a [u8]>,
    values: Values<'a>,
}

/// Whose connection a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The sender's own, such as a health check.
    Sender,
    /// One over TCP.
    Tcp {
        /// The client's address.
        client: SocketAddr,
        /// The address that it connected to.
        local: SocketAddr,
    },
    /// One over a unix socket, which has no address to go by.
    Unix,
    /// One without an address.
    Unknown,
}

impl<'a> Header<'a> {
    /// The client's address. Without one, that of the connection itself counts.
    pub fn client(&self) -> Option<SocketAddr> {
        match self.origin {
            Origin::Tcp { client, .. } => Some(client),
            Origin::Sender | Origin::Unix | Origin::Unknown => None,
        }
    }

    /// The address that the client connected to.
    pub fn local(&self) -> Option<SocketAddr> {
        match self.origin {
            Origin::Tcp { local, .. } => Some(local),
            Origin::Sender | Origin::Unix | Origin::Unknown => None,
        }
    }

    /// The host name that the client asked for.
    pub fn authority(&self) -> Option<&'a str> {
        self.authority
    }

    /// The unique id of the connection, the same on every hop that passes it on.
    pub fn unique_id(&self) -> Option<&'a [u8]> {
        self.unique_id
    }

    /// Everything else that version 2 has to tell, in the order in which it came.
    pub fn values(&self) -> Values<'a> {
        self.values
    }

    pub(super) fn bare(len: usize, origin: Origin) -> Self {
        Self { authority: None, len, origin, unique_id: None, values: Values::default() }
    }

    /// Looks at all values once, so that nobody who asks for one later can fail.
    pub(super) fn with_values(
        mut self,
        header: &'a [u8],
        mut reader: Reader<'a>,
    ) -> Result<Self, Malformed> {
        self.values = reader.values();
        let mut checksum = None;
        while let Some(Value { kind, bytes, .. }) = reader.value()? {
            match kind {
                TYPE_AUTHORITY => {
                    fits(kind, bytes, AUTHORITY_BYTES_MAX)?;
                    once(&mut self.authority, kind, text(bytes)?)?;
                }
                TYPE_CRC32C => {
                    let told = bytes.try_into().map_err(|_| Malformed::Checksum)?;
                    let at = header.len() - reader.left() - CHECKSUM_LEN;
                    once(&mut checksum, kind, (at, u32::from_be_bytes(told)))?;
                }
                TYPE_UNIQUE_ID => {
                    fits(kind, bytes, UNIQUE_ID_BYTES_MAX)?;
                    once(&mut self.unique_id, kind, bytes)?;
                }
                _ => {}
            }
        }
        match checksum {
            Some((at, told)) if crc32c::of_header(header, at) != told => Err(Malformed::Checksum),
            _ => Ok(self),
        }
    }
}

fn fits(kind: u8, bytes: &[u8], max: usize) -> Result<(), Malformed> {
    if bytes.len() > max {
        return Err(Malformed::ValueTooLong { kind, len: bytes.len(), max });
    }
    Ok(())
}

/// Two of a kind: whoever passes them on may take the other one.
fn once<T>(slot: &mut Option<T>, kind: u8, value: T) -> Result<(), Malformed> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed::Twice { kind }),
    }
}

/// A name as text that can be compared and shown.
pub(super) fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::NotText)?;
    if text.contains(char::is_control) { Err(Malformed::NotText) } else { Ok(text) }
}
