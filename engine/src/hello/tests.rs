//! What clients that are in use send first, whole, split, cut and damaged.

use std::sync::Arc;

use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use super::*;
use crate::policy::Group;
use crate::provider::{ProviderChoice, lane_provider};

const BYTES_MAX: usize = 16 * 1024;

/// First flights of clients that are in use, as captured from their sockets.
const CAPTURED: [(&str, &str, Option<&str>, bool, bool); 5] = [
    ("curl", include_str!("../../../testdata/hellos/curl.hex"), NAME, true, false),
    ("chacha20", include_str!("../../../testdata/hellos/openssl-chacha20.hex"), NAME, true, true),
    ("no name", include_str!("../../../testdata/hellos/openssl-no-name.hex"), None, true, false),
    ("1.2", include_str!("../../../testdata/hellos/openssl-tls12.hex"), NAME, false, false),
    ("1.3", include_str!("../../../testdata/hellos/openssl-tls13.hex"), NAME, true, false),
];
const NAME: Option<&str> = Some("www.example.org");

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter_map(|byte| char::from(byte).to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

fn captured() -> Vec<Vec<u8>> {
    CAPTURED.iter().map(|(_, hex, ..)| from_hex(hex)).collect()
}

/// The first flight of rustls' client.
fn generated(
    name: &str,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[Vec<u8>],
) -> Vec<u8> {
    let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.to_vec();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut bytes = Vec::new();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// The one record in `hello` as records of at most `len` bytes.
fn refragment(hello: &[u8], len: usize) -> Vec<u8> {
    let record = |chunk: &[u8]| {
        let len = u16::try_from(chunk.len()).unwrap().to_be_bytes();
        [&hello[..3], &len[..], chunk].concat()
    };
    hello[RECORD_HEADER_LEN..].chunks(len).flat_map(record).collect()
}

/// What rustls makes of the same bytes: the server name, if it takes them for a ClientHello.
fn by_rustls(bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        acceptor.read_tls(&mut rest).ok()?;
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                return Some(name);
            }
            Ok(None) => {}
            Err(_) => return None,
        }
    }
    None
}

fn expect_hello(bytes: &[u8]) -> Hello {
    match peek(bytes, BYTES_MAX) {
        Peek::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hellos_of_real_clients_are_understood() {
    for (label, hex, name, offers_tls13, prefers_chacha20) in CAPTURED {
        let bytes = from_hex(hex);
        let server_name = name.map(Into::into);
        let expected =
            Hello { offers_early_data: false, offers_tls13, prefers_chacha20, server_name };
        assert_eq!(expect_hello(&bytes), expected, "{label}");
        assert_eq!(by_rustls(&bytes), Some(name.map(str::to_owned)), "{label}");
    }
    let hello = expect_hello(&generated("sub.One.test", &[&TLS13, &TLS12], &[]));
    assert_eq!((hello.server_name.as_deref(), hello.offers_tls13), (Some("sub.one.test"), true));
    let hello = expect_hello(&generated("192.0.2.1", &[&TLS12], &[b"h2".to_vec()]));
    assert_eq!((hello.server_name, hello.offers_tls13), (None, false));
}

#[test]
fn a_hello_cut_anywhere_needs_more_and_one_with_more_behind_is_whole() {
    for mut bytes in captured() {
        for len in 0..bytes.len() {
            assert_eq!(peek(&bytes[..len], BYTES_MAX), Peek::NeedMore, "{len}");
        }
        let hello = expect_hello(&bytes);
        bytes.extend([23, 3, 3, 0, 1, 0]);
        assert_eq!(expect_hello(&bytes), hello);
    }
}

#[test]
fn a_hello_over_several_records_is_put_together_and_cut_anywhere_needs_more() {
    for bytes in captured() {
        let hello = expect_hello(&bytes);
        for len in [1, 3, 4, 5, 100, bytes.len() - 6] {
            let split = refragment(&bytes, len);
            assert_eq!(expect_hello(&split), hello, "{len}");
            for cut in (0..split.len()).step_by(7) {
                assert_eq!(peek(&split[..cut], BYTES_MAX), Peek::NeedMore, "{len}, {cut}");
            }
        }
    }
}

#[test]
fn the_limit_holds_to_the_byte_however_the_hello_arrives() {
    for bytes in captured().into_iter().chain(captured().iter().map(|b| refragment(b, 60))) {
        assert!(matches!(peek(&bytes, bytes.len()), Peek::Hello(_)));
        assert_eq!(peek(&bytes, bytes.len() - 1), Peek::TooLong);
        let short = &bytes[..bytes.len() - 1];
        assert_eq!(peek(short, bytes.len() - 1), Peek::NeedMore);
        assert_eq!(peek(short, bytes.len() - 2), Peek::TooLong);
    }
    // An announced length is believed at once.
    assert_eq!(peek(&[22, 3, 1, 0x3f, 0xff, 1, 0, 0x40, 0], 16_383), Peek::TooLong);
    assert_eq!(peek(&[22, 3, 1, 0x3f, 0xff, 1, 0, 0x40, 0], 16_384), Peek::NeedMore);
}

#[test]
fn other_protocols_are_told_apart() {
    for method in HTTP_METHODS {
        assert_eq!(peek(method, BYTES_MAX), Peek::PlainHttp);
        for len in 0..method.len() {
            assert_eq!(peek(&method[..len], BYTES_MAX), Peek::NeedMore);
        }
    }
    let strange: [&[u8]; 8] = [
        b"GETTING",
        b"SSH-2.0",
        &[0x80, 0x2e, 1, 3],
        &[21, 3, 3, 0, 2, 2, 40],
        &[22, 2, 0, 0, 4],
        &[22, 3, 1, 0, 0],
        &[22, 3, 1, 0x40, 1],
        // A ServerHello.
        &[22, 3, 1, 0, 4, 2, 0, 0, 0],
    ];
    for bytes in strange {
        assert_eq!(peek(bytes, BYTES_MAX), Peek::NotTls, "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        bytes_max in 0usize..700,
    ) {
        let _ = peek(&bytes, bytes_max);
        let record = [&[22, 3, 1, 2, 0][..], &bytes].concat();
        let _ = peek(&record, bytes_max);
    }

    #[test]
    fn it_agrees_with_rustls_on_generated_hellos(
        name in "([a-zA-Z0-9_]([a-zA-Z0-9-]{0,8}[a-zA-Z0-9])?\\.){1,4}[a-z]{2,6}",
        tls12 in any::<bool>(),
        alpn in proptest::collection::vec("[a-z0-9/.]{1,12}", 0..4),
        len in 1usize..2000,
    ) {
        let versions: &[_] = if tls12 { &[&TLS12] } else { &[&TLS13, &TLS12] };
        let alpn: Vec<_> = alpn.into_iter().map(String::into_bytes).collect();
        let bytes = refragment(&generated(&name, versions, &alpn), len);
        let hello = expect_hello(&bytes);
        prop_assert_eq!(hello.server_name.as_deref(), Some(&*name.to_ascii_lowercase()));
        prop_assert_eq!(hello.offers_tls13, !tls12);
        prop_assert_eq!(by_rustls(&bytes), Some(hello.server_name.map(String::from)));
    }

    #[test]
    fn where_rustls_takes_a_damaged_hello_both_see_the_same_name(
        which in 0usize..5,
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        other_at in any::<prop::sample::Index>(),
        other_value in any::<u8>(),
    ) {
        let mut bytes = captured().swap_remove(which);
        let (at, other_at) = (at.index(bytes.len()), other_at.index(bytes.len()));
        bytes[at] = value;
        bytes[other_at] ^= other_value & 1;
        if let (Some(name), Peek::Hello(hello)) = (by_rustls(&bytes), peek(&bytes, BYTES_MAX)) {
            prop_assert_eq!(name, hello.server_name.map(String::from));
        }
    }
}
