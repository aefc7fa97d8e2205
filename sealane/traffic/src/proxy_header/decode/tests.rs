//! Headers as senders write them, cut at every byte, and bytes that are none.

use proptest::prelude::*;

use super::*;
use crate::proxy_header::{
    AUTHORITY_BYTES_MAX, TYPE_AUTHORITY, TYPE_CRC32C, TYPE_UNIQUE_ID, UNIQUE_ID_BYTES_MAX, crc32c,
};
use crate::proxy_header::{Facts, LINE_BYTES_MAX};

fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [&SIGNATURE[..], &[command, family], &len, rest].concat()
}

fn refused(bytes: &[u8]) -> Malformed {
    decode(bytes).unwrap_err()
}

/// Whole with what follows it, and unfinished wherever it is cut.
fn read(bytes: &[u8]) -> Header<'_> {
    for len in 0..bytes.len() {
        assert_eq!(decode(&bytes[..len]), Ok(None), "{len} bytes of {}", bytes.escape_ascii());
    }
    let header = decode(bytes).unwrap().unwrap();
    assert_eq!(header.len, bytes.len());
    for more in [&b"\r\n"[..], b"\x16\x03\x01", b"PROXY UNKNOWN\r\n"] {
        let longer = [bytes, more].concat();
        assert_eq!(decode(&longer), Ok(Some(header)));
    }
    header
}

/// Over IPv4, from 192.0.2.7:4660 to 198.51.100.1:443.
const V4: &[u8] = &[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x34, 0x01, 0xbb];

fn tcp(client: &str, local: &str) -> Origin {
    Origin::Tcp { client: client.parse().unwrap(), local: local.parse().unwrap() }
}

#[test]
fn lines_are_read() {
    let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let cases = [
        (
            "TCP4 192.0.2.7 198.51.100.1 4660 443".to_owned(),
            tcp("192.0.2.7:4660", "198.51.100.1:443"),
        ),
        (
            "TCP4 0.0.0.0 255.255.255.255 0 65535".to_owned(),
            tcp("0.0.0.0:0", "255.255.255.255:65535"),
        ),
        ("TCP6 2001:DB8::7 ::1 1 2".to_owned(), tcp("[2001:db8::7]:1", "[::1]:2")),
        ("TCP6 ::ffff:192.0.2.7 :: 1 2".to_owned(), tcp("[::ffff:192.0.2.7]:1", "[::]:2")),
        (
            format!("TCP6 {longest} {longest} 65535 65535"),
            tcp(&format!("[{longest}]:65535"), &format!("[{longest}]:65535")),
        ),
        ("UNKNOWN".to_owned(), Origin::Unknown),
        ("UNKNOWN whatever\nelse \u{e9}".to_owned(), Origin::Unknown),
        (format!("UNKNOWN {longest} {longest} 65535 65535"), Origin::Unknown),
    ];
    for (announced, origin) in cases {
        let line = format!("PROXY {announced}\r\n");
        assert!(line.len() <= LINE_BYTES_MAX);
        let header = read(line.as_bytes());
        assert_eq!(header.origin, origin, "{line}");
        assert_eq!((header.authority(), header.unique_id()), (None, None));
        assert_eq!(header.values().count(), 0);
    }
}

#[test]
fn a_line_is_as_the_specification_has_it_or_refused() {
    for announced in [
        "",
        " TCP4 192.0.2.7 198.51.100.1 1 2",
        "TCP4  192.0.2.7 198.51.100.1 1 2",
        "TCP4 192.0.2.7 198.51.100.1 1 2 ",
        "TCP4 192.0.2.7 198.51.100.1 1 2 3",
        "TCP4 192.0.2.7 198.51.100.1 1",
        "TCP4 192.0.2.07 198.51.100.1 1 2",
        "TCP4 192.0.2 198.51.100.1 1 2",
        "TCP4 192.0.2.256 198.51.100.1 1 2",
        "TCP4 2001:db8::7 ::1 1 2",
        "TCP4 192.0.2.7 198.51.100.1 01 2",
        "TCP4 192.0.2.7 198.51.100.1 1 00",
        "TCP4 192.0.2.7 198.51.100.1 +1 2",
        "TCP4 192.0.2.7 198.51.100.1 -1 2",
        "TCP4 192.0.2.7 198.51.100.1 1 65536",
        "TCP4 192.0.2.7 198.51.100.1 1 2\n",
        "TCP4 192.0.2.7 198.51.100.1 1 2\r",
        "TCP6 192.0.2.7 198.51.100.1 1 2",
        "TCP6 2001:db8::7::1 ::1 1 2",
        "TCP6 fe80::1%1 ::1 1 2",
        "TCP6 [::1] ::1 1 2",
        "TCP5 192.0.2.7 198.51.100.1 1 2",
        "tcp4 192.0.2.7 198.51.100.1 1 2",
        "UDP4 192.0.2.7 198.51.100.1 1 2",
        "UNKNOWNS",
        "unknown",
        "TCP4 \u{663}.0.2.7 198.51.100.1 1 2",
    ] {
        assert_eq!(
            refused(format!("PROXY {announced}\r\n").as_bytes()),
            Malformed::Line,
            "{announced}"
        );
    }
    let endless = |len| format!("PROXY UNKNOWN {}", "x".repeat(len - 14));
    assert_eq!(decode(endless(LINE_BYTES_MAX - 1).as_bytes()), Ok(None));
    assert_eq!(refused(endless(LINE_BYTES_MAX).as_bytes()), Malformed::LineTooLong);
    let late = endless(LINE_BYTES_MAX - 1) + "\r\n";
    assert_eq!(refused(late.as_bytes()), Malformed::LineTooLong);
}

#[test]
fn what_is_no_header_is_told_at_the_first_byte_that_shows_it() {
    for (bytes, len) in [
        (&b"\x16\x03\x01\x02\x00"[..], 1),
        (b"GET / HTTP/1.1\r\n", 1),
        (b"\0", 1),
        (b"POST / HTTP/1.1\r\n", 2),
        (b"PROXYTCP4", 6),
        (b"PROXY\r\n", 6),
        (b"\r\nPROXY", 3),
        (b"\r\n\r\n\0\r\nQUIT\r", 12),
    ] {
        assert_eq!(decode(&bytes[..len - 1]), Ok(None), "{}", bytes.escape_ascii());
        assert_eq!(refused(&bytes[..len]), Malformed::NotProxy, "{}", bytes.escape_ascii());
        assert_eq!(refused(bytes), Malformed::NotProxy, "{}", bytes.escape_ascii());
    }
}

#[test]
fn the_origin_is_what_family_and_command_say() {
    let v6: Vec<u8> = (0..32).chain([0, 1, 0, 2]).collect();
    let expected =
        tcp("[1:203:405:607:809:a0b:c0d:e0f]:1", "[1011:1213:1415:1617:1819:1a1b:1c1d:1e1f]:2");
    assert_eq!(read(&binary(0x21, 0x21, &v6)).origin, expected);
    let header = binary(0x21, 0x11, V4);
    let header = read(&header);
    assert_eq!(header.client(), Some("192.0.2.7:4660".parse().unwrap()));
    assert_eq!(header.local(), Some("198.51.100.1:443".parse().unwrap()));
    for (family, len, origin) in [
        (UNSPECIFIED, 0, Origin::Unknown),
        (UDP_OVER_IPV4, 12, Origin::Unknown),
        (UDP_OVER_IPV6, 36, Origin::Unknown),
        (UNIX_DATAGRAM, 216, Origin::Unknown),
        (UNIX_STREAM, 216, Origin::Unix),
    ] {
        // The value behind the addresses shows that these were passed over whole.
        let rest = [&vec![0xff; len][..], b"\x02\x00\x01a"].concat();
        let bytes = binary(0x21, family, &rest);
        let header = read(&bytes);
        assert_eq!((header.origin, header.client(), header.local()), (origin, None, None));
        assert_eq!(header.authority(), Some("a"));
        if len > 0 {
            assert_eq!(refused(&binary(0x21, family, &rest[..len - 1])), Malformed::CutShort);
        }
    }
    // Of the sender's own connection nothing is read: neither family nor values.
    for (family, rest) in [(0, &b""[..]), (0x11, V4), (0x77, b"\x02\xff"), (0x11, b"\x01")] {
        let bytes = binary(0x20, family, rest);
        let header = read(&bytes);
        assert_eq!((header.origin, header.client()), (Origin::Sender, None));
        assert_eq!(header.values().count(), 0);
    }
}

#[test]
fn values_are_read_and_passed_on_as_they_came() {
    let id = [7; UNIQUE_ID_BYTES_MAX];
    let name = "n".repeat(AUTHORITY_BYTES_MAX);
    let written = [
        &b"\xea\x00\x03vpc\x02\x00\xff"[..],
        name.as_bytes(),
        b"\x05\x00\x80",
        &id,
        b"\xea\x00\x00",
    ];
    let values = written.concat();
    let bytes = binary(0x21, 0x11, &[V4, &values].concat());
    let header = read(&bytes);
    assert_eq!(header.authority(), Some(&name[..]));
    assert_eq!(header.unique_id(), Some(&id[..]));
    assert_eq!(header.values().as_bytes(), values);
    let kinds: Vec<_> = header.values().map(|value| (value.kind, value.bytes.len())).collect();
    assert_eq!(kinds, [(0xea, 3), (TYPE_AUTHORITY, 255), (TYPE_UNIQUE_ID, 128), (0xea, 0)]);
    let whole: Vec<_> = header.values().flat_map(|value| value.whole).copied().collect();
    assert_eq!(whole, values);
}

#[test]
fn values_that_cannot_be_are_refused() {
    let with = |values: &[u8]| refused(&binary(0x21, 0x11, &[V4, values].concat()));
    for cut in [&b"\x02"[..], b"\x02\x00", b"\x02\x00\x01", b"\x02\x00\x00\xea\x01\x00x"] {
        assert_eq!(with(cut), Malformed::CutShort);
    }
    assert_eq!(with(b"\x02\x00\x01\xff"), Malformed::NotText);
    assert_eq!(with(b"\x02\x00\x02a\n"), Malformed::NotText);
    for (kind, max) in
        [(TYPE_AUTHORITY, AUTHORITY_BYTES_MAX), (TYPE_UNIQUE_ID, UNIQUE_ID_BYTES_MAX)]
    {
        let len = u8::try_from(max).unwrap().wrapping_add(1);
        let high = u8::from(len == 0);
        let long = [&[kind, high, len][..], &vec![b'a'; max + 1]].concat();
        assert_eq!(with(&long), Malformed::ValueTooLong { kind, len: max + 1, max });
        let twice = [kind, 0, 1, b'a', kind, 0, 1, b'a'];
        assert_eq!(with(&twice), Malformed::Twice { kind });
    }
    assert_eq!(refused(&binary(0x21, 0x11, &V4[..11])), Malformed::CutShort);
    assert_eq!(
        refused(&SIGNATURE.iter().copied().chain([0x31]).collect::<Vec<_>>()),
        Malformed::Command { command: 0x31 }
    );
    assert_eq!(refused(&binary(0x22, 0, b"")), Malformed::Command { command: 0x22 });
    for family in [0x01, 0x10, 0x13, 0x41, 0xff] {
        // Before its length is known.
        assert_eq!(refused(&binary(0x21, family, b"")[..14]), Malformed::Family { family });
    }
    let longest = [b"\xea\x07\xfd", &[0; REST_BYTES_MAX - 3][..]].concat();
    assert_eq!(read(&binary(0x21, 0, &longest)).len, FIXED_LEN + REST_BYTES_MAX);
    let len = REST_BYTES_MAX + 1;
    assert_eq!(refused(&binary(0x21, 0, &vec![0; len])[..FIXED_LEN]), Malformed::TooLong { len });
}

#[test]
fn a_checksum_is_verified_wherever_it_stands() {
    for (before, behind) in [(&b""[..], &b"\x02\x00\x01a"[..]), (b"\x02\x00\x01a", b"")] {
        let rest = [V4, before, b"\x03\x00\x04\0\0\0\0", behind].concat();
        let at = FIXED_LEN + V4.len() + before.len() + 3;
        let mut bytes = binary(0x21, 0x11, &rest);
        let sum = crc32c::of_header(&bytes, at);
        bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(read(&bytes).authority(), Some("a"));
        for place in [SIGNATURE.len() + 4, at, bytes.len() - 1] {
            let mut changed = bytes.clone();
            changed[place] ^= 0x20;
            assert_eq!(refused(&changed), Malformed::Checksum, "byte {place}");
        }
    }
    assert_eq!(refused(&binary(0x21, 0, b"\x03\x00\x03\0\0\0")), Malformed::Checksum);
    let twice = b"\x03\x00\x04\0\0\0\0\x03\x00\x04\0\0\0\0";
    assert_eq!(refused(&binary(0x21, 0, twice)), Malformed::Twice { kind: TYPE_CRC32C });
}

proptest! {
    /// Nothing panics, and what was said of the front of some bytes stands whatever follows.
    #[test]
    fn any_bytes_are_read_refused_or_unfinished_for_good(
        front in prop_oneof![
            Just(b"PROXY ".to_vec()),
            Just(b"PROXY TCP4 ".to_vec()),
            (0_u8..2, 0..FAMILIES.len(), 0_u16..400).prop_map(|(command, family, len)| {
                let [high, low] = len.to_be_bytes();
                [&SIGNATURE[..], &[0x20 | command, FAMILIES[family], high, low]].concat()
            }),
            Just(Vec::new()),
        ],
        rest in proptest::collection::vec(any::<u8>(), 0..400),
        cut in 0_usize..420,
    ) {
        let bytes = [front, rest].concat();
        let whole = decode(&bytes);
        match &bytes.get(..cut).map(decode) {
            Some(Ok(None)) | None => {}
            Some(decided) => prop_assert_eq!(&whole, decided),
        }
        match whole {
            Ok(Some(header)) => prop_assert!(header.len <= bytes.len()),
            Ok(None) => prop_assert!(bytes.len() < FIXED_LEN + REST_BYTES_MAX),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        if let Ok(facts) = Facts::decode(&bytes) {
            let len = whole.map(|header| header.map(|header| header.len));
            prop_assert_eq!(Ok(facts.map(|(_, len)| len)), len);
        }
    }
}
