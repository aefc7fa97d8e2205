//! What backends are told in a PROXY header is what HAProxy tells them of the same clients.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;
use sealane_traffic::proxy_header::Facts;

use crate::client_certificates::authority::ClientAuthority;
use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::process::Process;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::tools::{output_with_input, required};
use crate::harness::{PATIENCE, peers};

/// Version and cipher of each PROXY header, as they came.
type Told = (String, String);

/// A backend that reads the header and ends.
fn listener() -> (Backend, Receiver<Told>) {
    reader(|facts| {
        let tls = facts.tls.expect("what TLS was spoken");
        [tls.version, tls.suite].map(|fact| fact.unwrap().to_owned()).into()
    })
}

/// The same, keeping what `of` makes of the header.
fn reader<T: Send + 'static>(of: fn(&Facts<'_>) -> T) -> (Backend, Receiver<T>) {
    let (sender, told) = channel();
    let sender = Mutex::new(sender);
    let backend = Backend::start(move |mut stream| {
        let (mut bytes, mut piece) = (Vec::new(), [0; 512]);
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            bytes.extend_from_slice(&piece[..len]);
            if let Some((header, _)) = Facts::decode(&bytes).unwrap() {
                sender.lock().unwrap().send(of(&header)).unwrap();
                return;
            }
        }
    });
    (backend, told)
}

fn haproxy(program: &std::path::Path, folder: &std::path::Path, backend: &Backend) -> Haproxy {
    let port = ReservedPort::on_loopback().unwrap();
    let address = port.address();
    let config = folder.join("haproxy.cfg");
    let text = format!(
        "defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
         frontend f\n bind {address} ssl crt {}\n default_backend b\n\
         backend b\n server s {} send-proxy-v2-ssl proxy-v2-options ssl,ssl-cipher\n",
        folder.join("site.pem").display(),
        backend.address
    );
    let process = peers::haproxy(program, &config, &text, &[&port]);
    Haproxy { port, _process: process }
}

struct Haproxy {
    port: ReservedPort,
    _process: Process,
}

/// There is no log for which it would be judged, and the first backend that is tried is dead.
#[test]
fn a_certificate_that_is_only_asked_for_is_told_for_what_it_is_worth() {
    if required("openssl").is_none() {
        return;
    }
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let at = folder.path();
    let certificate = at.join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let [believed, stranger] = ["Clients CA", "strangers"].map(|n| ClientAuthority::root(at, n));
    std::fs::write(at.join("clients.pem"), believed.pem()).unwrap();
    let (backend, told) = reader(|facts| {
        facts.tls.unwrap().client.map(|client| (client.is_of_session_only, client.is_verified))
    });
    let nobody = ReservedPort::on_loopback().unwrap();
    let mut settings = ListenerSettings::new("site", &certificate, &nobody.address()).with(
        "proxy_header = \"v2\"\n[listener.clients]\ncertificates = \"asked\"\n\
         roots = [\"clients.pem\"]",
    );
    settings.backends.push(backend.address.to_string());
    let address = settings.address;
    let sealane = Sealane::start(at, &Settings::new(vec![settings]));
    for (issuer, is_verified) in [(&believed, true), (&stranger, false)] {
        let connector = Connector::new(authority.der(), &TLS13).with_own_tickets();
        let connector = connector.showing(&issuer.issue(1, |_| ()).pem());
        for is_resumed in [false, true] {
            let mut client = connector.connect(address).unwrap();
            assert_eq!(client.resumed(), is_resumed);
            let _ = client.read_rest();
            let told = told.recv_timeout(PATIENCE).unwrap();
            assert_eq!(told, Some((is_resumed, is_verified)));
        }
    }
    let mut client = Connector::new(authority.der(), &TLS13).connect(address).unwrap();
    let _ = client.read_rest();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), None);
    drop(client);
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn how_a_handshake_was_signed_is_told_as_openssl_saw_it() {
    let Some(openssl) = required("openssl") else { return };
    for (kind, family) in [(KeyKind::P256, "ecdsa"), (KeyKind::Rsa2048, "rsa_pss_rsae")] {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(kind, &NAMES)).unwrap();
        let (backend, told) = reader(|facts| facts.tls.unwrap().scheme.map(str::to_owned));
        let settings = ListenerSettings::new("site", &certificate, &backend.address)
            .with("proxy_header = \"v2\"\nproxy_tlvs = [\"ssl\", \"scheme\"]");
        let address = settings.address.to_string();
        let sealane = Sealane::start(folder.path(), &Settings::new(vec![settings]));
        for version in ["-tls1_2", "-tls1_3"] {
            for digest in ["SHA256", "SHA512"] {
                let name = match kind {
                    KeyKind::P256 => "ECDSA+SHA256".to_owned(),
                    _ => format!("RSA-PSS+{digest}"),
                };
                let mut command = std::process::Command::new(&openssl);
                command.args(["s_client", "-connect", &address, version, "-sigalgs", &name]);
                let said = output_with_input(&mut command, b"");
                let (_, seen) = said.split_once("Peer signing digest: ").unwrap();
                let seen = seen.lines().next().unwrap().to_ascii_lowercase();
                let told = told.recv_timeout(PATIENCE).unwrap().unwrap();
                assert!(told.starts_with(family) && told.ends_with(&seen), "{told}: {said}");
                assert!(kind == KeyKind::P256 || seen == digest.to_ascii_lowercase(), "{said}");
            }
        }
        assert_eq!(sealane.stop(), Some(0));
    }
}

#[test]
fn suites_are_named_as_haproxy_names_them() {
    let Some(program) = required("haproxy") else { return };
    for kind in [KeyKind::P256, KeyKind::Rsa2048] {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(kind, &NAMES)).unwrap();
        let (backend, told) = listener();
        let settings = ListenerSettings::new("site", &certificate, &backend.address)
            .with("proxy_header = true");
        let address = settings.address;
        let _sealane = Sealane::start(folder.path(), &Settings::new(vec![settings]));
        let haproxy = haproxy(&program, folder.path(), &backend);
        let mut compared = 0;
        for suite in ALL_CIPHER_SUITES {
            let name = suite.suite().as_str().unwrap();
            let other = if kind == KeyKind::P256 { "_RSA_" } else { "_ECDSA_" };
            if name.contains(other) {
                continue;
            }
            let connector = Connector::with_suite(authority.der(), *suite);
            let [ours, theirs] = [address, haproxy.port.address()].map(|address| {
                let mut client = connector.connect(address).unwrap();
                client.end(false).unwrap();
                told.recv_timeout(PATIENCE).unwrap()
            });
            assert_eq!(ours, theirs);
            compared += 1;
        }
        assert_eq!(compared, 6, "three suites of each version");
    }
}

/// By one number the log and the backend speak of a connection, also where a second backend is
/// tried for it.
#[test]
fn a_connection_has_its_number_in_the_log_and_at_the_backend() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let (backend, told) =
        reader(|facts| String::from_utf8(facts.unique_id.unwrap().to_vec()).unwrap());
    let mut listener = ListenerSettings::new("web", &certificate, &backend.address)
        .with("proxy_header = \"v2\"\nproxy_tlvs = [\"unique-id\"]");
    let absent = format!("unix:{}", folder.path().join("absent.sock").display());
    listener.backends.insert(0, absent);
    let address = listener.address;
    let log = folder.path().join("access.log");
    let more = format!("[access_log]\npath = {log:?}");
    let settings = Settings { more, ..Settings::new(vec![listener]) };
    let _sealane = Sealane::start(folder.path(), &settings);
    let connector = Connector::new(authority.der(), &TLS13);
    let numbers: BTreeSet<_> = (0..3)
        .map(|_| {
            connector.connect(address).unwrap().read_rest().unwrap();
            told.recv_timeout(PATIENCE).unwrap()
        })
        .collect();
    assert_eq!(numbers.len(), 3, "{numbers:?}");
    let lines = crate::harness::wait_for("three lines", || {
        let text = std::fs::read_to_string(&log).unwrap();
        (text.lines().count() == 3).then_some(text)
    });
    // Each lane has its own way to the log: whose lines come first is open.
    let logged = lines.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["connection"].as_str().unwrap().to_owned()
    });
    assert_eq!(logged.collect::<BTreeSet<_>>(), numbers);
}
