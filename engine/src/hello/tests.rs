//! First messages of clients that are in use: whole, split, cut and damaged.

use std::cell::RefCell;
use std::sync::Arc;

use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use super::extend::{extend, extensions_at};
use super::*;
use crate::policy::Group;
use crate::provider::{ProviderChoice, lane_provider};

const BYTES_MAX: usize = 16 * 1024;

/// The work of looking at a hello.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Bytes of payload that were copied.
    pub(crate) copied: usize,
    /// Messages that were parsed.
    pub(crate) parsed: usize,
}

thread_local! {
    pub(super) static WORK: RefCell<Work> = const { RefCell::new(Work { copied: 0, parsed: 0 }) };
}

/// The work that `call` takes.
pub(crate) fn work_of(call: impl FnOnce()) -> Work {
    WORK.with_borrow_mut(|work| *work = Work::default());
    call();
    WORK.with_borrow(|work| *work)
}

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
pub(crate) fn refragment(hello: &[u8], len: usize) -> Vec<u8> {
    let record = |chunk: &[u8]| {
        let len = u16::try_from(chunk.len()).unwrap().to_be_bytes();
        [&hello[..3], &len[..], chunk].concat()
    };
    hello[RECORD_HEADER_LEN..].chunks(len).flat_map(record).collect()
}

/// The server name by rustls' own parser, if it takes the bytes for a ClientHello.
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
        let read = expect_hello(&bytes);
        let alpn = read.alpn.clone();
        let expected = Hello { alpn, offers_tls13, prefers_chacha20, server_name, ..read.clone() };
        assert_eq!(read, expected, "{label}");
        assert!(!read.is_fallback && !read.lacks_for_tls13 && !read.offers_early_data, "{label}");
        assert_eq!(by_rustls(&bytes), Some(name.map(str::to_owned)), "{label}");
    }
    let hello = expect_hello(&generated("sub.One.test", &[&TLS13, &TLS12], &[]));
    assert_eq!((hello.server_name.as_deref(), hello.offers_tls13), (Some("sub.one.test"), true));
    let hello = expect_hello(&generated("192.0.2.1", &[&TLS12], &[b"h2".to_vec()]));
    assert_eq!((&hello.server_name, hello.offers_tls13), (&None, false));
    for (spoken, expected) in [(&["h2"][..], false), (&["http/1.1"], true), (&[], true)] {
        let spoken: Vec<_> = spoken.iter().map(|each| each.as_bytes().to_vec()).collect();
        assert_eq!(hello.has_no_protocol_of(&spoken), expected, "{spoken:?}");
    }
    let silent = expect_hello(&generated("192.0.2.1", &[&TLS12], &[]));
    assert!(!silent.has_no_protocol_of(&[]), "it offers none");
}

#[test]
fn a_name_with_a_dot_at_its_end_is_the_same_name() {
    let mut bytes = generated("sub.one.testy", &[&TLS13, &TLS12], &[]);
    let at = bytes.windows(13).position(|window| window == b"sub.one.testy").unwrap();
    bytes[at + 12] = b'.';
    assert_eq!(expect_hello(&bytes).server_name.as_deref(), Some("sub.one.test"));
    assert_eq!(by_rustls(&bytes), Some(Some("sub.one.test".to_owned())));
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

/// Hands `bytes` to a gathering in steps of `step` bytes, and returns how many it took.
fn gather(bytes: &[u8], step: usize, message_bytes_max: usize) -> (Gathering, usize, Peek) {
    let (mut gathering, mut all_taken) = (Gathering::default(), 0);
    for chunk in bytes.chunks(step) {
        let before = gathering.room_len();
        let (taken, peeked) = gathering.take(chunk, message_bytes_max);
        all_taken += taken;
        assert!(gathering.framed_len() <= before + taken, "there is room for what it grows to");
        if peeked != Peek::NeedMore {
            return (gathering, all_taken, peeked);
        }
        assert_eq!(taken, chunk.len());
    }
    (gathering, all_taken, Peek::NeedMore)
}

#[test]
fn a_hello_is_parsed_once_and_copied_twice_however_it_arrives() {
    for bytes in captured() {
        let message_len = bytes.len() - RECORD_HEADER_LEN;
        let hello = expect_hello(&bytes);
        for len in [1, 2, 100, 1 << 14] {
            let split = refragment(&bytes, len);
            for step in [1, 6, 7, 1000, split.len()] {
                let mut framed = Vec::new();
                let work = work_of(|| {
                    let more = [&split[..], b"more"].concat();
                    let (gathering, taken, peeked) = gather(&more, step, BYTES_MAX);
                    assert_eq!((taken, peeked), (split.len(), Peek::Hello(hello.clone())));
                    framed = vec![0; gathering.framed_len()];
                    gathering.frame(&mut framed);
                });
                assert_eq!(work, Work { copied: 2 * message_len, parsed: 1 }, "{len}, {step}");
                assert_eq!(expect_hello(&framed), hello);
                assert_eq!(framed[RECORD_HEADER_LEN..], bytes[RECORD_HEADER_LEN..]);
            }
        }
        let in_place = work_of(|| assert_eq!(peek(&bytes, BYTES_MAX), Peek::Hello(hello.clone())));
        assert_eq!(in_place, Work { copied: 0, parsed: 1 });
    }
}

#[test]
fn a_hello_longer_than_a_record_is_framed_in_several() {
    let body_len = 40_000;
    let (bytes, message) = long_hello(body_len);
    let (gathering, taken, peeked) = gather(&bytes, 999, 1 << 16);
    assert!(matches!(peeked, Peek::Hello(_)), "{peeked:?}");
    assert_eq!(taken, bytes.len());
    let mut framed = vec![0; gathering.framed_len()];
    gathering.frame(&mut framed);
    assert_eq!(framed.len(), message.len() + 3 * RECORD_HEADER_LEN);
    assert_eq!(peek(&framed, 1 << 16), peeked);
    assert_eq!(by_rustls(&framed), Some(None), "rustls takes it");
}

/// A hello with a body of `len` bytes, most of it padding, in records of 100 bytes; its message.
fn long_hello(len: usize) -> (Vec<u8>, Vec<u8>) {
    let short = from_hex(include_str!("../../../testdata/hellos/openssl-no-name.hex"));
    let mut message = short[RECORD_HEADER_LEN..].to_vec();
    let padding_len = len + 4 - message.len() - 4;
    extend(&mut message, 21, &vec![0; padding_len]);
    let whole = [&[22, 3, 1, 0, 0][..], &message].concat();
    (refragment(&whole, 100), message)
}

#[test]
fn the_limit_counts_the_message_to_the_byte_however_it_arrives() {
    for bytes in captured() {
        let message_len = bytes.len() - RECORD_HEADER_LEN;
        for bytes in [bytes.clone(), refragment(&bytes, 60), refragment(&bytes, 1)] {
            assert!(matches!(peek(&bytes, message_len), Peek::Hello(_)));
            assert_eq!(peek(&bytes, message_len - 1), Peek::Refused(Fault::TooLong));
            let short = &bytes[..bytes.len() - 1];
            assert_eq!(peek(short, message_len), Peek::NeedMore);
        }
    }
    // An announced length is believed at once.
    let announced = [22, 3, 1, 0x3f, 0xff, 1, 0, 0x40, 0];
    assert_eq!(peek(&announced, 16_387), Peek::Refused(Fault::TooLong));
    assert_eq!(peek(&announced, 16_388), Peek::NeedMore);
}

#[test]
fn other_protocols_are_told_apart() {
    for method in HTTP_METHODS {
        assert_eq!(peek(method, BYTES_MAX), Peek::PlainHttp);
        for len in 0..method.len() {
            assert_eq!(peek(&method[..len], BYTES_MAX), Peek::NeedMore);
        }
        assert_eq!(gather(method, 1, BYTES_MAX).2, Peek::PlainHttp);
    }
}

#[test]
fn what_is_no_hello_is_refused_with_its_alert_as_soon_as_it_shows() {
    let strange: [(&[u8], Fault, AlertDescription); 12] = [
        (b"GETT", Fault::NotTls, AlertDescription::UnexpectedMessage),
        (b"S", Fault::NotTls, AlertDescription::UnexpectedMessage),
        (&[0x80, 0x2e, 1], Fault::OldVersion, AlertDescription::ProtocolVersion),
        (&[0x80, 0x2e, 2], Fault::NotTls, AlertDescription::UnexpectedMessage),
        (&[21], Fault::Unexpected, AlertDescription::UnexpectedMessage),
        (&[23], Fault::Unexpected, AlertDescription::UnexpectedMessage),
        (&[22, 2], Fault::OldVersion, AlertDescription::ProtocolVersion),
        (&[22, 3, 1, 0, 0], Fault::Unexpected, AlertDescription::UnexpectedMessage),
        (&[22, 3, 1, 0x40, 1], Fault::RecordTooLong, AlertDescription::RecordOverflow),
        // A ServerHello.
        (&[22, 3, 1, 0, 4, 2], Fault::Unexpected, AlertDescription::UnexpectedMessage),
        // A record within a message.
        (&[22, 3, 1, 0, 1, 1, 21], Fault::Unexpected, AlertDescription::UnexpectedMessage),
        // An empty hello, with nothing in it that can be read.
        (&[22, 3, 1, 0, 4, 1, 0, 0, 0], Fault::Undecodable, AlertDescription::DecodeError),
    ];
    for (bytes, fault, alert) in strange {
        assert_eq!(peek(bytes, BYTES_MAX), Peek::Refused(fault), "{bytes:?}");
        assert_eq!(peek(&bytes[..bytes.len() - 1], BYTES_MAX), Peek::NeedMore, "{bytes:?}");
        assert_eq!(gather(bytes, 1, BYTES_MAX).2, Peek::Refused(fault), "{bytes:?}");
        assert_eq!(fault.alert(), [21, 3, 3, 0, 2, 2, u8::from(alert)]);
    }
    assert_eq!(Fault::IllegalLimit.alert()[6], u8::from(AlertDescription::IllegalParameter));
    assert_eq!(Fault::TooLong.alert()[6], u8::from(AlertDescription::IllegalParameter));
}

#[test]
fn a_hello_with_something_behind_it_in_its_record_is_refused() {
    for bytes in captured() {
        let mut with_more = [&bytes[..], &[20]].concat();
        let len = u16::try_from(with_more.len() - RECORD_HEADER_LEN).unwrap().to_be_bytes();
        with_more[3..5].copy_from_slice(&len);
        let refused = Peek::Refused(Fault::Unexpected);
        assert_eq!(peek(&with_more, BYTES_MAX), refused);
        // Before it has arrived.
        assert_eq!(peek(&with_more[..bytes.len()], BYTES_MAX), refused);
        assert_eq!(gather(&with_more, 1, BYTES_MAX).2, refused);
    }
}

#[test]
fn rejects_ssl3_and_older_whatever_is_offered() {
    for mut bytes in captured() {
        let legacy_version_at = RECORD_HEADER_LEN + 4;
        for version in [[3, 0], [2, 0], [1, 2], [0, 0]] {
            bytes[legacy_version_at..legacy_version_at + 2].copy_from_slice(&version);
            assert_eq!(peek(&bytes, BYTES_MAX), Peek::Refused(Fault::OldVersion));
        }
    }
}

#[test]
fn long_hello_with_wrong_length_is_undecodable() {
    for bytes in captured() {
        let message = &bytes[RECORD_HEADER_LEN..];
        for announced in [BYTES_MAX + 1, 0xff_ffff] {
            let announced = u32::try_from(announced).unwrap().to_be_bytes();
            let padded = [&[1], &announced[1..], &message[4..]].concat();
            let padded = refragment(&[&bytes[..RECORD_HEADER_LEN], &padded].concat(), 1 << 14);
            assert_eq!(peek(&padded, BYTES_MAX), Peek::Refused(Fault::Undecodable));
            // Too little of it has come to know.
            let begun = &padded[..RECORD_HEADER_LEN + 40];
            assert_eq!(peek(begun, BYTES_MAX), Peek::Refused(Fault::TooLong));
        }
    }
}

#[test]
fn renegotiation_is_seen_where_it_is_not_empty() {
    let record = from_hex(CAPTURED[4].1);
    for (content, renegotiates) in
        [(&[0][..], false), (&[1, 7], true), (&[2, 7], false), (&[], false)]
    {
        let mut message = record[RECORD_HEADER_LEN..].to_vec();
        extend(&mut message, 0xff01, content);
        assert_eq!(parse(&message).unwrap().renegotiates, renegotiates, "{content:?}");
    }
}

#[test]
fn versions_before_tls12_are_refused_where_nothing_newer_is_offered() {
    let legacy_version_at = RECORD_HEADER_LEN + 4;
    for minor in [1, 2] {
        let mut tls12 = from_hex(CAPTURED[3].1);
        tls12[legacy_version_at + 1] = minor;
        assert_eq!(peek(&tls12, BYTES_MAX), Peek::Refused(Fault::OldVersion));
        let suites_at = RECORD_HEADER_LEN + 4 + 2 + 32 + 1 + usize::from(tls12[43]) + 2;
        tls12[suites_at..suites_at + 2].copy_from_slice(&[0x56, 0]);
        assert_eq!(peek(&tls12, BYTES_MAX), Peek::Refused(Fault::Fallback));
        // A list of versions counts in its place.
        let mut tls13 = from_hex(CAPTURED[4].1);
        tls13[legacy_version_at + 1] = minor;
        assert!(expect_hello(&tls13).offers_tls13);
        let list = [43, 0, 9, 8, 3, 4, 3, 3, 3, 2, 3, 1];
        let at = tls13.windows(list.len()).position(|window| window == list).unwrap();
        tls13[at + 5] = 0xfa;
        assert!(!expect_hello(&tls13).offers_tls13, "TLS 1.2 is left");
        tls13[at + 7] = 0xfa;
        assert_eq!(peek(&tls13, BYTES_MAX), Peek::Refused(Fault::OldVersion));
    }
}

#[test]
fn a_fallback_and_early_data_are_seen() {
    let fallback = from_hex(CAPTURED[3].1);
    let suites_at = RECORD_HEADER_LEN + 4 + 2 + 32 + 1 + usize::from(fallback[43]) + 2;
    let mut bytes = fallback.clone();
    assert!(!expect_hello(&bytes).is_fallback);
    bytes[suites_at..suites_at + 2].copy_from_slice(&[0x56, 0]);
    assert!(expect_hello(&bytes).is_fallback);
    for (kind, of) in [(41, "a session"), (42, "early data"), (99, "nothing")] {
        let bytes = renamed(&from_hex(CAPTURED[4].1), 22, kind);
        let hello = expect_hello(&bytes);
        assert_eq!(hello.offers_early_data, of == "early data", "{of}");
        assert_eq!(hello.offers_session, of == "a session", "{of}");
    }
}

/// `hello`, with the number of one of its extensions changed.
fn renamed(hello: &[u8], from: u16, to: u16) -> Vec<u8> {
    let mut bytes = hello.to_vec();
    let mut at = RECORD_HEADER_LEN + extensions_at(&hello[RECORD_HEADER_LEN..]) + 2;
    while at < bytes.len() {
        if bytes[at..at + 2] == from.to_be_bytes() {
            bytes[at..at + 2].copy_from_slice(&to.to_be_bytes());
            return bytes;
        }
        at += 4 + usize::from(u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]));
    }
    panic!("no extension {from} in {hello:?}");
}

#[test]
fn what_tls13_needs_is_missed_only_where_it_is_offered() {
    let (tls12, tls13) = (from_hex(CAPTURED[3].1), from_hex(CAPTURED[4].1));
    let unknown = 0xfafa;
    for extension in [EXTENSION_KEY_SHARE, EXTENSION_SUPPORTED_GROUPS, EXTENSION_SIGNATURES] {
        assert!(expect_hello(&renamed(&tls13, extension, unknown)).lacks_for_tls13, "{extension}");
    }
    assert!(!expect_hello(&tls13).lacks_for_tls13);
    assert!(!expect_hello(&renamed(&tls12, EXTENSION_SUPPORTED_GROUPS, unknown)).lacks_for_tls13);
}

const EXTENSION_KEY_SHARE: u16 = 51;
const EXTENSION_SIGNATURES: u16 = 13;
const EXTENSION_SUPPORTED_GROUPS: u16 = 10;

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

#[test]
fn limits_of_records_are_read() {
    let record = from_hex(CAPTURED[4].1);
    let read = |extensions: &[(u16, &[u8])]| {
        let mut message = record[RECORD_HEADER_LEN..].to_vec();
        for (kind, content) in extensions {
            extend(&mut message, *kind, content);
        }
        parse(&message).map(|hello| hello.record_bytes_max)
    };
    const FRAGMENT: u16 = 1;
    const SIZE: u16 = 28;
    assert_eq!(read(&[]), Ok(None));
    for (code, bytes_max) in [(1, 512), (2, 1024), (4, 4096)] {
        assert_eq!(read(&[(FRAGMENT, &[code])]), Ok(Some(bytes_max)), "{code}");
    }
    for code in [0, 5, 255] {
        assert_eq!(read(&[(FRAGMENT, &[code])]), Err(Fault::IllegalLimit), "{code}");
    }
    for limit in [0, 63] {
        assert_eq!(read(&[(SIZE, &u16::to_be_bytes(limit))]), Err(Fault::IllegalLimit), "{limit}");
    }
    for (kind, content) in [(FRAGMENT, &[][..]), (FRAGMENT, &[1, 1]), (SIZE, &[]), (SIZE, &[64])] {
        assert_eq!(read(&[(kind, content)]), Err(Fault::Undecodable), "{kind} {content:?}");
    }
    for (limit, bytes_max) in [
        (64, None),
        (511, None),
        (512, Some(511)),
        (1024, Some(1023)),
        (16_384, Some(16_383)),
        (16_385, None),
    ] {
        let limit = u16::to_be_bytes(limit);
        assert_eq!(read(&[(SIZE, &limit)]), Ok(bytes_max), "{limit:?}");
        assert_eq!(read(&[(FRAGMENT, &[1]), (SIZE, &limit)]), Ok(bytes_max), "{limit:?}");
    }
}
