//! Makes the keys and certificates of a run, [`Credentials::make`].

use std::{fs, ops::Range, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, RsaKeySize,
};
use sealane_lab_model::{error::Error, scenario::Key};

use crate::credentials::{Credentials, SERVER_NAME, Side};

impl Credentials {
    /// Makes and writes them. All keys are of type `key`; each leaf is signed by the root.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn make(folder: &Path, key: Key) -> Result<Self, Error> {
        Self::make_chain(folder, key, 1)
    }

    /// The same, with a server that sends so many certificates: see
    /// [`Scenario::chain`](sealane_lab_model::scenario::Scenario::chain).
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_chain(folder: &Path, key: Key, chain: u8) -> Result<Self, Error> {
        let mut root = CertificateParams::new(Vec::new()).map_err(|error| wrong(&error))?;
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        root.distinguished_name.push(rcgen::DnType::CommonName, "Sealane lab root");
        let root =
            CertifiedIssuer::self_signed(root, key_pair(key)?).map_err(|error| wrong(&error))?;
        let made = Self::at(folder);
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        write(&made.root(), &root.pem())?;
        let issuer = if chain > 1 { Some(issuer(key, &root)?) } else { None };
        for (side, usage) in [
            (Side::Server, ExtendedKeyUsagePurpose::ServerAuth),
            (Side::Client, ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let mut leaf = CertificateParams::new(vec![SERVER_NAME.to_owned()])
                .map_err(|error| wrong(&error))?;
            leaf.distinguished_name.push(rcgen::DnType::CommonName, SERVER_NAME);
            leaf.extended_key_usages.push(usage);
            let leaf_key = key_pair(key)?;
            let sent = match (&issuer, side) {
                (Some((issuer, pem)), Side::Server) => {
                    let leaf = leaf.signed_by(&leaf_key, issuer).map_err(|error| wrong(&error))?;
                    let root = if chain > 2 { root.pem() } else { String::new() };
                    [leaf.pem(), pem.clone(), root].concat()
                }
                _ => leaf.signed_by(&leaf_key, &root).map_err(|error| wrong(&error))?.pem(),
            };
            write(&made.certificate(side), &sent)?;
            write(&made.key(side), &key_pem(key, &leaf_key))?;
        }
        Ok(made)
    }
}

/// An authority between root and leaf, and its certificate.
fn issuer(
    key: Key,
    root: &CertifiedIssuer<'static, KeyPair>,
) -> Result<(Issuer<'static, KeyPair>, String), Error> {
    let mut params = CertificateParams::new(Vec::new()).map_err(|error| wrong(&error))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "Sealane lab issuer");
    let own_key = key_pair(key)?;
    let pem = params.signed_by(&own_key, root).map_err(|error| wrong(&error))?.pem();
    Ok((Issuer::new(params, own_key), pem))
}

/// A new key of that type.
pub(crate) fn key_pair(key: Key) -> Result<KeyPair, Error> {
    match key {
        Key::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        Key::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        Key::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        Key::Rsa2048 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048),
        Key::Rsa4096 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
    }
    .map_err(|error| wrong(&error))
}

/// PKCS #8 in PEM, in the first version of it: OpenSSL before 3.2 and its forks do not read the
/// second one, which has the public key of Ed25519 behind the private one.
fn key_pem(key: Key, pair: &KeyPair) -> String {
    let der = pair.serialized_der();
    match der.get(ED25519_SEED) {
        Some(seed) if key == Key::Ed25519 => {
            let first_version = [ED25519_START.as_slice(), seed].concat();
            let text = STANDARD.encode(first_version);
            format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
        }
        _ => pair.serialize_pem(),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::file(path))
}

fn wrong(error: &rcgen::Error) -> Error {
    Error::Check(format!("make a certificate: {error}"))
}

/// Where the private key lies in either version.
const ED25519_SEED: Range<usize> = 16..48;
/// What comes before it in the first version: lengths, version 0, the algorithm.
const ED25519_START: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
