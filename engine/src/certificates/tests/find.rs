//! Certificates found by server name, and errors and warnings about a set of them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SanType, date_time_ymd,
};

use super::*;

#[test]
fn exact_name_wins_over_wildcard() {
    let index = index(&[&pem_p256(&["*.example.com"]), &pem_p256(&["www.example.com"])]);
    assert_eq!(labels(index.find("www.example.com")), "b");
    assert_eq!(labels(index.find("api.example.com")), "a");
}

#[test]
fn wildcard_stands_for_one_label() {
    let index = index(&[&pem_p256(&["*.example.com"])]);
    assert_eq!(labels(index.find("a.example.com")), "a");
    assert_eq!(labels(index.find("longer-label.example.com")), "a");
    for unknown in
        ["example.com", "a.b.example.com", ".example.com", "com", "", ".", "a.example.co"]
    {
        assert_eq!(labels(index.find(unknown)), "", "{unknown:?}");
    }
}

#[test]
fn case_and_trailing_dot_do_not_matter() {
    let index = index(&[&pem_p256(&["WWW.Example.com", "*.Example.NET"])]);
    for name in ["www.example.com", "www.EXAMPLE.com.", "A.example.net", "a.example.net."] {
        assert_eq!(labels(index.find(name)), "a", "{name}");
    }
    assert_eq!(labels(index.find("www.example.com..")), "");
}

#[test]
fn hostile_names_find_nothing() {
    let index = index(&[&pem_p256(&["*.example.com"])]);
    let names_before = index.name_count();
    // A wildcard look-up replaces the last byte of the first label: half a character here.
    assert_eq!(labels(index.find("\u{e9}.example.com")), "");
    assert_eq!(labels(index.find(&"a".repeat(100_000))), "");
    let longest = format!("{}.example.com", "a".repeat(NAME_BYTES_MAX - ".example.com".len()));
    assert_eq!(labels(index.find(&longest)), "a");
    assert_eq!(labels(index.find(&format!("a{longest}"))), "");
    assert_eq!(index.name_count(), names_before);
}

#[test]
fn all_kinds_of_key_of_a_name_are_found_best_first() {
    let index = index(&[
        &(testdata!("rsa.crt").to_owned() + testdata!("rsa.pkcs8.key")),
        &pem(&PKCS_ED25519, &["rsa.test"]),
        &pem(&PKCS_ECDSA_P384_SHA384, &["rsa.test"]),
        &pem_p256(&["rsa.test"]),
    ]);
    assert_eq!(labels(index.find("rsa.test")), "dcba");
    assert_eq!(labels(index.default_certificates()), "dcba");
}

#[test]
fn first_of_two_equals_is_served_and_the_clash_reported() {
    let Indexed { errors, index, warnings } = indexed(&[
        &pem_p256(&["one.test", "two.test"]),
        &pem_p256(&["two.test", "one.test", "three.test"]),
        &pem(&PKCS_ED25519, &["one.test"]),
    ]);
    assert_eq!(errors, []);
    assert_eq!(labels(index.find("one.test")), "ac");
    assert_eq!(labels(index.find("three.test")), "b");
    let [CertificateWarning::Clash { dropped, kept, names, .. }] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert_eq!((dropped.as_str(), kept.as_str(), *names), ("b", "a", 2));
    assert_eq!(
        warnings[0].to_string(),
        "b: has 2 names (one.test and others) and the kind of key ECDSA P-256 as a, which comes \
         first and is served; remove one of the two"
    );
}

#[test]
fn dates_decide_between_equals() {
    let dated = |years| pem_dated(&PKCS_ECDSA_P256_SHA256, "one.test", years);
    let expired = dated((2020, 2026));
    for (texts, served, reason) in [
        ([&expired, &dated((2020, 2028))], "b", "is in date"),
        ([&dated((2030, 2040)), &dated((2020, 2028))], "b", "is in date"),
        ([&dated((2020, 2028)), &dated((2020, 2029))], "b", "expires later"),
        ([&dated((2020, 2024)), &expired], "b", "expires later"),
        ([&expired, &expired], "a", "comes first"),
    ] {
        let Indexed { index, warnings, .. } = indexed(&texts.map(String::as_str));
        assert_eq!(labels(index.find("one.test")), served);
        assert_eq!(labels(index.default_certificates()), served, "{reason}");
        let clash = warnings.iter().map(ToString::to_string).find(|text| text.contains("as "));
        assert!(clash.unwrap().contains(&format!("which {reason} and is served")), "{warnings:?}");
    }
}

#[test]
fn a_repeated_name_is_no_clash() {
    let Indexed { errors, warnings, .. } = indexed(&[&pem_p256(&["One.test", "one.test"])]);
    assert_eq!((errors, warnings), (vec![], vec![]));
}

#[test]
fn default_by_name_label_or_order() {
    let texts = [pem_p256(&["one.test"]), pem_p256(&["*.two.test"]), pem_p256(&["one.test"])];
    let provider = provider();
    let chosen = |default| {
        let mut builder = IndexBuilder::new(&provider, NOW_S);
        for (label, text) in ["a", "b", "c"].iter().zip(&texts) {
            builder.add(label, text.as_bytes());
        }
        let Indexed { errors, index, .. } = builder.finish(default);
        (labels(index.default_certificates()), errors)
    };
    assert_eq!(chosen(DefaultCertificate::First), ("a".into(), vec![]));
    assert_eq!(chosen(DefaultCertificate::Label("b")), ("b".into(), vec![]));
    assert_eq!(chosen(DefaultCertificate::Label("c")), ("c".into(), vec![]));
    assert_eq!(chosen(DefaultCertificate::Name("X.two.test")), ("b".into(), vec![]));
    for default in [DefaultCertificate::Label("d"), DefaultCertificate::Name("d")] {
        let missing = CertificateError::DefaultMissing { wanted: "d".into() };
        assert_eq!(chosen(default), (String::new(), vec![missing]));
    }
}

#[test]
fn named_default_that_has_expired_gives_way() {
    let provider = provider();
    let mut builder = IndexBuilder::new(&provider, NOW_S);
    for (label, years) in [("a", (2020, 2026)), ("b", (2020, 2030))] {
        let text = pem_dated(&PKCS_ECDSA_P256_SHA256, "one.test", years);
        builder.add(label, text.as_bytes());
    }
    let Indexed { index, .. } = builder.finish(DefaultCertificate::Label("a"));
    assert_eq!(labels(index.default_certificates()), "b");
}

#[test]
fn common_name_counts_only_without_alternatives() {
    let index = index(&[
        &(testdata!("cn-only.crt").to_owned() + testdata!("p256.pkcs8.key")),
        &(testdata!("p256.crt").to_owned() + testdata!("p256.pkcs8.key")),
    ]);
    assert_eq!(labels(index.find("only.test")), "a");
    assert_eq!(labels(index.find("p256.test")), "b");
    assert_eq!(index.name_count(), 2);
}

#[test]
fn names_that_cannot_be_asked_for_are_reported() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = ["a*.test", "*", "*.*.test", "spa ce.test"]
        .into_iter()
        .map(|name| SanType::DnsName(name.try_into().unwrap()))
        .chain([SanType::IpAddress([192, 0, 2, 1].into())])
        .collect();
    let text = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
    let Indexed { errors, index, warnings } = indexed(&[&text]);
    assert_eq!((errors, index.name_count()), (vec![], 0));
    assert_eq!(labels(index.default_certificates()), "a");
    assert_eq!(warnings.len(), 5, "{warnings:?}");
    assert_eq!(warnings[4], CertificateWarning::NoNames { label: "a".into() });
}

#[test]
fn validity_is_judged_by_the_given_time() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["one.test".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2030, 1, 1);
    params.not_after = date_time_ymd(2030, 1, 11);
    let text = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
    let provider = provider();
    let warnings = |now_s| {
        let mut builder = IndexBuilder::new(&provider, now_s);
        builder.add("a", text.as_bytes());
        let indexed = builder.finish(DefaultCertificate::First);
        let certificate = indexed.index.iter().next().unwrap();
        let validity = (certificate.not_before_s(), certificate.not_after_s());
        assert_eq!(validity, (1_893_456_000, 1_894_320_000));
        indexed.warnings.iter().map(ToString::to_string).collect::<String>()
    };
    assert_eq!(warnings(1_893_456_000), "");
    assert_eq!(warnings(1_894_320_000), "");
    assert_eq!(
        warnings(1_894_320_000 + 3 * 86_400),
        "a: expired 3 days ago; clients will refuse it: renew it"
    );
    assert_eq!(
        warnings(1_893_456_000 - 7_200),
        "a: valid only in 2 hours; clients will refuse it until then: is this machine's clock \
         right?"
    );
}

#[test]
fn intermediates_are_kept_once() {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let texts = ["one.test", "two.test"].map(|name| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let leaf = params.signed_by(&key, &issuer).unwrap();
        leaf.pem() + &issuer.pem() + &key.serialize_pem()
    });
    let index = index(&[&texts[0], &texts[1]]);
    let chains: Vec<Vec<&[u8]>> = index.iter().map(|found| found.chain().collect()).collect();
    assert_eq!(chains[0][1], issuer.der().as_ref());
    assert_eq!(chains[0][1].as_ptr(), chains[1][1].as_ptr());
    // A lane's replica shares nothing with the index.
    let replica = index.find("one.test")[0].decode(&provider()).unwrap();
    assert_eq!(replica.cert[1].as_ref(), chains[0][1]);
    assert_ne!(replica.cert[1].as_ptr(), chains[0][1].as_ptr());
}

#[test]
fn digest_depends_on_chain_and_key() {
    let key = KeyPair::generate().unwrap();
    let (one, two) = (pem_for(&key, &["one.test"]), pem_for(&key, &["two.test"]));
    let index = index(&[&one, &two, &one]);
    let digests: Vec<_> = index.iter().map(|certificate| certificate.digest()).collect();
    assert_eq!(digests[0], digests[2]);
    assert_ne!(digests[0], digests[1]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..Default::default()
    })]

    /// The index agrees with reading all names of all certificates one by one.
    #[test]
    fn find_agrees_with_a_naive_matcher(
        certificates in
            prop::collection::vec(prop::collection::vec(certificate_name(), 1..4), 1..5),
        asked in prop::collection::vec(asked_name(), 1..20),
    ) {
        let key = KeyPair::generate().unwrap();
        let texts: Vec<String> = certificates
            .iter()
            .map(|names| pem_for(&key, &names.iter().map(String::as_str).collect::<Vec<_>>()))
            .collect();
        let index = index(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &asked {
            prop_assert_eq!(labels(index.find(name)), naive(&certificates, name), "{}", name);
        }
        let names: BTreeSet<_> =
            certificates.iter().flatten().map(|name| name.to_lowercase()).collect();
        prop_assert_eq!(index.name_count(), names.len());
    }
}

fn certificate_name() -> impl Strategy<Value = String> {
    "(\\*\\.)?([abA]\\.){0,2}[abB]"
}

fn asked_name() -> impl Strategy<Value = String> {
    "([abAé]\\.){0,3}[abB]?\\.?"
}

/// One kind of key only, so at most one certificate is found.
fn naive(certificates: &[Vec<String>], asked: &str) -> String {
    let asked = asked.to_lowercase();
    let asked = asked.strip_suffix('.').unwrap_or(&asked);
    let matches_exactly = |name: &String| name.to_lowercase() == asked;
    let matches_wildcard = |name: &String| {
        let name = name.to_lowercase();
        match (name.strip_prefix("*."), asked.split_once('.')) {
            (Some(suffix), Some((label, rest))) => {
                !label.is_empty() && label.is_ascii() && rest == suffix
            }
            _ => false,
        }
    };
    let first = |matches: &dyn Fn(&String) -> bool| {
        certificates.iter().position(|names| names.iter().any(matches))
    };
    first(&matches_exactly)
        .or_else(|| first(&matches_wildcard))
        .and_then(|position| ('a'..='z').nth(position))
        .map(String::from)
        .unwrap_or_default()
}
