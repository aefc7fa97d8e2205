//! IANA's names of what Sealane offers: rustls 0.24 has them for `Debug` alone.

use rustls_next::crypto::CipherSuite as C;
use rustls_next::crypto::kx::NamedGroup as G;

/// The name of a suite, if Sealane offers it.
pub(super) fn of_suite(suite: C) -> Option<&'static str> {
    Some(match suite {
        C::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        C::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        C::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        C::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        C::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        C::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
        }
        C::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        C::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        C::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
        }
        _ => return None,
    })
}

/// The name of a group, if Sealane offers it.
pub(super) fn of_group(group: G) -> Option<&'static str> {
    Some(match group {
        G::secp256r1 => "secp256r1",
        G::secp384r1 => "secp384r1",
        G::X25519 => "X25519",
        G::X25519MLKEM768 => "X25519MLKEM768",
        _ => return None,
    })
}
