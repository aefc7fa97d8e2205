//! What is told of a connection, beside whose it is: written for backends, and read by those of our
//! own.

use std::net::{IpAddr, SocketAddr};

use sealane_engine::policy::Suite;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::Link;

use super::decode::{decode, text};
use super::malformed::Malformed;
use super::values::{Reader, Value};
use super::{
    CLIENT_SPOKE_TLS, FIXED_LEN, NOT_VERIFIED, SIGNATURE, SUBTYPE_CIPHER, SUBTYPE_GROUP,
    SUBTYPE_VERSION, TCP_OVER_IPV4, TCP_OVER_IPV6, TYPE_ALPN, TYPE_AUTHORITY, TYPE_LANE,
    TYPE_RESUMED, TYPE_SSL, UNSPECIFIED, VERSION2_PROXY,
};

/// What a header says of a connection; nothing of what it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts<'a> {
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

impl<'a> Facts<'a> {
    pub(super) fn of<K: Kernel>(link: &'a Link<'_, K>) -> Self {
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

    /// Reads the header at the front of `bytes`, and says how long it is; `None` as long as it is
    /// unfinished.
    ///
    /// # Errors
    /// The sender's fault; no further byte can mend it.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some(header) = decode(bytes)? else { return Ok(None) };
        let mut facts = Self {
            addresses: header.client().zip(header.local()),
            server_name: header.authority(),
            ..Self::default()
        };
        for Value { kind, bytes, .. } in header.values() {
            let mut reader = Reader::new(bytes);
            match kind {
                TYPE_ALPN => facts.alpn = Some(bytes),
                TYPE_LANE => facts.lane = Some(reader.u16()?),
                TYPE_RESUMED => facts.resumed = Some(bytes == [1]),
                TYPE_SSL => facts.tls = Tls::read(reader)?,
                _ => {}
            }
        }
        Ok(Some((facts, header.len)))
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

impl<'a> Tls<'a> {
    fn read(mut reader: Reader<'a>) -> Result<Option<Self>, Malformed> {
        let [client, _verified @ ..] = reader.array::<5>()?;
        let mut tls = Self::default();
        while let Some(Value { kind, bytes, .. }) = reader.value()? {
            match kind {
                SUBTYPE_CIPHER => tls.suite = Some(text(bytes)?),
                SUBTYPE_GROUP => tls.group = Some(text(bytes)?),
                SUBTYPE_VERSION => tls.version = Some(text(bytes)?),
                _ => {}
            }
        }
        Ok((client & CLIENT_SPOKE_TLS != 0).then_some(tls))
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

#[cfg(test)]
mod tests;
