//! Every kind of key signs, in every group and version, against a client of the other library.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, RsaKeySize};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, NamedGroup, ProtocolVersion, RootCertStore,
    ServerConfig, ServerConnection, SignatureScheme, SupportedCipherSuite,
    SupportedProtocolVersion,
};

use super::{Library, Provider, ProviderChoice, ProviderError, SelfTests, lane_provider, library};
use crate::policy::Group;

#[test]
fn both_libraries_verify_the_same_signatures() {
    let verified = |choice| {
        let crypto = lane_provider(choice, &Group::ALL).unwrap().crypto;
        let algorithms = crypto.signature_verification_algorithms;
        let mut kinds = Vec::new();
        for (scheme, all) in algorithms.mapping {
            let keys = all.iter().map(|one| (one.public_key_alg_id(), one.signature_alg_id()));
            let mut keys: Vec<_> = keys.map(|key| format!("{key:?}")).collect();
            keys.sort();
            kinds.push(format!("{scheme:?} {keys:?}"));
        }
        kinds.sort();
        kinds
    };
    assert_eq!(verified(GRAVIOLA), verified(AWS_LC));
}

#[test]
fn every_key_group_and_version_meets_the_other_library() {
    let authority = Authority::new();
    for (key_name, key) in keys() {
        for (server, client) in [(GRAVIOLA, AWS_LC), (AWS_LC, GRAVIOLA)] {
            for group in Group::ALL {
                for version in [&TLS12, &TLS13] {
                    if group == Group::X25519MlKem768 && version.version != TLS13.version {
                        continue;
                    }
                    let server = lane_provider(server, &[group]).unwrap();
                    let client = lane_provider(client, &[group]).unwrap();
                    let context = format!("{key_name} {group:?} {version:?} by {}", server.name);
                    let seen = authority
                        .handshake(&server, &client, &key, version)
                        .unwrap_or_else(|error| panic!("{context}: {error}"));
                    assert_eq!(seen, (version.version, iana(group)), "{context}");
                }
            }
        }
    }
}

#[test]
fn every_scheme_signs_what_the_other_library_verifies() {
    for (key_name, key) in keys() {
        for (signer, verifier) in [(GRAVIOLA, AWS_LC), (AWS_LC, GRAVIOLA)] {
            let signer = lane_provider(signer, &Group::ALL).unwrap();
            let verifier = lane_provider(verifier, &Group::ALL).unwrap();
            let der = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
            let signing_key = signer.crypto.key_provider.load_private_key(der).unwrap();
            let mut schemes = 0;
            for (scheme, algorithms) in verifier.crypto.signature_verification_algorithms.mapping {
                let Some(signs) = signing_key.choose_scheme(&[*scheme]) else { continue };
                assert_eq!(signs.scheme(), *scheme);
                let signature = signs.sign(b"message").unwrap();
                let verified = |message: &[u8]| {
                    let verifies = algorithms[0];
                    verifies.verify_signature(key.public_key_raw(), message, &signature).is_ok()
                };
                assert!(verified(b"message"), "{key_name} {scheme:?} by {}", signer.name);
                assert!(!verified(b"massage"), "{key_name} {scheme:?} by {}", signer.name);
                schemes += 1;
            }
            assert_eq!(schemes, if key_name.starts_with("RSA") { 6 } else { 1 }, "{key_name}");
            assert!(signing_key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA1]).is_none());
        }
    }
}

#[test]
fn old_encodings_of_keys_load() {
    let rsa = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let rsa = PrivateKeyDer::Pkcs1(rsa.serialized_der()[RSA_PKCS8_HEADER_BYTES..].to_vec().into());
    let p256 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let sec1 = PrivateKeyDer::Sec1(sec1_of_p256(p256.serialized_der()).into());
    for choice in [GRAVIOLA, AWS_LC] {
        let keys = lane_provider(choice, &Group::ALL).unwrap().crypto.key_provider;
        assert!(keys.load_private_key(rsa.clone_key()).is_ok(), "{choice:?} PKCS#1");
        let key = keys.load_private_key(sec1.clone_key()).unwrap();
        let public_key = key.public_key().unwrap();
        assert!(public_key.as_ref().ends_with(p256.public_key_raw()), "{choice:?} SEC1");
    }
}

#[test]
fn an_unreadable_key_is_an_error() {
    for choice in [GRAVIOLA, AWS_LC] {
        let keys = lane_provider(choice, &Group::ALL).unwrap().crypto.key_provider;
        for garbage in [&b""[..], &[0; 100], b"-----BEGIN PRIVATE KEY-----"] {
            let key = PrivatePkcs8KeyDer::from(garbage.to_vec()).into();
            assert!(keys.load_private_key(key).is_err(), "{choice:?}");
        }
    }
}

#[test]
fn suites_and_groups_keep_their_order() {
    let groups = [Group::Secp384r1, Group::X25519MlKem768, Group::Secp256r1];
    for choice in [GRAVIOLA, AWS_LC] {
        let crypto = lane_provider(choice, &groups).unwrap().crypto;
        let suites: Vec<CipherSuite> =
            crypto.cipher_suites.iter().map(SupportedCipherSuite::suite).collect();
        assert_eq!(suites.len(), 9, "{choice:?}");
        assert_eq!(suites[0], CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(suites[3], CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
        let seen: Vec<NamedGroup> = crypto.kx_groups.iter().map(|g| g.name()).collect();
        assert_eq!(seen, groups.map(iana), "{choice:?}");
    }
}

#[test]
fn each_group_of_a_library_is_tested_once() {
    let mut tests = SelfTests::default();
    let mut exchanges = |choice, groups: &[Group]| {
        lane_provider(choice, groups).unwrap().warm_up(&mut tests).unwrap();
        tests.exchanges()
    };
    assert_eq!(exchanges(AWS_LC, &[Group::X25519, Group::Secp256r1]), 2);
    assert_eq!(exchanges(AWS_LC, &Group::ALL), 4);
    assert_eq!(exchanges(AWS_LC, &Group::ALL), 4);
    assert_eq!(exchanges(GRAVIOLA, &Group::ALL), 8);
    assert_eq!(exchanges(ProviderChoice::Auto, &Group::ALL), 8);
}

#[test]
fn a_processor_without_a_feature_gets_aws_lc_or_an_error_that_names_it() {
    let old = ["adx", "avx2"];
    assert_eq!(library(ProviderChoice::Auto, &[]).unwrap(), Library::Graviola);
    assert_eq!(library(ProviderChoice::Auto, &old).unwrap(), Library::AwsLc);
    assert_eq!(library(AWS_LC, &[]).unwrap(), Library::AwsLc);
    assert_eq!(library(GRAVIOLA, &[]).unwrap(), Library::Graviola);
    let error = library(GRAVIOLA, &old).unwrap_err().to_string();
    assert!(error.contains("lacks: adx, avx2;"), "{error}");
}

#[test]
fn a_policy_without_groups_is_refused() {
    assert!(matches!(lane_provider(GRAVIOLA, &[]), Err(ProviderError::NoGroups)));
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn certify(&self, key: &KeyPair) -> CertificateDer<'static> {
        let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.signed_by(key, &self.0).unwrap().der().clone()
    }

    /// The version and group that both ends agree on.
    fn handshake(
        &self,
        server: &Provider,
        client: &Provider,
        key: &KeyPair,
        version: &'static SupportedProtocolVersion,
    ) -> Result<(ProtocolVersion, NamedGroup), rustls::Error> {
        let der = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let server = ServerConfig::builder_with_provider(Arc::new(server.crypto.clone()))
            .with_protocol_versions(&[version])?
            .with_no_client_auth()
            .with_single_cert(vec![self.certify(key)], der)?;
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone())?;
        let client = ClientConfig::builder_with_provider(Arc::new(client.crypto.clone()))
            .with_protocol_versions(&[version])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut server = ServerConnection::new(Arc::new(server))?;
        let name = ServerName::try_from(NAME).unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name)?;
        while server.is_handshaking() || client.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets()?;
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        let agreed = |v: Option<_>, g: Option<&dyn rustls::crypto::SupportedKxGroup>| {
            (v.unwrap(), g.unwrap().name())
        };
        let seen = agreed(server.protocol_version(), server.negotiated_key_exchange_group());
        let theirs = agreed(client.protocol_version(), client.negotiated_key_exchange_group());
        assert_eq!(seen, theirs);
        Ok(seen)
    }
}

fn keys() -> Vec<(&'static str, KeyPair)> {
    let rsa = |size| KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size).unwrap();
    let other = |algorithm| KeyPair::generate_for(algorithm).unwrap();
    vec![
        ("ECDSA P-256", other(&rcgen::PKCS_ECDSA_P256_SHA256)),
        ("ECDSA P-384", other(&rcgen::PKCS_ECDSA_P384_SHA384)),
        ("Ed25519", other(&rcgen::PKCS_ED25519)),
        ("RSA 2048", rsa(RsaKeySize::_2048)),
        ("RSA 3072", rsa(RsaKeySize::_3072)),
        ("RSA 4096", rsa(RsaKeySize::_4096)),
    ]
}

/// The form `openssl ecparam -genkey` writes, made from PKCS#8 by adding the curve's name.
fn sec1_of_p256(pkcs8: &[u8]) -> Vec<u8> {
    let bare = &pkcs8[P256_PKCS8_HEADER_BYTES..];
    let curve = [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    let (head, public_key) = bare[2..].split_at(3 + 2 + 32);
    let content = [head, &curve, public_key].concat();
    [&[0x30, u8::try_from(content.len()).unwrap()], content.as_slice()].concat()
}

fn iana(group: Group) -> NamedGroup {
    match group {
        Group::Secp256r1 => NamedGroup::secp256r1,
        Group::Secp384r1 => NamedGroup::secp384r1,
        Group::X25519 => NamedGroup::X25519,
        Group::X25519MlKem768 => NamedGroup::X25519MLKEM768,
    }
}

const AWS_LC: ProviderChoice = ProviderChoice::AwsLc;
const GRAVIOLA: ProviderChoice = ProviderChoice::Graviola;
const NAME: &str = "sealane.example";
const P256_PKCS8_HEADER_BYTES: usize = 29;
const RSA_PKCS8_HEADER_BYTES: usize = 26;
