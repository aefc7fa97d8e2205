//! JA4, a name for how a TLS client introduces itself: clients of one program and version have the
//! same one. From FoxIO's published description of JA4, which is licensed as BSD-3-Clause; none of
//! its siblings is here.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::gathering::Gathering;
use super::message::{
    EXTENSION_ALPN, EXTENSION_SERVER_NAME, EXTENSION_SIGNATURE_ALGORITHMS,
    EXTENSION_SUPPORTED_VERSIONS, HANDSHAKE_HEADER_LEN, Reader,
};

/// The JA4 of the ClientHello that `bytes` begin with, in records, if it is whole.
pub fn ja4(bytes: &[u8], message_bytes_max: usize) -> Option<Box<str>> {
    let mut gathering = Gathering::default();
    gathering.take(bytes, message_bytes_max);
    let hello = Introduction::read(gathering.message())?;
    Some(hello.name().into())
}

/// The parts of a hello that count.
struct Introduction<'a> {
    alpn: &'a [u8],
    extensions: Vec<u16>,
    has_server_name: bool,
    schemes: Vec<u16>,
    suites: Vec<u16>,
    version: u16,
}

impl<'a> Introduction<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(message.get(HANDSHAKE_HEADER_LEN..)?);
        let mut version = reader.u16()?;
        let random_len = 32;
        reader.take(random_len)?;
        let _session_id = reader.vector8()?;
        let suites = numbers(reader.vector16()?);
        let _compression = reader.vector8()?;
        let (mut alpn, mut kinds, mut schemes) = (&[][..], Vec::new(), Vec::new());
        let listed = if reader.0.is_empty() { &[][..] } else { reader.vector16()? };
        let mut extensions = Reader(listed);
        while !extensions.0.is_empty() {
            let kind = extensions.u16()?;
            let content = extensions.vector16()?;
            kinds.extend(Some(kind).filter(|kind| !is_grease(*kind)));
            match kind {
                EXTENSION_ALPN => alpn = Reader(Reader(content).vector16()?).vector8()?,
                EXTENSION_SIGNATURE_ALGORITHMS => schemes = numbers(Reader(content).vector16()?),
                EXTENSION_SUPPORTED_VERSIONS => {
                    let offered = numbers(Reader(content).vector8()?);
                    version = offered.into_iter().max().unwrap_or(version);
                }
                _ => {}
            }
        }
        let has_server_name = kinds.contains(&EXTENSION_SERVER_NAME);
        Some(Self { alpn, extensions: kinds, has_server_name, schemes, suites, version })
    }

    fn name(mut self) -> String {
        let version = match self.version {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            _ => "00",
        };
        let addressed = if self.has_server_name { 'd' } else { 'i' };
        let [suites, extensions] = [&self.suites, &self.extensions].map(|list| list.len().min(99));
        let [first, last] = ends(self.alpn);
        self.suites.sort_unstable();
        self.extensions.retain(|kind| ![EXTENSION_SERVER_NAME, EXTENSION_ALPN].contains(kind));
        self.extensions.sort_unstable();
        let mut rest = list(&self.extensions);
        if !self.schemes.is_empty() {
            rest = format!("{rest}_{}", list(&self.schemes));
        }
        format!(
            "t{version}{addressed}{suites:02}{extensions:02}{first}{last}_{}_{}",
            digest(&list(&self.suites)),
            digest(&rest)
        )
    }
}

/// Numbers of two bytes, without those that mean nothing.
fn numbers(bytes: &[u8]) -> Vec<u16> {
    let numbers = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    numbers.filter(|number| !is_grease(*number)).collect()
}

/// Whether a number is one that clients send to test that servers ignore it (RFC 8701).
fn is_grease(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

/// The first and the last character of a protocol, or of its bytes in hexadecimal.
fn ends(protocol: &[u8]) -> [char; 2] {
    let (Some(first), Some(last)) = (protocol.first(), protocol.last()) else { return ['0', '0'] };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [char::from(*first), char::from(*last)];
    }
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('0');
    [digit(first >> 4), digit(last & 0x0f)]
}

fn list(numbers: &[u16]) -> String {
    let mut text = String::new();
    for (position, number) in numbers.iter().enumerate() {
        let comma = if position == 0 { "" } else { "," };
        // Nothing fails that writes into a string.
        let _ = write!(text, "{comma}{number:04x}");
    }
    text
}

/// The first twelve digits of a digest; of nothing they are zeros.
fn digest(text: &str) -> String {
    if text.is_empty() {
        return "0".repeat(2 * DIGEST_BYTES);
    }
    let digest = Sha256::digest(text);
    digest.iter().take(DIGEST_BYTES).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

const DIGEST_BYTES: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(suites: &[u16], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let vector16 = |bytes: &[u8]| {
            let len = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            [&len[..], bytes].concat()
        };
        let words = |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        let listed: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &vector16(content)].concat())
            .collect();
        let body = [&[3, 3][..], &[7; 32], &[0], &vector16(&words(suites)), &[1, 0]].concat();
        let body = [body, vector16(&listed)].concat();
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        let message = [&[1][..], &len[1..], &body].concat();
        let len = u16::try_from(message.len()).unwrap().to_be_bytes();
        [&[22, 3, 1][..], &len, &message].concat()
    }

    /// The example of the description, in another order and with ignored numbers.
    #[test]
    fn the_published_example() {
        let suites = [
            0x2a2a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
            0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
        ];
        let schemes = [0x0403u16, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
        let schemes: Vec<u8> = schemes.iter().flat_map(|scheme| scheme.to_be_bytes()).collect();
        let versions = vec![6, 0x1a, 0x1a, 3, 4, 3, 3];
        let mut extensions = vec![
            (0x4a4a, vec![]),
            (0x0010, b"\0\x0c\x02h2\x08http/1.1".to_vec()),
            (0x000d, [&[0, 16][..], &schemes].concat()),
            (0x002b, versions),
            (0x0000, b"\0\x04\0\0\x01a".to_vec()),
        ];
        for kind in [
            0xff01, 0x4469, 0x0033, 0x002d, 0x0023, 0x001b, 0x0017, 0x0015, 0x0012, 0x000b, 0x000a,
            0x0005,
        ] {
            extensions.push((kind, vec![]));
        }
        let bytes = message(&suites, &extensions);
        let name = ja4(&bytes, 1 << 14).unwrap();
        assert_eq!(&*name, "t13d1516h2_8daaf6152771_e5627efa2ab1");
        assert_eq!(ja4(&bytes[..bytes.len() - 1], 1 << 14), None);
    }

    #[test]
    fn what_is_not_there_has_its_marks() {
        assert_eq!(
            &*ja4(&message(&[], &[]), 1 << 14).unwrap(),
            "t12i000000_000000000000_000000000000"
        );
        assert_eq!(ends(b"\xab"), ['a', 'b']);
        assert_eq!(ends(b"h\xcd"), ['6', 'd']);
        assert_eq!(ends(b"x"), ['x', 'x']);
    }
}
