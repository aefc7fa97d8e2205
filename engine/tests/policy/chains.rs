//! Chains that clients show: which are rejected unread, how much real ones need, and the effect of
//! authorities' limits at the time of judging.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    CustomExtension, DnType, IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use rustls::AlertDescription as Alert;
use rustls::pki_types::CertificateDer;
use rustls::version::{TLS12, TLS13};
use sealane_engine::client_certificates::{ClientRoots, ClientStanding, Distrust};
use sealane_engine::peer_chain::{PEER_CERTIFICATES_MAX, PEER_CHAIN_BYTES_MAX};
use sealane_engine::policy::{ClientCertificates, Policy};
use sealane_engine::provider::ProviderChoice;
use sealane_engine::tickets::UnixSeconds;

use crate::ED25519;
use crate::clients::{Identity, asking, unverified};
use crate::rig::{Client, Failed, NOW, Server};

/// In both modes, before anything searches them, and before JavaScript could see them.
#[test]
fn a_chain_that_only_costs_is_refused() {
    let root = authority("root", None, |_| ());
    let good = leaf(&root);
    let same: Vec<_> = (0..10).map(|_| authority("same", None, |_| ())).collect();
    let mut multiplying = leaf(&same[0]);
    multiplying.chain.extend(same.iter().map(|each| each.der().clone()));
    multiplying.chain.extend((0..1_400).map(|_| CertificateDer::from(FILLER.to_vec())));
    let mut many = good.clone();
    many.chain.extend(vec![root.der().clone(); PEER_CERTIFICATES_MAX]);
    let mut large = good.clone();
    large.chain.push(large_certificate(&root, PEER_CHAIN_BYTES_MAX));
    let mut unreadable = good.clone();
    unreadable.chain.push(CertificateDer::from(vec![0x5a; 40]));
    let mut old = good.clone();
    let version1 = include_bytes!("../../../testdata/certificates/version1-p256.crt");
    let version1 =
        <CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(version1);
    old.chain[0] = version1.unwrap();
    let cases = [
        (multiplying, Alert::CertificateUnknown),
        (many, Alert::CertificateUnknown),
        (large, Alert::CertificateUnknown),
        (old, Alert::CertificateUnknown),
        (unreadable, Alert::BadCertificate),
    ];
    let roots = roots(&[&root], &[]);
    let mut server = Server::new(ProviderChoice::Auto, Policy::default(), &ED25519);
    for clients in [ClientCertificates::Asked, ClientCertificates::Required] {
        server.turn_to(asking(clients(Arc::clone(&roots))));
        for version in [&TLS12, &TLS13] {
            for (identity, alert) in &cases {
                let client = Client { identity: Some(identity.resolver()), ..Client::default() };
                let failed = server.accept(&client, "a.test", version).unwrap_err();
                assert_eq!(failed, Failed::Alert(*alert), "{version:?}");
            }
        }
    }
}

#[test]
fn what_real_clients_send_is_taken() {
    let root = authority("root", None, |_| ());
    let upper = authority("upper", Some(&root), |_| ());
    let middle = authority("middle", Some(&upper), |_| ());
    let lower = authority("lower", Some(&middle), |_| ());
    let own = leaf(&lower);
    let [r, u, m, l] = [&root, &upper, &middle, &lower].map(|each| each.der().clone());
    let with = |behind: &[&CertificateDer<'static>]| {
        let mut identity = own.clone();
        identity.chain.extend(behind.iter().map(|der| (*der).clone()));
        identity
    };
    let itself = own.chain[0].clone();
    // Four certificates of ML-DSA-87 have 7.4 KB each.
    let mut wide: Vec<Issuer> = Vec::new();
    for name in ["first", "second", "third"] {
        let issuer = wide.last().unwrap_or(&root);
        let next = authority(name, Some(issuer), |params| {
            params.custom_extensions.push(padding(6_900));
        });
        wide.push(next);
    }
    let mut post_quantum =
        leaf_with(&wide[2], |params| params.custom_extensions.push(padding(6_900)));
    post_quantum.chain.extend(wide.iter().rev().map(|each| each.der().clone()));
    let cases = [
        with(&[&l, &m, &u]),
        with(&[&l, &m, &u, &r]),
        with(&[&r, &u, &m, &l]),
        with(&[&itself, &l, &l, &m, &u, &r]),
        post_quantum,
    ];
    let policy = asking(ClientCertificates::Required(roots(&[&root], &[])));
    let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
    for identity in cases {
        for version in [&TLS12, &TLS13] {
            let client = Client { identity: Some(identity.resolver()), ..Client::default() };
            let session = server.accept(&client, "a.test", version).unwrap();
            assert_eq!(server.context.standing(&session), ClientStanding::Verified);
        }
    }
}

/// An anchor's dates count when it is asked for its word, not when it was read.
#[test]
fn an_authority_vouches_between_its_dates_only() {
    let ends = date_time_ymd(2027, 1, 15) + Duration::from_hours(9);
    let ending = authority("ending", None, |params| params.not_after = ends);
    let early = authority("early", None, |params| params.not_before = ends);
    let policy = asking(ClientCertificates::Asked(roots(&[&ending, &early], &[])));
    for version in [&TLS12, &TLS13] {
        let mut server = Server::new(ProviderChoice::Auto, policy.clone(), &ED25519);
        let [of_ending, of_early] = [&ending, &early].map(|issuer| {
            let client = Client { identity: Some(leaf(issuer).resolver()), ..Client::default() };
            server.client(&client, version)
        });
        let now = |server: &Server, config| {
            let session = server.meet(config, "a.test").unwrap();
            (session.resumed(), server.context.standing(&session))
        };
        assert_eq!(now(&server, &of_ending), (false, ClientStanding::Verified));
        assert_eq!(now(&server, &of_early), (false, unverified(Distrust::NotYetValid)));
        server.lane.clock.set(UnixSeconds(NOW.0 + 2 * 3_600));
        assert_eq!(now(&server, &of_ending), (true, unverified(Distrust::Expired)));
        assert_eq!(now(&server, &of_early), (true, ClientStanding::Verified));
        server.turn_to(asking(ClientCertificates::Required(roots(&[&ending, &early], &[]))));
        let failed = server.meet(&of_ending, "a.test").unwrap_err();
        assert_eq!(failed, Failed::Alert(Alert::CertificateExpired));
        assert_eq!(now(&server, &of_early).1, ClientStanding::Verified);
    }
}

#[test]
fn an_authority_has_as_many_below_it_as_it_says() {
    let limited = |len| {
        authority("root", None, |params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(len));
        })
    };
    for (allowed, below, expected) in [
        (0, 0, ClientStanding::Verified),
        (0, 1, unverified(Distrust::PathTooLong)),
        (1, 1, ClientStanding::Verified),
        (1, 2, unverified(Distrust::PathTooLong)),
    ] {
        let root = limited(allowed);
        let between = (0..below).fold(Vec::<Issuer>::new(), |mut chain, number| {
            let above = chain.last().unwrap_or(&root);
            chain.push(authority(&format!("below {number}"), Some(above), |_| ()));
            chain
        });
        let mut identity = leaf(between.last().unwrap_or(&root));
        identity.chain.extend(between.iter().rev().map(|each| each.der().clone()));
        assert_eq!(standing(&roots(&[&root], &[]), &identity), expected, "{allowed} {below}");
    }
}

/// An intermediate, as with OpenSSL, helps to reach a trusted root, and is not trusted for itself.
#[test]
fn an_intermediate_authority_that_is_given_need_not_be_sent() {
    let root = authority("root", None, |_| ());
    let between = authority("between", Some(&root), |params| {
        params.serial_number = Some(SerialNumber::from(77_u64));
    });
    let identity = leaf(&between);
    assert_eq!(standing(&roots(&[&root, &between], &[]), &identity), ClientStanding::Verified);
    let unknown = unverified(Distrust::UnknownIssuer);
    assert_eq!(standing(&roots(&[&root], &[]), &identity), unknown);
    assert_eq!(standing(&roots(&[&between], &[]), &identity), unknown);
    let lists = [crl(&root, &[77]), crl(&between, &[])];
    let lists: Vec<_> = lists.iter().map(String::as_str).collect();
    let revoked = unverified(Distrust::Revoked);
    assert_eq!(standing(&roots(&[&root, &between], &lists), &identity), revoked);
}

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority(
    name: &str,
    issuer: Option<&Issuer>,
    change: impl FnOnce(&mut CertificateParams),
) -> Issuer {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    match issuer {
        Some(issuer) => CertifiedIssuer::signed_by(params, key, issuer).unwrap(),
        None => CertifiedIssuer::self_signed(params, key).unwrap(),
    }
}

fn leaf(issuer: &Issuer) -> Identity {
    leaf_with(issuer, |_| ())
}

fn leaf_with(issuer: &Issuer, change: impl FnOnce(&mut CertificateParams)) -> Identity {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["client".to_owned()]).unwrap();
    change(&mut params);
    let own = params.signed_by(&key, issuer).unwrap();
    Identity { chain: vec![own.der().clone()], key: key.serialize_der() }
}

fn large_certificate(issuer: &Issuer, bytes: usize) -> CertificateDer<'static> {
    leaf_with(issuer, |params| params.custom_extensions.push(padding(bytes))).chain.remove(0)
}

/// An unknown extension that only takes room.
fn padding(bytes: usize) -> CustomExtension {
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], vec![4; bytes])
}

fn roots(authorities: &[&Issuer], crls: &[&str]) -> Arc<ClientRoots> {
    let texts: Vec<_> = authorities.iter().map(|each| each.pem()).collect();
    let texts: Vec<_> = texts.iter().map(String::as_bytes).collect();
    let crls: Vec<_> = crls.iter().map(|crl| crl.as_bytes()).collect();
    Arc::new(ClientRoots::from_pem(&texts, &crls).unwrap())
}

fn crl(issuer: &Issuer, revoked: &[u64]) -> String {
    let this_update = date_time_ymd(2025, 1, 1);
    let revoked_certs = revoked.iter().map(|serial| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: this_update,
        reason_code: None,
        invalidity_date: None,
    });
    let params = CertificateRevocationListParams {
        this_update,
        next_update: date_time_ymd(2028, 1, 1),
        crl_number: SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: revoked_certs.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(issuer).unwrap().pem().unwrap()
}

/// The verdict on a client that was only asked.
fn standing(roots: &Arc<ClientRoots>, identity: &Identity) -> ClientStanding {
    let policy = asking(ClientCertificates::Asked(Arc::clone(roots)));
    let server = Server::new(ProviderChoice::Auto, policy, &ED25519);
    let client = Client { identity: Some(identity.resolver()), ..Client::default() };
    let session = server.accept(&client, "a.test", &TLS13).unwrap();
    server.context.standing(&session)
}

/// The smallest certificate that webpki reads and passes over.
const FILLER: &[u8] = &[0x30, 0x03, 0x02, 0x01, 0x00];
