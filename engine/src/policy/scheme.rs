//! Signature schemes by name, and sets of them.

use rustls::SignatureScheme;

/// Ways in which a server signs a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// ECDSA on P-256 with SHA-256.
    EcdsaSecp256r1Sha256,
    /// ECDSA on P-384 with SHA-384.
    EcdsaSecp384r1Sha384,
    /// ECDSA on P-521 with SHA-512.
    EcdsaSecp521r1Sha512,
    /// Ed25519 (RFC 8032).
    Ed25519,
    /// RSA with PKCS#1 v1.5 padding and SHA-256; TLS 1.2 only.
    RsaPkcs1Sha256,
    /// RSA with PKCS#1 v1.5 padding and SHA-384; TLS 1.2 only.
    RsaPkcs1Sha384,
    /// RSA with PKCS#1 v1.5 padding and SHA-512; TLS 1.2 only.
    RsaPkcs1Sha512,
    /// RSA with PSS padding and SHA-256.
    RsaPssRsaeSha256,
    /// RSA with PSS padding and SHA-384.
    RsaPssRsaeSha384,
    /// RSA with PSS padding and SHA-512.
    RsaPssRsaeSha512,
}

impl Scheme {
    /// All schemes.
    pub const ALL: [Self; 10] = [
        Self::EcdsaSecp256r1Sha256,
        Self::EcdsaSecp384r1Sha384,
        Self::EcdsaSecp521r1Sha512,
        Self::Ed25519,
        Self::RsaPkcs1Sha256,
        Self::RsaPkcs1Sha384,
        Self::RsaPkcs1Sha512,
        Self::RsaPssRsaeSha256,
        Self::RsaPssRsaeSha384,
        Self::RsaPssRsaeSha512,
    ];

    /// The IANA name.
    pub fn name(self) -> &'static str {
        match self {
            Self::EcdsaSecp256r1Sha256 => "ecdsa_secp256r1_sha256",
            Self::EcdsaSecp384r1Sha384 => "ecdsa_secp384r1_sha384",
            Self::EcdsaSecp521r1Sha512 => "ecdsa_secp521r1_sha512",
            Self::Ed25519 => "ed25519",
            Self::RsaPkcs1Sha256 => "rsa_pkcs1_sha256",
            Self::RsaPkcs1Sha384 => "rsa_pkcs1_sha384",
            Self::RsaPkcs1Sha512 => "rsa_pkcs1_sha512",
            Self::RsaPssRsaeSha256 => "rsa_pss_rsae_sha256",
            Self::RsaPssRsaeSha384 => "rsa_pss_rsae_sha384",
            Self::RsaPssRsaeSha512 => "rsa_pss_rsae_sha512",
        }
    }

    pub(crate) fn of(id: SignatureScheme) -> Option<Self> {
        Some(match id {
            SignatureScheme::ECDSA_NISTP256_SHA256 => Self::EcdsaSecp256r1Sha256,
            SignatureScheme::ECDSA_NISTP384_SHA384 => Self::EcdsaSecp384r1Sha384,
            SignatureScheme::ECDSA_NISTP521_SHA512 => Self::EcdsaSecp521r1Sha512,
            SignatureScheme::ED25519 => Self::Ed25519,
            SignatureScheme::RSA_PKCS1_SHA256 => Self::RsaPkcs1Sha256,
            SignatureScheme::RSA_PKCS1_SHA384 => Self::RsaPkcs1Sha384,
            SignatureScheme::RSA_PKCS1_SHA512 => Self::RsaPkcs1Sha512,
            SignatureScheme::RSA_PSS_SHA256 => Self::RsaPssRsaeSha256,
            SignatureScheme::RSA_PSS_SHA384 => Self::RsaPssRsaeSha384,
            SignatureScheme::RSA_PSS_SHA512 => Self::RsaPssRsaeSha512,
            _ => return None,
        })
    }
}

/// The schemes that a policy allows; none: it does not restrict them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SchemeSet(u16);

impl SchemeSet {
    /// Nothing is allowed.
    pub(crate) const NONE: Self = Self(0);

    /// The set of a policy's list, of which an empty one allows everything.
    pub(crate) fn restricting(schemes: &[Scheme]) -> Option<Self> {
        let bits = schemes.iter().fold(0, |bits, scheme| bits | 1 << *scheme as u16);
        (!schemes.is_empty()).then_some(Self(bits))
    }

    /// Those of `offered` that are allowed.
    pub(crate) fn allowed(self, offered: &[SignatureScheme]) -> Vec<SignatureScheme> {
        let is_allowed = |id: &&SignatureScheme| {
            Scheme::of(**id).is_some_and(|scheme| self.0 & 1 << scheme as u16 != 0)
        };
        offered.iter().filter(is_allowed).copied().collect()
    }
}
