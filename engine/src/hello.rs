//! A first look at a ClientHello, before any TLS state is allocated for the connection.
//!
//! [`peek`] finds the server name and the order of cipher suites without copying, tells apart a
//! client that speaks plain HTTP, and bounds what a stranger can make us keep. rustls parses the
//! same bytes again and is the judge of their validity: this parser only has to be safe on every
//! input and to agree with rustls on valid ones.

/// What the first bytes of a connection are.
#[derive(Debug, PartialEq, Eq)]
pub enum Peek {
    /// A whole ClientHello.
    Hello(Hello),
    /// Plausible so far; more bytes are needed.
    NeedMore,
    /// Something else than TLS.
    NotTls,
    /// The start of a plain HTTP request.
    PlainHttp,
    /// A ClientHello of more than the allowed bytes.
    TooLong,
}

/// The parts of a ClientHello that decide how the session is set up.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Whether data follows that the client hopes to be read before the handshake is done.
    pub offers_early_data: bool,
    /// Whether TLS 1.3 is among the offered versions.
    pub offers_tls13: bool,
    /// Whether ChaCha20-Poly1305 is offered before every AES suite: the mark of a client without
    /// AES instructions, whose order is worth following.
    pub prefers_chacha20: bool,
    /// The requested server name, lower-cased; `None` if there is none or it is no host name.
    pub server_name: Option<Box<str>>,
}

/// Looks at the first bytes of a connection.
///
/// `bytes_max` bounds the hello, record headers included.
pub fn peek(bytes: &[u8], bytes_max: usize) -> Peek {
    let Some(&first) = bytes.first() else { return Peek::NeedMore };
    if first != RECORD_HANDSHAKE {
        return peek_http(bytes);
    }
    // A hello that ends beyond the limit is too long even if all of it has arrived.
    match parse_records(&bytes[..bytes.len().min(bytes_max)]) {
        Some(Ok(hello)) => Peek::Hello(hello),
        Some(Err(Malformed)) => Peek::NotTls,
        None if bytes.len() > bytes_max => Peek::TooLong,
        None => match announced_len(bytes) {
            Some(len) if len > bytes_max => Peek::TooLong,
            _ => Peek::NeedMore,
        },
    }
}

const RECORD_HANDSHAKE: u8 = 0x16;
const RECORD_HEADER_LEN: usize = 5;
const HANDSHAKE_HEADER_LEN: usize = 4;
const CLIENT_HELLO: u8 = 1;
/// RFC 8446 section 5.1: a plaintext record carries at most 2^14 bytes.
const RECORD_PAYLOAD_MAX: usize = 1 << 14;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_EARLY_DATA: u16 = 42;
const EXTENSION_SUPPORTED_VERSIONS: u16 = 43;
const TLS13: u16 = 0x0304;
/// RFC 1035 section 2.3.4.
const HOST_NAME_LEN_MAX: usize = 253;
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

/// The bytes can never become a ClientHello.
struct Malformed;

fn peek_http(bytes: &[u8]) -> Peek {
    for method in HTTP_METHODS {
        let common = bytes.len().min(method.len());
        if bytes[..common] == method[..common] {
            return if bytes.len() >= method.len() { Peek::PlainHttp } else { Peek::NeedMore };
        }
    }
    Peek::NotTls
}

/// Length of the hello's message as its header says, without record headers; unknown where the
/// header itself is spread over records.
fn announced_len(bytes: &[u8]) -> Option<usize> {
    let (record_header, rest) = bytes.split_at_checked(RECORD_HEADER_LEN)?;
    let record_len = usize::from(u16::from_be_bytes([record_header[3], record_header[4]]));
    let header = rest[..rest.len().min(record_len)].get(..HANDSHAKE_HEADER_LEN)?;
    Some(usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]))
}

/// `None`: incomplete.
fn parse_records(bytes: &[u8]) -> Option<Result<Hello, Malformed>> {
    let (first, mut rest) = match split_record(bytes)? {
        Ok(split) => split,
        Err(malformed) => return Some(Err(malformed)),
    };
    if let Some(parsed) = parse_message(first) {
        return Some(parsed);
    }
    // Rare: a hello spread over several records is put together before it is parsed.
    let mut message = first.to_vec();
    loop {
        let (payload, behind) = match split_record(rest)? {
            Ok(split) => split,
            Err(malformed) => return Some(Err(malformed)),
        };
        message.extend_from_slice(payload);
        rest = behind;
        if let Some(parsed) = parse_message(&message) {
            return Some(parsed);
        }
    }
}

/// A record's payload and what follows it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// Splits off the first record.
fn split_record(bytes: &[u8]) -> Option<Result<Split<'_>, Malformed>> {
    let (header, rest) = bytes.split_at_checked(RECORD_HEADER_LEN)?;
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if header[0] != RECORD_HANDSHAKE || header[1] != 3 || len == 0 || len > RECORD_PAYLOAD_MAX {
        return Some(Err(Malformed));
    }
    rest.split_at_checked(len).map(Ok)
}

fn parse_message(message: &[u8]) -> Option<Result<Hello, Malformed>> {
    let mut reader = Reader(message);
    let kind = reader.u8()?;
    if kind != CLIENT_HELLO {
        return Some(Err(Malformed));
    }
    let body = reader.vector24()?;
    Some(parse_client_hello(body).ok_or(Malformed))
}

fn parse_client_hello(body: &[u8]) -> Option<Hello> {
    let mut reader = Reader(body);
    let legacy_version_and_random_len = 2 + 32;
    reader.take(legacy_version_and_random_len)?;
    let _session_id = reader.vector8()?;
    let suites = reader.vector16()?;
    let _compression = reader.vector8()?;

    let mut hello = Hello { prefers_chacha20: prefers_chacha20(suites), ..Hello::default() };
    if reader.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = Reader(reader.vector16()?);
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        match kind {
            EXTENSION_EARLY_DATA => hello.offers_early_data = true,
            EXTENSION_SERVER_NAME => hello.server_name = host_name(content),
            EXTENSION_SUPPORTED_VERSIONS => {
                let versions = Reader(content).vector8()?;
                hello.offers_tls13 = versions
                    .chunks_exact(2)
                    .any(|pair| u16::from_be_bytes([pair[0], pair[1]]) == TLS13);
            }
            _ => {}
        }
    }
    Some(hello)
}

fn prefers_chacha20(suites: &[u8]) -> bool {
    suites
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
        .find_map(|suite| match suite {
            // TLS_CHACHA20_POLY1305_SHA256 and its TLS 1.2 kin for ECDHE.
            0x1303 | 0xcca8 | 0xcca9 => Some(true),
            // The AES-GCM suites that we speak.
            0x1301 | 0x1302 | 0xc02b | 0xc02c | 0xc02f | 0xc030 => Some(false),
            _ => None,
        })
        .unwrap_or(false)
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
    // RFC 6066 forbids addresses; rustls ignores them as well.
    (name.parse::<core::net::Ipv4Addr>().is_err()).then(|| name.to_ascii_lowercase().into())
}

/// Reads a TLS structure from the front of a slice; `None` where it is too short.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let len = self.u8()?;
        self.take(usize::from(len))
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    fn vector24(&mut self) -> Option<&'a [u8]> {
        let len = self.take(3)?;
        self.take(usize::from(len[0]) << 16 | usize::from(len[1]) << 8 | usize::from(len[2]))
    }
}

#[cfg(test)]
mod tests;
