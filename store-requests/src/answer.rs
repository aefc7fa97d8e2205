//! Answers, as they go over the wire: plain data, never a private key.

use sealane_engine::certificates::CertificateDigest;
use sealane_store::{KeyedStore, Served, StoreError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// The result of an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Certificates for names that nothing was served for with this kind of key.
    pub added: u64,
    /// Certificates that took a name from another.
    pub replaced: u64,
    /// Certificates that were there already.
    pub unchanged: u64,
    /// The reasons why no more was stored. Empty if all was.
    pub errors: Vec<String>,
    /// The count of changes of the store.
    pub generation: u64,
    /// Warnings about certificates that were stored, but are probably not meant.
    pub warnings: Vec<String>,
}

impl Stored {
    /// Certificates that are in the store by now, whether they were before or not.
    pub fn certificates(&self) -> u64 {
        self.added + self.replaced + self.unchanged
    }
}

/// Certificates of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadBack {
    /// The certificates.
    pub certificates: Vec<ShownCertificate>,
    /// The count of changes of the store when they were read.
    pub generation: u64,
    /// The value for `after` to go on from here. `None` if these were the last.
    pub next: Option<String>,
}

/// The result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Names that are still served, by a wildcard.
    pub covered: Vec<String>,
    /// The count of changes of the store.
    pub generation: u64,
    /// Certificates that are gone.
    pub removed_certificates: u64,
    /// Names that are no longer served.
    pub removed_names: u64,
    /// Names that were not there.
    pub unknown: Vec<String>,
    /// Problems that did not prevent the removal.
    pub warnings: Vec<String>,
}

/// A certificate as it is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCertificate {
    /// The names that it is served for.
    pub names: Vec<String>,
    /// SHA-256 of each certificate of its chain, the server's own first.
    pub chain: Vec<String>,
    /// Identifies the certificate in a store.
    pub digest: String,
    /// The time of its import, in Unix time.
    pub imported_s: i64,
    /// The issuer.
    pub issuer: String,
    /// The kind of key.
    pub key: String,
    /// Last second of validity, in Unix time.
    pub not_after_s: i64,
    /// First second of validity, in Unix time.
    pub not_before_s: i64,
    /// The key that its private key is sealed with.
    pub sealed_with: String,
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// The source of its import.
    pub source: String,
}

/// A certificate of a store as it is shown.
pub fn shown(served: &Served) -> ShownCertificate {
    let Served { chain, listed } = served;
    let leaf = chain.first().and_then(|der| X509Certificate::from_der(der).ok());
    let leaf = leaf.map(|(_, leaf)| leaf);
    ShownCertificate {
        names: listed.names.clone(),
        chain: chain.iter().map(|der| fingerprint(der)).collect(),
        digest: hex(&listed.digest.0),
        imported_s: listed.imported_s,
        issuer: leaf.as_ref().map(|leaf| leaf.issuer().to_string()).unwrap_or_default(),
        key: listed.key_type.to_string(),
        not_after_s: listed.not_after_s,
        not_before_s: listed.not_before_s,
        sealed_with: listed.sealing_key.to_string(),
        serial: leaf.as_ref().map(|leaf| hex(leaf.raw_serial())).unwrap_or_default(),
        source: listed.label.clone(),
    }
}

/// The place in the list of all certificates from which the next answer goes on, as `after` has it.
/// It is sealed: it may be that of a certificate that the client may not see.
pub(crate) fn cursor(
    store: &KeyedStore,
    (not_after_s, digest): (i64, CertificateDigest),
) -> Result<String, StoreError> {
    let place = [not_after_s.to_be_bytes().as_slice(), &digest.0].concat();
    Ok(hex(&store.seal_beside(CURSOR, &place)?))
}

/// The place that [`cursor`] sealed.
pub(crate) fn open_cursor(store: &KeyedStore, text: &str) -> Option<(i64, CertificateDigest)> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let sealed: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>()?;
    let place = store.open_beside(CURSOR, &sealed)?;
    let (not_after, digest) = place.split_first_chunk()?;
    Some((i64::from_be_bytes(*not_after), CertificateDigest(digest.try_into().ok()?)))
}

/// Identifies a certificate, in the form of browsers and OpenSSL: SHA-256 of its DER.
pub fn fingerprint(der: &[u8]) -> String {
    hex(&Sha256::digest(der))
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The place that the seal of a cursor is bound to.
const CURSOR: &str = "list of certificates";
