//! Errors in a certificate, its key, or a set of them, with the remedy for each.

use super::ChainFault;
use super::{
    CERTIFICATES_MAX, CHAIN_CERTIFICATES_MAX, KeyType, NAMES_PER_CERTIFICATE_MAX, PEM_BYTES_MAX,
    RSA_BITS_MIN,
};
use crate::days::days;
use crate::pem::{Damage, Foreign};

/// An error because of which a certificate cannot be served. The fault is the operator's unless a
/// variant names another party.
///
/// A label is the caller's name for the source, usually its path. No variant holds a byte of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// One certificate of a chain is not X.509.
    #[error(
        "{label}: certificate {position} of the chain is not a valid X.509 certificate ({reason}); \
         issue or copy it again"
    )]
    BadCertificate {
        /// The file with the chain.
        label: String,
        /// Counted from 1, the server's own certificate.
        position: usize,
        /// The parser's error.
        reason: &'static str,
    },
    /// A part of a PEM file cannot be read.
    #[error("{label}:{line}: {damage}")]
    BrokenPem {
        /// The damaged file.
        label: String,
        /// The number of the line, counted from 1.
        line: usize,
        /// The kind of damage.
        damage: Damage,
    },
    /// More intermediates than any client accepts.
    #[error(
        "{label}: a chain of {count} certificates; at most {CHAIN_CERTIFICATES_MAX} are served: \
         keep the certificate itself and its intermediates, not a bundle of roots"
    )]
    ChainTooLong {
        /// The file with the chain.
        label: String,
        /// Certificates found.
        count: usize,
    },
    /// The configured default certificate is not among those loaded.
    #[error(
        "default certificate {wanted:?}: no loaded certificate has this name or comes from this \
         file; name one that does, or leave the default out to take the first"
    )]
    DefaultMissing {
        /// The configured name or label.
        wanted: String,
    },
    /// The key needs a passphrase.
    #[error(
        "{label}: the private key is encrypted; decrypt it (openssl pkey -in encrypted.key -out \
         plain.key) and let only the server's user read it"
    )]
    EncryptedKey {
        /// The file with the key.
        label: String,
    },
    /// The index is full.
    #[error(
        "{label}: not loaded, {CERTIFICATES_MAX} certificates are loaded already and that is the \
         limit; serve the others from another instance"
    )]
    IndexFull {
        /// The first file left out.
        label: String,
    },
    /// The public half of the key is not the one in the certificate.
    #[error(
        "{key}: this private key does not belong to the first certificate in {certificate}; pair \
         the certificate with the key it was issued for, and put its own certificate \
         before its intermediates"
    )]
    KeyMismatch {
        /// The file with the chain.
        certificate: String,
        /// The file with the key.
        key: String,
    },
    /// The provider of cryptography rejects the key.
    #[error("{label}: the private key cannot be decoded ({reason}); export or issue it again")]
    KeyUndecodable {
        /// The file with the key.
        label: String,
        /// The provider's words.
        reason: String,
    },
    /// A file without a certificate where one is needed.
    #[error(
        "{label}: no certificate in it; the file needs the certificate itself, then its \
         intermediates, each as a PEM section CERTIFICATE"
    )]
    NoCertificate {
        /// The file.
        label: String,
    },
    /// A file without a key where one is needed.
    #[error(
        "{label}: no private key in it; append the key's PEM section to the chain, or put the two \
         side by side as NAME.crt and NAME.key"
    )]
    NoKey {
        /// The file.
        label: String,
    },
    /// Nothing was loaded at all.
    #[error("no certificate was given; name a PEM file or a directory that holds some")]
    NoneGiven,
    /// A file without any PEM section that matters here.
    #[error("{label}: neither a certificate nor a private key: {found}")]
    NotPem {
        /// The file.
        label: String,
        /// The format of the file.
        found: Foreign,
    },
    /// A file too large to be a chain with its key.
    #[error(
        "{label}: {bytes} bytes; a chain with its key has at most {PEM_BYTES_MAX}: is this the \
         right file?"
    )]
    PemTooLarge {
        /// The file.
        label: String,
        /// The size of the key.
        bytes: usize,
    },
    /// An RSA key that is too weak for clients, or too slow for the server.
    #[error(
        "{label}: an RSA key of {bits} bits; {RSA_BITS_MIN} to {bits_max} are served: issue \
         the certificate again, best with an ECDSA P-256 key"
    )]
    RsaKeySize {
        /// The file with the chain.
        label: String,
        /// Bits of the modulus.
        bits: usize,
        /// Bits that are served at most, from where it comes.
        bits_max: usize,
    },
    /// Several keys, so which one is meant is unclear.
    #[error(
        "{label}: {count} private keys; keep the one that belongs to the first certificate, and \
         give every certificate a file of its own"
    )]
    SeveralKeys {
        /// The file, or the second file of a pair.
        label: String,
        /// Keys found.
        count: usize,
    },
    /// More names than a hello's look-up table should carry for one certificate.
    #[error(
        "{label}: {count} names in one certificate; at most {NAMES_PER_CERTIFICATE_MAX} are \
         served: split it"
    )]
    TooManyNames {
        /// The file with the chain.
        label: String,
        /// Names found.
        count: usize,
    },
    /// A kind of key that is not served.
    #[error(
        "{label}: a kind of key that is not served; issue the certificate again with ECDSA P-256, \
         P-384 or P-521, Ed25519 or RSA"
    )]
    UnsupportedKey {
        /// The file with the chain or with the key.
        label: String,
    },
}

/// A warning for the operator about a certificate that is served all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateWarning {
    /// The certificates of the chain do not fit each other, or servers.
    #[error("{label}: {fault}")]
    Chain {
        /// The file with the chain.
        label: String,
        /// The fault.
        fault: ChainFault,
    },
    /// A certificate of the chain is past its end.
    #[error(
        "{label}: certificate {position} of the chain expired {} ago; clients will refuse it: \
         take the current one from the authority, or remove it if it is a root",
        days(*expired_s)
    )]
    ChainExpired {
        /// The file with the chain.
        label: String,
        /// Counted from 1, the server's own certificate.
        position: usize,
        /// Seconds since its end.
        expired_s: i64,
    },
    /// Two certificates have the same kind of key and a name in common.
    #[error(
        "{dropped}: {} kind of key {} as {kept}, which {reason} and is served; remove one of the \
         two",
        shared(name, *names), key_type.family()
    )]
    Clash {
        /// The source that is not served for these names.
        dropped: String,
        /// The source that is served.
        kept: String,
        /// Their kind of key.
        key_type: KeyType,
        /// The first of the names in common.
        name: String,
        /// The count of names that they have in common.
        names: usize,
        /// The advantage of the served one over the other.
        reason: &'static str,
    },
    /// No subjectAltName.
    #[error(
        "{label}: its name is only in the common name, and it has no subjectAltName; browsers, \
         curl and Go will refuse it: issue it again"
    )]
    CommonNameOnly {
        /// The file with the chain.
        label: String,
    },
    /// Past its end.
    #[error("{label}: expired {} ago; clients will refuse it: renew it", days(*expired_s))]
    Expired {
        /// The file with the chain.
        label: String,
        /// Seconds since its end.
        expired_s: i64,
    },
    /// The chain ends with a certificate that others issued.
    #[error(
        "{label}: the certificate of its issuer ({issuer}) is not in the chain; append it, unless \
         clients trust that issuer as a root"
    )]
    IssuerMissing {
        /// The file with the chain.
        label: String,
        /// The issuer's name.
        issuer: String,
        /// Whether the certificate names a place where its issuer's certificate is published.
        is_published: bool,
    },
    /// A name that no client can ask for.
    #[error(
        "{label}: the name {name:?} is not served: neither a host name nor a wildcard for one \
         whole label (*.example.com)"
    )]
    NameIgnored {
        /// The file with the chain.
        label: String,
        /// The name as written in the certificate.
        name: String,
    },
    /// Served only as the default.
    #[error("{label}: no host name in it; it is served only if it is the default certificate")]
    NoNames {
        /// The file with the chain.
        label: String,
    },
    /// Before its beginning.
    #[error(
        "{label}: valid only in {}; clients will refuse it until then: is this machine's clock \
         right?",
        days(*valid_in_s)
    )]
    NotYetValid {
        /// The file with the chain.
        label: String,
        /// Seconds until its beginning.
        valid_in_s: i64,
    },
    /// A certificate that is in the chain already.
    #[error("{label}: certificate {position} of the chain is there twice; remove one of the two")]
    Repeated {
        /// The file with the chain.
        label: String,
        /// Counted from 1, the server's own certificate.
        position: usize,
    },
    /// An RSA key that slows down all clients of a lane.
    #[error(
        "{label}: an RSA key of {bits} bits: each handshake takes about {ms} ms of a lane, for \
         which all its clients wait; issue the certificate again, best with an ECDSA P-256 key"
    )]
    SlowKey {
        /// The file with the chain.
        label: String,
        /// Bits of the modulus.
        bits: usize,
        /// Milliseconds of a signature.
        ms: usize,
    },
}

fn shared(name: &str, names: usize) -> String {
    match names {
        0 | 1 => format!("has the name {name} and the"),
        _ => format!("has {names} names ({name} and others) and the"),
    }
}
