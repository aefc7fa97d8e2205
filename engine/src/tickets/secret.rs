//! Secrets, and keys that are derived from them: [`derive()`].

use hkdf::HkdfExtract;
use sha2::Sha256;
use zeroize::{Zeroize as _, Zeroizing};

/// 256 bits that are zeroed when dropped.
pub(super) type Secret = Zeroizing<[u8; 32]>;

/// HKDF-Extract (RFC 5869) of SHA-256 from a shared secret.
pub(super) fn extract(secret: &[u8; 48]) -> Secret {
    let mut hmac = HkdfExtract::<Sha256>::new(Some(LABEL_SHARED));
    hmac.input_ikm(secret);
    let (mut block, _) = hmac.finalize();
    let extracted = Zeroizing::new(block.into());
    block.as_mut_slice().zeroize();
    extracted
}

/// HKDF-Expand (RFC 5869) of SHA-256, keyed by `secret`, to its first block.
pub(super) fn derive(secret: &[u8; 32], label: &[u8], context: &[u8]) -> Secret {
    // The first block is HMAC(secret, info | 1). Extract with the secret as its salt computes the
    // same. Unlike the library's Expand it has no length that it could refuse.
    let mut hmac = HkdfExtract::<Sha256>::new(Some(secret.as_slice()));
    hmac.input_ikm(label);
    hmac.input_ikm(context);
    hmac.input_ikm(&[1]);
    let (mut block, _) = hmac.finalize();
    let derived = Zeroizing::new(block.into());
    block.as_mut_slice().zeroize();
    derived
}

pub(super) const LABEL_SHARED: &[u8] = b"sealane ticket 1 shared";
