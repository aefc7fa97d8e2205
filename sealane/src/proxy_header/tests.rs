//! The header is laid out as the specification says, and reading undoes writing.

use proptest::prelude::*;

use super::*;

/// Every field, byte by byte, as section 2.2 of the specification lays it out.
const WRITTEN: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x5f\
    \x7f\x00\x00\x01\x7f\x00\x00\x02\xd0\x01\x20\xfb\
    \x01\x00\x08http/1.1\
    \x02\x00\x09localhost\
    \x20\x00\x30\x01\x00\x00\x00\x01\
    \x21\x00\x07TLSv1.3\x23\x00\x0cTLS_AES_TEST\x26\x00\x0fX25519MLKEM768X\
    \xe8\x00\x02\x01\x03\
    \xe9\x00\x01\x01";

fn header() -> Header<'static> {
    Header {
        addresses: Some(("127.0.0.1:53249".parse().unwrap(), "127.0.0.2:8443".parse().unwrap())),
        alpn: Some(b"http/1.1"),
        lane: Some(0x0103),
        resumed: Some(true),
        server_name: Some("localhost"),
        tls: Some(Tls {
            group: Some("X25519MLKEM768X"),
            suite: Some("TLS_AES_TEST"),
            version: Some("TLSv1.3"),
        }),
    }
}

#[test]
fn the_layout_is_that_of_the_specification() {
    assert_eq!(header().encode().escape_ascii().to_string(), WRITTEN.escape_ascii().to_string());
    assert_eq!(Header::decode(WRITTEN), Ok(Some((header(), WRITTEN.len()))));
}

#[test]
fn a_header_may_come_in_pieces_and_ends_where_it_says() {
    for len in 0..WRITTEN.len() {
        assert_eq!(Header::decode(&WRITTEN[..len]), Ok(None), "{len} bytes");
    }
    let more = [WRITTEN, b"GET / HTTP/1.1"].concat();
    assert_eq!(Header::decode(&more), Ok(Some((header(), WRITTEN.len()))));
}

#[test]
fn what_is_malformed_is_refused() {
    let changed = |at: usize, bytes: &[u8]| {
        let mut header = WRITTEN.to_vec();
        header[at..at + bytes.len()].copy_from_slice(bytes);
        Header::decode(&header).map(|_| ()).unwrap_err()
    };
    assert_eq!(changed(0, b"G"), Malformed::Signature);
    assert_eq!(Header::decode(b"GET"), Err(Malformed::Signature));
    assert_eq!(changed(12, &[0x31]), Malformed::Command { command: 0x31 });
    assert_eq!(changed(13, &[0x31]), Malformed::Family { family: 0x31 });
    assert_eq!(changed(14, &[0xff, 0xff]), Malformed::TooLong { len: 0xffff });
    // The length ends within the addresses, then within the last value.
    assert_eq!(changed(14, &[0, 11]), Malformed::CutShort);
    assert_eq!(changed(14, &[0, 0x5e]), Malformed::CutShort);
    // A value, then a value within a group, longer than what holds it.
    assert_eq!(changed(29, &[0, 0xff]), Malformed::CutShort);
    assert_eq!(changed(60, &[0, 0xff]), Malformed::CutShort);
    assert_eq!(changed(42, &[0xff]), Malformed::NotText);
}

#[test]
fn what_is_not_known_is_passed_over() {
    let unknown = b"\r\n\r\n\0\r\nQUIT\n\x21\x00\x00\x09\xee\x00\x01x\xe8\x00\x02\x00\x07";
    let expected = Header { lane: Some(7), ..Header::default() };
    assert_eq!(Header::decode(unknown), Ok(Some((expected, unknown.len()))));
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x31\x00\x03\xff\xff\xff";
    assert_eq!(Header::decode(local), Ok(Some((Header::default(), local.len()))));
}

proptest! {
    #[test]
    fn reading_undoes_writing(
        addresses in prop_oneof![
            Just(None),
            any::<[([u8; 4], u16); 2]>().prop_map(|[a, b]| Some((a.into(), b.into()))),
            any::<[([u8; 16], u16); 2]>().prop_map(|[a, b]| Some((a.into(), b.into()))),
        ],
        alpn in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..255)),
        lane: Option<u16>,
        resumed: Option<bool>,
        server_name: Option<String>,
        tls in proptest::option::of(("[ -~]{0,40}", "[ -~]{0,40}", "[ -~]{0,40}")),
    ) {
        let tls = tls.as_ref().map(|(group, suite, version)| Tls {
            group: Some(group.as_str()),
            suite: Some(suite.as_str()),
            version: Some(version.as_str()),
        });
        let (alpn, server_name) = (alpn.as_deref(), server_name.as_deref());
        let header = Header { addresses, alpn, lane, resumed, server_name, tls };
        let bytes = header.encode();
        prop_assert_eq!(Header::decode(&bytes), Ok(Some((header, bytes.len()))));
    }

    /// And no bytes make it panic or read past what they announce.
    #[test]
    fn any_bytes_are_read_or_refused(
        fixed: [u8; 4],
        rest in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0x20 | (fixed[0] & 1), [0x00, 0x11, 0x21][usize::from(fixed[1] % 3)], 0]);
        bytes.push(fixed[3]);
        bytes.extend(rest);
        if let Ok(Some((_, len))) = Header::decode(&bytes) {
            prop_assert_eq!(len, FIXED_LEN + usize::from(fixed[3]));
            prop_assert!(len <= bytes.len());
        }
    }
}
