//! The cipher suites of each library, in Sealane's order.

use std::sync::LazyLock;

use rustls::crypto::{CipherSuiteCommon, aws_lc_rs};
use rustls::{
    CipherSuite, SignatureScheme, SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite,
};

use crate::policy::Suite;

/// AWS-LC's.
pub(super) fn aws_lc() -> Vec<SupportedCipherSuite> {
    ordered(aws_lc_rs::ALL_CIPHER_SUITES.iter().copied())
}

/// Graviola's hashes and key schedule with AWS-LC's record protection.
///
/// AWS-LC's AES-GCM is level in speed and keeps 600 bytes per direction where graviola keeps 900,
/// which is what an idle connection costs most. Neither writes a line that another lane writes.
pub(super) fn mixed() -> Vec<SupportedCipherSuite> {
    let tls13 = MIXED_TLS13.iter().map(SupportedCipherSuite::Tls13);
    ordered(tls13.chain(MIXED_TLS12.iter().map(SupportedCipherSuite::Tls12)))
}

fn ordered(available: impl Iterator<Item = SupportedCipherSuite>) -> Vec<SupportedCipherSuite> {
    let mut suites = available.collect();
    keep(&mut suites, &Suite::ALL.map(Suite::id));
    suites
}

/// Keeps those of `order`, in that order.
pub(super) fn keep(suites: &mut Vec<SupportedCipherSuite>, order: &[CipherSuite]) {
    let position = |suite: &SupportedCipherSuite| order.iter().position(|o| *o == suite.suite());
    suites.retain(|suite| position(suite).is_some());
    suites.sort_by_key(position);
}

fn stock() -> impl Iterator<Item = SupportedCipherSuite> {
    rustls_graviola::suites::ALL_CIPHER_SUITES.iter().copied()
}

/// Made once, when the first context is built; a handshake only reads them.
static MIXED_TLS13: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| {
    let pairs = stock().filter_map(|suite| Some((suite.tls13()?, aws_lc_like(suite)?.tls13()?)));
    pairs
        .map(|(graviola, aws_lc)| Tls13CipherSuite {
            common: common(&graviola.common),
            hkdf_provider: graviola.hkdf_provider,
            aead_alg: aws_lc.aead_alg,
            quic: None,
        })
        .collect()
});

/// In TLS 1.2 rustls-graviola 0.4.0 leaves Ed25519 out of the signatures of the ECDSA suites, so
/// that a server with an Ed25519 certificate has no suite at all; these have it (RFC 8422).
static MIXED_TLS12: LazyLock<Vec<Tls12CipherSuite>> = LazyLock::new(|| {
    let pairs = stock().filter_map(|suite| Some((tls12(suite)?, tls12(aws_lc_like(suite)?)?)));
    pairs
        .map(|(graviola, aws_lc)| {
            let ecdsa = graviola.sign.contains(&SignatureScheme::ECDSA_NISTP256_SHA256);
            Tls12CipherSuite {
                common: common(&graviola.common),
                prf_provider: graviola.prf_provider,
                kx: graviola.kx,
                sign: if ecdsa { &ECDSA_SUITE_SCHEMES } else { graviola.sign },
                aead_alg: aws_lc.aead_alg,
            }
        })
        .collect()
});

/// AWS-LC's suite of the same number.
fn aws_lc_like(suite: SupportedCipherSuite) -> Option<SupportedCipherSuite> {
    aws_lc_rs::ALL_CIPHER_SUITES.iter().copied().find(|other| other.suite() == suite.suite())
}

fn tls12(suite: SupportedCipherSuite) -> Option<&'static Tls12CipherSuite> {
    match suite {
        SupportedCipherSuite::Tls12(suite) => Some(suite),
        SupportedCipherSuite::Tls13(_) => None,
    }
}

fn common(stock: &CipherSuiteCommon) -> CipherSuiteCommon {
    CipherSuiteCommon {
        suite: stock.suite,
        hash_provider: stock.hash_provider,
        confidentiality_limit: stock.confidentiality_limit,
    }
}

const ECDSA_SUITE_SCHEMES: [SignatureScheme; 4] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP256_SHA256,
];
