//! The look at a connection's first bytes: safe on all of them, and of one mind with rustls.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rustls::server::Acceptor;
use sealane_engine::hello::{Gathering, Peek, peek};

const BYTES_MAX: usize = 16 * 1024;

fuzz_target!(|bytes: &[u8]| {
    let peeked = peek(bytes, BYTES_MAX);
    assert_eq!(gathered(bytes), peeked, "in pieces it is the same");
    match &peeked {
        Peek::Hello(hello) => {
            let more = [bytes, b"whatever follows"].concat();
            assert_eq!(peek(&more, BYTES_MAX), peeked, "what follows a hello changes nothing");
            if let Some(name) = by_rustls(bytes) {
                assert_eq!(name.as_deref(), hello.server_name.as_deref());
            }
        }
        // Of each record a byte or more is payload.
        Peek::NeedMore => assert!(bytes.len() <= 6 * BYTES_MAX),
        Peek::PlainHttp | Peek::Refused(_) => {}
    }
    // Arriving in pieces, it never takes back an answer. Only the reason of a refusal may become
    // another.
    let half = peek(&bytes[..bytes.len() / 2], BYTES_MAX);
    let both_refused = is_refused(&half) && is_refused(&peeked);
    assert!(half == Peek::NeedMore || half == peeked || both_refused, "{half:?}, then {peeked:?}");
});

/// The result of `bytes` one by one.
fn gathered(bytes: &[u8]) -> Peek {
    let mut gathering = Gathering::default();
    for byte in bytes {
        match gathering.take(&[*byte], BYTES_MAX).1 {
            Peek::NeedMore => {}
            decided => return decided,
        }
    }
    Peek::NeedMore
}

fn is_refused(peeked: &Peek) -> bool {
    matches!(peeked, Peek::Refused(_))
}

/// The server name, if rustls takes the bytes for a ClientHello.
fn by_rustls(mut bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = Acceptor::default();
    while !bytes.is_empty() {
        acceptor.read_tls(&mut bytes).ok()?;
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                return Some(accepted.client_hello().server_name().map(str::to_ascii_lowercase));
            }
            Ok(None) => {}
            Err(_) => return None,
        }
    }
    None
}
