//! A listener's policy and its effect on clients: rustls pairs in memory, with either provider.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod chains;
mod clients;
mod constraints;
mod key_log;
mod list_keys;
mod lists;
mod rig;
mod signatures;
mod suites;
mod tickets;

use std::sync::Arc;

use rcgen::SignatureAlgorithm;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, CipherSuite as S, Error};
use sealane_engine::context::Refusal;
use sealane_engine::hello::Hello;
use sealane_engine::policy::{
    ClientCertificates, Group, Policy, Scheme, Suite, UnknownNames, Versions,
};
use sealane_engine::provider::ProviderChoice;

use self::clients::Authority;
use self::rig::{Client, Failed, Server};

#[test]
fn every_group_works_in_every_version_with_either_provider() {
    for choice in [ProviderChoice::Graviola, ProviderChoice::AwsLc] {
        let keys = [("a.test", &rcgen::PKCS_ECDSA_P256_SHA256)];
        let server = Server::new(choice, Policy::default(), &keys);
        for group in Group::ALL {
            for version in [&TLS12, &TLS13] {
                if group == Group::X25519MlKem768 && version == &TLS12 {
                    continue; // the hybrid is for TLS 1.3 only
                }
                let client = Client { groups: vec![group], ..Client::default() };
                let session = server.accept(&client, "a.test", version).unwrap();
                assert_eq!(session.group(), Some(group.name()), "{choice:?} {version:?}");
            }
        }
    }
}

#[test]
fn no_other_group_is_agreed_on() {
    let policy = Policy { groups: vec![Group::Secp384r1], ..Policy::default() };
    let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
    for version in [&TLS12, &TLS13] {
        let session = server.accept(&Client::default(), "a.test", version).unwrap();
        assert_eq!(session.group(), Some("secp384r1"), "in TLS 1.3 by a HelloRetryRequest");
        let refused = Client { groups: vec![Group::Secp256r1], ..Client::default() };
        let failed = server.accept(&refused, "a.test", version).unwrap_err();
        assert_eq!(failed, Failed::Alert(AlertDescription::HandshakeFailure));
    }
}

#[test]
fn aes_128_comes_first_unless_the_client_prefers_chacha20() {
    let keys = [("a.test", &rcgen::PKCS_ECDSA_P256_SHA256)];
    let server = Server::new(ProviderChoice::Auto, Policy::default(), &keys);
    let suite_of = |suites: &[S], version| {
        let client = Client { suites: suites.to_vec(), ..Client::default() };
        server.accept(&client, "a.test", version).unwrap().suite().unwrap()
    };
    // The default order of OpenSSL and Go puts AES-256 first.
    let openssl = [
        S::TLS13_AES_256_GCM_SHA384,
        S::TLS13_CHACHA20_POLY1305_SHA256,
        S::TLS13_AES_128_GCM_SHA256,
    ];
    assert_eq!(suite_of(&openssl, &TLS13), "TLS_AES_128_GCM_SHA256");
    // A phone without AES instructions.
    let phone = [S::TLS13_CHACHA20_POLY1305_SHA256, S::TLS13_AES_128_GCM_SHA256];
    assert_eq!(suite_of(&phone, &TLS13), "TLS_CHACHA20_POLY1305_SHA256");
    assert_eq!(suite_of(&[S::TLS13_AES_256_GCM_SHA384], &TLS13), "TLS_AES_256_GCM_SHA384");
    let tls12 =
        [S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, S::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];
    assert_eq!(suite_of(&tls12, &TLS12), "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
}

#[test]
fn of_several_key_types_the_client_gets_one_that_it_can_check() {
    let types: [(&str, &SignatureAlgorithm); 3] = [
        ("a.test", &rcgen::PKCS_RSA_SHA256),
        ("a.test", &rcgen::PKCS_ED25519),
        ("a.test", &rcgen::PKCS_ECDSA_P256_SHA256),
    ];
    let suites = vec![S::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
    let rsa = Client { suites, ..Client::default() };
    for choice in [ProviderChoice::Graviola, ProviderChoice::AwsLc] {
        let server = Server::new(choice, Policy::default(), &types);
        let session = server.accept(&Client::default(), "a.test", &TLS12).unwrap();
        assert!(session.suite().unwrap().contains("ECDSA"), "the cheapest comes first");
        let session = server.accept(&rsa, "a.test", &TLS12).unwrap();
        assert!(session.suite().unwrap().contains("_RSA_"), "{choice:?}");
    }
}

#[test]
fn versions_are_kept_to() {
    let accepts = |versions, version| {
        let policy = Policy { versions, ..Policy::default() };
        let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
        server.accept(&Client::default(), "a.test", version).map(|_| ())
    };
    assert_eq!(accepts(Versions::Tls12, &TLS12), Ok(()));
    assert_eq!(accepts(Versions::Tls13, &TLS13), Ok(()));
    let refused = Err(Failed::Alert(AlertDescription::ProtocolVersion));
    assert_eq!(accepts(Versions::Tls12, &TLS13), refused);
    assert_eq!(accepts(Versions::Tls13, &TLS12), refused);
}

#[test]
fn alpn_follows_the_servers_order_and_refuses_without_overlap() {
    let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let server = Server::new(ProviderChoice::Auto, Policy { alpn, ..Policy::default() }, &ED25519);
    let speaking = |protocols: &[&[u8]]| Client {
        alpn: protocols.iter().map(|protocol| protocol.to_vec()).collect(),
        ..Client::default()
    };
    let session = server.accept(&speaking(&[b"http/1.1", b"h2"]), "a.test", &TLS13).unwrap();
    assert_eq!(session.alpn(), Some(&b"h2"[..]));
    let session = server.accept(&Client::default(), "a.test", &TLS13).unwrap();
    assert_eq!(session.alpn(), None, "a client without ALPN is served");
    for older in [&b"http/1.0"[..], b"http/0.9"] {
        let session = server.accept(&speaking(&[older]), "a.test", &TLS13).unwrap();
        assert_eq!(session.alpn(), Some(older), "a server of HTTP/1.1 speaks it");
        let session = server.accept(&speaking(&[older, b"http/1.1"]), "a.test", &TLS13).unwrap();
        assert_eq!(session.alpn(), Some(&b"http/1.1"[..]));
    }
    let failed = server.accept(&speaking(&[b"smtp"]), "a.test", &TLS13).unwrap_err();
    assert_eq!(failed, Failed::Alert(AlertDescription::NoApplicationProtocol));
}

#[test]
fn unknown_names_get_the_default_certificate_or_the_right_alert() {
    let names = [("a.test", &rcgen::PKCS_ED25519), ("*.b.test", &rcgen::PKCS_ED25519)];
    let lenient = Server::new(ProviderChoice::Auto, Policy::default(), &names);
    // The default certificate is served, and it is the client that finds it wrong.
    let failed = lenient.accept(&Client::default(), "c.test", &TLS13).unwrap_err();
    assert!(matches!(failed, Failed::Client(Error::InvalidCertificate(_))), "{failed:?}");

    let policy = Policy { unknown_names: UnknownNames::Refuse, ..Policy::default() };
    let strict = Server::new(ProviderChoice::Auto, policy, &names);
    assert!(strict.accept(&Client::default(), "x.b.test", &TLS13).is_ok());
    for unknown in ["c.test", "x.y.b.test", "b.test"] {
        let failed = strict.accept(&Client::default(), unknown, &TLS13).unwrap_err();
        assert_eq!(failed, Failed::Alert(AlertDescription::UnrecognisedName), "{unknown}");
    }
    let nameless = |offers_tls13| Hello { offers_tls13, ..Hello::default() };
    assert_eq!(strict.context.admit(&nameless(true)).unwrap_err(), Refusal::NoName);
    assert_eq!(strict.context.admit(&nameless(false)).unwrap_err(), Refusal::NoNameTls12);
    assert_eq!(Refusal::NoName.alert()[6], u8::from(AlertDescription::MissingExtension));
}

#[test]
fn rejects_renegotiation_as_a_first_handshake() {
    let server = Server::new(ProviderChoice::Auto, Policy::default(), &ED25519);
    let admit = |renegotiates, offers_tls13| {
        server.context.admit(&Hello { renegotiates, offers_tls13, ..Hello::default() })
    };
    assert_eq!(admit(true, false).unwrap_err(), Refusal::Renegotiation);
    assert_eq!(Refusal::Renegotiation.alert()[6], u8::from(AlertDescription::HandshakeFailure));
    // TLS 1.3 has no such extension.
    assert!(admit(true, true).is_ok());
    assert!(admit(false, false).is_ok());
}

#[test]
fn policies_that_differ_in_anything_have_digests_of_their_own() {
    let base = Policy::default();
    let roots = [(); 2].map(|()| Authority::new().roots(&[]));
    let others = [
        Policy { versions: Versions::Tls13, ..base.clone() },
        Policy { unknown_names: UnknownNames::Refuse, ..base.clone() },
        Policy { groups: vec![Group::X25519], ..base.clone() },
        Policy { alpn: vec![b"h2".to_vec()], ..base.clone() },
        Policy { alpn: vec![b"h".to_vec(), b"2".to_vec()], ..base.clone() },
        Policy { client_order: true, ..base.clone() },
        Policy { suites: Suite::ALL.to_vec(), ..base.clone() },
        Policy { suites: vec![Suite::Tls13Aes128GcmSha256], ..base.clone() },
        Policy { suites: vec![Suite::Tls13Aes128GcmSha256], client_order: true, ..base.clone() },
        Policy { schemes: vec![Scheme::Ed25519], ..base.clone() },
        Policy { schemes: vec![Scheme::RsaPssRsaeSha256], ..base.clone() },
        Policy { require_extended_master_secret: true, ..base.clone() },
        Policy { clients: ClientCertificates::Asked(Arc::clone(&roots[0])), ..base.clone() },
        Policy { clients: ClientCertificates::Required(Arc::clone(&roots[0])), ..base.clone() },
        Policy { clients: ClientCertificates::Required(Arc::clone(&roots[1])), ..base.clone() },
    ];
    let mut digests: Vec<_> = others.iter().map(|policy| policy.digest().0).collect();
    digests.push(base.digest().0);
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), others.len() + 1);
    assert_eq!(base.digest(), Policy::default().digest());
}

#[test]
fn policies_keep_the_digests_that_they_had_when_fields_were_fewer() {
    let policy = Policy { alpn: vec![b"h2".to_vec()], ..Policy::default() };
    let digest = policy.digest().0.map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(digest, "3e6cf9603bef1cabaab42e9cf7aa6f388471eb9af5eee1c5d17c02c39a8c94c6");
}

const ED25519: [(&str, &SignatureAlgorithm); 1] = [("a.test", &rcgen::PKCS_ED25519)];
