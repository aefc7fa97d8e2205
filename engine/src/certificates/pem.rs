//! PEM text into DER: the certificates of a chain and at most one private key.

use rustls::pki_types::pem::{Error as PemError, PemObject, SectionKind};
use zeroize::Zeroizing;

use super::key::{EncodedKey, Encoding};
use super::{CHAIN_CERTIFICATES_MAX, CertificateError, PEM_BYTES_MAX};

/// What one PEM text holds; either part may be missing.
#[derive(Debug)]
pub struct PemContents {
    /// Certificates as DER, in the order of the text.
    pub certificates: Vec<Vec<u8>>,
    /// The private key, still encoded.
    pub key: Option<EncodedKey>,
}

impl PemContents {
    /// Reads `text`; `label` names it in errors.
    ///
    /// Sections that are neither a certificate nor a private key are passed over, and so is
    /// whatever stands between sections.
    pub fn parse(label: &str, text: &[u8]) -> Result<Self, CertificateError> {
        if text.len() > PEM_BYTES_MAX {
            return Err(CertificateError::PemTooLarge { label: label.into(), bytes: text.len() });
        }
        let mut certificates = Vec::new();
        let mut key = None;
        let mut keys = 0;
        for (position, section) in <(SectionKind, Vec<u8>)>::pem_slice_iter(text).enumerate() {
            let (kind, der) = match section {
                Ok(section) => section,
                // A key encrypted in the old way has headers where base64 should be.
                Err(_) if holds_encrypted_key(text) => return Err(encrypted(label)),
                Err(error) => return Err(broken(label, position + 1, &error)),
            };
            let encoding = match kind {
                SectionKind::Certificate => {
                    certificates.push(der);
                    continue;
                }
                SectionKind::EcPrivateKey => Encoding::Sec1,
                SectionKind::PrivateKey => Encoding::Pkcs8,
                SectionKind::RsaPrivateKey => Encoding::Pkcs1,
                _ => continue,
            };
            keys += 1;
            key = Some(EncodedKey::new(encoding, &Zeroizing::new(der)));
        }
        if key.is_none() && holds_encrypted_key(text) {
            return Err(encrypted(label));
        }
        let label = label.to_owned();
        match (certificates.len(), keys) {
            (0, 0) => Err(CertificateError::NotPem { label }),
            (_, 2..) => Err(CertificateError::SeveralKeys { label, count: keys }),
            (count, _) if count > CHAIN_CERTIFICATES_MAX => {
                Err(CertificateError::ChainTooLong { label, count })
            }
            _ => Ok(Self { certificates, key }),
        }
    }
}

/// Whether `text` has a key under a passphrase, in the way of PKCS#8 or in OpenSSL's old one.
fn holds_encrypted_key(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').any(|line| {
        line.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY")
            || line.starts_with(b"Proc-Type: 4,ENCRYPTED")
    })
}

fn encrypted(label: &str) -> CertificateError {
    CertificateError::EncryptedKey { label: label.into() }
}

fn broken(label: &str, position: usize, error: &PemError) -> CertificateError {
    CertificateError::BrokenPem { label: label.into(), position, reason: damage(error) }
}

/// What is wrong with a section. The parser's own message may quote the text, which may be a key:
/// so it is not passed on.
pub(crate) fn damage(error: &PemError) -> &'static str {
    match error {
        PemError::Base64Decode(_) => "it is not base64",
        PemError::IllegalSectionStart { .. } => "its BEGIN line is malformed",
        PemError::MissingSectionEnd { .. } => "its END line is missing",
        _ => "it is unreadable",
    }
}
