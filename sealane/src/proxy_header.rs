//! The PROXY protocol header, version 2, that tells a backend who the client is and how it spoke.
//!
//! A [`Header`] is written by [`Header::encode`] and read by [`Header::decode`]. Layout and type
//! numbers: the PROXY protocol specification by HAProxy, section 2.2. Two types of the range for
//! custom use are Sealane's own: [`TYPE_LANE`] and [`TYPE_RESUMED`].

mod decode;

use std::net::{IpAddr, SocketAddr};

use sealane_engine::policy::Suite;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::Link;

pub use decode::Malformed;

/// The header for an established connection.
pub fn encode<K: Kernel>(link: &Link<'_, K>) -> Vec<u8> {
    Header::of(link).encode()
}

/// What a header says; nothing of what it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// The client's address and the one that it connected to.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The application protocol that was agreed on.
    pub alpn: Option<&'a [u8]>,
    /// The lane's number.
    pub lane: Option<u16>,
    /// Whether a ticket replaced the full handshake.
    pub resumed: Option<bool>,
    /// The server name that the client asked for.
    pub server_name: Option<&'a str>,
    /// How the client spoke TLS, if it did.
    pub tls: Option<Tls<'a>>,
}

/// What was agreed on in a TLS handshake, by names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tls<'a> {
    /// The key exchange group; none in a resumed session of TLS 1.2.
    pub group: Option<&'a str>,
    /// The cipher suite, by the name that OpenSSL gives it: what the specification shows, and what
    /// HAProxy and hitch send.
    pub suite: Option<&'a str>,
    /// The protocol version.
    pub version: Option<&'a str>,
}

impl<'a> Header<'a> {
    fn of<K: Kernel>(link: &'a Link<'_, K>) -> Self {
        let addresses = link.client_address().zip(link.local_address());
        let Some(session) = link.session() else {
            return Self { addresses, ..Self::default() };
        };
        Self {
            addresses,
            alpn: session.alpn(),
            lane: Some(u16::try_from(link.lane()).unwrap_or(u16::MAX)),
            resumed: Some(session.resumed()),
            server_name: link.server_name(),
            tls: Some(Tls {
                group: session.group(),
                suite: session.suite().map(openssl_name),
                version: session.version(),
            }),
        }
    }

    /// The bytes to send ahead of everything else.
    pub fn encode(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(256);
        header.extend_from_slice(&SIGNATURE);
        header.push(VERSION2_PROXY);
        header.push(match self.addresses {
            Some((SocketAddr::V4(_), SocketAddr::V4(_))) => TCP_OVER_IPV4,
            Some((SocketAddr::V6(_), SocketAddr::V6(_))) => TCP_OVER_IPV6,
            _ => UNSPECIFIED,
        });
        header.extend_from_slice(&[0; 2]);
        if let Some((client, local)) = self.addresses.filter(|(c, l)| c.is_ipv4() == l.is_ipv4()) {
            append_ip(&mut header, client.ip());
            append_ip(&mut header, local.ip());
            header.extend_from_slice(&client.port().to_be_bytes());
            header.extend_from_slice(&local.port().to_be_bytes());
        }
        self.append_facts(&mut header);
        let len = u16::try_from(header.len() - FIXED_LEN).unwrap_or_default();
        header[FIXED_LEN - 2..FIXED_LEN].copy_from_slice(&len.to_be_bytes());
        header
    }

    fn append_facts(&self, header: &mut Vec<u8>) {
        if let Some(protocol) = self.alpn {
            append(header, TYPE_ALPN, protocol);
        }
        if let Some(name) = self.server_name {
            append(header, TYPE_AUTHORITY, name.as_bytes());
        }
        if let Some(tls) = &self.tls {
            let mut group = vec![CLIENT_SPOKE_TLS];
            group.extend_from_slice(&NOT_VERIFIED.to_be_bytes());
            for (kind, fact) in [
                (SUBTYPE_VERSION, tls.version),
                (SUBTYPE_CIPHER, tls.suite),
                (SUBTYPE_GROUP, tls.group),
            ] {
                if let Some(fact) = fact {
                    append(&mut group, kind, fact.as_bytes());
                }
            }
            append(header, TYPE_SSL, &group);
        }
        if let Some(lane) = self.lane {
            append(header, TYPE_LANE, &lane.to_be_bytes());
        }
        if let Some(resumed) = self.resumed {
            append(header, TYPE_RESUMED, &[u8::from(resumed)]);
        }
    }
}

/// OpenSSL's name of the suite that IANA calls `iana`; of TLS 1.3 they are the same.
fn openssl_name(iana: &str) -> &str {
    Suite::ALL.iter().find(|suite| suite.name() == iana).map_or(iana, |suite| suite.openssl_name())
}

fn append_ip(header: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => header.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => header.extend_from_slice(&address.octets()),
    }
}

/// Appends a type-length-value; what is longer than its length field can say is left out.
fn append(header: &mut Vec<u8>, kind: u8, value: &[u8]) {
    if let Ok(len) = u16::try_from(value.len()) {
        header.push(kind);
        header.extend_from_slice(&len.to_be_bytes());
        header.extend_from_slice(value);
    }
}

/// The lane's number, as two bytes in network order.
pub const TYPE_LANE: u8 = 0xe8;
/// One byte: 1 if the session was resumed, 0 after a full handshake.
pub const TYPE_RESUMED: u8 = 0xe9;

/// Announces a header of version 2.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes before the address.
pub const FIXED_LEN: usize = 16;
/// Bytes behind those that a reader takes. What Sealane writes is at most half of it.
pub const REST_BYTES_MAX: usize = 2048;
/// The application protocol that was agreed on.
pub const TYPE_ALPN: u8 = 0x01;
/// The server name that the client asked for.
pub const TYPE_AUTHORITY: u8 = 0x02;
/// A group of facts about TLS.
pub const TYPE_SSL: u8 = 0x20;
/// Within the group: the TLS version.
pub const SUBTYPE_VERSION: u8 = 0x21;
/// Within the group: the cipher suite.
pub const SUBTYPE_CIPHER: u8 = 0x23;
/// Within the group: the key exchange group.
pub const SUBTYPE_GROUP: u8 = 0x26;

const VERSION2_LOCAL: u8 = 0x20;
const VERSION2_PROXY: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;
const UNSPECIFIED: u8 = 0x00;
const CLIENT_SPOKE_TLS: u8 = 0x01;
/// Not zero: no client certificate was verified.
const NOT_VERIFIED: u32 = 1;

#[cfg(test)]
mod tests;
