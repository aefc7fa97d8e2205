//! The sender's side: what is told of a connection, and what was announced to us of it.

use std::net::SocketAddr;

use sealane_config::{ProxyHeader, Tlv, Tlvs};
use sealane_engine::certificates::{KeyType, SignatureAlgorithm, common_name};
use sealane_engine::policy::{Scheme, Suite};
use sealane_engine::session::ServerSession;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::Link;

use crate::connection_number::ConnectionNumber;

use super::facts::{ClientCertificate, Facts, Tls};
use super::header::Header;
use super::line;
use super::values::Values;

/// What a header told us of a connection that we tell others of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced<'a> {
    /// The client's address, and the one that it connected to; without them those of the connection
    /// itself count.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// Values, as they came.
    pub passed: &'a [u8],
    /// Types of those that are told with [`ProxyHeader::V2`] too.
    pub passed_types: &'a [u8],
    /// What tells the connection from all others.
    pub unique_id: Option<&'a [u8]>,
}

impl<'a> From<&Header<'a>> for Announced<'a> {
    fn from(header: &Header<'a>) -> Self {
        Self {
            addresses: header.client().zip(header.local()),
            passed: header.values().as_bytes(),
            passed_types: &[],
            unique_id: header.unique_id(),
        }
    }
}

/// The header for an established connection, of which another header may have `announced`
/// something; no bytes where none is sent.
///
/// The connection's own `number` tells it from all others, unless what was announced does.
/// An address that was announced stands in place of the connection's own. So does, with
/// [`ProxyHeader::Pass`], every other value. `is_verified` says whether the certificate is believed
/// that the client showed, if it did.
pub fn encode<K: Kernel>(
    link: &Link<'_, K>,
    header: ProxyHeader,
    number: ConnectionNumber,
    announced: Option<&Announced<'_>>,
    is_verified: bool,
) -> Vec<u8> {
    let addresses = || {
        let announced = announced.and_then(|announced| announced.addresses);
        announced.or_else(|| link.client_address().zip(link.local_address()))
    };
    let (tlvs, passes_all) = match header {
        ProxyHeader::Off => return Vec::new(),
        ProxyHeader::Pass(tlvs) => (tlvs, true),
        ProxyHeader::V1 => return line::encode(addresses()),
        ProxyHeader::V2(tlvs) => (tlvs, false),
    };
    let (passed, types) = announced.map_or((Values::default(), &[][..]), |told| {
        (Values::from(told.passed), told.passed_types)
    });
    let passed = passed.filter(move |value| passes_all || types.contains(&value.kind));
    let session = link.session();
    let key = session.filter(|_| tlvs.has(Tlv::Key)).and_then(key_name);
    let number = tlvs.has(Tlv::UniqueId).then(|| number.to_string());
    let unique_id = announced.and_then(|announced| announced.unique_id);
    let facts = Facts {
        addresses: addresses(),
        checksum: tlvs.has(Tlv::Crc32c),
        unique_id: number.as_ref().map(|number| unique_id.unwrap_or(number.as_bytes())),
        lane: tlvs.has(Tlv::Lane).then(|| u16::try_from(link.lane()).unwrap_or(u16::MAX)),
        server_name: link.server_name().filter(|_| tlvs.has(Tlv::Authority)),
        ..session.map_or_else(Facts::default, |session| Facts {
            alpn: session.alpn().filter(|_| tlvs.has(Tlv::Alpn)),
            resumed: tlvs.has(Tlv::Lane).then(|| session.resumed()),
            tls: tlvs.has(Tlv::Ssl).then(|| tls(session, is_verified, tlvs, key.as_deref())),
            ..Facts::default()
        })
    };
    facts.encode(&passed)
}

/// How the client spoke TLS.
fn tls<'a>(
    session: &'a ServerSession,
    is_verified: bool,
    tlvs: Tlvs,
    key: Option<&'a str>,
) -> Tls<'a> {
    let client = session.peer_certificates().first().map(|leaf| ClientCertificate {
        common_name: tlvs.has(Tlv::Cn).then(|| common_name(leaf)).flatten(),
        der: tlvs.has(Tlv::Cert).then_some(leaf),
        // A ticket has the certificates of the session that it continues.
        is_of_session_only: session.resumed(),
        is_verified,
    });
    let signature = session.served().and_then(|served| served.signature);
    Tls {
        client,
        group: session.group(),
        key,
        signature: signature.filter(|_| tlvs.has(Tlv::Sig)).map(SignatureAlgorithm::name),
        scheme: session.signature_scheme().filter(|_| tlvs.has(Tlv::Scheme)).map(Scheme::name),
        suite: session.suite().map(openssl_name),
        version: session.version(),
    }
}

/// OpenSSL's name of the suite that IANA calls `iana`; of TLS 1.3 they are the same.
fn openssl_name(iana: &str) -> &str {
    Suite::ALL.iter().find(|suite| suite.name() == iana).map_or(iana, |suite| suite.openssl_name())
}

/// Kind and size of the key of the certificate that the client was served, as HAProxy writes them,
/// which has no word for Ed25519.
fn key_name(session: &ServerSession) -> Option<String> {
    Some(match session.served()?.key? {
        KeyType::EcdsaP256 => "EC256".to_owned(),
        KeyType::EcdsaP384 => "EC384".to_owned(),
        KeyType::EcdsaP521 => "EC521".to_owned(),
        KeyType::Ed25519 => "ED25519".to_owned(),
        KeyType::Rsa { bits } => format!("RSA{bits}"),
    })
}

#[cfg(test)]
mod tests;
