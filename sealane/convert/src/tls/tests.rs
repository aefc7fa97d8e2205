//! The language of ciphers(1) is read as OpenSSL reads it.

use std::path::Path;
use std::process::Command;

use super::*;

/// Compared with the program itself, which lists other suites as well.
#[test]
fn a_list_stands_for_what_openssl_takes_it_for() {
    for list in [
        "ALL",
        "DEFAULT",
        "HIGH:!aNULL:!MD5",
        "HIGH:MEDIUM:!LOW:!aNULL:!CAMELLIA:!SHA:!kRSA",
        "ECDHE+AESGCM:ECDHE+CHACHA20",
        "EECDH+AESGCM:EDH+AESGCM:AES256+EECDH:AES256+EDH",
        "ECDHE+CHACHA20:ECDHE+AESGCM:!aECDSA",
        "ECDHE+aRSA+AESGCM:RSA+AESGCM",
        "AES128:CHACHA20:AES256",
        "ALL:-AES256:AES256",
        "ALL:+AES256",
        "ALL:-CHACHA20:!ECDSA:CHACHA20",
        "AES128:AES256:@STRENGTH",
        "CHACHA20:AESGCM:@SECLEVEL=2",
        "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256:AES256-SHA",
        "ECDHE-ECDSA-CHACHA20-POLY1305 ECDHE-RSA-CHACHA20-POLY1305,ECDHE+AES128",
        "FIPS:!aRSA",
        "kEECDH+ECDSA:kEECDH:kEDH:HIGH:+SHA:!RC4",
        "ECDHE-RSA-AES256-GCM-SHA384:!AES256:ECDHE+AESGCM",
        "NONSENSE:ECDHE+AESGCM",
        "TLSv1.2+AES128:TLSv1.2+CHACHA20",
        "ECDH+AESGCM:ECDH+CHACHA20:DH+AESGCM:RSA+AESGCM:!aNULL:!MD5",
        "DEFAULT@SECLEVEL=1",
        "AES128:AES256@STRENGTH",
    ] {
        let output = Command::new("openssl").args(["ciphers", "-s", "-tls1_2", list]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let theirs: Vec<_> = text.trim().split(':').filter_map(tls12_suite).collect();
        assert!(!theirs.is_empty(), "{list}: {text}");
        assert_eq!(cipher_list(list).suites, theirs, "{list}: {text}");
    }
}

#[test]
fn what_sealane_lacks_is_named() {
    for (list, foreign) in [
        ("ECDHE+AESGCM:ECDHE-RSA-CHACHA20-POLY1305", &[][..]),
        ("ECDHE+AESGCM:AES256-SHA", &["AES256-SHA"]),
        ("HIGH:!aNULL", &["HIGH"]),
        ("AESGCM", &["AESGCM"]),
    ] {
        assert_eq!(cipher_list(list).foreign, foreign, "{list}");
    }
}

#[test]
fn versions_and_suites_agree() {
    let line = Line { file: Path::new("f").into(), number: 1, text: String::new() };
    let settled = |change: &dyn Fn(&mut Tls, &mut Remarks)| {
        let (mut tls, mut remarks) = (Tls::default(), Remarks::default());
        change(&mut tls, &mut remarks);
        tls.settle(&mut remarks);
        let suites = tls.suites.map(|suites| suites.len());
        (tls.versions, suites, remarks.0.iter().filter(|remark| remark.is_loss).count())
    };
    let both = [false, false, false, true, true];
    let nothing = settled(&|_, _| {});
    assert_eq!(nothing, (None, None, 0));
    let cbc = settled(&|tls, remarks| tls.set_ciphers("AES256-SHA", &line, remarks));
    assert_eq!(cbc, (Some([false, true]), Some(3), 1), "1.2 has nothing left");
    let one = settled(&|tls, remarks| tls.set_ciphers("ECDHE+CHACHA20", &line, remarks));
    assert_eq!(one, (None, Some(5), 0));
    let old = settled(&|tls, remarks| {
        tls.set_versions([true, true, true, false, false], &line, remarks);
    });
    assert_eq!(old, (None, None, 1), "what is left is Sealane's default");
    let new = settled(&|tls, remarks| {
        tls.set_versions(both, &line, remarks);
        tls.set_ciphersuites("TLS_AES_256_GCM_SHA384:TLS_AES_128_CCM_SHA256", &line, remarks);
    });
    assert_eq!(new, (Some([true, true]), Some(7), 1));
}

/// A list that cannot be read leaves the suites to Sealane, with a remark.
#[test]
fn a_list_that_is_not_understood_is_none() {
    let line = Line { file: Path::new("f").into(), number: 1, text: String::new() };
    for list in ["PROFILE=SYSTEM", "kRSA", "!aNULL:!MD5", ""] {
        let (mut tls, mut remarks) = (Tls::default(), Remarks::default());
        tls.set_ciphers(list, &line, &mut remarks);
        assert!(remarks.0.iter().any(|remark| remark.is_loss), "{list}");
        tls.settle(&mut remarks);
        assert_eq!((tls.versions, tls.suites), (None, None), "{list}");
    }
}

/// The versions in a file hold, also if no suite is left for them.
#[test]
fn no_version_comes_back_for_want_of_suites() {
    let line = Line { file: Path::new("f").into(), number: 1, text: String::new() };
    let settled = |spoken, suites12: &str, suites13: &str| {
        let (mut tls, mut remarks) = (Tls::default(), Remarks::default());
        tls.set_versions(spoken, &line, &mut remarks);
        tls.set_ciphers(suites12, &line, &mut remarks);
        tls.set_ciphersuites(suites13, &line, &mut remarks);
        tls.settle(&mut remarks);
        (tls.versions, tls.suites.map(|suites| suites.len()))
    };
    let (foreign12, foreign13) = ("AES256-SHA", "TLS_AES_128_CCM_SHA256");
    let new = [false, false, false, false, true];
    assert_eq!(settled(new, "ECDHE+AESGCM", foreign13), (Some([false, true]), Some(3)));
    assert_eq!(settled(new, foreign12, foreign13), (Some([false, true]), None));
    let old = [false, false, false, true, false];
    assert_eq!(settled(old, foreign12, "TLS_AES_128_GCM_SHA256"), (Some([true, false]), Some(6)));
    let older = [true, true, true, false, false];
    assert_eq!(settled(older, "ECDHE+CHACHA20", "TLS_AES_128_GCM_SHA256"), (None, Some(3)));
}

#[test]
fn a_list_is_read_to_its_end() {
    let many = format!("{}ECDHE+AESGCM", "NONSENSE:".repeat(5_000));
    assert_eq!(cipher_list(&many).suites.len(), 4);
    let names = format!("{}TLS_AES_128_GCM_SHA256", "NONSENSE:".repeat(5_000));
    let (mut tls, mut remarks) = (Tls::default(), Remarks::default());
    let line = Line { file: Path::new("f").into(), number: 1, text: String::new() };
    tls.set_ciphersuites(&names, &line, &mut remarks);
    assert_eq!(tls.suites13.map(|suites| suites.len()), Some(1));
}

#[test]
fn groups_have_several_names() {
    let line = Line { file: Path::new("f").into(), number: 1, text: String::new() };
    let (mut tls, mut remarks) = (Tls::default(), Remarks::default());
    tls.set_groups("X25519:prime256v1:P-256:secp521r1:P-384", &line, &mut remarks);
    assert_eq!(tls.groups, Some(vec![Group::X25519, Group::Secp256r1, Group::Secp384r1]));
    assert!(remarks.0[0].text.starts_with("secp521r1: "), "{remarks:?}");
}
