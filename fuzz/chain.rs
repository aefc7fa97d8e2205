//! Chains in inputs, for the targets `clients_chain` and `backends_chain`.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use sealane_engine::certificates::PemContents;
use sealane_engine::peer_chain::{PEER_CERTIFICATES_MAX, PEER_CHAIN_BYTES_MAX, PeerChain};

/// The chain of an input, with the key of the seeds' own certificate; none without a certificate.
pub fn shown(mut bytes: &[u8]) -> Option<CertifiedKey> {
    let mut chain = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk() {
        let (der, rest) = rest.split_at(usize::from(u16::from_be_bytes(*len)).min(rest.len()));
        chain.push(CertificateDer::from(der.to_vec()));
        bytes = rest;
    }
    let key = PemContents::parse("key", KEY.as_bytes()).expect("a text").key.expect("a key");
    let key = aws_lc_rs::sign::any_supported_type(&key.to_rustls()).expect("a key that signs");
    (!chain.is_empty()).then(|| CertifiedKey::new(chain, Arc::clone(&key)))
}

/// Checks that a parsed chain is small, readable, and in one line.
pub fn assert_bounded(chain: &[CertificateDer<'_>]) {
    assert!(chain.len() <= PEER_CERTIFICATES_MAX);
    assert!(chain.iter().map(|der| der.len()).sum::<usize>() <= PEER_CHAIN_BYTES_MAX);
    if let [own, others @ ..] = chain {
        PeerChain::parse(own, others).expect("each was read");
    }
}

/// The trusted root that issued the seeds' certificates.
pub const ROOT: &str = include_str!("../testdata/certificates/p256.crt");
/// The start of 2027.
pub const NOW_S: u64 = 1_800_000_000;

/// The key of the seeds' own certificate.
const KEY: &str = include_str!("../testdata/certificates/p384.pkcs8.key");
