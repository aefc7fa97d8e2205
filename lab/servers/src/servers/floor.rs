//! The part of the floor that is cryptography: what the primitives of one operation cost on AWS-LC,
//! the fastest widespread library, in this process and at this moment.
//!
//! No terminator that does these computations with this library can take less; what its own code,
//! its TLS library and its sockets cost comes on top. The sockets' part is measured apart, on a
//! proxy without TLS.

use aws_lc_rs::{
    aead::{self, Aad, LessSafeKey, Nonce, UnboundKey},
    agreement::{self, EphemeralPrivateKey, UnparsedPublicKey},
    digest, hmac,
    kem::{self, DecapsulationKey, EncapsulationKey},
    rand::SystemRandom,
    rsa::KeySize,
    signature::{self, EcdsaKeyPair, RsaKeyPair},
};
use sealane_lab_harness::processor::thread_cpu_ns;
use sealane_lab_model::error::Error;

use crate::servers::case::Case;

/// Keys and buffers for all primitives.
pub(crate) struct Primitives {
    random: SystemRandom,
    ecdsa: EcdsaKeyPair,
    rsa: RsaKeyPair,
    aes: LessSafeKey,
    hmac: hmac::Key,
    /// What the client of an X25519 exchange sends.
    share: Vec<u8>,
    /// What the client of an ML-KEM exchange sends.
    encapsulation_key: Vec<u8>,
    record: Vec<u8>,
}

/// What one operation needs.
#[derive(Clone, Copy, Default)]
struct Recipe {
    x25519: bool,
    ml_kem: bool,
    ecdsa: bool,
    rsa: bool,
    /// HMACs over a block, of the key schedule and the Finished messages.
    hmacs: usize,
    /// Bytes of messages that are hashed.
    hashed_bytes: usize,
    /// Plaintext bytes of each record, either way.
    records: &'static [usize],
}

impl Primitives {
    /// Makes the keys.
    pub(crate) fn new() -> Result<Self, Error> {
        let random = SystemRandom::new();
        let ecdsa = EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_ASN1_SIGNING)
            .map_err(broken("an ECDSA key"))?;
        let rsa = RsaKeyPair::generate(KeySize::Rsa2048).map_err(broken("an RSA key"))?;
        let aes = UnboundKey::new(&aead::AES_128_GCM, &[7; 16]).map_err(broken("an AES key"))?;
        let mine = EphemeralPrivateKey::generate(&agreement::X25519, &random)
            .map_err(broken("an X25519 key"))?;
        let share = mine.compute_public_key().map_err(broken("an X25519 key"))?;
        let decapsulation =
            DecapsulationKey::generate(&kem::ML_KEM_768).map_err(broken("an ML-KEM key"))?;
        let encapsulation_key = decapsulation
            .encapsulation_key()
            .and_then(|key| Ok(key.key_bytes()?.as_ref().to_vec()))
            .map_err(broken("an ML-KEM key"))?;
        Ok(Self {
            random,
            ecdsa,
            rsa,
            aes: LessSafeKey::new(aes),
            hmac: hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]),
            share: share.as_ref().to_vec(),
            encapsulation_key,
            record: vec![0; RECORD_BYTES + aead::MAX_TAG_LEN],
        })
    }

    /// Their CPU in the unit of the case's figure; `None` where there is no floor.
    pub(crate) fn figure(&mut self, case: Case) -> Result<Option<f64>, Error> {
        let Some(recipe) = recipe(case) else { return Ok(None) };
        let times = if matches!(case, Case::Down | Case::Up) { TIMES_BULK } else { TIMES };
        for _ in 0..times / 10 {
            self.cook(recipe)?; // warm-up
        }
        let before = thread_cpu_ns();
        for _ in 0..times {
            self.cook(recipe)?;
        }
        let each_ns = (thread_cpu_ns() - before) as f64 / times as f64;
        Ok(Some(match case {
            // Nanoseconds per byte are seconds per 10^9 bytes.
            Case::Down | Case::Up => each_ns / RECORD_BYTES as f64,
            _ => each_ns / 1e3,
        }))
    }

    fn cook(&mut self, recipe: Recipe) -> Result<(), Error> {
        if recipe.x25519 {
            let mine = EphemeralPrivateKey::generate(&agreement::X25519, &self.random)
                .map_err(broken("X25519"))?;
            std::hint::black_box(mine.compute_public_key().map_err(broken("X25519"))?);
            let peer = UnparsedPublicKey::new(&agreement::X25519, &self.share);
            agreement::agree_ephemeral(mine, peer, broken("X25519")(()), |secret| {
                std::hint::black_box(secret[0]);
                Ok(())
            })?;
        }
        if recipe.ml_kem {
            let key = EncapsulationKey::new(&kem::ML_KEM_768, &self.encapsulation_key)
                .map_err(broken("ML-KEM"))?;
            std::hint::black_box(key.encapsulate().map_err(broken("ML-KEM"))?);
        }
        if recipe.ecdsa {
            let signed = self.ecdsa.sign(&self.random, MESSAGE).map_err(broken("ECDSA"))?;
            std::hint::black_box(signed);
        }
        if recipe.rsa {
            let mut signed = [0; 256];
            self.rsa
                .sign(&signature::RSA_PSS_SHA256, &self.random, MESSAGE, &mut signed)
                .map_err(broken("RSA"))?;
            std::hint::black_box(signed);
        }
        for _ in 0..recipe.hmacs {
            std::hint::black_box(hmac::sign(&self.hmac, &MESSAGE[..32]));
        }
        if recipe.hashed_bytes > 0 {
            let bytes = &self.record[..recipe.hashed_bytes];
            std::hint::black_box(digest::digest(&digest::SHA256, bytes));
        }
        for length in recipe.records {
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            let tag = self
                .aes
                .seal_in_place_separate_tag(nonce, Aad::from([0; 5]), &mut self.record[..*length])
                .map_err(broken("AES-GCM"))?;
            std::hint::black_box(&tag);
        }
        Ok(())
    }
}

/// Per case. Sealing stands for opening too: AES-GCM costs the same both ways.
fn recipe(case: Case) -> Option<Recipe> {
    let full = Recipe {
        x25519: true,
        ecdsa: true,
        hmacs: HMACS_13,
        hashed_bytes: 1_400,
        // Server's flight, client's Finished, two tickets, request, answer.
        records: &[800, 37, 250, 250, 80, 80],
        ..Recipe::default()
    };
    Some(match case {
        Case::Full => full,
        Case::FullRsa => Recipe { ecdsa: false, rsa: true, ..full },
        Case::FullMlkem => Recipe { ml_kem: true, hashed_bytes: 3_600, ..full },
        Case::FullTls12 => {
            // Both Finished, the ticket, request, answer.
            Recipe { hmacs: HMACS_12, records: &[16, 16, 250, 80, 80], ..full }
        }
        Case::Resumed => {
            // The old ticket opened, a short flight, Finished, a new ticket, request, answer.
            let records = &[250, 60, 37, 250, 80, 80];
            Recipe { ecdsa: false, hashed_bytes: 700, records, ..full }
        }
        Case::KeepAlive3k => Recipe { records: &[80, 3_060], ..Recipe::default() },
        Case::KeepAlive100k => Recipe {
            records: &[80, 16_384, 16_384, 16_384, 16_384, 16_384, 16_384, 1_756],
            ..Recipe::default()
        },
        Case::Down | Case::Up => Recipe { records: &[RECORD_BYTES], ..Recipe::default() },
        Case::Idle | Case::Names | Case::Storm | Case::StormEcdsa => return None,
    })
}

fn broken<T>(what: &'static str) -> impl Fn(T) -> Error {
    move |_| Error::Check(format!("the floor: {what} failed"))
}

/// Extract, expand and Finished of one TLS 1.3 handshake, each at least one HMAC.
const HMACS_13: usize = 26;
/// The same of TLS 1.2.
const HMACS_12: usize = 14;
/// A message as long as what a server signs in TLS 1.3.
const MESSAGE: &[u8; 130] = &[7; 130];
const RECORD_BYTES: usize = 16_384;
const TIMES: u32 = 300;
const TIMES_BULK: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_costs_what_its_parts_cost_together() {
        let mut primitives = Primitives::new().unwrap();
        for case in Case::ALL {
            let figure = primitives.figure(case).unwrap();
            assert_eq!(figure.is_some(), case.has_floor(), "{case:?}");
            assert!(figure.is_none_or(|figure| figure > 0.0), "{case:?}");
        }
    }
}
