//! A private key that signs only as a policy allows.

use std::sync::Arc;

use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::policy::SchemeSet;

/// A key and the schemes that it is restricted to.
#[derive(Debug)]
pub(super) struct Restricted {
    key: Arc<dyn SigningKey>,
    schemes: SchemeSet,
}

impl Restricted {
    /// The chain and the key of `certified`, which from now on signs with `schemes` only.
    pub(super) fn key(certified: &CertifiedKey, schemes: SchemeSet) -> CertifiedKey {
        let key = Arc::new(Self { key: Arc::clone(&certified.key), schemes });
        CertifiedKey { cert: certified.cert.clone(), key, ocsp: certified.ocsp.clone() }
    }
}

impl SigningKey for Restricted {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.key.choose_scheme(&self.schemes.allowed(offered))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.key.public_key()
    }

    /// That of a key which may sign nothing is none that any suite has, so that rustls refuses the
    /// handshake before it would sign: in TLS 1.2 it finds no words for it afterwards.
    fn algorithm(&self) -> SignatureAlgorithm {
        match self.schemes {
            SchemeSet::NONE => SignatureAlgorithm::Unknown(u8::MAX),
            _ => self.key.algorithm(),
        }
    }
}
