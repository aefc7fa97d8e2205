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

fn facts() -> Facts<'static> {
    Facts {
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
    assert_eq!(facts().encode().escape_ascii().to_string(), WRITTEN.escape_ascii().to_string());
    assert_eq!(Facts::decode(WRITTEN), Ok(Some((facts(), WRITTEN.len()))));
}

#[test]
fn a_header_may_come_in_pieces_and_ends_where_it_says() {
    for len in 0..WRITTEN.len() {
        assert_eq!(Facts::decode(&WRITTEN[..len]), Ok(None), "{len} bytes");
    }
    let more = [WRITTEN, b"GET / HTTP/1.1"].concat();
    assert_eq!(Facts::decode(&more), Ok(Some((facts(), WRITTEN.len()))));
}

#[test]
fn a_value_of_ours_is_as_its_type_wants_it() {
    let changed = |at: usize, bytes: &[u8]| {
        let mut header = WRITTEN.to_vec();
        header[at..at + bytes.len()].copy_from_slice(bytes);
        Facts::decode(&header).map(|_| ()).unwrap_err()
    };
    // The version is longer than the group, and is no text.
    assert_eq!(changed(60, &[0, 0xff]), Malformed::CutShort);
    assert_eq!(changed(62, &[0xff]), Malformed::NotText);
    let short = b"\r\n\r\n\0\r\nQUIT\n\x21\x00\x00\x04\xe8\x00\x01\x07";
    assert_eq!(Facts::decode(short), Err(Malformed::CutShort));
}

#[test]
fn what_is_not_known_is_passed_over() {
    let unknown = b"\r\n\r\n\0\r\nQUIT\n\x21\x00\x00\x09\xee\x00\x01x\xe8\x00\x02\x00\x07";
    let expected = Facts { lane: Some(7), ..Facts::default() };
    assert_eq!(Facts::decode(unknown), Ok(Some((expected, unknown.len()))));
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x31\x00\x03\xff\xff\xff";
    assert_eq!(Facts::decode(local), Ok(Some((Facts::default(), local.len()))));
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
        server_name in proptest::option::of("\\PC{0,63}"),
        tls in proptest::option::of(("[ -~]{0,40}", "[ -~]{0,40}", "[ -~]{0,40}")),
    ) {
        let tls = tls.as_ref().map(|(group, suite, version)| Tls {
            group: Some(group.as_str()),
            suite: Some(suite.as_str()),
            version: Some(version.as_str()),
        });
        let (alpn, server_name) = (alpn.as_deref(), server_name.as_deref());
        let facts = Facts { addresses, alpn, lane, resumed, server_name, tls };
        let bytes = facts.encode();
        prop_assert_eq!(Facts::decode(&bytes), Ok(Some((facts, bytes.len()))));
    }
}
