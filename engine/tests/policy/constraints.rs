//! Authorities that may issue for some names alone.

use std::sync::Arc;

use rcgen::string::BmpString;
use rcgen::{
    CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName, DnType, DnValue,
    GeneralSubtree, IsCa, KeyPair, NameConstraints, OtherNameValue, SanType,
};
use rustls::version::TLS13;
use sealane_engine::client_certificates::{ClientRoots, ClientStanding, Distrust};
use sealane_engine::policy::ClientCertificates;
use sealane_engine::provider::ProviderChoice;

use crate::ED25519;
use crate::clients::{Authority, Identity, asking, unverified};
use crate::rig::{Client, Server};

/// A root that may issue for `permitted` names, and not for `excluded` ones.
fn root(permitted: Vec<GeneralSubtree>, excluded: Vec<GeneralSubtree>) -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "constrained");
    params.name_constraints =
        Some(NameConstraints { permitted_subtrees: permitted, excluded_subtrees: excluded });
    Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
}

fn organisation(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::OrganizationName, name);
    distinguished
}

fn mail(constraint: &str) -> GeneralSubtree {
    GeneralSubtree::Rfc822Name(constraint.to_owned())
}

/// A client with these alternative names, and a subject of this organisation.
fn client(issuer: &Authority, names: Vec<SanType>, of: &str) -> Identity {
    issuer.issue(|leaf| {
        leaf.subject_alt_names = names;
        leaf.distinguished_name = organisation(of);
        leaf.distinguished_name.push(DnType::CommonName, "client");
    })
}

fn address(text: &str) -> SanType {
    SanType::Rfc822Name(text.try_into().unwrap())
}

fn standing(root: &Authority, identity: &Identity) -> ClientStanding {
    judged(root.roots(&[]), identity)
}

fn judged(roots: Arc<ClientRoots>, identity: &Identity) -> ClientStanding {
    let policy = asking(ClientCertificates::Asked(roots));
    let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
    let client = Client { identity: Some(identity.resolver()), ..Client::default() };
    let session = server.accept(&client, "a.test", &TLS13).unwrap();
    server.context.standing(&session)
}

fn judge(root: &Authority, cases: Vec<(Vec<SanType>, &str, bool)>) {
    for (names, of, is_admitted) in cases {
        let expected = match is_admitted {
            true => ClientStanding::Verified,
            false => unverified(Distrust::NameConstraints),
        };
        let found = standing(root, &client(root, names.clone(), of));
        assert_eq!(found, expected, "{names:?} {of}");
    }
}

#[test]
fn mail_constraints_of_a_root_are_judged() {
    let host = |name: &str| SanType::DnsName(name.try_into().unwrap());
    judge(
        &root(vec![mail("example.com")], vec![]),
        vec![
            (vec![address("alice@example.com")], "x", true),
            (vec![address("alice@EXAMPLE.com"), host("a.test")], "x", true),
            (vec![], "x", true),
            (vec![address("alice@b.example.com")], "x", false),
            (vec![address("alice@example.com"), address("alice@evil.test")], "x", false),
            (vec![address("no address")], "x", false),
        ],
    );
    judge(
        &root(vec![mail(".example.com")], vec![]),
        vec![
            (vec![address("alice@b.example.com")], "x", true),
            (vec![address("alice@evilexample.com")], "x", false),
        ],
    );
    judge(
        &root(vec![], vec![mail(".example.com")]),
        vec![
            (vec![address("alice@b.example.com")], "x", false),
            (vec![address("no address")], "x", false),
            (vec![address("alice@example.com")], "x", true),
        ],
    );
    let with_hosts = vec![mail("example.com"), GeneralSubtree::DnsName("a.test".to_owned())];
    judge(
        &root(with_hosts, vec![]),
        vec![
            (vec![address("alice@example.com"), host("b.a.test")], "x", true),
            (vec![address("alice@example.com"), host("b.test")], "x", false),
        ],
    );
}

#[test]
fn directory_constraints_of_a_root_are_judged() {
    let acme = || GeneralSubtree::DirectoryName(organisation("Acme  Ltd"));
    judge(
        &root(vec![acme()], vec![]),
        vec![
            (vec![], "Acme Ltd", true),
            (vec![], "ACME ltd", true),
            (vec![], "Acme", false),
            (vec![SanType::DnsName("a.test".try_into().unwrap())], "Other", false),
        ],
    );
    let without_acme = root(vec![], vec![acme()]);
    judge(&without_acme, vec![(vec![], "acme ltd", false), (vec![], "Acme", true)]);
    let without_mueller =
        root(vec![], vec![GeneralSubtree::DirectoryName(organisation("M\u{fc}ller"))]);
    judge(
        &without_mueller,
        vec![(vec![], "Mu\u{308}ller", false), (vec![], "\u{ff2d}\u{fc}ller", false)],
    );
    // The name in text of another type is the same name.
    let identity = without_acme.issue(|leaf| {
        let name = DnValue::BmpString(BmpString::try_from("Acme Ltd").unwrap());
        leaf.distinguished_name = DistinguishedName::new();
        leaf.distinguished_name.push(DnType::OrganizationName, name);
    });
    assert_eq!(standing(&without_acme, &identity), unverified(Distrust::NameConstraints));
}

/// A client can make the judge compare each of its names with each constraint.
#[test]
fn comparisons_of_a_certificate_are_bounded() {
    let addresses = |count| vec![address("a@c.test"); count];
    // The subject is a name too, so these are 10,000 comparisons and 10,100.
    judge(
        &root(vec![], vec![mail("b.test"); 100]),
        vec![(addresses(99), "x", true), (addresses(100), "x", false)],
    );
}

/// A name in another place, or that cannot be read, gets around no constraint.
#[test]
fn constraints_hold_for_names_in_any_place() {
    let with_mail = root(vec![mail("example.com")], vec![]);
    let with_directory =
        root(vec![GeneralSubtree::DirectoryName(organisation("Acme"))], vec![mail("x.test")]);
    let refused = unverified(Distrust::NameConstraints);
    // The content of an extension subjectAltName.
    let alternative =
        |content: &[u8]| CustomExtension::from_oid_content(&[2, 5, 29, 17], content.to_vec());
    let of_subject = |address: &str| {
        let value = DnValue::Ia5String(address.try_into().unwrap());
        move |leaf: &mut CertificateParams| {
            leaf.distinguished_name
                .push(DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), value);
        }
    };
    let identity = |root: &Authority, change: &dyn Fn(&mut CertificateParams)| {
        root.issue(|leaf| {
            leaf.subject_alt_names.clear();
            leaf.distinguished_name = organisation("Acme");
            change(leaf);
        })
    };
    let judged = |root: &Authority, change: &dyn Fn(&mut CertificateParams)| {
        standing(root, &identity(root, change))
    };
    assert_eq!(judged(&with_mail, &|_| ()), ClientStanding::Verified);
    let address = |text: &'static str| move |leaf: &mut CertificateParams| of_subject(text)(leaf);
    assert_eq!(judged(&with_mail, &address("a@example.com")), ClientStanding::Verified);
    assert_eq!(judged(&with_mail, &address("a@evil.test")), refused, "in the subject");
    let without_mail = root(vec![], vec![mail("evil.test")]);
    let in_other_letters = |leaf: &mut CertificateParams| {
        let kind = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
        let value = DnValue::Utf8String("a@\u{ff45}vil.test".to_owned());
        leaf.distinguished_name.push(kind, value);
    };
    assert_eq!(judged(&without_mail, &in_other_letters), refused, "in full-width letters");
    let utf8_mailbox = |leaf: &mut CertificateParams| {
        let name = OtherNameValue::Utf8String("a@evil.test".into());
        leaf.subject_alt_names = vec![SanType::OtherName((vec![1, 3, 6, 1, 5, 5, 7, 8, 9], name))];
    };
    assert_eq!(judged(&with_mail, &utf8_mailbox), refused, "RFC 9598");
    // rfc822Name with a byte that is no text, and a name of no kind that there is.
    for content in [b"\x30\x03\x81\x01\xff", b"\x30\x03\xc1\x01a"] {
        let unreadable =
            |leaf: &mut CertificateParams| leaf.custom_extensions.push(alternative(content));
        assert_eq!(judged(&with_mail, &unreadable), refused, "{content:?}");
    }
    // directoryName: O=Other.
    let name = b"\x30\x14\xa4\x12\x30\x10\x31\x0e\x30\x0c\x06\x03\x55\x04\x0a\x0c\x05Other";
    let elsewhere = |leaf: &mut CertificateParams| leaf.custom_extensions.push(alternative(name));
    assert_eq!(judged(&with_mail, &elsewhere), ClientStanding::Verified);
    assert_eq!(judged(&with_directory, &elsewhere), refused, "among alternative names");
}

/// Constraints hold for each certificate of a chain.
#[test]
fn constraints_hold_for_intermediates_too() {
    let root = root(vec![GeneralSubtree::DirectoryName(organisation("Acme"))], vec![]);
    for (of, expected) in
        [("Acme", ClientStanding::Verified), ("Other", unverified(Distrust::NameConstraints))]
    {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name = organisation(of);
        let key = KeyPair::generate().unwrap();
        let between = Authority(CertifiedIssuer::signed_by(params, key, &root.0).unwrap());
        let mut identity = client(&between, vec![], "Acme");
        identity.chain.push(between.0.der().clone());
        assert_eq!(standing(&root, &identity), expected);
    }
}

/// An attribute emailAddress in the subject.
fn with_subject_mail(leaf: &mut CertificateParams, address: &str) {
    let kind = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
    let value = DnValue::Ia5String(address.try_into().unwrap());
    leaf.distinguished_name.push(kind, value);
}

#[test]
fn subject_mail_keeps_to_intermediates_constraints() {
    let root = Authority::new();
    for (permitted, excluded) in
        [(vec![mail("good.test")], vec![]), (vec![], vec![mail("bad.test")])]
    {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "constrained intermediate");
        params.name_constraints =
            Some(NameConstraints { permitted_subtrees: permitted, excluded_subtrees: excluded });
        let key = KeyPair::generate().unwrap();
        let between = Authority(CertifiedIssuer::signed_by(params, key, &root.0).unwrap());
        // One more, so that the constrained one is not the issuer.
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "below it");
        let key = KeyPair::generate().unwrap();
        let below = Authority(CertifiedIssuer::signed_by(params, key, &between.0).unwrap());
        for (host, expected) in [
            ("good.test", ClientStanding::Verified),
            ("bad.test", unverified(Distrust::NameConstraints)),
        ] {
            let mut identity = below.issue(|leaf| {
                leaf.subject_alt_names.clear();
                with_subject_mail(leaf, &format!("a@{host}"));
            });
            identity.chain.push(below.0.der().clone());
            let pems = [root.pem(), between.pem()];
            let known = ClientRoots::from_pem(&pems.each_ref().map(String::as_bytes), &[]);
            assert_eq!(judged(Arc::new(known.unwrap()), &identity), expected, "known, {host}");
            identity.chain.push(between.0.der().clone());
            assert_eq!(standing(&root, &identity), expected, "sent, {host}");
        }
    }
}
