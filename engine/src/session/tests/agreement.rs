//! The look at a hello and rustls agree: neither hands the other an unforeseen message.

use proptest::prelude::*;
use rustls::version::{TLS12, TLS13};

use super::*;
use crate::hello::extend::extend;
use crate::hello::{Fault, Gathering, Peek, RECORD_HEADER_LEN};

/// First flights of clients that are in use.
const CAPTURED: [&str; 5] = [
    include_str!("../../../../testdata/hellos/curl.hex"),
    include_str!("../../../../testdata/hellos/openssl-chacha20.hex"),
    include_str!("../../../../testdata/hellos/openssl-no-name.hex"),
    include_str!("../../../../testdata/hellos/openssl-tls12.hex"),
    include_str!("../../../../testdata/hellos/openssl-tls13.hex"),
];

thread_local! {
    static WORLD: World = World::new();
}

/// One of many messages: captured ones, or of rustls' client, which has a share of 1.2 KB for
/// ML-KEM.
fn message(which: usize) -> Vec<u8> {
    let hello = match CAPTURED.get(which) {
        Some(hex) => from_hex(hex),
        None => WORLD.with(|world| {
            let version = if which.is_multiple_of(2) { &TLS12 } else { &TLS13 };
            flight(&mut client(&Arc::new(world.client_config(version))))
        }),
    };
    hello[RECORD_HEADER_LEN..].to_vec()
}

const MESSAGES: usize = CAPTURED.len() + 2;

/// `message` in records of at most `len` bytes.
fn in_records(message: &[u8], len: usize) -> Vec<u8> {
    let record = |chunk: &[u8]| {
        let len = u16::try_from(chunk.len()).unwrap().to_be_bytes();
        [&[22, 3, 1][..], &len[..], chunk].concat()
    };
    message.chunks(len).flat_map(record).collect()
}

/// Whether rustls alone answers with a message and not with an alert.
fn is_served(bytes: &[u8]) -> bool {
    WORLD.with(|world| {
        // With settings that every version and extension may have.
        let hello = Hello { lacks_extended_master_secret: true, ..Hello::default() };
        let config = world.context.admit(&hello).unwrap();
        let mut server = Lent::to(ServerSession::new(config).unwrap());
        server.feed(bytes).is_ok() && server.wire.filled().first() == Some(&22)
    })
}

/// The outcome for a hello that is looked at first. A client that is rejected gets an alert.
fn outcome(bytes: &[u8], step: usize) -> Outcome {
    let mut gathering = Gathering::default();
    for chunk in bytes.chunks(step) {
        let hello = match gathering.take(chunk, 1 << 16).1 {
            Peek::Hello(hello) => hello,
            Peek::NeedMore => continue,
            Peek::PlainHttp => return Outcome::Waits,
            Peek::Refused(fault) => return Outcome::Refused(fault),
        };
        let mut framed = vec![0; gathering.framed_len()];
        gathering.frame(&mut framed);
        return WORLD.with(|world| match world.context.admit(&hello) {
            Err(_) => Outcome::NotAdmitted,
            Ok(config) => {
                let awaited = Awaited::new(false, hello.offers_early_data);
                let mut server = Lent::to(ServerSession::new(config).unwrap().awaiting(awaited));
                match server.feed(&framed) {
                    Ok(_) if server.wire.filled().first() == Some(&22) => Outcome::Served,
                    Ok(_) => panic!("a whole hello is not answered: {bytes:?}"),
                    Err(error) => {
                        let wire = server.wire.filled();
                        let in_clear = wire.len() >= 7 && wire[wire.len() - 7] == 21;
                        let sealed = wire.len() >= 24 && wire[wire.len() - 24] == 23;
                        assert!(in_clear || sealed, "{error}, without an alert: {bytes:?}");
                        Outcome::Failed
                    }
                }
            }
        });
    }
    Outcome::Waits
}

#[derive(Debug, PartialEq)]
enum Outcome {
    /// rustls refused it, with an alert.
    Failed,
    NotAdmitted,
    Refused(Fault),
    Served,
    Waits,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_clients_send_is_served_with_whatever_extensions_in_whatever_records(
        which in 0..MESSAGES,
        grease in proptest::collection::vec((0u8..16, 0usize..40), 0..3),
        padding_len in proptest::option::of(0usize..2_000),
        encrypted_hello in proptest::option::of(proptest::collection::vec(any::<u8>(), 1..600)),
        len in 1usize..3_000,
        step in 1usize..3_000,
    ) {
        let mut message = message(which);
        let mut seen = Vec::new();
        for (nibble, content_len) in grease {
            let kind = u16::from_be_bytes([nibble << 4 | 10; 2]);
            if !seen.contains(&kind) {
                seen.push(kind);
                extend(&mut message, kind, &vec![0; content_len]);
            }
        }
        if let Some(len) = padding_len.filter(|_| which != PADDED) {
            extend(&mut message, 21, &vec![0; len]);
        }
        if let Some(content) = encrypted_hello {
            // Its outer form: suite, number and key of the inner one, and that, all meaningless.
            let content_len = u16::try_from(content.len()).unwrap().to_be_bytes();
            let outer = [&[0, 0, 1, 0, 1, 7, 0, 0][..], &content_len, &content].concat();
            extend(&mut message, 0xfe0d, &outer);
        }
        let bytes = in_records(&message, len);
        prop_assert!(is_served(&bytes));
        prop_assert_eq!(outcome(&bytes, step), Outcome::Served);
    }

    #[test]
    fn nothing_is_refused_that_rustls_serves_unless_a_standard_wants_it(
        which in 0..MESSAGES,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        len in 1usize..3_000,
        step in 1usize..3_000,
    ) {
        let mut message = message(which);
        for (at, value) in damage {
            let at = at.index(message.len());
            message[at] = value;
        }
        let bytes = in_records(&message, len);
        let is_served = is_served(&bytes);
        match outcome(&bytes, step) {
            Outcome::Served => prop_assert!(is_served),
            // RFC 6066 section 4 and RFC 8449 section 4, which rustls does not know.
            Outcome::Refused(Fault::IllegalLimit | Fault::Undecodable) if is_served => {
                prop_assert!(has_limit_of_records(&message), "{message:?}");
            }
            Outcome::Refused(fault) if is_served => {
                prop_assert_eq!(fault, Fault::OldVersion);
                let is_old = message[4..6] <= [3, 0][..];
                prop_assert!(is_old, "RFC 8446 appendix D.5 forbids SSL 3, RFC 6176 SSL 2");
            }
            Outcome::NotAdmitted if is_served => {
                let fallback = message.windows(2).any(|pair| pair == [0x56, 0]);
                prop_assert!(fallback, "RFC 7507 is all that refuses it");
            }
            Outcome::Failed | Outcome::NotAdmitted | Outcome::Refused(_) => {}
            // More is announced than there is.
            Outcome::Waits => prop_assert!(!is_served),
        }
    }
}

/// Whether a hello has the extension max_fragment_length or record_size_limit.
fn has_limit_of_records(message: &[u8]) -> bool {
    let after = |at: usize, digits: usize| {
        let len = message.get(at..at + digits)?;
        Some(at + digits + len.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)))
    };
    // The header, the version and the random bytes; then session id, suites and compression.
    let start = after(38, 1).and_then(|at| after(at, 2)).and_then(|at| after(at, 1));
    let mut at = start.map_or(message.len(), |at| at + 2);
    while let Some(kind) = message.get(at..at + 2) {
        if matches!(kind, [0, 1 | 28]) {
            return true;
        }
        at = after(at + 2, 2).unwrap_or(message.len());
    }
    false
}

/// curl pads its hello already.
const PADDED: usize = 0;
