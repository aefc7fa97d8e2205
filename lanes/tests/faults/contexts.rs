//! Which context a client is admitted under, what is known of the client there, and the tickets
//! that all contexts of a lane share.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, ClientConfig, HandshakeKind};
use sealane_engine::client_certificates::{ClientRoots, ClientStanding};
use sealane_engine::context::{Context, ContextId};
use sealane_engine::policy::{ClientCertificates, UnknownNames};
use sealane_lanes::cause::Cause;
use sealane_lanes::generation::Named;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::orders::{Chosen, ConnectionId};

use crate::client::{Anyone, Client, Seen, VERSIONS, config, seen};
use crate::ordered::{Command, Driver, Told};
use crate::rig::{NAME, Rig, Wanted, among_others, context, provider, roots, ticket_root};

fn named(pattern: &str, context: &Arc<Context>) -> Named {
    Named { pattern: pattern.into(), number: 1, context: Some(Arc::clone(context)) }
}

#[test]
fn a_name_finds_its_context_exact_before_wildcard_before_the_listeners_own() {
    let _others = among_others();
    let of = |name| Arc::new(context(name, UnknownNames::ServeDefault));
    for hellos_wait in [false, true] {
        let (two, wild) = (of("two.test"), of("*.wild.test"));
        let mut wanted = Wanted::echo();
        wanted.named = vec![
            named("TWO.test.", &two),
            named("*.wild.test", &wild),
            named("exact.wild.test", &wild),
            named("exact.wild.test", &two),
        ];
        let driver = Driver::start(wanted, hellos_wait);
        let certificate = |name: &'static str| {
            let mut config = config(VERSIONS[1]);
            config.dangerous().set_certificate_verifier(Arc::new(Anyone));
            let mut client = Client::named(&driver.rig, config, name);
            client.tls.write_tls(&mut client.socket).unwrap();
            if hellos_wait {
                driver.desk.choose(driver.hello().0, Chosen::Listener);
            }
            client.handshake().unwrap();
            driver.opened();
            let certificate = client.tls.peer_certificates().unwrap()[0].to_vec();
            drop(client);
            driver.left();
            certificate
        };
        let [one, two, wild] = ["one.test", "two.test", "any.wild.test"].map(certificate);
        assert!(one != two && two != wild && one != wild);
        assert_eq!(certificate("exact.wild.test"), two);
        assert_eq!(certificate("wild.test"), one);
        assert_eq!(certificate("a.b.wild.test"), one);
        driver.stop();
    }
}

#[test]
fn a_context_that_comes_again_has_one_replica_until_nobody_needs_it() {
    let _others = among_others();
    let shared = Arc::new(context(NAME, UnknownNames::ServeDefault));
    let wanted = || {
        let mut wanted = Wanted::echo();
        wanted.named = vec![named("one.test", &shared), named("*.wild.test", &shared)];
        wanted
    };
    let driver = Driver::start(wanted(), true);
    let holders = || Arc::strong_count(&shared);
    // Two in the generation, one here; the rest is the replica's.
    let of_replica = holders() - 3;
    assert!(of_replica > 0);
    let mut client = Client::begin(&driver.rig, VERSIONS[1]);
    client.tls.write_tls(&mut client.socket).unwrap();
    let (id, _) = driver.hello();
    driver.rig.handle.post(Mail::Provide(Arc::clone(&shared)));
    driver.desk.choose(id, Chosen::Context(shared.id));
    client.handshake().unwrap();
    assert_eq!(driver.opened(), id);
    assert_eq!(holders(), 3 + of_replica);
    driver.rig.publish(2, wanted());
    // The first generation lives for as long as the connection.
    assert_eq!(holders(), 5 + of_replica);
    driver.rig.publish(3, Wanted::echo());
    assert_eq!(holders(), 3 + of_replica);
    driver.desk.command(id, Command::End(Cause::ServiceReset));
    driver.ended(Cause::ServiceReset);
    assert_eq!(driver.rig.counters().generation.value(), 3);
    crate::rig::eventually("its generation is gone", || holders() == 1 + of_replica);
    driver.rig.handle.post(Mail::Withdraw(shared.id));
    crate::rig::eventually("nobody holds a replica", || holders() == 1);
    driver.stop();
}

#[test]
fn a_key_leaves_with_the_generation_that_served_its_certificate() {
    let _others = among_others();
    let two = Arc::new(context("two.test", UnknownNames::ServeDefault));
    let with_two = || {
        let mut wanted = Wanted::echo();
        wanted.named = vec![named("two.test", &two)];
        wanted
    };
    let rig = Rig::start(with_two());
    let decoded = || {
        for name in [NAME, "two.test"] {
            let mut client = Client::named(&rig, config(VERSIONS[1]), name);
            client.handshake().unwrap();
            client.send(b"hello?").unwrap();
            assert_eq!(client.receive(6).unwrap(), b"hello?");
        }
        rig.counters().keys_decoded.value()
    };
    assert_eq!(decoded(), 2);
    rig.publish(2, with_two());
    assert_eq!(decoded(), 2, "what stays is not decoded again");
    rig.publish(3, Wanted::echo());
    rig.publish(4, with_two());
    assert_eq!(decoded(), 3, "what had gone is");
    rig.stop();
}

#[test]
fn new_ticket_keys_open_no_old_tickets_and_serve_every_generation() {
    let _others = among_others();
    for version in VERSIONS {
        let driver = Driver::start(Wanted::echo(), false);
        let config = config(version);
        let mut kinds = Vec::new();
        for round in 0..6 {
            // The second time as when lanes are given the keys of others: what these sealed opens.
            if round == 2 || round == 4 {
                assert!(driver.rig.handle.post(Mail::Tickets(ticket_root(8))));
            }
            let mut client = Client::with(&driver.rig, config.clone());
            client.handshake().unwrap();
            let id = driver.opened();
            driver.desk.command(id, Command::Write(b"with tickets".to_vec()));
            client.receive(12).unwrap();
            kinds.push(client.tls.handshake_kind() == Some(HandshakeKind::Resumed));
            drop(client);
            driver.left();
        }
        assert_eq!(kinds, [false, true, false, true, true, true], "{:?}", version.version);
        driver.stop();
    }
}

/// A certificate for a client, and the configuration of a client that shows it.
fn identity(version: &'static rustls::SupportedProtocolVersion) -> (String, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(vec!["client.test".to_owned()]).unwrap();
    let pem = made.cert.pem();
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots())
        .with_client_auth_cert(vec![certificate], key)
        .unwrap();
    (pem, config)
}

/// Provides a context that asks clients so.
fn asking(driver: &Driver, clients: ClientCertificates) -> ContextId {
    let mut asking = context(NAME, UnknownNames::ServeDefault);
    asking.policy.clients = clients;
    asking.key_log = true;
    let id = asking.id;
    driver.rig.handle.post(Mail::Provide(Arc::new(asking)));
    id
}

fn greet(driver: &Driver, config: &ClientConfig, context: ContextId) -> (Client, ConnectionId) {
    let mut client = Client::with(&driver.rig, config.clone());
    client.tls.write_tls(&mut client.socket).unwrap();
    let (id, _) = driver.hello();
    driver.desk.choose(id, Chosen::Context(context));
    (client, id)
}

#[test]
fn a_link_tells_what_the_client_showed_and_the_secrets_of_its_session() {
    let _others = among_others();
    for version in VERSIONS {
        let driver = Driver::start(Wanted::echo(), true);
        let (trusted, showing) = identity(version);
        let roots = |pem: &str| Arc::new(ClientRoots::from_pem(&[pem.as_bytes()], &[]).unwrap());
        let silent = asking(&driver, ClientCertificates::NotAsked);
        let trusting = asking(&driver, ClientCertificates::Asked(roots(&trusted)));
        let others = ClientCertificates::Asked(roots(&identity(version).0));
        let doubting = asking(&driver, others);
        let standing = |config: &ClientConfig, context| {
            let (mut client, id) = greet(&driver, config, context);
            client.handshake().unwrap();
            assert_eq!(driver.opened(), id);
            driver.desk.command(id, Command::Inspect);
            let Told::Inspected(standing, key_log) = driver.next() else { panic!("no answer") };
            let lines = String::from_utf8(key_log).unwrap();
            let label = if version.version == rustls::ProtocolVersion::TLSv1_3 {
                "CLIENT_TRAFFIC_SECRET_0 "
            } else {
                "CLIENT_RANDOM "
            };
            assert!(lines.lines().any(|line| line.starts_with(label)), "{lines}");
            drop(client);
            driver.left();
            standing
        };
        assert_eq!(standing(&showing, silent), ClientStanding::NotAsked);
        assert_eq!(standing(&showing, trusting), ClientStanding::Verified);
        assert_eq!(standing(&config(version), trusting), ClientStanding::Absent);
        let foreign = standing(&showing, doubting);
        assert!(matches!(foreign, ClientStanding::Unverified(_)), "{foreign:?}");
        driver.stop();
    }
}

#[test]
fn a_certificate_that_is_required_and_missing_or_refused_has_a_cause_of_its_own() {
    let _others = among_others();
    for version in VERSIONS {
        let driver = Driver::start(Wanted::echo(), true);
        let (trusted, showing) = identity(version);
        let roots = Arc::new(ClientRoots::from_pem(&[trusted.as_bytes()], &[]).unwrap());
        let strict = asking(&driver, ClientCertificates::Required(roots));
        let (mut client, id) = greet(&driver, &showing, strict);
        client.handshake().unwrap();
        assert_eq!(driver.opened(), id);
        for refused in [config(version), identity(version).1] {
            let (mut client, _) = greet(&driver, &refused, strict);
            // Under TLS 1.3 the client's handshake is complete before it hears.
            let alert = match client.handshake() {
                Err(error) => seen(&error),
                Ok(()) => client.read_to_end().1,
            };
            assert!(matches!(alert, Seen::Alert(_)), "{alert:?}");
            assert_ne!(alert, Seen::Alert(AlertDescription::CloseNotify));
            drop(client);
            driver.ended(Cause::ClientCertificate);
        }
        driver.stop();
    }
}
