//! The signature schemes that a server uses.

use rcgen::SignatureAlgorithm;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, SignatureScheme as R, SupportedProtocolVersion};
use sealane_engine::policy::{Policy, Scheme};
use sealane_engine::provider::ProviderChoice;

use crate::rig::{Client, Failed, Server};

#[test]
fn each_scheme_is_used_alone_with_either_provider() {
    for choice in [ProviderChoice::Graviola, ProviderChoice::AwsLc] {
        let keys = [&RSA[..], &P256, &P384, &P521, &ED25519].concat();
        let mut server = Server::new(choice, Policy::default(), &keys);
        for (scheme, signed) in SCHEMES {
            server.turn_to(Policy { schemes: vec![scheme], ..Policy::default() });
            let pkcs1 = scheme.name().starts_with("rsa_pkcs1");
            let versions: [(_, &SupportedProtocolVersion); 2] = [(false, &TLS12), (true, &TLS13)];
            for (is_tls13, version) in versions {
                let client = Client::default();
                let session = server.accept(&client, "a.test", version);
                if is_tls13 && pkcs1 {
                    let alert = Failed::Alert(AlertDescription::HandshakeFailure);
                    assert_eq!(session.unwrap_err(), alert, "{scheme:?}");
                } else {
                    session.unwrap();
                    assert_eq!(*client.signed.lock().unwrap(), Some(signed), "{choice:?}");
                }
            }
        }
    }
}

#[test]
fn the_certificate_is_one_that_may_sign() {
    let keys = [&P256[..], &RSA].concat();
    let schemes = vec![Scheme::RsaPssRsaeSha384, Scheme::RsaPssRsaeSha512];
    let mut server = Server::new(ProviderChoice::Auto, Policy::default(), &keys);
    for version in [&TLS12, &TLS13] {
        // The same keys on the same lane, with and without a restriction.
        for (schemes, signed) in [
            (Vec::new(), R::ECDSA_NISTP256_SHA256),
            (schemes.clone(), R::RSA_PSS_SHA512),
            (vec![Scheme::RsaPssRsaeSha256], R::RSA_PSS_SHA256),
            (Vec::new(), R::ECDSA_NISTP256_SHA256),
        ] {
            server.turn_to(Policy { schemes, ..Policy::default() });
            let client = Client::default();
            server.accept(&client, "a.test", version).unwrap();
            assert_eq!(*client.signed.lock().unwrap(), Some(signed), "{version:?}");
        }
    }
    assert_eq!(server.lane.keys.borrow().counters().decoded, 2);
}

#[test]
fn without_a_key_that_may_sign_there_is_no_handshake() {
    let policy = Policy { schemes: vec![Scheme::RsaPssRsaeSha256], ..Policy::default() };
    let server = Server::new(ProviderChoice::Auto, policy, &P256);
    for version in [&TLS12, &TLS13] {
        let failed = server.accept(&Client::default(), "a.test", version).unwrap_err();
        assert_eq!(failed, Failed::Alert(AlertDescription::HandshakeFailure), "{version:?}");
    }
}

const ED25519: [(&str, &SignatureAlgorithm); 1] = [("a.test", &rcgen::PKCS_ED25519)];
const P256: [(&str, &SignatureAlgorithm); 1] = [("a.test", &rcgen::PKCS_ECDSA_P256_SHA256)];
const P384: [(&str, &SignatureAlgorithm); 1] = [("a.test", &rcgen::PKCS_ECDSA_P384_SHA384)];
const P521: [(&str, &SignatureAlgorithm); 1] = [("a.test", &rcgen::PKCS_ECDSA_P521_SHA512)];
const RSA: [(&str, &SignatureAlgorithm); 1] = [("a.test", &rcgen::PKCS_RSA_SHA256)];

const SCHEMES: [(Scheme, R); Scheme::ALL.len()] = [
    (Scheme::EcdsaSecp256r1Sha256, R::ECDSA_NISTP256_SHA256),
    (Scheme::EcdsaSecp384r1Sha384, R::ECDSA_NISTP384_SHA384),
    (Scheme::EcdsaSecp521r1Sha512, R::ECDSA_NISTP521_SHA512),
    (Scheme::Ed25519, R::ED25519),
    (Scheme::RsaPkcs1Sha256, R::RSA_PKCS1_SHA256),
    (Scheme::RsaPkcs1Sha384, R::RSA_PKCS1_SHA384),
    (Scheme::RsaPkcs1Sha512, R::RSA_PKCS1_SHA512),
    (Scheme::RsaPssRsaeSha256, R::RSA_PSS_SHA256),
    (Scheme::RsaPssRsaeSha384, R::RSA_PSS_SHA384),
    (Scheme::RsaPssRsaeSha512, R::RSA_PSS_SHA512),
];
