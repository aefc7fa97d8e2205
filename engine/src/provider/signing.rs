//! Private keys: elliptic curves but P-521 with graviola, P-521 and RSA with AWS-LC.
//!
//! AWS-LC signs RSA-2048 in less than half of graviola's time where the processor has AVX-512 IFMA,
//! and in about the same elsewhere. It pays with a random call per signature, which touches the two
//! locks that the rest of this provider avoids (figures in `engine/PROVIDERS.md`).

use std::fmt;
use std::sync::Arc;

use graviola::hashing::{Sha256, Sha384};
use graviola::signing::ecdsa::{P256, P384, SigningKey as EcdsaKey};
use graviola::signing::eddsa::Ed25519SigningKey;
use rustls::crypto::{KeyProvider, aws_lc_rs};
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use zeroize::Zeroizing;

/// Decodes private keys into the fastest signers. The encoded key is erased.
#[derive(Debug)]
pub(super) struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(
        &self,
        encoded: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn SigningKey>, Error> {
        let encoded = Zeroizing::new(encoded);
        match elliptic(&encoded) {
            Some(key) => Ok(Arc::new(key)),
            // RSA, P-521, and the error for a key that cannot be read.
            None => aws_lc_rs::sign::any_supported_type(&encoded),
        }
    }
}

fn elliptic(encoded: &PrivateKeyDer<'_>) -> Option<Key> {
    match encoded {
        PrivateKeyDer::Pkcs8(pkcs8) => {
            let der = pkcs8.secret_pkcs8_der();
            let p256 = || EcdsaKey::from_pkcs8_der(der).ok().map(Key::p256);
            let p384 = || EcdsaKey::from_pkcs8_der(der).ok().map(Key::p384);
            let ed25519 = || Ed25519SigningKey::from_pkcs8_der(der).ok().map(Key::ed25519);
            p256().or_else(p384).or_else(ed25519)
        }
        PrivateKeyDer::Sec1(sec1) => {
            let der = sec1.secret_sec1_der();
            let p256 = || EcdsaKey::from_sec1_der(der).ok().map(Key::p256);
            let p384 = || EcdsaKey::from_sec1_der(der).ok().map(Key::p384);
            p256().or_else(p384)
        }
        _ => None,
    }
}

/// A decoded key of an elliptic curve, which graviola erases when the last clone is dropped.
#[derive(Clone)]
enum Key {
    EcdsaP256(Arc<EcdsaKey<P256>>),
    EcdsaP384(Arc<EcdsaKey<P384>>),
    Ed25519(Arc<Ed25519SigningKey>),
}

impl Key {
    fn p256(key: EcdsaKey<P256>) -> Self {
        Self::EcdsaP256(Arc::new(key))
    }

    fn p384(key: EcdsaKey<P384>) -> Self {
        Self::EcdsaP384(Arc::new(key))
    }

    fn ed25519(key: Ed25519SigningKey) -> Self {
        Self::Ed25519(Arc::new(key))
    }
}

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        // Each of these keys signs in one way only.
        offered.contains(&self.scheme()).then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        let mut buffer = [0; MAX_PUBLIC_KEY_BYTES];
        let encoded = match self {
            Self::EcdsaP256(key) => key.to_spki_der(&mut buffer),
            Self::EcdsaP384(key) => key.to_spki_der(&mut buffer),
            Self::Ed25519(key) => key.public_key().to_spki_der(&mut buffer),
        };
        Some(encoded.ok()?.to_vec().into())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self {
            Self::EcdsaP256(_) | Self::EcdsaP384(_) => SignatureAlgorithm::ECDSA,
            Self::Ed25519(_) => SignatureAlgorithm::ED25519,
        }
    }
}

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let mut buffer = [0; MAX_SIGNATURE_BYTES];
        let signature = match self {
            Self::EcdsaP256(key) => key.sign_asn1::<Sha256>(&[message], &mut buffer),
            Self::EcdsaP384(key) => key.sign_asn1::<Sha384>(&[message], &mut buffer),
            Self::Ed25519(key) => return Ok(key.sign(message).to_vec()),
        };
        signature.map(<[u8]>::to_vec).map_err(|_| Error::General("graviola cannot sign".into()))
    }

    fn scheme(&self) -> SignatureScheme {
        match self {
            Self::EcdsaP256(_) => SignatureScheme::ECDSA_NISTP256_SHA256,
            Self::EcdsaP384(_) => SignatureScheme::ECDSA_NISTP384_SHA384,
            Self::Ed25519(_) => SignatureScheme::ED25519,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.scheme())
    }
}

/// A P-384 key as SubjectPublicKeyInfo takes 120 bytes.
const MAX_PUBLIC_KEY_BYTES: usize = 128;

/// A P-384 signature as ASN.1 takes up to 104 bytes.
const MAX_SIGNATURE_BYTES: usize = 112;
