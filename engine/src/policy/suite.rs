//! Cipher suites by name.

use rustls::CipherSuite;

/// Cipher suites: those of TLS 1.3, and those of TLS 1.2 with ephemeral keys and authenticated
/// encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// TLS 1.2: an ECDSA or Ed25519 certificate, AES-128-GCM.
    EcdheEcdsaAes128GcmSha256,
    /// TLS 1.2: an ECDSA or Ed25519 certificate, AES-256-GCM.
    EcdheEcdsaAes256GcmSha384,
    /// TLS 1.2: an ECDSA or Ed25519 certificate, ChaCha20-Poly1305.
    EcdheEcdsaChacha20Poly1305Sha256,
    /// TLS 1.2: an RSA certificate, AES-128-GCM.
    EcdheRsaAes128GcmSha256,
    /// TLS 1.2: an RSA certificate, AES-256-GCM.
    EcdheRsaAes256GcmSha384,
    /// TLS 1.2: an RSA certificate, ChaCha20-Poly1305.
    EcdheRsaChacha20Poly1305Sha256,
    /// TLS 1.3: AES-128-GCM.
    Tls13Aes128GcmSha256,
    /// TLS 1.3: AES-256-GCM.
    Tls13Aes256GcmSha384,
    /// TLS 1.3: ChaCha20-Poly1305.
    Tls13Chacha20Poly1305Sha256,
}

impl Suite {
    /// All suites, in the order of preference of a policy that names none.
    ///
    /// AES-128 before AES-256: 128 bits suffice, and each byte costs less.
    pub const ALL: [Self; 9] = [
        Self::Tls13Aes128GcmSha256,
        Self::Tls13Aes256GcmSha384,
        Self::Tls13Chacha20Poly1305Sha256,
        Self::EcdheEcdsaAes128GcmSha256,
        Self::EcdheRsaAes128GcmSha256,
        Self::EcdheEcdsaAes256GcmSha384,
        Self::EcdheRsaAes256GcmSha384,
        Self::EcdheEcdsaChacha20Poly1305Sha256,
        Self::EcdheRsaChacha20Poly1305Sha256,
    ];

    /// The IANA name.
    pub fn name(self) -> &'static str {
        match self {
            Self::EcdheEcdsaAes128GcmSha256 => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            Self::EcdheEcdsaAes256GcmSha384 => "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            Self::EcdheEcdsaChacha20Poly1305Sha256 => {
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
            }
            Self::EcdheRsaAes128GcmSha256 => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            Self::EcdheRsaAes256GcmSha384 => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            Self::EcdheRsaChacha20Poly1305Sha256 => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            Self::Tls13Aes128GcmSha256 => "TLS_AES_128_GCM_SHA256",
            Self::Tls13Aes256GcmSha384 => "TLS_AES_256_GCM_SHA384",
            Self::Tls13Chacha20Poly1305Sha256 => "TLS_CHACHA20_POLY1305_SHA256",
        }
    }

    /// The name that OpenSSL gave it, which most configurations use for TLS 1.2.
    pub fn openssl_name(self) -> &'static str {
        match self {
            Self::EcdheEcdsaAes128GcmSha256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
            Self::EcdheEcdsaAes256GcmSha384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
            Self::EcdheEcdsaChacha20Poly1305Sha256 => "ECDHE-ECDSA-CHACHA20-POLY1305",
            Self::EcdheRsaAes128GcmSha256 => "ECDHE-RSA-AES128-GCM-SHA256",
            Self::EcdheRsaAes256GcmSha384 => "ECDHE-RSA-AES256-GCM-SHA384",
            Self::EcdheRsaChacha20Poly1305Sha256 => "ECDHE-RSA-CHACHA20-POLY1305",
            tls13 => tls13.name(),
        }
    }

    /// Whether it is for TLS 1.3, and for no other version.
    pub fn is_tls13(self) -> bool {
        matches!(
            self,
            Self::Tls13Aes128GcmSha256
                | Self::Tls13Aes256GcmSha384
                | Self::Tls13Chacha20Poly1305Sha256
        )
    }

    /// The suite as rustls names it.
    pub(crate) fn id(self) -> CipherSuite {
        use CipherSuite as C;
        match self {
            Self::EcdheEcdsaAes128GcmSha256 => C::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            Self::EcdheEcdsaAes256GcmSha384 => C::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            Self::EcdheEcdsaChacha20Poly1305Sha256 => {
                C::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            }
            Self::EcdheRsaAes128GcmSha256 => C::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            Self::EcdheRsaAes256GcmSha384 => C::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            Self::EcdheRsaChacha20Poly1305Sha256 => C::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            Self::Tls13Aes128GcmSha256 => C::TLS13_AES_128_GCM_SHA256,
            Self::Tls13Aes256GcmSha384 => C::TLS13_AES_256_GCM_SHA384,
            Self::Tls13Chacha20Poly1305Sha256 => C::TLS13_CHACHA20_POLY1305_SHA256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_suite() {
        for suite in Suite::ALL {
            // rustls writes TLS13_ where IANA writes TLS_, and OpenSSL leaves out the obvious
            // parts.
            let named = suite.id().as_str().unwrap().replace("TLS13_", "TLS_");
            assert_eq!(suite.name(), named);
            let bare = |name: &str| name.replace("TLS_ECDHE", "ECDHE").replace("WITH_", "");
            let openssl = suite.openssl_name().replace('-', "_").replace("AES1", "AES_1");
            let openssl = openssl.replace("AES2", "AES_2");
            assert!(bare(suite.name()).starts_with(&bare(&openssl)), "{openssl}");
        }
    }
}
