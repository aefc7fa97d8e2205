//! The receiver's side, of both versions: nothing is allocated, and no byte of it is trusted.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::header::{Header, Origin};
use super::malformed::Malformed;
use super::values::Reader;
use super::{
    FIXED_LEN, REST_BYTES_MAX, SIGNATURE, TCP_OVER_IPV4, TCP_OVER_IPV6, UDP_OVER_IPV4,
    UDP_OVER_IPV6, UNIX_DATAGRAM, UNIX_STREAM, UNSPECIFIED, VERSION2_LOCAL, VERSION2_PROXY, line,
};

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
