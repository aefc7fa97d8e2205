//! XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03): HChaCha20 makes a key of the first 16 bytes of
//! a nonce, under which AWS-LC's ChaCha20-Poly1305 works with the other 8.
//!
//! AWS-LC is a third of the portable crate's time for a ticket; `engine/src/tickets.rs` has the
//! figures. The tests hold each byte against that crate.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use chacha20::cipher::consts::U10;
use chacha20::hchacha;
use zeroize::{Zeroize as _, Zeroizing};

use crate::tickets::secret::Secret;

/// A key for many messages, zeroed when it is dropped.
pub(super) struct Cipher {
    key: Secret,
}

impl Cipher {
    pub(super) fn new(key: Secret) -> Self {
        Self { key }
    }

    /// Encrypts `message` in place and returns its tag, which `bound` is under as well; none if
    /// there is no memory for the key.
    pub(super) fn seal(
        &self,
        nonce: &[u8; XNONCE_BYTES],
        bound: &[u8],
        message: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        let (key, nonce) = self.key_and_nonce(nonce)?;
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(bound), message).ok()?;
        tag.as_ref().try_into().ok()
    }

    /// The plaintext, or `None` if it was not sealed here, or for something else than `bound`.
    pub(super) fn open(
        &self,
        nonce: &[u8; XNONCE_BYTES],
        bound: &[u8],
        sealed: &[u8],
        tag: &[u8; TAG_BYTES],
    ) -> Option<Vec<u8>> {
        let (key, nonce) = self.key_and_nonce(nonce)?;
        let mut message = vec![0; sealed.len()];
        key.open_separate_gather(nonce, Aad::from(bound), sealed, tag, &mut message).ok()?;
        Some(message)
    }

    /// The key of one nonce, which AWS-LC zeroes when it is dropped, and the rest of the nonce.
    fn key_and_nonce(&self, nonce: &[u8; XNONCE_BYTES]) -> Option<(LessSafeKey, Nonce)> {
        let (input, rest) = nonce.split_first_chunk::<HCHACHA_INPUT_BYTES>()?;
        let mut block = hchacha::<U10>((&*self.key).into(), input.into());
        let derived = Zeroizing::new(<[u8; 32]>::from(block));
        block.as_mut_slice().zeroize();
        let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &*derived).ok()?);
        let mut short = [0; NONCE_LEN];
        short.last_chunk_mut::<SHORT_NONCE_BYTES>()?.copy_from_slice(rest);
        Some((key, Nonce::assume_unique_for_key(short)))
    }
}

pub(super) const TAG_BYTES: usize = 16;
pub(super) const XNONCE_BYTES: usize = HCHACHA_INPUT_BYTES + SHORT_NONCE_BYTES;
const HCHACHA_INPUT_BYTES: usize = 16;
/// ChaCha20-Poly1305's nonce is these behind zeros.
const SHORT_NONCE_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use chacha20poly1305::{AeadInPlace as _, KeyInit as _, XChaCha20Poly1305, XNonce};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_what_the_portable_crate_makes_and_opens(
            key in any::<[u8; 32]>(),
            nonce in any::<[u8; XNONCE_BYTES]>(),
            bound in prop::collection::vec(any::<u8>(), 0..80),
            message in prop::collection::vec(any::<u8>(), 0..2_000),
            at in any::<prop::sample::Index>(),
        ) {
            let ours = Cipher::new(Zeroizing::new(key));
            let portable = XChaCha20Poly1305::new((&key).into());
            let mut sealed = message.clone();
            let tag = ours.seal(&nonce, &bound, &mut sealed).unwrap();
            let mut expected = message.clone();
            let expected_tag = portable
                .encrypt_in_place_detached(&XNonce::from(nonce), &bound, &mut expected)
                .unwrap();
            prop_assert_eq!((&sealed, tag.as_slice()), (&expected, expected_tag.as_slice()));
            prop_assert_eq!(ours.open(&nonce, &bound, &sealed, &tag), Some(message));

            let mut changed = [&sealed, tag.as_slice(), &nonce, &bound].concat();
            let at = at.index(changed.len());
            changed[at] ^= 1;
            let (sealed, rest) = changed.split_at(sealed.len());
            let (tag, rest) = rest.split_first_chunk().unwrap();
            let (nonce, bound) = rest.split_first_chunk().unwrap();
            prop_assert_eq!(ours.open(nonce, bound, sealed, tag), None);
        }
    }
}
