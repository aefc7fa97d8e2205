//! Clients' certificates: which are admitted, the verdict on their chains, and the contents of a
//! ticket.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{
    CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber,
    date_time_ymd,
};
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription as Alert, SignatureScheme};
use sealane_engine::client_certificates::{
    ClientName, ClientRoots, ClientRootsError, ClientRules, ClientStanding, Distrust,
};
use sealane_engine::policy::{ClientCertificates, Policy};
use sealane_engine::provider::ProviderChoice;
use sealane_engine::tickets::UnixSeconds;

use crate::ED25519;
use crate::rig::{Client, Failed, NOW, Server};

#[test]
fn who_is_required_to_have_a_certificate_is_let_in_with_a_good_one_only() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let revoking = ours.roots(&[&ours.crl(&[REVOKED], 2028)]);
    let cases = [
        (None, Err(Alert::CertificateRequired)),
        (Some(ours.issue(|_| ())), Ok(ClientStanding::Verified)),
        (Some(theirs.issue(|_| ())), Err(Alert::UnknownCA)),
        (Some(ours.issue(expired)), Err(Alert::CertificateExpired)),
        (Some(ours.issue(early)), Err(Alert::CertificateExpired)),
        (Some(ours.issue(revoked)), Err(Alert::CertificateRevoked)),
        (Some(ours.issue(for_servers)), Err(Alert::UnsupportedCertificate)),
    ];
    for choice in [ProviderChoice::Graviola, ProviderChoice::AwsLc] {
        let clients = ClientCertificates::Required(Arc::clone(&revoking));
        let server = Server::new(choice, asking(clients), &ED25519);
        for (identity, expected) in &cases {
            for version in [&TLS12, &TLS13] {
                let client = Client { identity: shown(identity), ..Client::default() };
                let session = server.accept(&client, "a.test", version);
                let standing = session.map(|session| server.context.standing(&session));
                let expected = expected.clone().map_err(Failed::Alert);
                assert_eq!(standing, expected, "{choice:?} {version:?}");
            }
        }
    }
}

#[test]
fn who_is_asked_is_let_in_and_judged_afterwards() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let lists = ours.roots(&[&ours.crl(&[REVOKED], 2028)]);
    let stale = ours.roots(&[&ours.crl(&[], 2026)]);
    let both = ClientRoots::from_pem(
        &[ours.pem().as_bytes(), theirs.pem().as_bytes()],
        &[ours.crl(&[], 2028).as_bytes()],
    );
    let both = Arc::new(both.unwrap());
    let mut in_chain = theirs.issue(|_| ());
    in_chain.chain.push(theirs.0.der().clone());
    let cases = [
        (&lists, None, ClientStanding::Absent),
        (&lists, Some(ours.issue(|_| ())), ClientStanding::Verified),
        (&lists, Some(theirs.issue(|_| ())), unverified(Distrust::UnknownIssuer)),
        (&lists, Some(in_chain), unverified(Distrust::SelfSignedInChain)),
        (&lists, Some(self_signed(IsCa::NoCa, |_| ()).0), unverified(Distrust::SelfSigned)),
        (&lists, Some(ours.issue(expired)), unverified(Distrust::Expired)),
        (&lists, Some(ours.issue(early)), unverified(Distrust::NotYetValid)),
        (&lists, Some(ours.issue(revoked)), unverified(Distrust::Revoked)),
        (&lists, Some(ours.issue(for_servers)), unverified(Distrust::BadPurpose)),
        (&stale, Some(ours.issue(|_| ())), unverified(Distrust::CrlExpired)),
        (&both, Some(theirs.issue(|_| ())), unverified(Distrust::RevocationUnknown)),
    ];
    let mut server = Server::new(ProviderChoice::Auto, Policy::default(), &ED25519);
    for (roots, identity, expected) in cases {
        server.turn_to(asking(ClientCertificates::Asked(Arc::clone(roots))));
        for version in [&TLS12, &TLS13] {
            let client = Client { identity: shown(&identity), ..Client::default() };
            let session = server.accept(&client, "a.test", version).unwrap();
            assert_eq!(server.context.standing(&session), expected, "{version:?}");
            let chain = identity.as_ref().map_or(&[][..], |identity| &identity.chain);
            assert_eq!(session.peer_certificates(), chain);
        }
    }
}

/// The keys that a client may have do not depend on the processor.
#[test]
fn p521_certificate_is_accepted_by_either_provider() {
    let ours = Authority::new();
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).unwrap();
    let leaf = CertificateParams::new(["client".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &ours.0).unwrap();
    let identity = Identity { chain: vec![leaf.der().clone()], key: key.serialize_der() };
    for choice in [ProviderChoice::Graviola, ProviderChoice::AwsLc] {
        let policy = asking(ClientCertificates::Required(ours.roots(&[])));
        let server = Server::new(choice, policy, &ED25519);
        for version in [&TLS12, &TLS13] {
            let client = Client { identity: Some(identity.resolver()), ..Client::default() };
            server.accept(&client, "a.test", version).unwrap();
        }
    }
}

#[test]
fn a_certificate_without_its_key_is_not_let_in() {
    let ours = Authority::new();
    let roots = ours.roots(&[]);
    let stolen = Identity { key: ours.issue(|_| ()).key, ..ours.issue(|_| ()) };
    for clients in [ClientCertificates::Asked, ClientCertificates::Required] {
        let policy = asking(clients(Arc::clone(&roots)));
        let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
        for version in [&TLS12, &TLS13] {
            let client = Client { identity: Some(stolen.resolver()), ..Client::default() };
            let failed = server.accept(&client, "a.test", version).unwrap_err();
            assert_eq!(failed, Failed::Alert(Alert::DecryptError), "{version:?}");
        }
    }
}

#[test]
fn a_trusted_certificate_that_issued_itself_is_a_clients_own() {
    let cases: [(fn(&mut CertificateParams), _, _); 4] = [
        (|_| (), Ok(ClientStanding::Verified), ClientStanding::Verified),
        (expired, Err(Alert::CertificateExpired), unverified(Distrust::Expired)),
        (early, Err(Alert::CertificateExpired), unverified(Distrust::NotYetValid)),
        (for_servers, Err(Alert::UnsupportedCertificate), unverified(Distrust::BadPurpose)),
    ];
    let mut server = Server::new(ProviderChoice::Auto, Policy::default(), &ED25519);
    for is_ca in [IsCa::NoCa, UNCONSTRAINED] {
        for (change, required, asked) in cases.clone() {
            let (own, pem) = self_signed(is_ca, change);
            let other = Authority::new().pem();
            let roots = ClientRoots::from_pem(&[pem.as_bytes(), other.as_bytes()], &[]).unwrap();
            let (roots, others) = (Arc::new(roots), Authority::new().roots(&[]));
            // The leaf's own fields are looked at before its issuer.
            let not_trusted = match (&asked, &is_ca) {
                (ClientStanding::Verified, _)
                | (ClientStanding::Unverified(Distrust::BadPurpose), IsCa::Ca(_)) => {
                    unverified(Distrust::SelfSigned)
                }
                _ => asked.clone(),
            };
            for (clients, expected) in [
                (ClientCertificates::Asked(Arc::clone(&roots)), Ok(asked)),
                (ClientCertificates::Required(roots), required.map_err(Failed::Alert)),
                (ClientCertificates::Asked(others), Ok(not_trusted)),
            ] {
                server.turn_to(asking(clients));
                let client = Client { identity: Some(own.resolver()), ..Client::default() };
                let session = server.accept(&client, "a.test", &TLS13);
                let standing = session.map(|session| server.context.standing(&session));
                assert_eq!(standing, expected, "{is_ca:?}");
            }
        }
    }
}

/// A client with a trusted certificate must not issue others at will.
#[test]
fn only_an_authority_vouches_for_others() {
    let mut server = Server::new(ProviderChoice::Auto, Policy::default(), &ED25519);
    for (is_ca, may_issue) in
        [(IsCa::NoCa, false), (IsCa::ExplicitNoCa, false), (UNCONSTRAINED, true)]
    {
        let own = Authority::with(is_ca);
        let minted = own.issue(|_| ());
        let mut with_issuer = own.issue(|_| ());
        with_issuer.chain.push(own.0.der().clone());
        for ca in [vec![own.pem()], vec![own.pem(), Authority::new().pem()]] {
            let ca: Vec<_> = ca.iter().map(String::as_bytes).collect();
            let roots = Arc::new(ClientRoots::from_pem(&ca, &[]).unwrap());
            for identity in [&minted, &with_issuer] {
                server.turn_to(asking(ClientCertificates::Asked(Arc::clone(&roots))));
                let client = Client { identity: Some(identity.resolver()), ..Client::default() };
                let session = server.accept(&client, "a.test", &TLS13).unwrap();
                let standing = server.context.standing(&session);
                assert_eq!(standing == ClientStanding::Verified, may_issue, "{standing:?}");
                server.turn_to(asking(ClientCertificates::Required(Arc::clone(&roots))));
                let session = server.accept(&client, "a.test", &TLS13);
                let is_refused = matches!(session, Err(Failed::Alert(_)));
                assert_eq!(is_refused, !may_issue, "{:?}", session.err());
            }
        }
    }
}

#[test]
fn with_lists_a_certificate_that_issued_itself_has_to_be_covered_too() {
    let ours = Authority::new();
    let list = ours.crl(&[], 2028);
    for is_ca in [IsCa::NoCa, UNCONSTRAINED] {
        let (own, pem) = self_signed(is_ca, |_| ());
        let ca = [pem, ours.pem()];
        let ca = ca.each_ref().map(String::as_bytes);
        let roots = Arc::new(ClientRoots::from_pem(&ca, &[list.as_bytes()]).unwrap());
        let policy = asking(ClientCertificates::Asked(roots));
        let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
        let client = Client { identity: Some(own.resolver()), ..Client::default() };
        let session = server.accept(&client, "a.test", &TLS13).unwrap();
        let standing = server.context.standing(&session);
        assert_eq!(standing, unverified(Distrust::RevocationUnknown));
    }
}

#[test]
fn who_is_not_asked_shows_nothing() {
    let server = Server::new(ProviderChoice::Auto, Policy::default(), &ED25519);
    let identity = Some(Authority::new().issue(|_| ()).resolver());
    let client = Client { identity, ..Client::default() };
    let session = server.accept(&client, "a.test", &TLS13).unwrap();
    assert_eq!(server.context.standing(&session), ClientStanding::NotAsked);
    assert!(session.peer_certificates().is_empty());
}

#[test]
fn who_is_asked_is_told_whose_certificates_are_wanted() {
    let authorities = [Authority::new(), Authority::new()];
    let texts = authorities.each_ref().map(Authority::pem);
    let roots = ClientRoots::from_pem(&[texts[0].as_bytes(), texts[1].as_bytes()], &[]);
    let roots = Arc::new(roots.unwrap());
    let mut wanted: Vec<_> = roots.subjects().iter().map(|name| name.as_ref().to_vec()).collect();
    wanted.sort_unstable();
    let unnamed = ClientRoots::from_pem(&[texts[0].as_bytes(), texts[1].as_bytes()], &[]);
    let unnamed = Arc::new(unnamed.unwrap().unnamed());
    for (clients, wanted) in [
        (ClientCertificates::Asked(Arc::clone(&roots)), &wanted),
        (ClientCertificates::Required(roots), &wanted),
        (ClientCertificates::Asked(unnamed), &vec![]),
    ] {
        let policy = asking(clients);
        let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
        for version in [&TLS12, &TLS13] {
            let shows = Arc::new(authorities[1].issue(|_| ()).shows());
            let identity: Arc<Shows> = Arc::clone(&shows);
            let client = Client { identity: Some(identity), ..Client::default() };
            server.accept(&client, "a.test", version).unwrap();
            let mut hints = shows.hints.lock().unwrap().clone();
            hints.sort_unstable();
            assert_eq!(hints, *wanted);
        }
    }
}

#[test]
fn a_session_that_resumes_is_judged_again() {
    let ours = Authority::new();
    for (clients, is_required) in
        [(ClientCertificates::Asked as fn(_) -> _, false), (ClientCertificates::Required, true)]
    {
        let policy = asking(clients(ours.roots(&[])));
        for version in [&TLS12, &TLS13] {
            let server = Server::new(ProviderChoice::Auto, policy.clone(), &ED25519);
            let identity = ours.issue(|leaf| {
                leaf.not_after = date_time_ymd(2027, 1, 15) + Duration::from_hours(9);
            });
            let client = Client { identity: Some(identity.resolver()), ..Client::default() };
            let config = server.client(&client, version);
            let first = server.meet(&config, "a.test").unwrap();
            assert!(!first.resumed());
            let session = server.meet(&config, "a.test").unwrap();
            assert!(session.resumed(), "{version:?}");
            assert_eq!(session.peer_certificates(), identity.chain);
            assert_eq!(server.context.standing(&session), ClientStanding::Verified);
            server.lane.clock.set(UnixSeconds(NOW.0 + 2 * 3_600));
            let met = server.meet(&config, "a.test").map(|session| {
                assert!(session.resumed(), "{version:?}");
                server.context.standing(&session)
            });
            let expected = match is_required {
                true => Err(Failed::Alert(Alert::CertificateExpired)),
                false => Ok(unverified(Distrust::Expired)),
            };
            assert_eq!(met, expected, "{version:?}");
        }
    }
}

/// Each resumed session gets new tickets; the time of the full handshake goes on in them.
#[test]
fn who_resumes_again_and_again_shows_its_certificate_in_time() {
    let ours = Authority::new();
    let rules = ClientRules { proof_age_max: Some(Duration::from_hours(2)), ..Default::default() };
    let roots = Arc::new(ours.roots(&[]).under(rules));
    for clients in [ClientCertificates::Asked, ClientCertificates::Required] {
        let policy = asking(clients(Arc::clone(&roots)));
        for version in [&TLS12, &TLS13] {
            let server = Server::new(ProviderChoice::Auto, policy.clone(), &ED25519);
            let identity = Some(ours.issue(|_| ()).resolver());
            let config = server.client(&Client { identity, ..Client::default() }, version);
            let mut full = Vec::new();
            for half_hour in 0..12 {
                server.lane.clock.set(UnixSeconds(NOW.0 + half_hour * 1_800));
                if !server.meet(&config, "a.test").unwrap().resumed() {
                    full.push(half_hour);
                }
            }
            assert_eq!(full, [0, 5, 10], "{version:?}");
        }
    }
}

#[test]
fn a_client_needs_one_of_the_names_if_there_are_any() {
    let ours = Authority::new();
    let rules = ClientRules {
        names: vec![
            ClientName::CommonName("batch".into()),
            ClientName::Dns("*.svc.test".into()),
            ClientName::Uri("spiffe://prod/*".into()),
        ],
        ..Default::default()
    };
    let policy = asking(ClientCertificates::Required(Arc::new(ours.roots(&[]).under(rules))));
    let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
    let named = |name: SanType| ours.issue(|leaf| leaf.subject_alt_names = vec![name]);
    let dns = |name: &str| named(SanType::DnsName(name.try_into().unwrap()));
    let uri = |name: &str| named(SanType::URI(name.try_into().unwrap()));
    for (identity, is_admitted) in [
        (ours.issue(|leaf| leaf.distinguished_name.push(DnType::CommonName, "batch")), true),
        (dns("a.svc.test"), true),
        (uri("spiffe://prod/db"), true),
        (ours.issue(|leaf| leaf.distinguished_name.push(DnType::CommonName, "a.svc.test")), false),
        (dns("svc.test"), false),
        (dns("batch"), false),
        (uri("spiffe://stage/db"), false),
    ] {
        for version in [&TLS12, &TLS13] {
            let client = Client { identity: Some(identity.resolver()), ..Client::default() };
            let met = server.accept(&client, "a.test", version).map(drop);
            let expected =
                if is_admitted { Ok(()) } else { Err(Failed::Alert(Alert::AccessDenied)) };
            assert_eq!(met, expected, "{version:?}");
            let refused = server.context.take_refused();
            let shown = (!is_admitted).then(|| identity.chain[0].as_ref().into());
            assert_eq!(refused, shown, "{version:?}");
        }
    }
}

#[test]
fn who_comes_in_by_a_list_that_has_ended_is_counted() {
    let ours = Authority::new();
    let rules = ClientRules { accept_ended_lists: true, ..Default::default() };
    let ended = Arc::new(ours.roots(&[&ours.crl(&[REVOKED], 2026)]).under(rules.clone()));
    let current = Arc::new(ours.roots(&[&ours.crl(&[REVOKED], 2028)]).under(rules));
    for (roots, counted) in [(&ended, 1), (&current, 0)] {
        let policy = asking(ClientCertificates::Required(Arc::clone(roots)));
        let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
        let accept = |identity: &Identity| {
            let client = Client { identity: Some(identity.resolver()), ..Client::default() };
            server.accept(&client, "a.test", &TLS13).map(drop)
        };
        assert_eq!(accept(&ours.issue(|_| ())), Ok(()));
        let refused = Err(Failed::Alert(Alert::CertificateRevoked));
        assert_eq!(accept(&ours.issue(revoked)), refused, "revoked is revoked, however old");
        assert_eq!(server.lane.by_ended_lists.get(), counted);
    }
}

#[test]
fn a_session_is_held_against_the_lists_of_another_context() {
    let ours = Authority::new();
    let identity = ours.issue(revoked);
    let rules = ClientRules { cut_revoked: true, ..Default::default() };
    let policy = |lists: &[&str]| {
        let roots = Arc::new(ours.roots(lists).under(rules.clone()));
        asking(ClientCertificates::Required(roots))
    };
    let mut server = Server::new(ProviderChoice::Auto, policy(&[]), &ED25519);
    let client = Client { identity: Some(identity.resolver()), ..Client::default() };
    let session = server.accept(&client, "a.test", &TLS13).unwrap();
    let forged = Authority::new().crl(&[REVOKED], 2028);
    for (list, is_revoked) in [
        (ours.crl(&[REVOKED], 2028), true),
        (ours.crl(&[REVOKED + 1], 2028), false),
        // Of another issuer, which has the number too.
        (forged, false),
    ] {
        server.turn_to(policy(&[&list]));
        assert!(server.context.cuts_revoked());
        assert_eq!(server.context.has_revoked(&session), is_revoked);
    }
}

/// Lists are fetched again every hour. Clients that are not on them go on as before, the others do
/// not.
#[test]
fn new_lists_end_the_sessions_of_who_is_on_them_and_of_nobody_else() {
    let ours = Authority::new();
    let identity = ours.issue(revoked);
    let lists = [
        ours.roots(&[]),
        ours.roots(&[&ours.crl(&[], 2028)]),
        ours.roots(&[&ours.crl(&[REVOKED + 1], 2029)]),
    ];
    let revoking = ours.roots(&[&ours.crl(&[REVOKED], 2028)]);
    for version in [&TLS12, &TLS13] {
        let policy = asking(ClientCertificates::Required(Arc::clone(&lists[0])));
        let mut server = Server::new(ProviderChoice::Auto, policy, &ED25519);
        let client = Client { identity: Some(identity.resolver()), ..Client::default() };
        let config = server.client(&client, version);
        server.meet(&config, "a.test").unwrap();
        for roots in &lists {
            server.turn_to(asking(ClientCertificates::Required(Arc::clone(roots))));
            assert!(server.meet(&config, "a.test").unwrap().resumed(), "{version:?} {roots:?}");
        }
        server.turn_to(asking(ClientCertificates::Required(Arc::clone(&revoking))));
        let refused = server.meet(&config, "a.test").unwrap_err();
        assert_eq!(refused, Failed::Alert(Alert::CertificateRevoked), "{version:?}");
        // The holder of its ticket and of another certificate has a way back.
        let renewed = Client { identity: Some(ours.issue(|_| ()).resolver()), ..Client::default() };
        let session = server.accept(&renewed, "a.test", version).unwrap();
        assert_eq!(server.context.standing(&session), ClientStanding::Verified);
    }
}

#[test]
fn a_ticket_resumes_under_the_same_clients_policy_only() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (roots, lists) = (ours.roots(&[]), ours.roots(&[&ours.crl(&[], 2028)]));
    let both = ClientRoots::from_pem(&[ours.pem().as_bytes(), theirs.pem().as_bytes()], &[]);
    let policies = [
        ClientCertificates::NotAsked,
        ClientCertificates::Asked(Arc::clone(&roots)),
        ClientCertificates::Required(Arc::clone(&roots)),
        ClientCertificates::Required(Arc::clone(&lists)),
        ClientCertificates::Required(Arc::new(both.unwrap())),
    ];
    let mut server = Server::new(ProviderChoice::Auto, Policy::default(), &ED25519);
    let identity = ours.issue(|_| ()).resolver();
    for version in [&TLS12, &TLS13] {
        for from in &policies {
            for to in &policies {
                let identity = Some(Arc::clone(&identity));
                let client = Client { identity, ..Client::default() };
                let config = server.client(&client, version);
                server.turn_to(asking(from.clone()));
                server.meet(&config, "a.test").unwrap();
                server.turn_to(asking(to.clone()));
                let session = server.meet(&config, "a.test").unwrap();
                let is_same = asking(from.clone()).digest() == asking(to.clone()).digest();
                assert_eq!(session.resumed(), is_same, "{version:?} {from:?} {to:?}");
            }
        }
    }
}

#[test]
fn no_session_counts_a_reference_to_what_lanes_share() {
    let ours = Authority::new();
    let roots = ours.roots(&[]);
    let policy = asking(ClientCertificates::Required(Arc::clone(&roots)));
    let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
    let before = Arc::strong_count(&roots);
    let identity = Some(ours.issue(|_| ()).resolver());
    let client = Client { identity, ..Client::default() };
    let session = server.accept(&client, "a.test", &TLS13).unwrap();
    assert_eq!(server.context.standing(&session), ClientStanding::Verified);
    assert_eq!(Arc::strong_count(&roots), before);
}

#[test]
fn roots_are_a_set() {
    let authorities = [Authority::new(), Authority::new()];
    let [a, b] = authorities.each_ref().map(Authority::pem);
    let lists = authorities.each_ref().map(|authority| authority.crl(&[], 2028));
    let [x, y] = lists.each_ref().map(String::as_bytes);
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let digest = |ca: &[&[u8]], crls: &[&[u8]]| ClientRoots::from_pem(ca, crls).unwrap().digest();
    assert_eq!(digest(&[a, b], &[x, y]), digest(&[&[b, a, b].concat()], &[y, x, y]));
    let different = [digest(&[a], &[]), digest(&[b], &[]), digest(&[a, b], &[])];
    for (index, digest) in different.iter().enumerate() {
        assert_eq!(different.iter().position(|other| other == digest), Some(index));
    }
    for lists in [&[x][..], &[x, y]] {
        assert_eq!(digest(&[a, b], lists), different[2], "lists are judged, not bound to");
        let [with, without] = [lists, &[]].map(|lists| ClientRoots::from_pem(&[a, b], lists));
        assert_ne!(with.unwrap(), without.unwrap());
    }
}

#[test]
fn faulty_roots_and_lists_are_named() {
    let good = Authority::new().pem();
    let good = good.as_bytes();
    let crl = |body| format!("-----BEGIN X509 CRL-----\n{body}\n-----END X509 CRL-----\n");
    let error = |ca: &[&[u8]], crls: &[&[u8]]| ClientRoots::from_pem(ca, crls).unwrap_err();
    let none = error(&[], &[]);
    assert!(matches!(none, ClientRootsError::NoRoots) && none.to_string().starts_with("ca: "));
    let empty = error(&[good, b"nothing"], &[]).to_string();
    assert!(empty.starts_with("roots: ca[1]: no certificate"), "{empty}");
    let no_list = error(&[good], &[good]).to_string();
    assert!(no_list.starts_with("crl[0]: no revocation list"), "{no_list}");
    let mixed = error(&[&[good, crl("AAAA").as_bytes()].concat()], &[]).to_string();
    assert!(mixed.contains("roots: ca[0]") && mixed.contains("list"), "{mixed}");
    let broken = error(&[good], &[crl("AA#A").as_bytes()]);
    assert!(matches!(broken, ClientRootsError::BrokenCrlPem { line: 2, .. }));
    let wrong = error(&[good], &[crl("MAA=").as_bytes()]);
    assert!(matches!(wrong, ClientRootsError::BadCrl { position: 1, .. }), "{wrong}");
}

/// An authority with a unique name.
pub(crate) struct Authority(pub(crate) CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        Self::with(UNCONSTRAINED)
    }

    fn with(is_ca: IsCa) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut params = CertificateParams::default();
        params.is_ca = is_ca;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Two keys of one authority.
    pub(crate) fn with_one_name() -> [Self; 2] {
        let mut params = CertificateParams::default();
        params.is_ca = UNCONSTRAINED;
        params.distinguished_name.push(DnType::CommonName, "of two keys");
        [params.clone(), params].map(|params| {
            Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
        })
    }

    pub(crate) fn roots(&self, crls: &[&str]) -> Arc<ClientRoots> {
        let crls: Vec<_> = crls.iter().map(|crl| crl.as_bytes()).collect();
        Arc::new(ClientRoots::from_pem(&[self.pem().as_bytes()], &crls).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["client".to_owned()]).unwrap();
        change(&mut params);
        let leaf = params.signed_by(&key, &self.0).unwrap();
        Identity { chain: vec![leaf.der().clone()], key: key.serialize_der() }
    }

    fn crl(&self, revoked: &[u64], next_update: i32) -> String {
        let this_update = date_time_ymd(2025, 1, 1);
        let revoked_certs = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: this_update,
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update,
            next_update: date_time_ymd(next_update, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: Vec<u8>,
}

impl Identity {
    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesClientCert> {
        Arc::new(self.shows())
    }

    fn shows(&self) -> Shows {
        let key = PrivateKeyDer::try_from(self.key.clone()).unwrap();
        let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
        let certified = Arc::new(CertifiedKey::new(self.chain.clone(), key));
        Shows { certified, hints: Mutex::default() }
    }
}

/// Shows its certificate to any server that asks, and remembers the authorities in the request.
#[derive(Debug)]
struct Shows {
    certified: Arc<CertifiedKey>,
    hints: Mutex<Vec<Vec<u8>>>,
}

impl ResolvesClientCert for Shows {
    fn resolve(&self, hints: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.hints.lock().unwrap() = hints.iter().map(|hint| hint.to_vec()).collect();
        Some(Arc::clone(&self.certified))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn shown(identity: &Option<Identity>) -> Option<Arc<dyn ResolvesClientCert>> {
    identity.as_ref().map(Identity::resolver)
}

fn self_signed(is_ca: IsCa, change: impl FnOnce(&mut CertificateParams)) -> (Identity, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["client".to_owned()]).unwrap();
    params.is_ca = is_ca;
    change(&mut params);
    let leaf = params.self_signed(&key).unwrap();
    let identity = Identity { chain: vec![leaf.der().clone()], key: key.serialize_der() };
    (identity, leaf.pem())
}

pub(crate) fn unverified(distrust: Distrust) -> ClientStanding {
    ClientStanding::Unverified(distrust)
}

pub(crate) fn asking(clients: ClientCertificates) -> Policy {
    Policy { clients, ..Policy::default() }
}

fn expired(leaf: &mut CertificateParams) {
    leaf.not_after = date_time_ymd(2026, 12, 31);
}

fn early(leaf: &mut CertificateParams) {
    leaf.not_before = date_time_ymd(2027, 12, 31);
}

pub(crate) fn revoked(leaf: &mut CertificateParams) {
    leaf.serial_number = Some(SerialNumber::from(REVOKED));
}

fn for_servers(leaf: &mut CertificateParams) {
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
}

const UNCONSTRAINED: IsCa = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
pub(crate) const REVOKED: u64 = 4_711;
