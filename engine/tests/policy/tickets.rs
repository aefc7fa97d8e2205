//! Resumption: only where a full handshake of the same hello would show the very certificate that
//! the session began with.

use std::sync::Arc;

use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite as S, ClientConfig, SupportedProtocolVersion};
use sealane_engine::policy::Policy;
use sealane_engine::provider::ProviderChoice;
use sealane_engine::tickets::{SESSION_AGE_MAX_S, UnixSeconds};

use crate::rig::{Client, Failed, Issuer, Meeting, NOW, Server};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// A machine that shares the ticket root, under the one policy of these tests.
fn machine(issuer: &Issuer, issued: &[&String]) -> Server {
    let issued: Vec<_> = issued.iter().map(|text| (*text).clone()).collect();
    issuer.serve(ProviderChoice::Auto, Policy::default(), &issued)
}

/// Whether a client that comes to `server` resumes.
fn resumes(server: &Server, client: &Arc<ClientConfig>, name: &'static str) -> bool {
    server.meet(client, name).unwrap().resumed()
}

#[test]
fn a_ticket_does_not_resume_where_another_certificate_answers_for_its_name() {
    let issuer = Issuer::new();
    let [a, b] = [["a.test"], ["b.test"]].map(|n| issuer.issue(&n, &PKCS_ECDSA_P256_SHA256));
    let (site_a, site_b) = (machine(&issuer, &[&a]), machine(&issuer, &[&b]));
    for version in VERSIONS {
        let client = site_a.client(&Client::default(), version);
        assert!(!resumes(&site_a, &client, "a.test"));
        assert!(resumes(&site_a, &client, "a.test"), "{version:?}");
        // A full handshake, in which the client finds that the certificate is not a.test's.
        let Err(Failed::Client(refusal)) = site_b.meet(&client, "a.test") else {
            panic!("{version:?}: the client took what b.test serves for a.test's")
        };
        assert!(refusal.to_string().contains("not valid for name"), "{refusal}");
    }
}

#[test]
fn a_ticket_resumes_on_every_machine_with_its_certificate_whatever_else_is_there() {
    let issuer = Issuer::new();
    let [a, b] = [["a.test"], ["b.test"]].map(|n| issuer.issue(&n, &PKCS_ECDSA_P256_SHA256));
    let machines = [machine(&issuer, &[&a]), machine(&issuer, &[&b, &a])];
    for version in VERSIONS {
        let client = machines[0].client(&Client::default(), version);
        assert!(!resumes(&machines[0], &client, "a.test"));
        for number in [1, 0, 1] {
            assert!(resumes(&machines[number], &client, "a.test"), "{version:?} {number}");
        }
    }
}

/// Each resumed session gets new tickets; the time of the full handshake goes on in them.
#[test]
fn renewed_tickets_do_not_outlive_session_age() {
    let issuer = Issuer::new();
    let issued = issuer.issue(&["a.test"], &PKCS_ECDSA_P256_SHA256);
    let step_s = u64::from(SESSION_AGE_MAX_S) / 28;
    for version in VERSIONS {
        let server = machine(&issuer, &[&issued]);
        let client = server.client(&Client::default(), version);
        let mut full = Vec::new();
        for step in 0..32 {
            server.lane.clock.set(UnixSeconds(NOW.0 + step * step_s));
            if !resumes(&server, &client, "a.test") {
                full.push(step);
            }
        }
        assert_eq!(full, [0, 29], "{version:?}");
    }
}

#[test]
fn a_renewed_certificate_costs_each_client_one_full_handshake() {
    let issuer = Issuer::new();
    let [old, new] = [(); 2].map(|()| issuer.issue(&["a.test"], &PKCS_ECDSA_P256_SHA256));
    let (before, after) = (machine(&issuer, &[&old]), machine(&issuer, &[&new]));
    for version in VERSIONS {
        let client = before.client(&Client::default(), version);
        resumes(&before, &client, "a.test");
        assert!(resumes(&before, &client, "a.test"), "{version:?}");
        assert!(!resumes(&after, &client, "a.test"), "{version:?}");
        assert!(resumes(&after, &client, "a.test"), "{version:?}");
    }
}

#[test]
fn without_a_name_the_default_certificate_resumes_where_it_is_the_default() {
    let issuer = Issuer::new();
    let issue = |name| issuer.issue(&[name, "192.0.2.1"], &PKCS_ECDSA_P256_SHA256);
    let [first, second] = ["a.test", "b.test"].map(issue);
    let same = machine(&issuer, &[&first, &second]);
    let other = machine(&issuer, &[&second, &first]);
    for version in VERSIONS {
        let start = machine(&issuer, &[&first]);
        let client = start.client(&Client::default(), version);
        assert!(!resumes(&start, &client, "192.0.2.1"));
        assert!(resumes(&same, &client, "192.0.2.1"), "{version:?}");
        assert!(!resumes(&other, &client, "192.0.2.1"), "{version:?}");
    }
}

#[test]
fn of_two_kinds_of_key_the_one_that_was_shown_counts() {
    let issuer = Issuer::new();
    let [ecdsa, rsa] = [&PKCS_ECDSA_P256_SHA256, &PKCS_RSA_SHA256]
        .map(|algorithm| issuer.issue(&["a.test"], algorithm));
    let both = machine(&issuer, &[&rsa, &ecdsa]);
    let (with_ecdsa, with_rsa) = (machine(&issuer, &[&ecdsa]), machine(&issuer, &[&rsa]));
    let client = both.client(&Client::default(), &TLS13);
    resumes(&both, &client, "a.test");
    assert!(resumes(&with_ecdsa, &client, "a.test"));
    assert!(!resumes(&with_rsa, &client, "a.test"));
    let suites = vec![S::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
    let client = both.client(&Client { suites, ..Client::default() }, &TLS12);
    resumes(&both, &client, "a.test");
    assert!(resumes(&with_rsa, &client, "a.test"));
    assert!(resumes(&both, &client, "a.test"));
}

#[test]
fn handshakes_that_interleave_on_a_lane_keep_their_own_certificates() {
    let issuer = Issuer::new();
    let [a, b] = [["a.test"], ["b.test"]].map(|n| issuer.issue(&n, &PKCS_ECDSA_P256_SHA256));
    let both = machine(&issuer, &[&a, &b]);
    let (site_a, site_b) = (machine(&issuer, &[&a]), machine(&issuer, &[&b]));
    for version in VERSIONS {
        let clients = [(); 2].map(|()| both.client(&Client::default(), version));
        let mut meetings =
            [Meeting::new(&clients[0], "a.test"), Meeting::new(&clients[1], "b.test")];
        for _ in 0..8 {
            for meeting in &mut meetings {
                meeting.advance(&both).unwrap();
            }
        }
        assert!(resumes(&site_a, &clients[0], "a.test"), "{version:?}");
        assert!(resumes(&site_b, &clients[1], "b.test"), "{version:?}");
    }
}
