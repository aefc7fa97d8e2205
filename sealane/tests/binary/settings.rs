//! Settings that have no other test of the binary: what they change is seen from outside.

use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use rustls::crypto::aws_lc_rs::cipher_suite;
use rustls::version::{TLS12, TLS13};
use sealane_reserved_port::ReservedPort;
use sealane_traffic::proxy_header::Facts;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::process::Process;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings, replace};
use crate::harness::{tools, wait_for};

#[test]
fn flags_alone_listen_on_every_address_and_say_what_is_spoken() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let reserved = ReservedPort::on(Ipv6Addr::UNSPECIFIED.into()).unwrap();
    let port = reserved.address().port();
    let backend = Backend::start(|mut stream| {
        use std::io::{Read as _, Write as _};
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        // All of it: what nobody reads makes a reset of the end.
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            bytes.extend_from_slice(&piece[..len]);
            if let Some((header, len)) = Facts::decode(&bytes).unwrap()
                && &bytes[len..] == b"hello"
            {
                return stream.write_all(header.alpn.unwrap()).unwrap();
            }
        }
    });
    let child = Command::new(BINARY)
        .args(["serve", "--alpn", "spdy/1,h2", "--proxy-header", "--listen"])
        .args([&format!(":{port}"), "--backend", &backend.address.to_string(), "--certificates"])
        .arg(&certificate)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _process = Process::new(child);
    let ca = authority.write(folder.path());
    for address in [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()] {
        let address: std::net::SocketAddr = address;
        wait_for("a listener", || TcpStream::connect(address).ok());
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-alpn", "h2,http/1.1", "-quiet", "-verify_return_error"]);
        openssl.args(["-connect", &address.to_string(), "-CAfile"]).arg(&ca);
        openssl.args(["-servername", "localhost"]);
        assert_eq!(tools::output_with_input(&mut openssl, b"hello"), "h2", "{address}");
    }
}

/// A client that offers all: what is left, and which comes first.
#[test]
fn suites_and_schemes_are_those_of_the_file_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificates = folder.path().join("certificates");
    std::fs::create_dir(&certificates).unwrap();
    for (name, kind) in [("a.pem", KeyKind::P256), ("b.pem", KeyKind::Rsa2048)] {
        std::fs::write(certificates.join(name), authority.leaf(kind, &NAMES)).unwrap();
    }
    let listener = ListenerSettings::new("site", &certificates, &Backend::echo().address).with(
        "suites = [\"TLS_AES_256_GCM_SHA384\", \"TLS_AES_128_GCM_SHA256\",\
         \"ECDHE-RSA-CHACHA20-POLY1305\", \"ECDHE-RSA-AES128-GCM-SHA256\"]\n\
         schemes = [\"rsa_pss_rsae_sha512\"]",
    );
    let address = listener.address;
    let sealane = Sealane::start(folder.path(), &Settings::new(vec![listener]));
    let unused = "a.pem: schemes has none that its key of type ECDSA P-256 signs with";
    assert_eq!(sealane.count_said(unused), 1, "{:?}", sealane.said());
    for (version, expected) in [
        (&TLS12, cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
        (&TLS13, cipher_suite::TLS13_AES_256_GCM_SHA384),
    ] {
        let connector = Connector::new(authority.der(), version).without_tickets();
        let mut client = connector.connect(address).unwrap();
        client.echo(b"hello").unwrap();
        assert_eq!(client.tls.negotiated_cipher_suite(), Some(expected));
    }
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &address.to_string(), "-servername", "localhost"]);
    let told = tools::output_with_input(&mut openssl, b"");
    assert!(told.contains("Peer signing digest: SHA512"), "{told}");
    assert!(told.contains("Peer signature type: RSA-PSS"), "{told}");
}

#[test]
fn config_schema_has_the_keys() {
    let output = tools::output(Command::new(BINARY).args(["config", "schema"]));
    let schema: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let listener = &schema["properties"]["listener"]["items"]["properties"];
    assert_eq!(listener["balance"]["enum"][1], "round-robin");
}

#[test]
fn without_a_watch_only_a_signal_reloads() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    let backend = Backend::echo();
    let start = |name: &str, more: &str| {
        let own = folder.path().join(name);
        std::fs::create_dir(&own).unwrap();
        let listener = ListenerSettings::new(name, &certificate, &backend.address);
        let settings = Settings { more: more.into(), ..Settings::new(vec![listener]) };
        Sealane::start(&own, &settings)
    };
    replace(&certificate, &authority.leaf(KeyKind::P256, &NAMES));
    let (mut with, mut without) = (start("with", ""), start("without", "watch = false"));
    replace(&certificate, &authority.leaf(KeyKind::P256, &NAMES));
    with.wait_until_said("reloaded: generation 2");
    assert_eq!(without.count_said("reloaded"), 0);
    without.signal(Signal::HUP);
    without.wait_until_said("reloaded: generation 2");
}

#[test]
fn a_file_that_comes_into_an_included_folder_opens_its_listener() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    std::fs::create_dir(folder.path().join("conf.d")).unwrap();
    let backend = Backend::echo();
    let listener = ListenerSettings::new("main", &certificate, &backend.address);
    let more = "include = [\"conf.d/*.toml\"]".into();
    let sealane =
        Sealane::start(folder.path(), &Settings { more, ..Settings::new(vec![listener]) });
    let reserved = ReservedPort::on_loopback().unwrap();
    let text = format!(
        "[[listener]]\nname = \"more\"\naddress = \"{}\"\ncertificates = [{certificate:?}]\n\
         backends = [\"{}\"]\n",
        reserved.address(),
        backend.address
    );
    let file = folder.path().join("conf.d/more.toml");
    replace(&file, &text);
    let connector = Connector::new(authority.der(), &TLS13);
    wait_for("the new listener", || connector.connect(reserved.address()).ok());
    replace(&file, &text.replace("backends", "backend"));
    let refused = format!("{}:5:1: listener[0].backend: is not a known key", file.display());
    wait_for("the mistake", || (sealane.count_said(&refused) == 1).then_some(()));
    connector.connect(reserved.address()).unwrap();
}
