//! The header is laid out as the specification says, and reading undoes writing.

use proptest::prelude::*;

use super::*;
use crate::proxy_header::{FIXED_LEN, REST_BYTES_MAX, Values};

/// Every field, byte by byte, as section 2.2 of the specification lays it out.
const WRITTEN: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x93\
    \x7f\x00\x00\x01\x7f\x00\x00\x02\xd0\x01\x20\xfb\
    \x05\x00\x03one\
    \x01\x00\x08http/1.1\
    \x02\x00\x09localhost\
    \xe8\x00\x02\x01\x03\
    \xe9\x00\x01\x01\
    \x20\x00\x5e\x07\x00\x00\x00\x00\
    \x21\x00\x07TLSv1.3\x23\x00\x0cTLS_AES_TEST\x26\x00\x0fX25519MLKEM768X\
    \x25\x00\x07RSA2048\x24\x00\x0aRSA-SHA256\x27\x00\x07ed25519\
    \x22\x00\x04jane\x28\x00\x03DER";

fn facts() -> Facts<'static> {
    Facts {
        addresses: Some(("127.0.0.1:53249".parse().unwrap(), "127.0.0.2:8443".parse().unwrap())),
        alpn: Some(b"http/1.1"),
        lane: Some(0x0103),
        resumed: Some(true),
        checksum: false,
        server_name: Some("localhost"),
        tls: Some(Tls {
            client: Some(ClientCertificate {
                common_name: Some("jane"),
                der: Some(b"DER"),
                is_of_session_only: false,
                is_verified: true,
            }),
            group: Some("X25519MLKEM768X"),
            key: Some("RSA2048"),
            scheme: Some("ed25519"),
            signature: Some("RSA-SHA256"),
            suite: Some("TLS_AES_TEST"),
            version: Some("TLSv1.3"),
        }),
        unique_id: Some(b"one"),
    }
}

#[test]
fn the_layout_is_that_of_the_specification() {
    assert_eq!(
        facts().encode(&Values::default()).escape_ascii().to_string(),
        WRITTEN.escape_ascii().to_string()
    );
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
    let at = WRITTEN.windows(7).position(|window| window == b"TLSv1.3").unwrap();
    assert_eq!(changed(at - 2, &[0, 0xff]), Malformed::CutShort);
    assert_eq!(changed(at, &[0xff]), Malformed::NotText);
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

/// What `facts` say with `passed` beside them, read as others read it.
fn told(facts: Facts<'_>, passed: &[u8]) -> (Vec<(u8, Vec<u8>)>, Vec<u8>) {
    let bytes = facts.encode(&Values::from(passed));
    let header = decode(&bytes).unwrap().unwrap();
    assert_eq!(header.len, bytes.len());
    (header.values().map(|value| (value.kind, value.bytes.to_vec())).collect(), bytes)
}

#[test]
fn the_flags_say_what_became_of_a_certificate() {
    let flags = |client| {
        let tls = Tls { client, ..Tls::default() };
        let (values, bytes) = told(Facts { tls: Some(tls), ..Facts::default() }, b"");
        let facts = Facts::decode(&bytes).unwrap().unwrap().0;
        assert_eq!(facts.tls, Some(tls));
        values[0].1.clone()
    };
    let certificate = |is_of_session_only, is_verified| {
        Some(ClientCertificate { is_of_session_only, is_verified, ..ClientCertificate::default() })
    };
    assert_eq!(flags(None), [1, 0, 0, 0, 1]);
    assert_eq!(flags(certificate(false, true)), [7, 0, 0, 0, 0]);
    assert_eq!(flags(certificate(false, false)), [7, 0, 0, 0, 1]);
    assert_eq!(flags(certificate(true, true)), [5, 0, 0, 0, 0]);
}

#[test]
fn what_is_passed_on_stands_as_it_came_and_ours_of_its_type_does_not() {
    let checksum = b"\x03\x00\x04\x01\x02\x03\x04";
    let nothing = b"\x04\x00\x02\x00\x00";
    let theirs = b"\xea\x00\x03vpc\x02\x00\x06theirs\xea\x00\x00";
    let passed = [&checksum[..], nothing, theirs].concat();
    let (values, _) = told(Facts { checksum: true, ..facts() }, &passed);
    let kinds: Vec<u8> = values.iter().map(|(kind, _)| *kind).collect();
    let expected = [
        TYPE_CRC32C,
        0xea,
        TYPE_AUTHORITY,
        0xea,
        TYPE_UNIQUE_ID,
        TYPE_ALPN,
        TYPE_LANE,
        TYPE_RESUMED,
        TYPE_SSL,
    ];
    assert_eq!(kinds, expected);
    assert_eq!((&values[1].1[..], &values[2].1[..]), (&b"vpc"[..], &b"theirs"[..]));
}

#[test]
fn no_header_is_longer_than_what_a_reader_takes() {
    let with = |len: usize| {
        let der = vec![0x30; len];
        let client = Some(ClientCertificate { der: Some(&der), ..ClientCertificate::default() });
        let tls = Tls { client, ..facts().tls.unwrap() };
        let (_, bytes) = told(Facts { tls: Some(tls), ..facts() }, b"");
        let read = Facts::decode(&bytes).unwrap().unwrap().0;
        assert_eq!((read.server_name, read.lane), (facts().server_name, facts().lane));
        (bytes.len(), read.tls.unwrap().client.unwrap().der.is_some())
    };
    let room = FIXED_LEN + REST_BYTES_MAX - with(0).0;
    assert_eq!(with(room), (FIXED_LEN + REST_BYTES_MAX, true));
    assert_eq!(with(room + 1), (with(0).0 - 3, false), "one byte more, and it is left out");
    assert!(!with(100_000).1, "its length fits in no value");
    // Where all room is taken by what is passed on, that is told.
    let passed = [&b"\xea\x07\xf1"[..], &[7; 0x7f1]].concat();
    let (values, bytes) = told(facts(), &passed);
    assert_eq!(bytes.len(), FIXED_LEN + REST_BYTES_MAX);
    assert_eq!(values.len(), 1);
}

#[test]
fn two_families_are_told_in_the_wider_one() {
    for (client, local, expected) in [
        ("192.0.2.7:1", "[::1]:2", ("[::ffff:192.0.2.7]:1", "[::1]:2")),
        ("[::1]:1", "192.0.2.7:2", ("[::1]:1", "[::ffff:192.0.2.7]:2")),
    ] {
        let addresses = Some((client.parse().unwrap(), local.parse().unwrap()));
        let (_, bytes) = told(Facts { addresses, ..Facts::default() }, b"");
        let read = Facts::decode(&bytes).unwrap().unwrap().0.addresses;
        assert_eq!(read, Some((expected.0.parse().unwrap(), expected.1.parse().unwrap())));
    }
}

prop_compose! {
    fn any_tls()(
        names in proptest::array::uniform6(proptest::option::of("[ -~]{0,40}")),
        client in proptest::option::of((
            proptest::option::of("\\PC{0,40}"),
            proptest::option::of(proptest::collection::vec(any::<u8>(), 0..400)),
            any::<[bool; 2]>(),
        )),
    ) -> AnyTls {
        (names, client)
    }
}

type AnyTls = ([Option<String>; 6], Option<(Option<String>, Option<Vec<u8>>, [bool; 2])>);

proptest! {
    #[test]
    fn reading_undoes_writing(
        addresses in prop_oneof![
            Just(None),
            any::<[([u8; 4], u16); 2]>().prop_map(|[a, b]| Some((a.into(), b.into()))),
            any::<[([u8; 16], u16); 2]>().prop_map(|[a, b]| Some((a.into(), b.into()))),
        ],
        alpn in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..255)),
        checksum: bool,
        lane: Option<u16>,
        resumed: Option<bool>,
        server_name in proptest::option::of("\\PC{0,63}"),
        tls in proptest::option::of(any_tls()),
        unique_id in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..129)),
    ) {
        let tls = tls.as_ref().map(|([group, key, scheme, signature, suite, version], client)| Tls {
            client: client.as_ref().map(|(common_name, der, [session, verified])| {
                ClientCertificate {
                    common_name: common_name.as_deref(),
                    der: der.as_deref(),
                    is_of_session_only: *session,
                    is_verified: *verified,
                }
            }),
            group: group.as_deref(),
            key: key.as_deref(),
            scheme: scheme.as_deref(),
            signature: signature.as_deref(),
            suite: suite.as_deref(),
            version: version.as_deref(),
        });
        let (alpn, server_name) = (alpn.as_deref(), server_name.as_deref());
        let unique_id = unique_id.as_deref();
        let facts =
            Facts { addresses, alpn, checksum, lane, resumed, server_name, tls, unique_id };
        let bytes = facts.encode(&Values::default());
        prop_assert_eq!(Facts::decode(&bytes), Ok(Some((facts, bytes.len()))));
    }

    #[test]
    fn reading_a_line_undoes_writing(addresses in prop_oneof![
        any::<[([u8; 4], u16); 2]>().prop_map(|[a, b]| (a.into(), b.into())),
        any::<[([u8; 16], u16); 2]>().prop_map(|[a, b]| (a.into(), b.into())),
    ]) {
        let line = crate::proxy_header::line::encode(Some(addresses));
        let header = decode(&line).unwrap().unwrap();
        prop_assert_eq!(header.client().zip(header.local()), Some(addresses));
        prop_assert_eq!(header.len, line.len());
    }
}
