//! The keys of the PROXY header that backends get before the first byte of a client.

use sealane_operator::key::{Bool, Choice, Either, Key, Set};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Readable as _, Table, Value};

/// The PROXY header that a backend gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyHeader {
    /// None.
    #[default]
    Off,
    /// Version 2, and in it all that the client's side announced by such a header.
    Pass(Tlvs),
    /// Version 1: addresses.
    V1,
    /// Version 2.
    V2(Tlvs),
}

impl ProxyHeader {
    /// The header as written in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Pass(_) => "pass",
            Self::V1 => "v1",
            Self::V2(_) => "v2",
        }
    }

    /// The TLVs that it has, if it can have some.
    pub(crate) fn tlvs(self) -> Option<Tlvs> {
        match self {
            Self::Off | Self::V1 => None,
            Self::Pass(tlvs) | Self::V2(tlvs) => Some(tlvs),
        }
    }

    /// Whether the header contains `tlv`.
    pub fn tells(self, tlv: Tlv) -> bool {
        self.tlvs().is_some_and(|tlvs| tlvs.has(tlv))
    }
}

/// The TLVs of a version 2 header, after its addresses: a set of [`Tlv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlvs(u16);

impl Tlvs {
    const USUAL: Self = Self(
        1 << Tlv::Alpn as u16
            | 1 << Tlv::Authority as u16
            | 1 << Tlv::Lane as u16
            | 1 << Tlv::Ssl as u16,
    );

    /// The set of the TLVs in `list`.
    pub fn these(list: &[Tlv]) -> Self {
        Self(list.iter().fold(0, |set, tlv| set | tlv.bit()))
    }

    /// Whether the set contains `tlv`.
    pub fn has(self, tlv: Tlv) -> bool {
        self.0 & tlv.bit() != 0
    }
}

impl Default for Tlvs {
    fn default() -> Self {
        Self::USUAL
    }
}

/// The content of one TLV of a header, or of a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tlv {
    /// The application protocol that was agreed on.
    Alpn,
    /// The server name that the client asked for.
    Authority,
    /// The client's own certificate.
    Cert,
    /// The common name in it.
    Cn,
    /// A checksum of the header.
    Crc32c,
    /// The kind of key of the certificate that the client was served.
    Key,
    /// The lane's number, and whether the session was resumed.
    Lane,
    /// How the handshake was signed with that key.
    Scheme,
    /// How that certificate is signed.
    Sig,
    /// Version, suite and group, and what became of the client's certificates.
    Ssl,
    /// The connection's unique id that the client's side announced.
    UniqueId,
}

impl Tlv {
    /// All, by the names that they have in files.
    pub(crate) const NAMES: [(&'static str, Self); 11] = [
        ("alpn", Self::Alpn),
        ("authority", Self::Authority),
        ("cert", Self::Cert),
        ("cn", Self::Cn),
        ("crc32c", Self::Crc32c),
        ("key", Self::Key),
        ("lane", Self::Lane),
        ("scheme", Self::Scheme),
        ("sig", Self::Sig),
        ("ssl", Self::Ssl),
        ("unique-id", Self::UniqueId),
    ];

    /// Whether it is a part of [`Tlv::Ssl`].
    pub(crate) fn is_in_ssl(self) -> bool {
        matches!(self, Self::Cert | Self::Cn | Self::Key | Self::Scheme | Self::Sig)
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Reads `proxy_header` and `proxy_tlvs`; a key that is not written is that of `default`.
pub(crate) fn proxy_header(table: &Table<'_>, default: ProxyHeader) -> ProxyHeader {
    let written = table.value(&PROXY_HEADER);
    let chosen = match &written {
        Some(written) => header(written, default.tlvs().unwrap_or_default()),
        None => Some(default),
    };
    let Some(listed) = table.value(&PROXY_TLVS) else { return chosen.unwrap_or_default() };
    let tlvs = listed_tlvs(&listed).unwrap_or_default();
    match chosen {
        Some(ProxyHeader::Pass(_)) => ProxyHeader::Pass(tlvs),
        Some(ProxyHeader::V2(_)) => ProxyHeader::V2(tlvs),
        Some(ProxyHeader::V1) => {
            let what = "version 1 of the header has room for addresses only";
            listed.wrong(Problem::new(what, V2_REMEDY));
            ProxyHeader::V1
        }
        // The header is off on purpose, or its key cannot be read.
        Some(ProxyHeader::Off) | None if written.is_some() => ProxyHeader::Off,
        Some(ProxyHeader::Off) | None => {
            listed.wrong(Problem::new("there is no header that could tell it", V2_REMEDY));
            ProxyHeader::Off
        }
    }
}

/// Reads `proxy_header`; a header of version 2 has the TLVs `usual`.
fn header(written: &Value<'_>, usual: Tlvs) -> Option<ProxyHeader> {
    if written.as_text().is_some() {
        return Some(match PROXY_HEADER.kind.1.read(written)? {
            ProxyHeader::Pass(_) => ProxyHeader::Pass(usual),
            ProxyHeader::V2(_) => ProxyHeader::V2(usual),
            other => other,
        });
    }
    let is_on = PROXY_HEADER.kind.0.read(written)?;
    Some(if is_on { ProxyHeader::V2(usual) } else { ProxyHeader::Off })
}

fn listed_tlvs(written: &Value<'_>) -> Option<Tlvs> {
    let list = PROXY_TLVS.read(written)?;
    let stray = list.iter().find(|tlv| tlv.is_in_ssl());
    if let Some(stray) = stray.filter(|_| !list.contains(&Tlv::Ssl)) {
        let name = Tlv::NAMES.iter().find(|(_, tlv)| tlv == stray);
        let what = format!("{:?} is told within \"ssl\"", name.map_or("", |(name, _)| name));
        written.wrong(Problem::new(what, "add \"ssl\""));
    }
    Some(Tlvs::these(&list))
}

/// The application protocol that was agreed on.
pub const TYPE_ALPN: u8 = 0x01;

/// The server name that the client asked for.
pub const TYPE_AUTHORITY: u8 = 0x02;

/// A checksum of the header.
pub const TYPE_CRC32C: u8 = 0x03;

/// The lane's number, as two bytes in network order.
pub const TYPE_LANE: u8 = 0xe8;

/// Nothing, for alignment.
pub const TYPE_NOOP: u8 = 0x04;

/// One byte: 1 if the session was resumed, 0 after a full handshake.
pub const TYPE_RESUMED: u8 = 0xe9;

/// A group of facts about TLS.
pub const TYPE_SSL: u8 = 0x20;

/// The unique id of the connection, across hops.
pub const TYPE_UNIQUE_ID: u8 = 0x05;

const V2_REMEDY: &str = "use proxy_header = \"v2\"";

pub(crate) static PROXY_HEADER: Key<Either<Bool, Choice<ProxyHeader>>> = Key::new(
    "proxy_header",
    Either(
        Bool,
        Choice(&[
            ("pass", ProxyHeader::Pass(Tlvs::USUAL)),
            ("v1", ProxyHeader::V1),
            ("v2", ProxyHeader::V2(Tlvs::USUAL)),
        ]),
    ),
    "Sends a PROXY protocol header to backends, which announces the client: \"v1\", \"v2\" (true \
     means the same), or \"pass\", which is \"v2\" with all values of the header that the listener \
     accepted. It is sent in the clear, before TLS to the backend.",
)
.examples(&["false", "\"v2\""])
.without("false")
.see(&["listener.accept_proxy"]);

pub(crate) static PROXY_TLVS: Key<Set<Choice<Tlv>>> = Key::new(
    "proxy_tlvs",
    Set(Choice(&Tlv::NAMES), Tlv::NAMES.len()),
    "Values (TLVs) of a header of version 2 besides addresses. \"authority\" is the server name. \
     \"lane\" is the lane's number and whether the session was resumed. \"ssl\" has version, suite \
     and group, and whether the client's certificate was validated. Within \"ssl\", of the \
     client's certificate: \"cert\" (the certificate in DER) and \"cn\" (its common name). Within \
     \"ssl\", of the server's certificate: \"key\" (\"RSA2048\", \"EC256\"), \"scheme\" (the \
     signature of the handshake, such as \"rsa_pss_rsae_sha256\") and \"sig\" (\"RSA-SHA256\", \
     \"ecdsa-with-SHA256\"). \"crc32c\" is a checksum. \"unique-id\" is the announced one, or the \
     connection's number in the access log. A header has at most 2,064 bytes: values that do not \
     fit are left out, the client's certificate first.",
)
.examples(&["[\"alpn\", \"authority\", \"lane\", \"ssl\"]"])
.without("[\"alpn\", \"authority\", \"lane\", \"ssl\"]");
