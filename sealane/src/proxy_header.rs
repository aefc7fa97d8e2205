//! The PROXY protocol header, version 2, that tells a backend who the client is and how it spoke.
//!
//! Layout and type numbers: the PROXY protocol specification by HAProxy, section 2.2. Two types of
//! the range for custom use are Sealane's own: [`TYPE_LANE`] and [`TYPE_RESUMED`].

use std::net::{IpAddr, SocketAddr};

use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::Link;

/// The lane's number, as two bytes in network order.
pub const TYPE_LANE: u8 = 0xe8;
/// One byte: 1 if the session was resumed, 0 after a full handshake.
pub const TYPE_RESUMED: u8 = 0xe9;

/// Announces a header of version 2.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes before the address.
pub const FIXED_LEN: usize = 16;
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

const VERSION2_PROXY: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;
const UNSPECIFIED: u8 = 0x00;
const CLIENT_SPOKE_TLS: u8 = 0x01;
/// Not zero: no client certificate was verified.
const NOT_VERIFIED: u32 = 1;

/// The header for an established connection.
pub fn encode<K: Kernel>(link: &Link<'_, K>) -> Vec<u8> {
    let mut header = Vec::with_capacity(256);
    header.extend_from_slice(&SIGNATURE);
    header.push(VERSION2_PROXY);
    let addresses = link.client_address().zip(link.local_address());
    header.push(match addresses {
        Some((SocketAddr::V4(_), SocketAddr::V4(_))) => TCP_OVER_IPV4,
        Some((SocketAddr::V6(_), SocketAddr::V6(_))) => TCP_OVER_IPV6,
        _ => UNSPECIFIED,
    });
    header.extend_from_slice(&[0; 2]);
    if let Some((client, local)) = addresses.filter(|(c, l)| c.is_ipv4() == l.is_ipv4()) {
        append_ip(&mut header, client.ip());
        append_ip(&mut header, local.ip());
        header.extend_from_slice(&client.port().to_be_bytes());
        header.extend_from_slice(&local.port().to_be_bytes());
    }
    append_facts(&mut header, link);
    let len = u16::try_from(header.len() - FIXED_LEN).unwrap_or_default();
    header[FIXED_LEN - 2..FIXED_LEN].copy_from_slice(&len.to_be_bytes());
    header
}

fn append_facts<K: Kernel>(header: &mut Vec<u8>, link: &Link<'_, K>) {
    let Some(session) = link.session() else { return };
    if let Some(protocol) = session.alpn() {
        append(header, TYPE_ALPN, protocol);
    }
    if let Some(name) = link.server_name() {
        append(header, TYPE_AUTHORITY, name.as_bytes());
    }
    let mut tls = vec![CLIENT_SPOKE_TLS];
    tls.extend_from_slice(&NOT_VERIFIED.to_be_bytes());
    for (kind, fact) in [
        (SUBTYPE_VERSION, session.version()),
        (SUBTYPE_CIPHER, session.suite()),
        (SUBTYPE_GROUP, session.group()),
    ] {
        if let Some(fact) = fact {
            append(&mut tls, kind, fact.as_bytes());
        }
    }
    append(header, TYPE_SSL, &tls);
    let lane = u16::try_from(link.lane()).unwrap_or(u16::MAX);
    append(header, TYPE_LANE, &lane.to_be_bytes());
    append(header, TYPE_RESUMED, &[u8::from(session.resumed())]);
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
