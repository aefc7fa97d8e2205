//! How many handshakes the keys of a configuration allow on this machine.

use std::time::{Duration, Instant};

use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::Certificate;

/// How long signatures of a kind of key are counted.
const SIGNING_TIME: Duration = Duration::from_millis(20);
/// Signatures that are counted at least, however long they take.
const SIGNATURES_MIN: u32 = 3;

/// Signatures of this certificate's key that one lane can make in a second.
pub(super) fn signatures_per_second(
    certificate: &Certificate,
    provider: &CryptoProvider,
) -> Option<u64> {
    let signer = certificate.signer(provider)?;
    // As long as what a server signs under TLS 1.3 with SHA-384 (RFC 8446 section 4.4.3).
    let message = [b' '; 64 + 33 + 1 + 48];
    // The first prepares tables.
    signer.sign(&message).ok()?;
    let (begun, mut count) = (Instant::now(), 0);
    while count < SIGNATURES_MIN || begun.elapsed() < SIGNING_TIME {
        signer.sign(&message).ok()?;
        count += 1;
    }
    let elapsed_us = u64::try_from(begun.elapsed().as_micros()).ok()?;
    (u64::from(count) * 1_000_000).checked_div(elapsed_us)
}
