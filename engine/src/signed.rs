//! Signatures of certificates and revocation lists: [`is_signed_by`].

use rustls::pki_types::SignatureVerificationAlgorithm;

use crate::der::{BIT_STRING, SEQUENCE, take, take_all};

/// Whether a certificate or a revocation list, in DER, is signed by `key`, a SubjectPublicKeyInfo
/// without its header.
pub(crate) fn is_signed_by(
    der: &[u8],
    key: &[u8],
    algorithms: &[&dyn SignatureVerificationAlgorithm],
) -> bool {
    verify(der, key, algorithms).is_some()
}

fn verify(
    mut der: &[u8],
    mut key: &[u8],
    algorithms: &[&dyn SignatureVerificationAlgorithm],
) -> Option<()> {
    let parts = take_all(take(&mut der)?.content)?;
    let [message, algorithm, signature] = parts.as_slice() else { return None };
    let key_algorithm = take(&mut key).filter(|each| each.tag == SEQUENCE)?;
    let key = bits(take(&mut key).filter(|each| each.tag == BIT_STRING)?.content)?;
    let signature = bits(signature.content)?;
    let mut fitting = algorithms.iter().filter(|each| {
        *each.signature_alg_id() == *algorithm.content
            && *each.public_key_alg_id() == *key_algorithm.content
    });
    let is_good = fitting.any(|each| each.verify_signature(key, message.whole, signature).is_ok());
    is_good.then_some(())
}

/// The bytes of a bit string without unused bits.
fn bits(content: &[u8]) -> Option<&[u8]> {
    content.split_first().filter(|(unused, _)| **unused == 0).map(|(_, bytes)| bytes)
}
