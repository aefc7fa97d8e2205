//! The cipher suites of each library, in Sealane's order.

use std::sync::LazyLock;

use rustls::crypto::{CipherSuiteCommon, aws_lc_rs};
use rustls::{
    CipherSuite, SignatureScheme, SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite,
};

use super::expanded::Aead;
use crate::policy::Suite;

/// AWS-LC's.
pub(super) fn aws_lc() -> Vec<SupportedCipherSuite> {
    let tls13 = AWS_LC_TLS13.iter().map(SupportedCipherSuite::Tls13);
    ordered(tls13.chain(AWS_LC_TLS12.iter().map(SupportedCipherSuite::Tls12)))
}

/// Graviola's hashes and key schedule with AWS-LC's record protection.
///
/// AWS-LC's AES-GCM is level in speed, and expands a key in 0.14 us where graviola takes 3 to 8.
/// Neither writes a line that another lane writes.
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

// Each is made once, when the first context is built; a handshake only reads them.
static AWS_LC_TLS13: LazyLock<Vec<Tls13CipherSuite>> =
    LazyLock::new(|| tls13_of(aws_lc_rs::ALL_CIPHER_SUITES));
static AWS_LC_TLS12: LazyLock<Vec<Tls12CipherSuite>> =
    LazyLock::new(|| tls12_of(aws_lc_rs::ALL_CIPHER_SUITES));
static MIXED_TLS13: LazyLock<Vec<Tls13CipherSuite>> =
    LazyLock::new(|| tls13_of(rustls_graviola::suites::ALL_CIPHER_SUITES));
static MIXED_TLS12: LazyLock<Vec<Tls12CipherSuite>> =
    LazyLock::new(|| tls12_of(rustls_graviola::suites::ALL_CIPHER_SUITES));

/// Those of a library, with records protected in our way.
fn tls13_of(stock: &[SupportedCipherSuite]) -> Vec<Tls13CipherSuite> {
    let suites = stock.iter().filter_map(|suite| Some((suite.tls13()?, aead(suite.suite())?)));
    suites
        .map(|(stock, aead_alg)| Tls13CipherSuite {
            common: common(&stock.common),
            hkdf_provider: stock.hkdf_provider,
            aead_alg,
            quic: None,
        })
        .collect()
}

/// The same for TLS 1.2. There rustls-graviola 0.4.0 leaves Ed25519 out of the signatures of the
/// ECDSA suites, so that a server with an Ed25519 certificate has no suite at all. These suites
/// have it (RFC 8422).
fn tls12_of(stock: &[SupportedCipherSuite]) -> Vec<Tls12CipherSuite> {
    let suites = stock.iter().filter_map(|suite| Some((tls12(*suite)?, aead(suite.suite())?)));
    suites
        .map(|(stock, aead_alg)| {
            let ecdsa = stock.sign.contains(&SignatureScheme::ECDSA_NISTP256_SHA256);
            Tls12CipherSuite {
                common: common(&stock.common),
                prf_provider: stock.prf_provider,
                kx: stock.kx,
                sign: if ecdsa { &ECDSA_SUITE_SCHEMES } else { stock.sign },
                aead_alg,
            }
        })
        .collect()
}

/// The cipher for the records of a suite.
fn aead(suite: CipherSuite) -> Option<&'static Aead> {
    Some(match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => &Aead::Aes128Gcm,
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => &Aead::Aes256Gcm,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => &Aead::ChaCha20Poly1305,
        _ => return None,
    })
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
