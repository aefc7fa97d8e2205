//! The receiver's side, of both versions: nothing is allocated, and no byte of it is trusted.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::crc32c::{self, CHECKSUM_LEN};
use super::malformed::Malformed;
use super::values::{Reader, Value, Values};
use super::{
    AUTHORITY_BYTES_MAX, FIXED_LEN, REST_BYTES_MAX, SIGNATURE, TCP_OVER_IPV4, TCP_OVER_IPV6,
    TYPE_AUTHORITY, TYPE_CRC32C, TYPE_UNIQUE_ID, UDP_OVER_IPV4, UDP_OVER_IPV6, UNIQUE_ID_BYTES_MAX,
    UNIX_DATAGRAM, UNIX_STREAM, UNSPECIFIED, VERSION2_LOCAL, VERSION2_PROXY, line,
};

/// A header that was read: bytes of the sender, which tell of somebody else.
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
    /// One of which it tells no address.
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

    /// What tells the connection from all others, on every hop that passes it on.
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
    fn with_values(mut self, header: &'a [u8], mut reader: Reader<'a>) -> Result<Self, Malformed> {
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

/// Reads the header at the front of `bytes`, of either version; `None` as long as it is unfinished.
///
/// What is no header is refused at the first byte that shows it, and the refusal stands whatever
/// follows. Values that are not known are passed over, as the specification wants it.
///
/// # Errors
/// The sender's fault; no further byte can mend it.
pub fn decode(bytes: &[u8]) -> Result<Option<Header<'_>>, Malformed> {
    match bytes.first() {
        None => Ok(None),
        Some(b'P') => line::decode(bytes),
        Some(_) => decode_binary(bytes),
    }
}

/// Reads version 2.
fn decode_binary(bytes: &[u8]) -> Result<Option<Header<'_>>, Malformed> {
    let begun = bytes.len().min(SIGNATURE.len());
    if bytes[..begun] != SIGNATURE[..begun] {
        return Err(Malformed::NotProxy);
    }
    let command = bytes.get(SIGNATURE.len()).copied().unwrap_or(VERSION2_PROXY);
    if ![VERSION2_LOCAL, VERSION2_PROXY].contains(&command) {
        return Err(Malformed::Command { command });
    }
    let family = bytes.get(SIGNATURE.len() + 1).copied().unwrap_or(UNSPECIFIED);
    if command == VERSION2_PROXY && !FAMILIES.contains(&family) {
        return Err(Malformed::Family { family });
    }
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_LEN>() else { return Ok(None) };
    let [.., len_high, len_low] = *fixed;
    let rest_len = usize::from(u16::from_be_bytes([len_high, len_low]));
    if rest_len > REST_BYTES_MAX {
        return Err(Malformed::TooLong { len: rest_len });
    }
    let Some(rest) = rest.get(..rest_len) else { return Ok(None) };
    let len = FIXED_LEN + rest_len;
    if command == VERSION2_LOCAL {
        // What follows means nothing, not even where addresses end and values begin.
        return Ok(Some(Header::bare(len, Origin::Sender)));
    }
    let mut reader = Reader::new(rest);
    let origin = origin(family, &mut reader)?;
    Header::bare(len, origin).with_values(&bytes[..len], reader).map(Some)
}

/// Reads the addresses. Those of datagrams are passed over: no client of a stream has such.
fn origin(family: u8, reader: &mut Reader<'_>) -> Result<Origin, Malformed> {
    match family {
        TCP_OVER_IPV4 => tcp::<4, Ipv4Addr>(reader),
        TCP_OVER_IPV6 => tcp::<16, Ipv6Addr>(reader),
        UDP_OVER_IPV4 => reader.array::<IPV4_LEN>().map(|_| Origin::Unknown),
        UDP_OVER_IPV6 => reader.array::<IPV6_LEN>().map(|_| Origin::Unknown),
        UNIX_DATAGRAM => reader.array::<UNIX_LEN>().map(|_| Origin::Unknown),
        UNIX_STREAM => reader.array::<UNIX_LEN>().map(|_| Origin::Unix),
        // One of the families, or it has been refused.
        _ => Ok(Origin::Unknown),
    }
}

fn tcp<const N: usize, A>(reader: &mut Reader<'_>) -> Result<Origin, Malformed>
where
    A: From<[u8; N]> + Into<std::net::IpAddr>,
{
    let [client, local] = [reader.array()?, reader.array()?].map(|ip| A::from(ip).into());
    let [client_port, local_port] = [reader.u16()?, reader.u16()?];
    Ok(Origin::Tcp {
        client: SocketAddr::new(client, client_port),
        local: SocketAddr::new(local, local_port),
    })
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

/// Family and transport, as the specification combines them.
const FAMILIES: [u8; 7] = [
    UNSPECIFIED,
    TCP_OVER_IPV4,
    UDP_OVER_IPV4,
    TCP_OVER_IPV6,
    UDP_OVER_IPV6,
    UNIX_STREAM,
    UNIX_DATAGRAM,
];
/// Bytes of two addresses with their ports.
const IPV4_LEN: usize = 2 * (4 + 2);
/// Bytes of two addresses with their ports.
const IPV6_LEN: usize = 2 * (16 + 2);
/// Bytes of two paths.
const UNIX_LEN: usize = 2 * 108;

#[cfg(test)]
mod tests;
