//! Encodings of keys, and keys that do not fit their certificate.

use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
};

use super::*;
use crate::pem::{Damage, Foreign};

/// The index of a chain and a key from two files, with its errors.
fn pair(chain: &str, key: &str) -> Indexed {
    let provider = provider();
    let mut builder = IndexBuilder::new(&provider, NOW_S);
    builder.add_pair("web.crt", chain.as_bytes(), "web.key", key.as_bytes());
    builder.finish(DefaultCertificate::First)
}

fn pair_error(chain: &str, key: &str) -> CertificateError {
    let Indexed { mut errors, index, .. } = pair(chain, key);
    assert_eq!((errors.len(), index.len()), (1, 0), "{errors:?}");
    errors.remove(0)
}

#[test]
fn every_encoding_is_taken_and_fits() {
    let rsa = KeyType::Rsa { bits: 2048 };
    for (chain, key, key_type) in [
        (testdata!("p256.crt"), testdata!("p256.pkcs8.key"), KeyType::EcdsaP256),
        (testdata!("p256.crt"), testdata!("p256.sec1.key"), KeyType::EcdsaP256),
        (testdata!("p256.crt"), testdata!("p256.no-public.key"), KeyType::EcdsaP256),
        (testdata!("p384.crt"), testdata!("p384.pkcs8.key"), KeyType::EcdsaP384),
        (testdata!("p384.crt"), testdata!("p384.sec1.key"), KeyType::EcdsaP384),
        (testdata!("p521.crt"), testdata!("p521.pkcs8.key"), KeyType::EcdsaP521),
        (testdata!("ed25519.crt"), testdata!("ed25519.pkcs8.key"), KeyType::Ed25519),
        (testdata!("rsa.crt"), testdata!("rsa.pkcs8.key"), rsa),
        (testdata!("rsa.crt"), testdata!("rsa.pkcs1.key"), rsa),
    ] {
        let Indexed { errors, index, .. } = pair(chain, key);
        assert_eq!(errors, []);
        let certificate = index.iter().next().unwrap();
        assert_eq!((certificate.label(), certificate.key_type()), ("web.crt", key_type));
        certificate.verify(&provider()).unwrap();
    }
}

/// One such key slows down the clients of all others on its lane.
#[test]
fn large_rsa_keys_come_from_files_alone() {
    let (chain, key) = (testdata!("rsa5120.crt"), testdata!("rsa5120.pkcs8.key"));
    let refused = |label: &str| CertificateError::RsaKeySize {
        label: label.into(),
        bits: 5120,
        bits_max: RSA_BITS_MAX,
    };
    assert_eq!(pair_error(chain, key), refused("web.crt"));
    let provider = provider();
    let mut builder = IndexBuilder::new(&provider, NOW_S).take_slow_keys();
    builder.add("web.pem", (chain.to_owned() + key).as_bytes());
    let Indexed { errors, index, warnings } = builder.finish(DefaultCertificate::First);
    let slow = CertificateWarning::SlowKey { label: "web.pem".into(), bits: 5120, ms: 10 };
    assert_eq!((errors, warnings), (vec![], vec![slow]));
    // A store may have it from before it was refused.
    let stored = store::opened(index.iter().next().unwrap());
    assert_eq!(stored.decode("a.test", &provider).unwrap_err(), refused("a.test"));
}

#[test]
fn compressed_point_is_decoded_to_compare() {
    let Indexed { errors, index, .. } =
        pair(testdata!("p256.crt"), testdata!("p256.compressed.key"));
    assert_eq!((errors, index.len()), (vec![], 1));
}

#[test]
fn every_provider_decodes_what_the_index_takes() {
    for provider in providers() {
        for text in [
            testdata!("p256.crt").to_owned() + testdata!("p256.sec1.key"),
            testdata!("p384.crt").to_owned() + testdata!("p384.pkcs8.key"),
            testdata!("p521.crt").to_owned() + testdata!("p521.pkcs8.key"),
            testdata!("rsa.crt").to_owned() + testdata!("rsa.pkcs1.key"),
            pem(&PKCS_ED25519, &["a.test"]),
        ] {
            index(&[&text]).iter().next().unwrap().verify(&provider).unwrap();
        }
    }
}

#[test]
fn a_key_of_another_certificate_is_found_without_decoding() {
    let mismatch =
        CertificateError::KeyMismatch { certificate: "web.crt".into(), key: "web.key".into() };
    let p256 = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem();
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
    let ed25519 = KeyPair::generate_for(&PKCS_ED25519).unwrap().serialize_pem();
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap().serialize_pem();
    for (chain, key) in [
        (testdata!("p256.crt"), p256.as_str()),
        (testdata!("p384.crt"), &p384),
        (testdata!("ed25519.crt"), &ed25519),
        (testdata!("rsa.crt"), &rsa),
        (testdata!("rsa.crt"), &p256),
        (testdata!("p256.crt"), &p384),
    ] {
        assert_eq!(pair_error(chain, key), mismatch);
    }
}

#[test]
fn a_key_without_its_public_half_is_decoded_to_compare() {
    let mismatch =
        CertificateError::KeyMismatch { certificate: "web.crt".into(), key: "web.key".into() };
    let p256 = pem_p256(&["other.test"]);
    assert_eq!(pair_error(&p256_chain(&p256), testdata!("p256.no-public.key")), mismatch);
    // OpenSSL writes Ed25519 keys without their public half.
    let ed25519 = pem(&PKCS_ED25519, &["other.test"]);
    assert_eq!(pair_error(&p256_chain(&ed25519), testdata!("ed25519.pkcs8.key")), mismatch);
}

/// The chain of a text with both.
fn p256_chain(text: &str) -> String {
    text[..text.find("-----BEGIN PRIVATE KEY").unwrap()].to_owned()
}

#[test]
fn verify_finds_a_private_half_that_belies_its_public_half() {
    let (mine, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut key = other.serialize_der();
    let point = mine.public_key_raw();
    let offset = key.len() - point.len();
    key[offset..].copy_from_slice(point);
    let certificate =
        CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&mine).unwrap();
    let provider = provider();
    let chain = [certificate.der().to_vec()];
    let insert = |mut builder: IndexBuilder<'_>| {
        let key = EncodedKey::new(KeyEncoding::Pkcs8, &key);
        builder.insert("a", &chain, "a", key).map(|()| builder.finish(DefaultCertificate::First))
    };
    // Of many keys it is left to `verify`.
    let Indexed { index, .. } = insert(IndexBuilder::trying_none(&provider, NOW_S)).unwrap();
    for provider in providers() {
        index.iter().next().unwrap().verify(&provider).unwrap_err();
        insert(IndexBuilder::new(&provider, NOW_S)).unwrap_err();
    }
}

/// Neither rustls' comparison of keys nor webpki takes version 1; every client does.
#[test]
fn a_certificate_of_version_1_is_served() {
    for (chain, key, other) in [
        (testdata!("version1-p256.crt"), testdata!("p256.pkcs8.key"), pem_p256(&["a.test"])),
        (testdata!("version1-rsa.crt"), testdata!("rsa.pkcs1.key"), pem_p256(&["a.test"])),
    ] {
        let Indexed { errors, index, .. } = pair(chain, key);
        assert_eq!(errors, []);
        let certificate = &index.find("version1.test")[0];
        for provider in providers() {
            let decoded = certificate.decode(&provider).unwrap();
            assert_eq!(decoded.cert[0].as_ref(), certificate.chain().next().unwrap());
        }
        let wrong = &other[other.find("-----BEGIN PRIVATE KEY").unwrap()..];
        assert!(matches!(pair_error(chain, wrong), CertificateError::KeyMismatch { .. }));
    }
}

#[test]
fn unusable_files_are_refused_by_cause() {
    let (chain, key) = (testdata!("p256.crt"), testdata!("p256.pkcs8.key"));
    let label = || "web.key".to_owned();
    for encrypted in [testdata!("p256.encrypted.key"), testdata!("p256.encrypted-old.key")] {
        assert_eq!(pair_error(chain, encrypted), CertificateError::EncryptedKey { label: label() });
    }
    assert_eq!(pair_error(chain, chain), CertificateError::NoKey { label: label() });
    assert_eq!(
        pair_error(chain, "garbage"),
        CertificateError::NotPem { label: label(), found: Foreign::Text }
    );
    assert_eq!(
        pair_error(chain, &[key, testdata!("p384.pkcs8.key")].concat()),
        CertificateError::SeveralKeys { label: label(), count: 2 }
    );
    assert_eq!(
        pair_error(&[chain, key].concat(), key),
        CertificateError::SeveralKeys { label: label(), count: 2 }
    );
    assert_eq!(pair_error(key, key), CertificateError::SeveralKeys { label: label(), count: 2 });
    assert_eq!(
        pair_error(chain, &key.replace("-----END PRIVATE KEY-----", "")),
        CertificateError::BrokenPem { label: label(), line: 1, damage: Damage::EndMissing }
    );
    assert_eq!(
        pair_error(testdata!("rsa1024.crt"), testdata!("rsa1024.pkcs8.key")),
        CertificateError::RsaKeySize {
            label: "web.crt".into(),
            bits: 1024,
            bits_max: RSA_BITS_MAX
        }
    );
    assert_eq!(
        pair_error(&chain.repeat(CHAIN_CERTIFICATES_MAX + 1), key),
        CertificateError::ChainTooLong { label: "web.crt".into(), count: 11 }
    );
    assert_eq!(
        pair_error(&" ".repeat(PEM_BYTES_MAX + 1), key),
        CertificateError::PemTooLarge { label: "web.crt".into(), bytes: PEM_BYTES_MAX + 1 }
    );
}

#[test]
fn all_problems_are_reported_and_the_rest_is_served() {
    let good = testdata!("p256.crt").to_owned() + testdata!("p256.pkcs8.key");
    let not_x509 = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let Indexed { errors, index, .. } = indexed(&[
        "",
        &good,
        testdata!("p256.crt"),
        testdata!("p256.pkcs8.key"),
        &(not_x509.to_owned() + testdata!("p256.pkcs8.key")),
        &(testdata!("p256.crt").to_owned() + not_x509 + testdata!("p256.pkcs8.key")),
        &good.replacen('M', "!", 1),
    ]);
    assert_eq!(labels(index.find("p256.test")), "b");
    let bad = |label: &str, position| CertificateError::BadCertificate {
        label: label.into(),
        position,
        reason: "unreadable structure",
    };
    assert_eq!(
        errors,
        [
            CertificateError::NotPem { label: "a".into(), found: Foreign::Empty },
            CertificateError::NoKey { label: "c".into() },
            CertificateError::NoCertificate { label: "d".into() },
            bad("e", 1),
            bad("f", 2),
            CertificateError::BrokenPem { label: "g".into(), line: 2, damage: Damage::NotBase64 },
        ]
    );
}

#[test]
fn nothing_given_is_an_error() {
    assert_eq!(indexed(&[]).errors, [CertificateError::NoneGiven]);
}

#[test]
fn debug_shows_no_key() {
    let key = KeyPair::generate().unwrap();
    let text = pem_for(&key, &["a.test"]);
    let contents = PemContents::parse("a", text.as_bytes()).unwrap();
    let der = key.serialize_der();
    let shown = format!("{:?} {:?}", contents.key, index(&[&text]));
    assert!(shown.contains("a.test"), "{shown}");
    assert!(!shown.contains(&format!("{}, {}, {}", der[40], der[41], der[42])), "{shown}");
}
