//! A first look at a ClientHello, before any TLS state is allocated for the connection.
//!
//! [`peek`] finds the fields that a session is chosen by, without copying. It recognizes a client
//! that sends plain HTTP, and bounds the memory that a stranger can occupy. [`Gathering`] does the
//! same for a hello that arrives in pieces, and looks at each byte once.
//!
//! rustls parses the same bytes again and is the judge of their validity. So this parser has three
//! duties: to be safe on every input, to agree with rustls on valid ones, and to send the right
//! alert where rustls would send another one or none.

mod gathering;
mod ja4;
mod message;
mod records;
mod server;

pub use crate::record::RECORD_HEADER_LEN;
pub use gathering::Gathering;
pub use ja4::ja4;
pub(crate) use server::has_extended_master_secret;

use crate::alert::{self, ALERT_RECORD_LEN, AlertDescription};
use crate::record::HANDSHAKE;
use message::{is_whole, parse};
use records::Records;

/// The kind of the first bytes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Peek {
    /// A whole ClientHello.
    Hello(Hello),
    /// Plausible so far; more bytes are needed.
    NeedMore,
    /// The start of a plain HTTP request.
    PlainHttp,
    /// They can never become a ClientHello that is answered.
    Refused(Fault),
}

/// The parts of a ClientHello that decide how the session is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The offered application protocols, each behind its length in a byte; empty: none.
    pub alpn: Box<[u8]>,
    /// Whether the client marks its offer as less than it can, because a better one has failed
    /// before (RFC 7507).
    pub is_fallback: bool,
    /// Whether the client does not offer to bind the master secret of TLS 1.2 to the handshake
    /// (RFC 7627).
    pub lacks_extended_master_secret: bool,
    /// Whether an extension is missing without which TLS 1.3 cannot be spoken (RFC 8446 section
    /// 9.2); it matters only where TLS 1.3 is.
    pub lacks_for_tls13: bool,
    /// The client's offer, in numbers.
    pub offered: Offered,
    /// Whether data follows that the client hopes to be read before the handshake is done.
    pub offers_early_data: bool,
    /// Whether it offers to resume a session: by a pre-shared key, or by a ticket of TLS 1.2.
    pub offers_session: bool,
    /// Whether TLS 1.3 is among the offered versions.
    pub offers_tls13: bool,
    /// Whether ChaCha20-Poly1305 is offered before every AES suite. That is the mark of a client
    /// without AES instructions: then it is worth following its order.
    pub prefers_chacha20: bool,
    /// The client's limit for bytes of plaintext in one record, if it is below the general limit
    /// (RFC 6066 section 4, RFC 8449).
    pub record_bytes_max: Option<u16>,
    /// Whether the client takes the handshake for a renegotiation (RFC 5746), which no handshake is
    /// here.
    pub renegotiates: bool,
    /// The requested server name, lower-cased and without a dot at its end; `None` if there is none
    /// or it is no host name.
    pub server_name: Option<Box<str>>,
}

/// A client's offer, in numbers, to explain a rejection in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Cipher suites, those included that mean nothing.
    pub suites: u16,
    versions: u8,
}

impl Offered {
    pub(super) fn note_version(&mut self, version: u16) {
        if let Some(position) = VERSIONS.iter().position(|(number, _)| *number == version) {
            self.versions |= 1 << position;
        }
    }

    /// The names of the versions that are offered and have one, the newest first.
    pub fn versions(self) -> impl Iterator<Item = &'static str> {
        let numbered = VERSIONS.iter().enumerate();
        let offered = numbered.filter(move |(position, _)| self.versions & 1 << position != 0);
        offered.map(|(_, (_, name))| *name)
    }
}

/// Versions by number and name.
const VERSIONS: [(u16, &str); 5] = [
    (0x0304, "TLSv1.3"),
    (0x0303, "TLSv1.2"),
    (0x0302, "TLSv1.1"),
    (0x0301, "TLSv1.0"),
    (0x0300, "SSLv3"),
];

impl Hello {
    /// Whether it offers application protocols of which `spoken` has none.
    pub fn has_no_protocol_of(&self, spoken: &[Vec<u8>]) -> bool {
        let mut offered = &*self.alpn;
        while let Some((len, rest)) = offered.split_first() {
            let Some((protocol, rest)) = rest.split_at_checked(usize::from(*len)) else { break };
            if spoken.iter().any(|each| each == protocol) {
                return false;
            }
            offered = rest;
        }
        !self.alpn.is_empty()
    }
}

/// A reason why first bytes can never become a ClientHello that is answered. It is always the
/// client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A fallback to a version before TLS 1.2: somebody may have forced it.
    Fallback,
    /// A max_fragment_length or a record_size_limit of a value that none may have.
    IllegalLimit,
    /// The bytes are no TLS, and no plain HTTP either.
    NotTls,
    /// No version since TLS 1.2, or SSL 3 together with one.
    OldVersion,
    /// A record of more than the allowed bytes.
    RecordTooLong,
    /// A ClientHello of more than the allowed bytes.
    TooLong,
    /// A ClientHello with fields that do not add up.
    Undecodable,
    /// TLS, but no ClientHello alone: another message or record, an empty one, or one with
    /// something behind it.
    Unexpected,
}

impl Fault {
    /// The fatal alert to send, as a whole record.
    pub fn alert(self) -> [u8; ALERT_RECORD_LEN] {
        alert::fatal(match self {
            // RFC 7507 section 3.
            Self::Fallback => AlertDescription::InappropriateFallback,
            // RFC 8446 section 6.2, where "invalid length" is this one's.
            Self::Undecodable => AlertDescription::DecodeError,
            // RFC 6066 section 4, RFC 8449 section 4. A long message may well be decodable: the
            // alert for it is that of OpenSSL and BoringSSL.
            Self::IllegalLimit | Self::TooLong => AlertDescription::IllegalParameter,
            // RFC 8446 section 5: any of these is a record of an unexpected type.
            Self::NotTls | Self::Unexpected => AlertDescription::UnexpectedMessage,
            // RFC 8446 appendix D.5.
            Self::OldVersion => AlertDescription::ProtocolVersion,
            // RFC 8446 section 5.1.
            Self::RecordTooLong => AlertDescription::RecordOverflow,
        })
    }
}

/// Looks at the first bytes of a connection.
///
/// `message_bytes_max` bounds the hello as a handshake message, without the headers of records. A
/// caller that looks again as bytes arrive keeps them in a [`Gathering`] instead.
pub fn peek(bytes: &[u8], message_bytes_max: usize) -> Peek {
    match peek_record(bytes, message_bytes_max) {
        Peek::NeedMore => Gathering::default().take(bytes, message_bytes_max).1,
        decided => decided,
    }
}

/// Like [`peek`], but a hello that does not lie whole in the first record needs more, even if all
/// of it is there. Nothing is copied.
pub fn peek_record(bytes: &[u8], message_bytes_max: usize) -> Peek {
    match bytes.first() {
        None => return Peek::NeedMore,
        Some(&HANDSHAKE) => {}
        Some(_) => return peek_other(bytes),
    }
    let mut records = Records::default();
    match records.next(&mut { bytes }) {
        Ok(None) => Peek::NeedMore,
        Ok(Some(payload)) => match is_whole(payload, records.left(), message_bytes_max) {
            Ok(true) => parse(payload).map_or_else(Peek::Refused, Peek::Hello),
            Ok(false) => Peek::NeedMore,
            Err(fault) => Peek::Refused(fault),
        },
        Err(fault) => Peek::Refused(fault),
    }
}

/// Classifies bytes that do not begin as a handshake record.
fn peek_other(bytes: &[u8]) -> Peek {
    for method in HTTP_METHODS {
        let common = bytes.len().min(method.len());
        if bytes[..common] == method[..common] {
            return if bytes.len() >= method.len() { Peek::PlainHttp } else { Peek::NeedMore };
        }
    }
    match bytes {
        // Two bytes of length, of which the first bit is set, and the type.
        [0x80..=0xff, _, SSL2_CLIENT_HELLO, ..] => Peek::Refused(Fault::OldVersion),
        [0x80..=0xff] | [0x80..=0xff, _] => Peek::NeedMore,
        [RECORD_TYPE_MIN..=RECORD_TYPE_MAX, ..] => Peek::Refused(Fault::Unexpected),
        _ => Peek::Refused(Fault::NotTls),
    }
}

/// Bytes after which [`peek_other`] has decided.
const OTHER_BYTES_MAX: usize = 8;
const HTTP_METHODS: [&[u8]; 10] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"CONNECT ",
    b"TRACE ",
    b"PATCH ",
    b"PRI ",
];
/// Types of records, from change_cipher_spec to heartbeat.
const RECORD_TYPE_MIN: u8 = 20;
const RECORD_TYPE_MAX: u8 = 24;
const SSL2_CLIENT_HELLO: u8 = 1;

#[cfg(test)]
pub(crate) mod extend;
#[cfg(test)]
pub(crate) mod tests;
