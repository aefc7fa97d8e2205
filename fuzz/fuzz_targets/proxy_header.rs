//! The PROXY header of a client: safe on all bytes, and with the same result for any split of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_traffic::proxy_header::{
    FIXED_LEN, Facts, Header, LINE_BYTES_MAX, REST_BYTES_MAX, Values, decode,
};

fuzz_target!(|bytes: &[u8]| {
    let decoded = decode(bytes);
    match &decoded {
        Ok(Some(header)) => hold(bytes, header),
        Ok(None) if bytes.starts_with(b"P") => assert!(bytes.len() < LINE_BYTES_MAX),
        Ok(None) => assert!(bytes.len() < FIXED_LEN + REST_BYTES_MAX),
        Err(malformed) => assert!(!malformed.to_string().is_empty()),
    }
    // The result for the front does not depend on the bytes behind it.
    let half = decode(&bytes[..bytes.len() / 2]);
    assert!(half == Ok(None) || half == decoded, "{half:?}, then {decoded:?}");
});

fn hold(bytes: &[u8], header: &Header<'_>) {
    let own = &bytes[..header.len];
    assert_eq!(decode(own), Ok(Some(*header)), "what follows changes nothing");
    for len in 0..own.len() {
        assert_eq!(decode(&own[..len]), Ok(None));
    }
    let whole: Vec<u8> = header.values().flat_map(|value| value.whole).copied().collect();
    assert_eq!(whole, header.values().as_bytes());
    if let Ok(Some((facts, len))) = Facts::decode(bytes) {
        assert_eq!(len, header.len);
        let told = facts.encode(&Values::default());
        assert_eq!(Facts::decode(&told), Ok(Some((facts, told.len()))));
        let passed = facts.encode(&header.values());
        assert!(passed.len() <= FIXED_LEN + REST_BYTES_MAX);
        assert!(Facts::decode(&passed).is_ok_and(|passed| passed.is_some()));
    }
}
