//! The chosen suite, by the order of either end.

use rcgen::SignatureAlgorithm;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, CipherSuite as S, SupportedProtocolVersion};
use sealane_engine::context::ContextError;
use sealane_engine::policy::{Policy, Suite, Versions};
use sealane_engine::provider::ProviderChoice;

use crate::rig::{Client, Failed, Server};

#[test]
fn each_suite_is_agreed_on_alone_with_either_provider() {
    for choice in [ProviderChoice::Graviola, ProviderChoice::AwsLc] {
        let mut server = Server::new(choice, Policy::default(), &KEYS);
        for suite in Suite::ALL {
            server.turn_to(Policy { suites: vec![suite], ..Policy::default() });
            let versions: [(_, &SupportedProtocolVersion); 2] = [(false, &TLS12), (true, &TLS13)];
            for (is_tls13, version) in versions {
                let chosen = server.accept(&Client::default(), "a.test", version);
                if is_tls13 == suite.openssl_name().starts_with("TLS_") {
                    assert_eq!(chosen.unwrap().suite(), Some(suite.name()), "{choice:?}");
                } else {
                    let alert = Failed::Alert(AlertDescription::ProtocolVersion);
                    assert_eq!(chosen.unwrap_err(), alert, "{suite:?}");
                }
            }
        }
    }
}

#[test]
fn the_order_of_the_policy_decides_or_that_of_the_client() {
    let mut server = Server::new(ProviderChoice::Auto, Policy::default(), &KEYS);
    let client = |suites: &[S]| Client { suites: suites.to_vec(), ..Client::default() };
    let (chacha, aes128, aes256) = (
        S::TLS13_CHACHA20_POLY1305_SHA256,
        S::TLS13_AES_128_GCM_SHA256,
        S::TLS13_AES_256_GCM_SHA384,
    );
    let suites = vec![
        Suite::Tls13Aes256GcmSha384,
        Suite::EcdheEcdsaChacha20Poly1305Sha256,
        Suite::EcdheEcdsaAes256GcmSha384,
        Suite::Tls13Aes128GcmSha256,
        Suite::Tls13Chacha20Poly1305Sha256,
    ];
    let tls12 = [S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, CHACHA];
    let expected = [
        (false, "TLS_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
        (true, "TLS_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ];
    for (client_order, chosen13, chosen12) in expected {
        server.turn_to(Policy { suites: suites.clone(), client_order, ..Policy::default() });
        // A client that puts ChaCha20 first changes nothing for a policy that has an order.
        let session = server.accept(&client(&[chacha, aes128, aes256]), "a.test", &TLS13).unwrap();
        assert_eq!(session.suite(), Some(chosen13));
        let session = server.accept(&client(&tls12), "a.test", &TLS12).unwrap();
        assert_eq!(session.suite(), Some(chosen12));
    }
    // Without suites in the policy the client's order counts as well.
    server.turn_to(Policy { client_order: true, ..Policy::default() });
    let session = server.accept(&client(&[aes256, aes128]), "a.test", &TLS13).unwrap();
    assert_eq!(session.suite(), Some("TLS_AES_256_GCM_SHA384"));
}

#[test]
fn no_other_suite_is_agreed_on() {
    let suites = vec![Suite::Tls13Aes256GcmSha384, Suite::EcdheEcdsaAes256GcmSha384];
    let policy = Policy { suites, ..Policy::default() };
    let server = Server::new(ProviderChoice::Auto, policy, &KEYS);
    let refused: [(_, &SupportedProtocolVersion); 2] =
        [(S::TLS13_AES_128_GCM_SHA256, &TLS13), (CHACHA, &TLS12)];
    for (suite, version) in refused {
        let client = Client { suites: vec![suite], ..Client::default() };
        let failed = server.accept(&client, "a.test", version).unwrap_err();
        assert_eq!(failed, Failed::Alert(AlertDescription::HandshakeFailure), "{suite:?}");
    }
}

#[test]
fn suites_that_no_version_has_make_no_context() {
    let server = Server::new(ProviderChoice::Auto, Policy::default(), &KEYS);
    let suites = vec![Suite::Tls13Aes256GcmSha384];
    let policy = Policy { suites, versions: Versions::Tls12, ..Policy::default() };
    let error = server.context_of(policy, false).unwrap_err();
    assert!(matches!(error, ContextError::Settings(_)), "{error}");
}

const KEYS: [(&str, &SignatureAlgorithm); 2] =
    [("a.test", &rcgen::PKCS_ECDSA_P256_SHA256), ("a.test", &rcgen::PKCS_RSA_SHA256)];
const CHACHA: S = S::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
