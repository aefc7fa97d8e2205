//! Backends drained and put back, connections listed and closed.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::wait_for;

use super::{Ran, Rig};

/// A backend that says its name, and then nothing more.
fn named(name: &'static str) -> Backend {
    Backend::start(move |mut stream| {
        use std::io::Write as _;
        let _ = stream.write_all(name.as_bytes());
        let _ = stream.read(&mut [0]);
    })
}

impl Rig {
    fn address(&self) -> SocketAddr {
        self.settings.listeners[0].address
    }

    /// Which backend a new client gets.
    fn reached(&self) -> String {
        let mut client = self.connector.connect(self.address()).unwrap();
        let mut name = vec![0; 1];
        client.read_exact(&mut name).unwrap();
        String::from_utf8(name).unwrap()
    }

    fn listed(&self, words: &[&str]) -> Value {
        let ran = self.run(&[&["connections", "list", "--json"], words].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        serde_json::from_str(&ran.out).unwrap()
    }
}

#[test]
fn a_drained_backend_keeps_what_it_has_and_gets_nothing_new() {
    let mut rig = Rig::start();
    let (first, second) = (named("1"), named("2"));
    let names = [first.address.to_string(), second.address.to_string()];
    rig.settings.listeners[0].backends = names.to_vec();
    rig.settings.write(rig.folder.path());
    assert_eq!(rig.run(&["reload"]).code, Some(0));
    let mut kept = rig.connector.connect(rig.address()).unwrap();
    let mut name = [0; 1];
    kept.read_exact(&mut name).unwrap();
    let (its, other) = if name == *b"1" { (0, "2") } else { (1, "1") };

    let drained = rig.run(&["backends", "drain", &names[its]]);
    let text = format!("{} gets no new connections; it has 1\n", names[its]);
    assert_eq!((drained.code, drained.out), (Some(0), text));
    for _ in 0..8 {
        assert_eq!(rig.reached(), other);
    }
    let listed = rig.run(&["backends", "list"]);
    let line = format!("  {:<40} drained            1 ", names[its]);
    assert!(listed.out.contains(&line), "{line:?} in {}", listed.out);
    let metrics = rig.sealane.metrics();
    assert_eq!(metrics.sum("sealane_backend_drained", &[("backend", &names[its])]), 2);

    assert_eq!(rig.run(&["reload"]).code, Some(0), "a reload keeps it drained");
    assert_eq!(rig.reached(), other);
    assert_eq!(rig.run(&["backends", "restore", &names[its]]).code, Some(0));
    wait_for("a client of it", || (rig.reached() != other).then_some(()));
    // It is remembered until the last that was served by a configuration with it has left.
    assert_eq!(rig.run(&["backends", "drain", &names[its]]).code, Some(0));
    rig.settings.listeners[0].backends.remove(its);
    rig.settings.write(rig.folder.path());
    assert_eq!(rig.run(&["reload"]).code, Some(0));
    drop(kept);
    wait_for("it is forgotten", || {
        (rig.run(&["backends", "drain", &names[its]]).code == Some(3)).then_some(())
    });
    let unknown = rig.run(&["backends", "drain", "10.0.0.1:1"]);
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    assert!(unknown.err.contains("there is no backend \"10.0.0.1:1\"; there are"), "{unknown:?}");
}

#[test]
fn connections_are_listed_by_client_and_name_and_closed() {
    let rig = Rig::start();
    let open = |name: &str| {
        let mut client = rig.connector.clone().with_name(name).connect(rig.address()).unwrap();
        client.echo(b"hello").unwrap();
        client
    };
    let (mut first, mut second) = (open("localhost"), open("sealane.test"));
    let silent = TcpStream::connect(rig.address()).unwrap();
    let local = silent.local_addr().unwrap().to_string();
    let all = wait_for("three", || {
        let all = rig.listed(&[]);
        (all["connections"].as_array().unwrap().len() == 3).then_some(all)
    });
    let of = |client: &str| {
        let all = all["connections"].as_array().unwrap();
        all.iter().find(|each| each["client"] == client).unwrap().clone()
    };
    assert_eq!((&of(&local)["established"], &of(&local)["backend"]), (&false.into(), &Value::Null));
    let its = of(&first.stream.local_addr().unwrap().to_string());
    let backend = &rig.settings.listeners[0].backends[0];
    let facts = ["listener", "server_name", "backend", "received_bytes", "sent_bytes"];
    let facts = facts.map(|fact| its[fact].clone());
    assert_eq!(serde_json::json!(facts), serde_json::json!(["web", "localhost", backend, 5, 5]));
    let by_name = rig.listed(&["--name", "Localhost"]);
    assert_eq!(by_name["connections"].as_array().unwrap().len(), 1);
    assert_eq!(rig.listed(&["--client", "127.0.0.2"])["connections"], serde_json::json!([]));
    let two = rig.listed(&["--client", "127.0.0.1", "--limit", "2"]);
    assert_eq!((two["connections"].as_array().unwrap().len(), &two["has_more"]), (2, &true.into()));

    let number = its["connection"].as_str().unwrap();
    let closed = rig.run(&["connections", "close", number]);
    assert_eq!((closed.code, closed.out), (Some(0), format!("closed {number}\n")));
    assert!(first.read(&mut [0]).is_err(), "it is reset: what was cut looks cut");
    second.echo(b"and goes on").unwrap();
    let again = rig.run(&["connections", "close", number]);
    assert_eq!(again.code, Some(3), "{again:?}");
    assert!(again.err.contains("there is no such connection"), "{again:?}");
    for wrong in ["1-0-1", "x", "1-99-1"] {
        assert_eq!(rig.run(&["connections", "close", wrong]).code, Some(3), "{wrong}");
    }
    let its = of(&local)["connection"].as_str().unwrap().to_owned();
    assert_eq!(rig.run(&["connections", "close", &its]).code, Some(0), "in its handshake too");
    let metrics = rig.sealane.metrics();
    assert_eq!((metrics.ended("service_reset"), metrics.open()), (2, 1));
}

/// More than a lane looks at in one turn.
#[test]
fn a_list_of_many_connections_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |folder: &std::path::Path| {
        let certificate = folder.join("site.pem");
        let authority = crate::harness::certificates::Authority::new();
        let kind = crate::harness::certificates::KeyKind::P256;
        std::fs::write(&certificate, authority.leaf(kind, &["localhost"])).unwrap();
        let listener = ListenerSettings::new("web", &certificate, &Backend::echo().address);
        let limits = "handshake_timeout = \"5m\"".into();
        Settings { lanes: 1, limits, ..Settings::new(vec![listener]) }
    };
    let settings = settings(folder.path());
    let sealane = Sealane::start(folder.path(), &settings);
    let count = sealane_lanes::orders::VISITS_MAX + 100;
    let open: Vec<_> =
        (0..count).map(|_| TcpStream::connect(settings.listeners[0].address).unwrap()).collect();
    sealane.wait_for_metrics("all are accepted", |metrics| metrics.open() == count as u64);
    let words = ["connections", "list", "--json", "--limit", "10000"];
    let ran = Ran::of(&crate::harness::tools::run(&mut sealane.command(&words)));
    let listed: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(listed["connections"].as_array().unwrap().len(), count);
    assert_eq!(listed["has_more"], false);
    drop(open);
}
