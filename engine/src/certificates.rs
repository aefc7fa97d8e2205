//! Certificates found by server name. They are indexed with encoded keys, and a lane decodes a key
//! at its first use.
//!
//! [`IndexBuilder`] takes PEM texts and makes a [`CertificateIndex`] of [`Certificate`]s, which all
//! lanes read and none writes. Certificates that change while they are served come from a
//! [`CertificateStore`]. Each lane keeps decoded keys in its own [`LaneKeys`], and its
//! [`LaneResolver`] answers rustls.

mod builder;
mod chain;
mod error;
mod index;
mod inventory;
mod key;
mod lane;
mod leaf;
mod name;
mod pem;
mod restricted;
mod served;
mod store;
#[cfg(test)]
mod tests;
mod traits;

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, Signer};
use rustls::{Error as TlsError, InconsistentKeys, SignatureScheme};
use sha2::{Digest, Sha256};

pub use builder::{DefaultCertificate, IndexBuilder, Indexed};
pub use chain::ChainFault;
pub use error::{CertificateError, CertificateWarning};
pub use index::CertificateIndex;
pub use inventory::{Inventory, InventoryEntry, NAMES_LISTED_MAX};
pub use key::{EncodedKey, KeyEncoding};
pub use lane::{LaneKeyCounters, LaneKeys, LaneResolver};
#[cfg(test)]
pub(crate) use leaf::PARSED;
use leaf::public_key_info;
pub(crate) use leaf::{AuthorityLimits, Linked, is_authority, is_self_issued, not_after_s};
pub use name::AskedName;
pub use pem::PemContents;
pub use served::{Served, ServedFrom};
pub use store::{
    CertificateStore, Gone, InventoryFailure, ListenerStore, OpenedCertificate, StoreFailure,
    StoreId, StoreView, StoredCertificate,
};
pub use traits::{LeafTraits, SignatureAlgorithm, common_name};

/// One chain with its private key still encoded; immutable, read by all lanes.
pub struct Certificate {
    /// The earliest end of validity in the chain.
    chain_not_after_s: i64,
    digest: CertificateDigest,
    intermediates: Box<[Arc<[u8]>]>,
    key: EncodedKey,
    key_type: KeyType,
    label: Box<str>,
    leaf: Box<[u8]>,
    names: Box<[Arc<str>]>,
    not_after_s: i64,
    not_before_s: i64,
}

impl Certificate {
    /// The source of the chain, as named by the caller that added it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Host names and wildcards of the certificate, lower-cased.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The kind of key.
    pub fn key_type(&self) -> KeyType {
        self.key_type
    }

    /// First second of validity, in Unix time.
    pub fn not_before_s(&self) -> i64 {
        self.not_before_s
    }

    /// Last second of validity of the server's own certificate, in Unix time.
    pub fn not_after_s(&self) -> i64 {
        self.not_after_s
    }

    /// The last second before a certificate of the chain expires, in Unix time.
    pub fn chain_not_after_s(&self) -> i64 {
        self.chain_not_after_s
    }

    /// Whether the whole chain is in date at a time in Unix seconds.
    pub fn is_valid_at(&self, now_s: i64) -> bool {
        (self.not_before_s..=self.chain_not_after_s).contains(&now_s)
    }

    /// Whether the server's own certificate is in date at a time in Unix seconds.
    pub fn is_leaf_valid_at(&self, now_s: i64) -> bool {
        (self.not_before_s..=self.not_after_s).contains(&now_s)
    }

    /// Identifies this chain and key.
    pub fn digest(&self) -> CertificateDigest {
        self.digest
    }

    /// The chain as DER, the server's own certificate first.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.leaf).chain(self.intermediates.iter().map(|der| &**der))
    }

    /// The private key, still encoded.
    pub fn key(&self) -> &EncodedKey {
        &self.key
    }

    /// Decodes the key, checks that it fits, and copies the chain: a replica for one lane, which
    /// shares no reference count with any other.
    pub fn decode(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, CertificateError> {
        let chain = self.chain().map(|der| CertificateDer::from(der.to_vec())).collect();
        decode(&self.label, chain, &self.key, provider).map(Arc::new)
    }

    /// Decodes the key and drops it, for a check before anything is served.
    ///
    /// Beyond [`KEYS_TRIED_MAX`] keys an index compares public halves only. This check also finds a
    /// private half that does not belong to the public one, and a key that `provider` rejects.
    pub fn verify(&self, provider: &CryptoProvider) -> Result<(), CertificateError> {
        self.decode(provider).map(drop)
    }

    /// Returns the signer of its handshakes under TLS 1.3, for a measurement, or `None` if the key
    /// cannot be used.
    pub fn signer(&self, provider: &CryptoProvider) -> Option<Box<dyn Signer>> {
        self.decode(provider).ok()?.key.choose_scheme(&TLS13_SCHEMES)
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("label", &self.label)
            .field("names", &self.names)
            .field("key_type", &self.key_type)
            .field("not_before_s", &self.not_before_s)
            .field("not_after_s", &self.not_after_s)
            .finish_non_exhaustive()
    }
}

/// The identity of a [`Certificate`]: SHA-256 over its chain and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CertificateDigest(pub [u8; 32]);

impl CertificateDigest {
    /// Every part goes in behind its length, so that no two lists of parts share an encoding.
    fn of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new_with_prefix(b"sealane certificate 1");
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// The kinds of key that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// ECDSA over NIST P-256.
    EcdsaP256,
    /// ECDSA over NIST P-384.
    EcdsaP384,
    /// ECDSA over NIST P-521.
    EcdsaP521,
    /// Ed25519 (RFC 8032).
    Ed25519,
    /// RSA.
    Rsa {
        /// Bits of the modulus.
        bits: u16,
    },
}

impl KeyType {
    /// The kind without its size, as written in messages and metrics.
    pub fn family(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ECDSA P-256",
            Self::EcdsaP384 => "ECDSA P-384",
            Self::EcdsaP521 => "ECDSA P-521",
            Self::Ed25519 => "Ed25519",
            Self::Rsa { .. } => "RSA",
        }
    }

    /// Whether a client that offers `schemes` can check a signature by such a key; no key is
    /// decoded to know. rustls ties a curve to its hash, in TLS 1.2 too.
    pub fn is_accepted(self, schemes: &[SignatureScheme]) -> bool {
        self.schemes().iter().any(|scheme| schemes.contains(scheme))
    }

    /// The schemes that this type usually signs with.
    pub(crate) fn schemes(self) -> &'static [SignatureScheme] {
        match self {
            Self::EcdsaP256 => &[SignatureScheme::ECDSA_NISTP256_SHA256],
            Self::EcdsaP384 => &[SignatureScheme::ECDSA_NISTP384_SHA384],
            Self::EcdsaP521 => &[SignatureScheme::ECDSA_NISTP521_SHA512],
            Self::Ed25519 => &[SignatureScheme::ED25519],
            Self::Rsa { .. } => &RSA_SCHEMES,
        }
    }

    /// Cheaper for the server comes first, but P-521 last: stores keep the number. Equal ranks are
    /// one kind of key: of two such certificates for a name only one can be served.
    pub fn rank(self) -> u8 {
        match self {
            Self::EcdsaP256 => 0,
            Self::EcdsaP384 => 1,
            Self::Ed25519 => 2,
            Self::Rsa { .. } => 3,
            Self::EcdsaP521 => 4,
        }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa { bits } => write!(f, "RSA {bits}"),
            Self::EcdsaP256 | Self::EcdsaP384 | Self::EcdsaP521 | Self::Ed25519 => {
                f.write_str(self.family())
            }
        }
    }
}

/// Decodes a key and sees that it belongs to the first certificate of `chain`.
fn decode(
    label: &str,
    chain: Vec<CertificateDer<'static>>,
    key: &EncodedKey,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CertificateError> {
    let undecodable = |error: TlsError| CertificateError::KeyUndecodable {
        label: label.into(),
        reason: error.to_string(),
    };
    let key = provider.key_provider.load_private_key(key.to_rustls()).map_err(undecodable)?;
    // rustls would compare by way of webpki, which knows version 3 only. Nothing else reads the
    // certificate, and every client takes version 1.
    let of_key = key.public_key();
    let of_key = of_key.ok_or_else(|| undecodable(InconsistentKeys::Unknown.into()))?;
    let own = chain.first().ok_or(CertificateError::NoCertificate { label: label.into() })?;
    let of_certificate = public_key_info(own).map_err(|reason| {
        CertificateError::BadCertificate { label: label.into(), position: 1, reason }
    })?;
    if of_key.as_ref() != of_certificate {
        let label = label.to_owned();
        return Err(CertificateError::KeyMismatch { certificate: label.clone(), key: label });
    }
    Ok(CertifiedKey::new(chain, key))
}

/// Certificates in one index.
pub const CERTIFICATES_MAX: usize = 200_000;
/// Certificates in one chain, the server's own included.
pub const CHAIN_CERTIFICATES_MAX: usize = 10;
/// Keys of one index that are decoded before it is served, to see whether they can be used: an
/// elliptic-curve key takes about 50 us, one of RSA several hundred.
pub const KEYS_TRIED_MAX: usize = 256;
/// Names in one certificate.
pub const NAMES_PER_CERTIFICATE_MAX: usize = 1_000;
/// Bytes of a host name without its trailing dot (RFC 1035).
pub const NAME_BYTES_MAX: usize = 253;
/// Bytes of one PEM text.
pub const PEM_BYTES_MAX: usize = 256 * 1024;
/// Largest RSA modulus, except of [`IndexBuilder::take_slow_keys`].
pub const RSA_BITS_MAX: usize = 4096;
/// Largest RSA modulus in the operator's own files: each signature takes 43 ms of a lane.
pub const RSA_BITS_SLOW_MAX: usize = 8192;
/// Smallest RSA modulus that clients accept.
pub const RSA_BITS_MIN: usize = 2048;

/// Those that a server signs with under TLS 1.3, the cheapest of each kind of key.
const TLS13_SCHEMES: [SignatureScheme; 5] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
];
const RSA_SCHEMES: [SignatureScheme; 6] = [
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
];
