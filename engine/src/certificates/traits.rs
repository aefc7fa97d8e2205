//! Traits of a certificate for the access log and backends, in OpenSSL's words.

use super::KeyType;
use super::key::PublicHalf;
use super::leaf::parse;

/// The kind of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafTraits {
    /// The kind of key; none for one that is not served.
    pub key: Option<KeyType>,
    /// The algorithm of its issuer's signature. `None` for an algorithm without a name here.
    pub signature: Option<SignatureAlgorithm>,
}

impl LeafTraits {
    /// Reads a certificate; no signature is checked.
    pub fn parse(der: &[u8]) -> Option<Self> {
        let certificate = parse(der).ok()?;
        let spki = &certificate.subject_pki;
        let half = PublicHalf::of_certificate(
            spki.algorithm.algorithm.as_bytes(),
            spki.algorithm.parameters.as_ref().map(|any| any.data),
            &spki.subject_public_key.data,
        );
        let oid = certificate.signature_algorithm.algorithm.as_bytes();
        Some(Self {
            key: half.map(|half| half.key_type),
            signature: SignatureAlgorithm::ALL.into_iter().find(|each| each.oid() == oid),
        })
    }
}

/// The algorithm that a certificate is signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say all that there is to say")]
pub enum SignatureAlgorithm {
    EcdsaSha256,
    EcdsaSha384,
    EcdsaSha512,
    Ed25519,
    RsaPss,
    RsaSha1,
    RsaSha256,
    RsaSha384,
    RsaSha512,
}

impl SignatureAlgorithm {
    const ALL: [Self; 9] = [
        Self::EcdsaSha256,
        Self::EcdsaSha384,
        Self::EcdsaSha512,
        Self::Ed25519,
        Self::RsaPss,
        Self::RsaSha1,
        Self::RsaSha256,
        Self::RsaSha384,
        Self::RsaSha512,
    ];

    /// The algorithm's short name in OpenSSL.
    pub fn name(self) -> &'static str {
        match self {
            Self::EcdsaSha256 => "ecdsa-with-SHA256",
            Self::EcdsaSha384 => "ecdsa-with-SHA384",
            Self::EcdsaSha512 => "ecdsa-with-SHA512",
            Self::Ed25519 => "ED25519",
            Self::RsaPss => "RSASSA-PSS",
            Self::RsaSha1 => "RSA-SHA1",
            Self::RsaSha256 => "RSA-SHA256",
            Self::RsaSha384 => "RSA-SHA384",
            Self::RsaSha512 => "RSA-SHA512",
        }
    }

    /// The object identifier in a certificate (RFC 5758, RFC 8017, RFC 8410).
    fn oid(self) -> &'static [u8] {
        match self {
            Self::EcdsaSha256 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2],
            Self::EcdsaSha384 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3],
            Self::EcdsaSha512 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4],
            Self::Ed25519 => &[0x2b, 0x65, 0x70],
            Self::RsaPss => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10],
            Self::RsaSha1 => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5],
            Self::RsaSha256 => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11],
            Self::RsaSha384 => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12],
            Self::RsaSha512 => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13],
        }
    }
}

/// The first common name in the subject of a certificate in DER, if it has one that is text.
pub fn common_name(der: &[u8]) -> Option<&str> {
    parse(der).ok()?.subject.iter_common_name().next()?.as_str().ok()
}
