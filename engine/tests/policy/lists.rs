//! Several revocation lists of one issuer: which of them counts.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::version::TLS13;
use sealane_engine::client_certificates::{ClientRoots, ClientStanding, Distrust};
use sealane_engine::policy::ClientCertificates;
use sealane_engine::provider::ProviderChoice;
use sealane_engine::session::ServerSession;

use crate::ED25519;
use crate::clients::{Authority, REVOKED, asking, revoked, unverified};
use crate::rig::{Client, NOW, Server};

/// The content and the dates of a list. `month` is that of its issue.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Written {
    ends: i32,
    month: u8,
    number: u64,
    revokes: bool,
}

impl Written {
    fn by(self, issuer: &CertifiedIssuer<'static, KeyPair>) -> String {
        let this_update = date_time_ymd(2025, self.month, 1);
        let entry = RevokedCertParams {
            serial_number: SerialNumber::from(REVOKED),
            revocation_time: this_update,
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update,
            next_update: date_time_ymd(self.ends, 1, 1),
            crl_number: SerialNumber::from(self.number),
            issuing_distribution_point: None,
            revoked_certs: if self.revokes { vec![entry] } else { Vec::new() },
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(issuer).unwrap().pem().unwrap()
    }

    fn is_newer(self, other: Self) -> bool {
        self.number > other.number && self.month >= other.month
    }
}

/// A connected client with the serial number [`REVOKED`], to be judged by further lists.
struct Rig {
    ours: Authority,
    server: Server,
    session: ServerSession,
}

impl Rig {
    fn new() -> Self {
        let ours = Authority::new();
        let identity = ours.issue(revoked);
        let server = server_of(&ours);
        let client = Client { identity: Some(identity.resolver()), ..Client::default() };
        let session = server.accept(&client, "a.test", &TLS13).unwrap();
        Self { ours, server, session }
    }

    fn standing(&mut self, crls: &[&str]) -> ClientStanding {
        self.server.turn_to(asking(ClientCertificates::Asked(self.ours.roots(crls))));
        self.server.context.standing(&self.session)
    }
}

fn server_of(authority: &Authority) -> Server {
    let policy = asking(ClientCertificates::Asked(authority.roots(&[])));
    Server::new(ProviderChoice::Auto, policy, &ED25519)
}

#[test]
fn newest_crl_counts_in_any_order() {
    let mut rig = Rig::new();
    let mut all = Vec::new();
    for (month, number) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        all.extend([false, true].map(|revokes| Written { ends: 2028, month, number, revokes }));
    }
    let written: Vec<_> = all.iter().map(|list| list.by(&rig.ours.0)).collect();
    for (one, one_text) in all.iter().zip(&written) {
        for (two, two_text) in all.iter().zip(&written) {
            let is_revoked = match (one.is_newer(*two), two.is_newer(*one)) {
                (true, _) => one.revokes,
                (_, true) => two.revokes,
                _ => one.revokes || two.revokes,
            };
            let expected = match is_revoked {
                true => unverified(Distrust::Revoked),
                false => ClientStanding::Verified,
            };
            let files = rig.standing(&[one_text, two_text]);
            let one_file = rig.standing(&[&format!("{one_text}{two_text}")]);
            assert_eq!([&files, &one_file], [&expected; 2], "{one:?} {two:?}");
        }
    }
}

#[test]
fn ended_crl_hides_none_and_still_revokes() {
    let mut rig = Rig::new();
    // The number contradicts the date, so that neither supersedes the other.
    for (by_ended, revokes) in [(false, true), (false, false), (true, false), (true, true)] {
        let expected = match by_ended || revokes {
            true => unverified(Distrust::Revoked),
            false => ClientStanding::Verified,
        };
        let ended = Written { ends: 2026, month: 2, number: 1, revokes: by_ended };
        let current = Written { ends: 2028, month: 1, number: 2, revokes };
        let [ended, current] = [ended, current].map(|list| list.by(&rig.ours.0));
        assert_eq!(rig.standing(&[&ended, &current]), expected);
        assert_eq!(rig.standing(&[&current, &ended]), expected);
    }
}

#[test]
fn superseded_crl_is_named_and_not_shown() {
    let ours = Authority::new();
    let [old, new] =
        [1, 2].map(|number| Written { ends: 2028, month: 1, number, revokes: false }.by(&ours.0));
    let roots = ours.roots(&[&new, &old]);
    let now_s = i64::try_from(NOW.0).unwrap();
    let labels = |lists: &[sealane_engine::client_certificates::RevocationList]| {
        lists.iter().map(|list| list.label.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (labels(&roots.lists(now_s)), labels(&roots.superseded(now_s))),
        (vec!["crl[0]".to_owned()], vec!["crl[1]".to_owned()])
    );
}

/// An authority with a new key still revokes certificates of its old key with that key.
#[test]
fn crl_of_a_new_key_does_not_hide_the_old() {
    let [old, new] = Authority::with_one_name();
    let crls = |revokes_old: bool| {
        let list = |number, revokes| Written { ends: 2028, month: 1, number, revokes };
        [list(1, revokes_old).by(&old.0), list(2, !revokes_old).by(&new.0)]
    };
    for (authority, is_old) in [(&old, true), (&new, false)] {
        let identity = authority.issue(|leaf| {
            revoked(leaf);
            leaf.use_authority_key_identifier_extension = true;
        });
        let mut server = server_of(authority);
        let client = Client { identity: Some(identity.resolver()), ..Client::default() };
        let session = server.accept(&client, "a.test", &TLS13).unwrap();
        for revokes_old in [true, false] {
            let [one, two] = crls(revokes_old);
            for crls in [[&one, &two], [&two, &one]] {
                let crls = crls.map(String::as_bytes);
                let (old_pem, new_pem) = (old.pem(), new.pem());
                let ca = [old_pem.as_bytes(), new_pem.as_bytes()];
                let roots = Arc::new(ClientRoots::from_pem(&ca, &crls).unwrap());
                server.turn_to(asking(ClientCertificates::Asked(roots)));
                let expected = match is_old == revokes_old {
                    true => unverified(Distrust::Revoked),
                    false => ClientStanding::Verified,
                };
                assert_eq!(server.context.standing(&session), expected, "{is_old} {revokes_old}");
            }
        }
    }
}

/// An intermediate authority is asked about in all lists too.
#[test]
fn further_crl_revokes_an_intermediate() {
    let root = Authority::new();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "between");
    revoked(&mut params);
    let key = KeyPair::generate().unwrap();
    let between = Authority(CertifiedIssuer::signed_by(params, key, &root.0).unwrap());
    let mut identity = between.issue(|_| ());
    identity.chain.push(between.0.der().clone());
    let mut server = server_of(&root);
    let client = Client { identity: Some(identity.resolver()), ..Client::default() };
    let session = server.accept(&client, "a.test", &TLS13).unwrap();
    let list = |month, number, revokes| Written { ends: 2028, month, number, revokes };
    let of_leaf = list(1, 1, false).by(&between.0);
    // The newest in date is asked first, and its number contradicts that.
    let newest = list(2, 1, false).by(&root.0);
    for (revokes, expected) in
        [(true, unverified(Distrust::Revoked)), (false, ClientStanding::Verified)]
    {
        let roots = root.roots(&[&newest, &list(1, 2, revokes).by(&root.0), &of_leaf]);
        server.turn_to(asking(ClientCertificates::Asked(roots)));
        assert_eq!(server.context.standing(&session), expected);
    }
}
