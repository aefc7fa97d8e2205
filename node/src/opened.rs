//! The payload of [`Event::Open`](crate::message::Event::Open): [`Opened`].
//!
//! ```text
//!  0  u16 version   6  u8 flags         12  u8 remote family    16  i32 descriptor, or -1
//!  2  u16 suite     7  u8 ALPN bytes    13  u8 local family     20  u32 context, low half
//!  4  u16 group     8  u16 remote port  14  u8 name bytes       24  16 bytes remote address
//!                  10  u16 local port   15  u8 error bytes      40  16 bytes local address
//! 56  ALPN, server name, authorization error, then the client's chain: (u32 bytes, DER)*
//! ```

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use sealane_engine::peer_chain::{PEER_CERTIFICATES_MAX, PEER_CHAIN_BYTES_MAX};
use sealane_engine::session::ServerSession;

/// The facts about a connection that JavaScript gets at its beginning.
pub struct Opened<'a> {
    /// The TLS session.
    pub session: &'a ServerSession,
    /// The server name that the client asked for.
    pub server_name: &'a str,
    /// The client's address.
    pub remote: Option<SocketAddr>,
    /// The address that it connected to.
    pub local: Option<SocketAddr>,
    /// Whether the client was asked for a certificate.
    pub asked: bool,
    /// The reason why its certificate is not trusted. Empty if it is, or was not asked for.
    pub authorization_error: &'a str,
    /// The socket through which the plaintext goes, if not through the rings.
    pub descriptor: Option<RawFd>,
    /// The context that it was admitted under.
    pub context: u64,
}

impl Opened<'_> {
    /// Writes the payload over the content of `into`.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.clear();
        let alpn = short(self.session.alpn().unwrap_or_default());
        let name = short(self.server_name.as_bytes());
        let error = short(self.authorization_error.as_bytes());
        let numbers = [
            version(self.session.version().unwrap_or_default()),
            numbered(&SUITES, self.session.suite()),
            numbered(&GROUPS, self.session.group()),
        ];
        for number in numbers {
            into.extend_from_slice(&number.to_le_bytes());
        }
        into.extend_from_slice(&[self.flags(), alpn.1]);
        let (remote, local) = (Address::of(self.remote), Address::of(self.local));
        for port in [remote.port, local.port] {
            into.extend_from_slice(&port.to_le_bytes());
        }
        into.extend_from_slice(&[remote.family, local.family, name.1, error.1]);
        into.extend_from_slice(&self.descriptor.unwrap_or(-1).to_le_bytes());
        into.extend_from_slice(&self.context.to_le_bytes()[..4]);
        for part in [&remote.bytes[..], &local.bytes, alpn.0, name.0, error.0] {
            into.extend_from_slice(part);
        }
        append(self.session.peer_certificates().iter().map(AsRef::as_ref), into);
    }

    fn flags(&self) -> u8 {
        let shown = !self.session.peer_certificates().is_empty();
        let verified = self.asked && self.authorization_error.is_empty() && shown;
        [
            (self.session.resumed(), RESUMED),
            (verified, VERIFIED),
            (self.descriptor.is_some(), DESCRIPTOR),
            (self.asked, ASKED),
        ]
        .iter()
        .filter(|(is_set, _)| *is_set)
        .fold(0, |flags, (_, flag)| flags | flag)
    }
}

/// An address as messages have it.
pub struct Address {
    /// 4, 6, or 0 if there is none.
    pub family: u8,
    /// In the machine's order.
    pub port: u16,
    /// In the network's order, from the front.
    pub bytes: [u8; 16],
}

impl Address {
    /// A unix socket's peer has none.
    pub fn of(address: Option<SocketAddr>) -> Self {
        let mut bytes = [0; 16];
        let Some(address) = address else { return Self { family: 0, port: 0, bytes } };
        let family = match address.ip() {
            IpAddr::V4(ip) => {
                bytes[..4].copy_from_slice(&ip.octets());
                4
            }
            IpAddr::V6(ip) => {
                bytes = ip.octets();
                6
            }
        };
        Self { family, port: address.port(), bytes }
    }
}

const RESUMED: u8 = 1;
const VERIFIED: u8 = 2;
const DESCRIPTOR: u8 = 4;
const ASKED: u8 = 8;
/// The most that a handshake admits, each behind its length. A ticket of an older version may hold
/// more.
const CHAIN_BYTES_MAX: usize = PEER_CHAIN_BYTES_MAX + PEER_CERTIFICATES_MAX * LENGTH_BYTES;
const LENGTH_BYTES: usize = 4;

/// Appends a client's certificates. The first is its own, of any size, because a client must not be
/// trusted if its certificate is not shown. Then come as many of its issuers as there is room for.
fn append<'a>(chain: impl Iterator<Item = &'a [u8]>, into: &mut Vec<u8>) {
    let mut bytes = 0;
    for (index, der) in chain.enumerate() {
        bytes += LENGTH_BYTES + der.len();
        if index > 0 && bytes > CHAIN_BYTES_MAX {
            return;
        }
        let len = u32::try_from(der.len()).unwrap_or_default();
        into.extend_from_slice(&len.to_le_bytes());
        into.extend_from_slice(der);
    }
}

/// The bytes that a length of 8 bits can count, and that length. Names of hosts and protocols have
/// at most 255, and the errors are ours.
fn short(bytes: &[u8]) -> (&[u8], u8) {
    u8::try_from(bytes.len()).map_or((&[], 0), |len| (bytes, len))
}

fn version(name: &str) -> u16 {
    if name == "TLSv1.3" { 0x0304 } else { 0x0303 }
}

fn numbered(table: &[(&str, u16)], name: Option<&str>) -> u16 {
    let found = name.and_then(|name| table.iter().find(|(known, _)| *known == name));
    found.map_or(0, |(_, number)| *number)
}

/// Numbers that IANA gave to the cipher suites.
const SUITES: [(&str, u16); 9] = [
    ("TLS_AES_128_GCM_SHA256", 0x1301),
    ("TLS_AES_256_GCM_SHA384", 0x1302),
    ("TLS_CHACHA20_POLY1305_SHA256", 0x1303),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xc02b),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0xc02c),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca9),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xc02f),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 0xc030),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca8),
];
/// Numbers that IANA gave to the groups.
const GROUPS: [(&str, u16); 4] =
    [("X25519", 0x1d), ("X25519MLKEM768", 0x11ec), ("secp256r1", 0x17), ("secp384r1", 0x18)];

#[cfg(test)]
mod tests {
    use sealane_engine::policy::Group;

    use super::*;

    #[test]
    fn every_group_that_can_be_agreed_on_has_a_number() {
        for group in Group::ALL {
            assert_ne!(numbered(&GROUPS, Some(group.name())), 0, "{group:?}");
        }
    }

    #[test]
    fn a_clients_own_certificate_is_told_whatever_its_size() {
        let told = |chain: &[&[u8]]| {
            let mut into = Vec::new();
            append(chain.iter().copied(), &mut into);
            into.len()
        };
        let (large, small) = (vec![1; 60_000], vec![2; 100]);
        assert_eq!(told(&[]), 0);
        assert_eq!(told(&[&large]), LENGTH_BYTES + large.len());
        assert_eq!(told(&[&large, &small]), LENGTH_BYTES + large.len());
        assert_eq!(told(&[&small, &large]), LENGTH_BYTES + small.len());
        assert_eq!(told(&[&small, &small]), 2 * (LENGTH_BYTES + small.len()));
    }

    #[test]
    fn an_address_is_told_as_the_network_writes_it() {
        let address = Address::of(Some("192.0.2.7:443".parse().unwrap()));
        assert_eq!((address.family, address.port, address.bytes[3]), (4, 443, 7));
        let address = Address::of(Some("[2001:db8::9]:1".parse().unwrap()));
        assert_eq!((address.family, address.port, address.bytes[15]), (6, 1, 9));
        assert_eq!(Address::of(None).family, 0);
    }
}
