//! The ClientHello as a handshake message.

use super::{Fault, Hello, Offered};
use crate::record::RECORD_PLAIN_MAX;

/// Whether `message` is a ClientHello of the length in its header, as far as that is known.
/// `record_left` bytes of its last record have not arrived.
///
/// # Errors
/// It is another message, longer than `bytes_max`, or shorter than the record that it ends in.
/// Bytes behind a hello come under other keys, so they may not begin in there (RFC 8446 section
/// 5.1).
pub(super) fn is_whole(
    message: &[u8],
    record_left: usize,
    bytes_max: usize,
) -> Result<bool, Fault> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(Fault::Unexpected);
    }
    let Some([_, long @ ..]) = message.first_chunk::<HANDSHAKE_HEADER_LEN>() else {
        return Ok(false);
    };
    let [high, middle, low] = long.map(usize::from);
    let len = HANDSHAKE_HEADER_LEN + (high << 16 | middle << 8 | low);
    if len > bytes_max {
        let adds_up = own_len(message).is_none_or(|own_len| own_len == len);
        return Err(if adds_up { Fault::TooLong } else { Fault::Undecodable });
    }
    match message.len().cmp(&len) {
        std::cmp::Ordering::Equal if record_left == 0 => Ok(true),
        std::cmp::Ordering::Less => Ok(false),
        _ => Err(Fault::Unexpected),
    }
}

/// Bytes of a ClientHello that begins with `message`, by its fields. None if too few have come, or
/// it ends before its extensions.
fn own_len(message: &[u8]) -> Option<usize> {
    let mut reader = Reader(message.get(HANDSHAKE_HEADER_LEN + VERSION_AND_RANDOM_LEN..)?);
    reader.vector8()?;
    reader.vector16()?;
    reader.vector8()?;
    let extensions_len = usize::from(reader.u16()?);
    Some(message.len() - reader.0.len() + extensions_len)
}

/// Reads a whole ClientHello.
///
/// # Errors
/// Its fields do not add up, or it is of a version that may not be spoken.
pub(super) fn parse(message: &[u8]) -> Result<Hello, Fault> {
    #[cfg(test)]
    super::tests::WORK.with_borrow_mut(|work| work.parsed += 1);
    let body = message.get(HANDSHAKE_HEADER_LEN..).ok_or(Fault::Undecodable)?;
    let (hello, versions) = parse_body(body).ok_or(Fault::Undecodable)?;
    let is_new = hello.offers_tls13 || versions.has_tls12;
    match versions.legacy {
        // RFC 8446 appendix D.5: independent of the other offers.
        ..=SSL3 => Err(Fault::OldVersion),
        _ if is_new && versions.has_illegal_limit => Err(Fault::IllegalLimit),
        _ if is_new => Ok(hello),
        _ if hello.is_fallback => Err(Fault::Fallback),
        _ => Err(Fault::OldVersion),
    }
}

/// Fields that decide whether a hello is refused: versions below TLS 1.3, and limits of records.
struct Versions {
    has_illegal_limit: bool,
    has_tls12: bool,
    legacy: u16,
}

fn parse_body(body: &[u8]) -> Option<(Hello, Versions)> {
    let mut reader = Reader(body);
    let legacy = reader.u16()?;
    // The list of versions replaces it, where there is one (RFC 8446 section 4.2.1).
    let mut versions = Versions { has_illegal_limit: false, has_tls12: legacy >= TLS12, legacy };
    reader.take(VERSION_AND_RANDOM_LEN - 2)?;
    let _session_id = reader.vector8()?;
    let suites = reader.vector16()?;
    let _compression = reader.vector8()?;

    let (prefers_chacha20, is_fallback) = look_at_suites(suites);
    let mut hello = Hello {
        is_fallback,
        lacks_extended_master_secret: true,
        prefers_chacha20,
        ..Hello::default()
    };
    hello.offered.suites = u16::try_from(suites.len() / 2).unwrap_or(u16::MAX);
    hello.offered.note_version(legacy);
    if reader.0.is_empty() {
        return Some((hello, versions));
    }
    let mut extensions = Reader(reader.vector16()?);
    if !reader.0.is_empty() {
        return None;
    }
    let mut seen = Seen::default();
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        match kind {
            EXTENSION_ALPN => hello.alpn = Reader(content).vector16()?.into(),
            EXTENSION_EARLY_DATA => hello.offers_early_data = true,
            EXTENSION_EXTENDED_MASTER_SECRET => hello.lacks_extended_master_secret = false,
            EXTENSION_KEY_SHARE => seen.key_share = true,
            EXTENSION_MAX_FRAGMENT_LENGTH => {
                let [code] = *content else { return None };
                seen.fragment_bytes_max = fragment_bytes_max(code);
                versions.has_illegal_limit |= seen.fragment_bytes_max.is_none();
            }
            EXTENSION_RECORD_SIZE_LIMIT => {
                let [high, low] = *content else { return None };
                let limit = u16::from_be_bytes([high, low]);
                seen.has_record_size_limit = true;
                seen.record_bytes_max = record_bytes_max(limit);
                versions.has_illegal_limit |= limit < RECORD_SIZE_LIMIT_LEGAL;
            }
            EXTENSION_PRE_SHARED_KEY => {
                seen.pre_shared_key = true;
                hello.offers_session = true;
            }
            EXTENSION_RENEGOTIATION_INFO => {
                hello.renegotiates = Reader(content).vector8().is_some_and(|end| !end.is_empty());
            }
            EXTENSION_SERVER_NAME => hello.server_name = host_name(content),
            // An empty one asks for a ticket.
            EXTENSION_SESSION_TICKET => hello.offers_session |= !content.is_empty(),
            EXTENSION_SIGNATURE_ALGORITHMS => seen.signature_algorithms = true,
            EXTENSION_SUPPORTED_GROUPS => seen.supported_groups = true,
            EXTENSION_SUPPORTED_VERSIONS => note_versions(content, &mut hello, &mut versions)?,
            _ => {}
        }
    }
    hello.lacks_for_tls13 = hello.offers_tls13 && seen.lacks_for_tls13();
    // RFC 8449 section 5: the other extension does not count then.
    hello.record_bytes_max = match seen.has_record_size_limit {
        true => seen.record_bytes_max,
        false => seen.fragment_bytes_max,
    };
    Some((hello, versions))
}

/// Notes a list of versions.
fn note_versions(content: &[u8], hello: &mut Hello, versions: &mut Versions) -> Option<()> {
    let offered = Reader(content).vector8()?;
    let offers = |version: u16| offered.chunks_exact(2).any(|pair| *pair == version.to_be_bytes());
    hello.offered = Offered { suites: hello.offered.suites, ..Offered::default() };
    for pair in offered.chunks_exact(2) {
        hello.offered.note_version(u16::from_be_bytes([pair[0], pair[1]]));
    }
    hello.offers_tls13 = offers(TLS13);
    versions.has_tls12 = offers(TLS12);
    Some(())
}

/// Extensions that TLS 1.3 needs, and limits of records.
#[derive(Default)]
struct Seen {
    fragment_bytes_max: Option<u16>,
    has_record_size_limit: bool,
    key_share: bool,
    pre_shared_key: bool,
    record_bytes_max: Option<u16>,
    signature_algorithms: bool,
    supported_groups: bool,
}

impl Seen {
    /// The two rules of RFC 8446 section 9.2.
    fn lacks_for_tls13(&self) -> bool {
        let for_certificate = self.signature_algorithms && self.supported_groups;
        !self.pre_shared_key && !for_certificate || self.supported_groups != self.key_share
    }
}

/// The limit for a code of max_fragment_length: 512 bytes to 4 KiB.
fn fragment_bytes_max(code: u8) -> Option<u16> {
    (1..=4).contains(&code).then(|| 1 << (8 + code))
}

/// The limit in an extension record_size_limit, without the byte for the type of content that it
/// counts under TLS 1.3.
fn record_bytes_max(limit: u16) -> Option<u16> {
    let is_kept = limit >= RECORD_SIZE_LIMIT_MIN && usize::from(limit) <= RECORD_PLAIN_MAX;
    is_kept.then(|| limit - 1)
}

/// Whether ChaCha20-Poly1305 is preferred to AES, and whether the hello is a fallback.
fn look_at_suites(suites: &[u8]) -> (bool, bool) {
    let suites = || suites.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let prefers_chacha20 = suites().find_map(|suite| match suite {
        // TLS_CHACHA20_POLY1305_SHA256 and its TLS 1.2 kin for ECDHE.
        0x1303 | 0xcca8 | 0xcca9 => Some(true),
        // The AES-GCM suites that we speak.
        0x1301 | 0x1302 | 0xc02b | 0xc02c | 0xc02f | 0xc030 => Some(false),
        _ => None,
    });
    (prefers_chacha20.unwrap_or(false), suites().any(|suite| suite == FALLBACK_SCSV))
}

/// The host name of a server_name extension (RFC 6066 section 3).
fn host_name(extension: &[u8]) -> Option<Box<str>> {
    let mut names = Reader(Reader(extension).vector16()?);
    let kind = names.u8()?;
    let name = names.vector16()?;
    let is_host_name = kind == 0
        && !name.is_empty()
        && name.len() <= HOST_NAME_LEN_MAX
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte));
    let name = std::str::from_utf8(name).ok().filter(|_| is_host_name)?;
    // The name has no dot at its end (section 3). rustls takes both forms for one, as a look-up
    // must.
    let name = name.strip_suffix('.').unwrap_or(name);
    // RFC 6066 forbids addresses; rustls ignores them as well.
    (name.parse::<core::net::Ipv4Addr>().is_err()).then(|| name.to_ascii_lowercase().into())
}

/// Reads a TLS structure from the front of a slice; `None` where it is too short.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn vector8(&mut self) -> Option<&'a [u8]> {
        let len = self.u8()?;
        self.take(usize::from(len))
    }

    pub(super) fn vector16(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }
}

/// Type and length of the message.
pub(super) const HANDSHAKE_HEADER_LEN: usize = 4;
const CLIENT_HELLO: u8 = 1;
pub(super) const EXTENSION_ALPN: u16 = 16;
const EXTENSION_EARLY_DATA: u16 = 42;
/// RFC 7627.
pub(super) const EXTENSION_EXTENDED_MASTER_SECRET: u16 = 23;
const EXTENSION_KEY_SHARE: u16 = 51;
/// RFC 6066 section 4.
const EXTENSION_MAX_FRAGMENT_LENGTH: u16 = 1;
const EXTENSION_PRE_SHARED_KEY: u16 = 41;
/// RFC 8449.
const EXTENSION_RECORD_SIZE_LIMIT: u16 = 28;
/// RFC 5746.
const EXTENSION_RENEGOTIATION_INFO: u16 = 0xff01;
pub(super) const EXTENSION_SERVER_NAME: u16 = 0;
/// RFC 5077.
const EXTENSION_SESSION_TICKET: u16 = 35;
pub(super) const EXTENSION_SIGNATURE_ALGORITHMS: u16 = 13;
const EXTENSION_SUPPORTED_GROUPS: u16 = 10;
pub(super) const EXTENSION_SUPPORTED_VERSIONS: u16 = 43;
/// RFC 7507.
const FALLBACK_SCSV: u16 = 0x5600;
/// RFC 1035 section 2.3.4.
const HOST_NAME_LEN_MAX: usize = 253;
/// The smallest record_size_limit that a client may send (RFC 8449 section 4).
const RECORD_SIZE_LIMIT_LEGAL: u16 = 64;
/// The smallest record_size_limit that is kept to (RFC 8449 allows 64). The server does not answer
/// the extension, so it may pass over a limit. Smaller records take more room on the wire than a
/// lane's buffer has.
const RECORD_SIZE_LIMIT_MIN: u16 = 512;
const SSL3: u16 = 0x0300;
const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;
/// Bytes of a ClientHello before its session id.
const VERSION_AND_RANDOM_LEN: usize = 34;
