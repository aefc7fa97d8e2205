//! Options become contexts, or mistakes with names.

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};

use super::*;

fn certified(name: &str) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(vec![name.to_owned()]).unwrap()
}

fn pem(text: String) -> Pem {
    Zeroizing::new(text.into_bytes())
}

fn written(cert: Vec<String>, key: Vec<String>) -> Written {
    let [cert, key] = [cert, key].map(|texts| texts.into_iter().map(pem).collect());
    Written { cert, key, tickets: true, honor_cipher_order: true, ..Written::default() }
}

fn mistakes(written: &Written) -> Vec<Mistake> {
    written.build().map(|_| ()).unwrap_err()
}

#[test]
fn a_key_is_found_by_its_public_half_wherever_it_stands() {
    let (a, b) = (certified("a.test"), certified("b.test"));
    let written = written(
        vec![a.cert.pem(), b.cert.pem()],
        vec![b.signing_key.serialize_pem(), a.signing_key.serialize_pem()],
    );
    let built = written.build().map_err(|mistakes| format!("{mistakes:?}")).unwrap();
    assert_eq!(built.context.certificates.len(), 2);
    assert_eq!(built.context.certificates.default_certificates()[0].names(), ["a.test".into()]);
}

#[test]
fn one_text_may_hold_both_and_be_given_twice() {
    let a = certified("a.test");
    let both = a.cert.pem() + &a.signing_key.serialize_pem();
    assert!(written(vec![both.clone()], vec![both.clone()]).build().is_ok());
    assert!(written(vec![both], vec![]).build().is_ok());
}

#[test]
fn a_key_of_another_certificate_is_refused_as_node_does() {
    let (a, b) = (certified("a.test"), certified("b.test"));
    let found = mistakes(&written(vec![a.cert.pem()], vec![b.signing_key.serialize_pem()]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code, "ERR_OSSL_X509_KEY_VALUES_MISMATCH");
    assert!(found[0].message.starts_with("key[0]: "), "{}", found[0].message);
}

#[test]
fn all_mistakes_are_told_at_once_each_with_its_option() {
    let mut written = written(vec!["no PEM".into()], vec![]);
    written.min_version = Some("TLSv1".into());
    written.suites = vec!["RC4".into()];
    written.groups = vec!["x25519".into(), "secp112r1".into()];
    written.alpn = vec![String::new()];
    written.request_cert = true;
    let fields: Vec<_> = mistakes(&written).iter().map(|mistake| mistake.field).collect();
    assert_eq!(fields, ["groups", "alpn", "ca", "suites", "minVersion", "cert"]);
}

#[test]
fn settings_that_contradict_each_other_are_found_before_a_lane_has_them() {
    let a = certified("a.test");
    let mut written = written(vec![a.cert.pem()], vec![a.signing_key.serialize_pem()]);
    written.suites = vec!["TLS_AES_128_GCM_SHA256".into()];
    written.max_version = Some("TLSv1.2".into());
    assert_eq!(mistakes(&written)[0].field, "suites");
}

#[test]
fn a_server_may_have_no_certificate_of_its_own() {
    let built = written(vec![], vec![]).build().map_err(|found| format!("{found:?}")).unwrap();
    assert!(built.context.certificates.is_empty());
}
