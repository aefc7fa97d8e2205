//! A certificate authority of the test's own, and leaves that it signs.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::pki_types::CertificateDer;

/// Signs leaves that clients verify.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        Self::named("Sealane test authority")
    }

    /// Two authorities of one name would take each other's leaves for their own, badly signed.
    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    /// What a client trusts, in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// What a client trusts.
    pub fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// Writes what a client trusts as `ca.pem`.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("ca.pem");
        std::fs::write(&path, self.issuer.pem()).unwrap();
        path
    }

    /// A chain and its key in one PEM text.
    pub fn leaf(&self, kind: KeyKind, names: &[&str]) -> String {
        self.leaf_with(kind, names, |_| {})
    }

    /// The same after `change`.
    pub fn leaf_with(
        &self,
        kind: KeyKind,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name.push(DnType::CommonName, names[0].as_str());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // Browsers refuse certificates that are valid for longer than 398 days.
        let now = std::time::SystemTime::now();
        params.not_before = now.into();
        params.not_before -= std::time::Duration::from_secs(86_400);
        params.not_after = (now + std::time::Duration::from_secs(90 * 86_400)).into();
        change(&mut params);
        let key = kind.generate();
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        format!("{}{}", leaf.pem(), key.serialize_pem())
    }
}

/// The kinds of keys that servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Ed25519,
    P256,
    Rsa2048,
}

impl KeyKind {
    pub const ALL: [Self; 3] = [Self::Ed25519, Self::P256, Self::Rsa2048];

    fn generate(self) -> KeyPair {
        match self {
            Self::Ed25519 => KeyPair::generate_for(&PKCS_ED25519),
            Self::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            Self::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        }
        .unwrap()
    }
}

/// The names that every test's server goes by.
pub const NAMES: [&str; 3] = ["localhost", "sealane.test", "127.0.0.1"];
