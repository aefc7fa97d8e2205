//! A PEM text as a chain with its private key.

use super::key::EncodedKey;
use super::{CHAIN_CERTIFICATES_MAX, CertificateError, PEM_BYTES_MAX};
use crate::pem::{Foreign, PemError, SectionKind, sections};

/// The certificates and the key of one PEM text. Either may be missing.
#[derive(Debug)]
pub struct PemContents {
    /// Certificates as DER, in the order of the text.
    pub certificates: Vec<Vec<u8>>,
    /// The private key, still encoded.
    pub key: Option<EncodedKey>,
}

impl PemContents {
    /// Reads `text`; `label` names it in errors. Revocation lists are skipped.
    ///
    /// # Errors
    /// The text cannot be read, has neither certificate nor key, or has too many.
    pub fn parse(label: &str, text: &[u8]) -> Result<Self, CertificateError> {
        if text.len() > PEM_BYTES_MAX {
            return Err(CertificateError::PemTooLarge { label: label.into(), bytes: text.len() });
        }
        let found = sections(text).map_err(|PemError { damage, line }| {
            CertificateError::BrokenPem { label: label.into(), line, damage }
        })?;
        let label = label.to_owned();
        let mut certificates = Vec::new();
        let mut key = None;
        let mut keys = 0;
        for section in found {
            match section.kind {
                SectionKind::Certificate => certificates.push(section.into_public()),
                SectionKind::EncryptedKey => return Err(CertificateError::EncryptedKey { label }),
                SectionKind::Key(encoding) => {
                    keys += 1;
                    key = Some(EncodedKey::new(encoding, &section.der));
                }
                SectionKind::RevocationList => {}
            }
        }
        match (certificates.len(), keys) {
            (0, 0) => Err(CertificateError::NotPem { label, found: Foreign::of(text) }),
            (_, 2..) => Err(CertificateError::SeveralKeys { label, count: keys }),
            (count, _) if count > CHAIN_CERTIFICATES_MAX => {
                Err(CertificateError::ChainTooLong { label, count })
            }
            _ => Ok(Self { certificates, key }),
        }
    }
}
