//! Every linked stack does every scenario, on two threads, or says that it cannot.

use std::collections::BTreeSet;

use sealane_lab_harness::credentials::Credentials;
use sealane_lab_model::scenario::{Cipher, Group, Key, Kind, Scenario, Share, Version};

use super::*;
use crate::{
    pair,
    stack::{Endpoint, Session, Worker},
};

/// One handshake with its tickets, and both ends of it.
fn shake_hands(
    worker: &mut dyn Worker,
    session: Option<Session>,
) -> Result<[Box<dyn Endpoint>; 2], Error> {
    let (mut server, mut client) = (worker.server()?, worker.client(session)?);
    pair::shake_hands(&mut *server, &mut *client)?;
    Ok([server, client])
}

/// Two threads, each with a full and two further handshakes, and bytes both ways.
fn carry_out(name: &str, scenario: &Scenario) -> Result<(), Error> {
    let folder = tempfile::tempdir().unwrap();
    let credentials = Credentials::make(folder.path(), scenario.key)?;
    let prepared = load(name)?.prepare(scenario, &credentials)?;
    std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| on_one_thread(&*prepared, scenario)));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })
}

fn on_one_thread(prepared: &dyn crate::stack::Prepared, scenario: &Scenario) -> Result<(), Error> {
    let mut worker = prepared.worker()?;
    let mut session = None;
    for round in 0..3 {
        let resumes = round > 0 && scenario.kind != Kind::Full;
        let mut ends = shake_hands(&mut *worker, session.take())?;
        scenario.check(&ends[0].negotiated()?, &ends[1].negotiated()?, resumes)?;
        if scenario.kind != Kind::Full {
            session = ends[1].session();
            assert!(session.is_some(), "no session to resume");
        }
        let sent: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        for (from, to) in [(0, 1), (1, 0)] {
            let (mut wire, mut got, mut answer) = (Vec::new(), Vec::new(), Vec::new());
            ends[from].send(&sent, &mut wire)?;
            for part in wire.chunks(10_001) {
                ends[to].receive(part, &mut got, &mut answer)?;
            }
            assert!(got == sent, "what came is not what was sent");
        }
    }
    Ok(())
}

fn scenarios() -> Vec<Scenario> {
    let tls13 = Scenario::default();
    let tls12 = Scenario { version: Version::Tls12, ..tls13.clone() };
    vec![
        tls13.clone(),
        tls12.clone(),
        Scenario { kind: Kind::Ticket, ..tls13.clone() },
        Scenario { kind: Kind::Ticket, ..tls12.clone() },
        Scenario { kind: Kind::SessionId, ..tls12.clone() },
        Scenario { kind: Kind::Ticket, share: Share::Thread, tickets: 1, ..tls13.clone() },
        Scenario { kind: Kind::SessionId, share: Share::Thread, ..tls12.clone() },
        Scenario { client_certificate: true, ..tls13.clone() },
        Scenario { group: Group::X25519MlKem768, cipher: Cipher::Aes256Gcm, ..tls13.clone() },
        Scenario { group: Group::P384, key: Key::P384, tickets: 0, ..tls13.clone() },
        Scenario { key: Key::Ed25519, cipher: Cipher::Chacha20Poly1305, ..tls13 },
        Scenario { group: Group::P256, key: Key::Rsa2048, ..tls12.clone() },
        Scenario { client_certificate: true, ..tls12.clone() },
        Scenario { share: Share::Session, ..tls12 },
    ]
}

/// What the linked stacks do not offer of [`scenarios`], by its index.
fn unsupported(name: &str) -> &'static [usize] {
    match name {
        // OpenSSL has the hybrid group from 3.5 on.
        "openssl" | "rustls-ring" => &[8],
        "sealane" => &[4, 6],
        _ => &[],
    }
}

#[test]
fn linked_stacks_do_what_each_scenario_asks_or_say_that_they_cannot() {
    for name in ["sealane", "rustls-aws-lc", "rustls-graviola", "rustls-ring", "openssl"] {
        for (index, scenario) in scenarios().iter().enumerate() {
            let done = carry_out(name, scenario);
            if unsupported(name).contains(&index) {
                assert!(matches!(done, Err(Error::Unsupported(_))), "{name} {scenario:?} {done:?}");
            } else {
                assert!(done.is_ok(), "{name} {scenario:?} {done:?}");
            }
        }
    }
}

#[test]
fn a_session_is_not_offered_unless_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = Scenario { kind: Kind::Ticket, ..Scenario::default() };
    let credentials = Credentials::make(folder.path(), scenario.key).unwrap();
    for name in ["sealane", "rustls-ring"] {
        let prepared = load(name).unwrap().prepare(&scenario, &credentials).unwrap();
        let mut worker = prepared.worker().unwrap();
        for _ in 0..2 {
            let [server, client] = shake_hands(&mut *worker, None).unwrap();
            let (server, client) = (server.negotiated().unwrap(), client.negotiated().unwrap());
            scenario.check(&server, &client, false).unwrap();
            assert!(scenario.check(&server, &client, true).is_err());
        }
    }
}

/// A worker that no server ever gave anything resumes what another one was given.
#[test]
fn a_shared_session_is_everybodys() {
    let folder = tempfile::tempdir().unwrap();
    let tls13 = Scenario { kind: Kind::Ticket, share: Share::Session, ..Scenario::default() };
    let tls12 = Scenario { version: Version::Tls12, ..tls13.clone() };
    let by_number = Scenario { kind: Kind::SessionId, ..tls12.clone() };
    let credentials = Credentials::make(folder.path(), tls13.key).unwrap();
    for name in ["openssl", "rustls-aws-lc", "rustls-ring", "sealane"] {
        for scenario in [&tls13, &tls12, &by_number] {
            if name == "sealane" && scenario.kind == Kind::SessionId {
                continue;
            }
            let resumed = |share| {
                let scenario = Scenario { share, ..scenario.clone() };
                let prepared = load(name).unwrap().prepare(&scenario, &credentials).unwrap();
                let [mut first, mut second] = [(); 2].map(|()| prepared.worker().unwrap());
                let [_server, mut client] = shake_hands(&mut *first, None).unwrap();
                let given = client.session();
                [given, None].map(|session| {
                    let worker = if session.is_some() { &mut *first } else { &mut *second };
                    let ends = shake_hands(worker, session).unwrap();
                    ends.map(|end| end.negotiated().unwrap().resumed)
                })
            };
            let [_, second] = resumed(Share::Session);
            assert_eq!(second, [true; 2], "{name} {scenario:?}");
            let [_, second] = resumed(Share::Context);
            assert_eq!(second, [false; 2], "{name} {scenario:?}");
        }
    }
}

/// The numbers of sessions that clients offer, each in its first flight of TLS 1.2.
#[test]
fn all_clients_of_openssl_offer_one_session() {
    let folder = tempfile::tempdir().unwrap();
    let numbers = |share| {
        let scenario = Scenario {
            kind: Kind::SessionId,
            version: Version::Tls12,
            share,
            ..Scenario::default()
        };
        let credentials = Credentials::make(folder.path(), scenario.key).unwrap();
        let prepared = load("openssl").unwrap().prepare(&scenario, &credentials).unwrap();
        let mut numbers = BTreeSet::new();
        for mut worker in [(); 3].map(|()| prepared.worker().unwrap()) {
            let [_server, mut client] = shake_hands(&mut *worker, None).unwrap();
            let mut flight = Vec::new();
            let mut next = worker.client(client.session()).unwrap();
            next.handshake(&[], &mut flight).unwrap();
            let number = &flight[CLIENT_SESSION..];
            numbers.insert(number[1..=usize::from(number[0])].to_vec());
        }
        numbers
    };
    assert_eq!(numbers(Share::Session).len(), 1);
    assert_eq!(numbers(Share::Context).len(), 3);
}

/// Where the session's number stands in a client's first flight, behind its length: after the
/// record's head, the message's, the version and 32 random bytes.
const CLIENT_SESSION: usize = 5 + 4 + 2 + 32;

#[test]
fn what_cannot_be_is_unsupported() {
    let folder = tempfile::tempdir().unwrap();
    let credentials = Credentials::make(folder.path(), Key::P256).unwrap();
    for scenario in [
        Scenario { kind: Kind::SessionId, ..Scenario::default() },
        Scenario { kind: Kind::Ticket, tickets: 0, ..Scenario::default() },
        Scenario { group: Group::X25519MlKem768, version: Version::Tls12, ..Scenario::default() },
    ] {
        for name in ["sealane", "rustls-aws-lc"] {
            let refused = load(name).unwrap().prepare(&scenario, &credentials).err();
            assert!(matches!(refused, Some(Error::Unsupported(_))), "{name} {scenario:?}");
        }
    }
    let unknown = load("no-such-stack").err().unwrap().to_string();
    assert!(unknown.contains("rustls-ring"), "{unknown}");
}

#[test]
fn a_linked_stack_tells_where_its_code_is() {
    let identity = load("rustls-ring").unwrap().identity();
    assert!(identity.version.starts_with("rustls 0."), "{identity:?}");
    assert!(identity.version.contains("ring 0."), "{identity:?}");
    assert_eq!(identity.sha256.len(), 64);
}
