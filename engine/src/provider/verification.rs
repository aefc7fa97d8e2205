//! The signatures that are verified: graviola's, and AWS-LC's where graviola has none.
//!
//! Which certificates a peer may show must not depend on the processor, which decides between the
//! two libraries.

use std::sync::LazyLock;

use rustls::SignatureScheme;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::SignatureVerificationAlgorithm;

/// Verification by graviola, completed by AWS-LC.
pub(super) fn mixed() -> WebPkiSupportedAlgorithms {
    *MIXED
}

type Algorithm = &'static dyn SignatureVerificationAlgorithm;

// Made once, when the first context is built; a handshake only reads it.
static MIXED: LazyLock<WebPkiSupportedAlgorithms> = LazyLock::new(|| {
    let first = rustls_graviola::default_provider().signature_verification_algorithms;
    let rest = aws_lc_rs::default_provider().signature_verification_algorithms;
    let mut mapping: Vec<(SignatureScheme, &'static [Algorithm])> = first.mapping.to_vec();
    for (scheme, algorithms) in rest.mapping {
        match mapping.iter_mut().find(|(known, _)| known == scheme) {
            Some((_, known)) => *known = completed(known, algorithms),
            None => mapping.push((*scheme, algorithms)),
        }
    }
    WebPkiSupportedAlgorithms {
        all: completed(first.all, rest.all),
        mapping: Box::leak(mapping.into_boxed_slice()),
    }
});

/// The algorithms of `first`, and those of `rest` for keys or hashes that it lacks.
fn completed(first: &[Algorithm], rest: &[Algorithm]) -> &'static [Algorithm] {
    let mut all = first.to_vec();
    all.extend(rest.iter().filter(|one| !first.iter().any(|known| is_same(*known, **one))));
    Box::leak(all.into_boxed_slice())
}

fn is_same(one: Algorithm, other: Algorithm) -> bool {
    one.public_key_alg_id() == other.public_key_alg_id()
        && one.signature_alg_id() == other.signature_alg_id()
}
