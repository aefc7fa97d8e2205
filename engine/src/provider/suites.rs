//! The cipher suites of each library, in Sealane's order.

use std::sync::LazyLock;

use rustls::crypto::{CipherSuiteCommon, aws_lc_rs};
use rustls::{CipherSuite, SignatureScheme, SupportedCipherSuite, Tls12CipherSuite};

/// AWS-LC's.
pub(super) fn aws_lc() -> Vec<SupportedCipherSuite> {
    ordered(aws_lc_rs::ALL_CIPHER_SUITES.iter().copied())
}

/// Graviola's.
///
/// In TLS 1.2 rustls-graviola 0.4.0 leaves Ed25519 out of the signatures of the ECDSA suites, so
/// that a server with an Ed25519 certificate has no suite at all; these have it (RFC 8422).
pub(super) fn graviola() -> Vec<SupportedCipherSuite> {
    let tls13 = stock().filter(|suite| matches!(suite, SupportedCipherSuite::Tls13(_)));
    ordered(tls13.chain(GRAVIOLA_TLS12.iter().map(SupportedCipherSuite::Tls12)))
}

/// Those of [`ORDER`] that are `available`.
fn ordered(available: impl Iterator<Item = SupportedCipherSuite>) -> Vec<SupportedCipherSuite> {
    let position = |suite: &SupportedCipherSuite| ORDER.iter().position(|o| *o == suite.suite());
    let mut suites: Vec<_> = available.filter(|suite| position(suite).is_some()).collect();
    suites.sort_by_key(position);
    suites
}

fn stock() -> impl Iterator<Item = SupportedCipherSuite> {
    rustls_graviola::suites::ALL_CIPHER_SUITES.iter().copied()
}

/// Made once, when the first context is built; a handshake only reads them.
static GRAVIOLA_TLS12: LazyLock<Vec<Tls12CipherSuite>> = LazyLock::new(|| {
    let tls12 = stock().filter_map(|suite| match suite {
        SupportedCipherSuite::Tls12(suite) => Some(suite),
        _ => None,
    });
    tls12.map(with_ed25519).collect()
});

fn with_ed25519(stock: &'static Tls12CipherSuite) -> Tls12CipherSuite {
    let ecdsa = stock.sign.contains(&SignatureScheme::ECDSA_NISTP256_SHA256);
    Tls12CipherSuite {
        common: CipherSuiteCommon {
            suite: stock.common.suite,
            hash_provider: stock.common.hash_provider,
            confidentiality_limit: stock.common.confidentiality_limit,
        },
        prf_provider: stock.prf_provider,
        kx: stock.kx,
        sign: if ecdsa { &ECDSA_SUITE_SCHEMES } else { stock.sign },
        aead_alg: stock.aead_alg,
    }
}

const ECDSA_SUITE_SCHEMES: [SignatureScheme; 4] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP256_SHA256,
];

/// AES-128 before AES-256: 128 bits suffice, and each byte costs less.
const ORDER: [CipherSuite; 9] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];
