//! The access log says why a handshake failed, and docs/log.md what each cause means.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustls::version::TLS13;
use sealane_lanes::cause::{Blame, Cause};
use sealane_reserved_port::ReservedPort;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::tools::{self, required};
use crate::harness::wait_for;

/// Sealane in front of an echo, with a log of these settings.
struct Rig {
    authority: Authority,
    folder: tempfile::TempDir,
    listener: ListenerSettings,
    sealane: Sealane,
}

impl Rig {
    fn start(log: &str, listener: &str) -> Self {
        Self::start_before(Backend::echo().address, log, listener)
    }

    fn start_before(backend: SocketAddr, log: &str, listener: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let listener = ListenerSettings::new("web", &certificate, &backend).with(listener);
        let path = folder.path().join("access.log");
        let more = format!("[access_log]\npath = {path:?}\n{log}");
        let settings = Settings { more, ..Settings::new(vec![listener.clone()]) };
        let sealane = Sealane::start(folder.path(), &settings);
        Self { authority, folder, listener, sealane }
    }

    /// The log's lines, as soon as there are so many.
    fn lines(&self, count: usize) -> Vec<Value> {
        let path = self.folder.path().join("access.log");
        wait_for("the lines", || {
            let text = std::fs::read_to_string(&path).unwrap();
            let whole = text.ends_with('\n') && text.lines().count() >= count;
            whole.then(|| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
        })
    }

    fn openssl(&self, words: &[&str]) {
        tools::run(self.s_client().args(words));
    }

    fn s_client(&self) -> Command {
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-connect", &self.listener.address.to_string(), "-servername"]);
        openssl.arg("localhost");
        openssl
    }
}

/// Refused by us or by the client, before and after the hello is believed.
#[test]
fn a_failed_handshake_is_told_with_its_alert_and_what_was_offered() {
    if required("openssl").is_none() {
        return;
    }
    let rig = Rig::start(
        "only = \"failures\"",
        "alpn = [\"h2\"]\nversions = [\"1.2\"]\nsuites = [\"ECDHE-ECDSA-AES128-GCM-SHA256\"]",
    );
    let told = |line: &Value| {
        let fields = ["cause", "alert", "alert_from", "reason", "offered_versions", "server_name"];
        Value::from(fields.map(|field| line[field].clone()).to_vec())
    };
    let mut client = Connector::new(rig.authority.der(), &rustls::version::TLS12)
        .with_alpn(&["h2"])
        .connect(rig.listener.address)
        .unwrap();
    client.end(true).unwrap();
    let tls12 = json!(["TLSv1.2"]);
    let mut count = 0;
    for (words, expected) in [
        (
            &["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"][..],
            json!(["not_tls", "protocol_version", "sealane", "old_version", null, null]),
        ),
        (
            &["-tls1_2", "-alpn", "http/1.1"],
            json!([
                "no_common_alpn",
                "no_application_protocol",
                "sealane",
                null,
                tls12,
                "localhost"
            ]),
        ),
        (
            &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"],
            json!([
                "nothing_in_common",
                "handshake_failure",
                "sealane",
                "no_common_suite",
                tls12,
                "localhost"
            ]),
        ),
        (
            &["-tls1_2", "-verify_return_error", "-no-CAfile", "-no-CApath"],
            json!(["handshake_failed", "unknown_ca", "client", null, tls12, "localhost"]),
        ),
    ] {
        rig.openssl(words);
        count += 1;
        let lines = rig.lines(count);
        assert_eq!(lines.len(), count, "who was served has no line: {lines:?}");
        assert_eq!(told(&lines[count - 1]), expected, "{}", lines[count - 1]);
        assert_eq!(lines[count - 1]["ja4"], Value::Null, "nobody wanted it");
    }
    // One suite, and the one that says that renegotiation is safe.
    assert_eq!(rig.lines(count)[2]["offered_suites"], 2);
}

#[test]
fn missing_master_secret_is_logged_as_false() {
    if required("openssl").is_none() {
        return;
    }
    let rig = Rig::start("", "require_extended_master_secret = true");
    let config = tools::without_extended_master_secret(rig.folder.path());
    tools::run(rig.s_client().arg("-tls1_2").env("OPENSSL_CONF", config));
    let line = &rig.lines(1)[0];
    let told = ["cause", "reason", "extended_master_secret"].map(|field| line[field].clone());
    let expected = [json!("nothing_in_common"), json!("no_extended_master_secret"), json!(false)];
    assert_eq!(told, expected, "{line}");
}

/// Both are counted from the accept.
#[test]
fn duration_is_no_shorter_than_the_handshake() {
    let away = ReservedPort::on_loopback().unwrap();
    let rig = Rig::start_before(away.address(), "", "");
    let connector = Connector::new(rig.authority.der(), &TLS13);
    for client in 1..=5 {
        connector.connect(rig.listener.address).unwrap().echo(b"x").unwrap_err();
        assert_eq!(rig.lines(client).len(), client);
    }
    for line in rig.lines(5) {
        assert_eq!(line["cause"], "backend_refused");
        let [handshake_ms, duration_ms] =
            ["handshake_ms", "duration_ms"].map(|field| line[field].as_f64().unwrap());
        assert!(handshake_ms <= duration_ms, "{line}");
    }
}

#[test]
fn clients_of_one_program_have_one_ja4() {
    let rig = Rig::start("ja4 = true", "");
    let connector = Connector::new(rig.authority.der(), &TLS13);
    for name in ["localhost", "sealane.test"] {
        let connector = connector.clone().with_name(name).without_tickets();
        let mut client = connector.connect(rig.listener.address).unwrap();
        client.end(true).unwrap();
    }
    let lines = rig.lines(2);
    let ja4 = lines[0]["ja4"].as_str().unwrap();
    assert!(ja4.starts_with("t13d") && ja4.len() == 36, "{ja4}");
    assert_eq!(lines[1]["ja4"], ja4);
    assert_eq!(lines[0]["offered_versions"], Value::Null, "who was served has a version");
    if required("openssl").is_some() {
        rig.openssl(&["-tls1_2"]);
        let other = rig.lines(3)[2]["ja4"].as_str().unwrap().to_owned();
        assert!(other.starts_with("t12d") && other != ja4, "{other}");
    }
}

/// Under the heading of whoever is to blame, and nothing else there.
#[test]
fn every_cause_has_its_paragraph() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/log.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut found = Vec::new();
    for section in page.split("\n## ").skip(1) {
        let (title, rest) = section.split_once('\n').unwrap();
        for paragraph in rest.split("\n### `").skip(1) {
            let (label, text) = paragraph.split_once("`\n\n").unwrap();
            assert!(text.trim().len() > 20, "{label} is not explained");
            found.push((title, label.to_owned()));
        }
    }
    let mut expected: Vec<_> = Cause::ALL
        .into_iter()
        .map(|cause| {
            let title = match cause.blame() {
                Blame::Backend => "The backend",
                Blame::Client => "The client",
                Blame::Limit => "A limit",
                Blame::Nobody => "No fault",
                Blame::Us => "Sealane",
            };
            (title, cause.label().to_owned())
        })
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn refused_clients_have_lines() {
    let rig = Rig::start("", "deny = [\"127.0.0.1\"]");
    let refused = std::net::TcpStream::connect(rig.listener.address).unwrap();
    let line = &rig.lines(1)[0];
    let client = refused.local_addr().unwrap().to_string();
    let expected = [json!("denied"), json!("client"), json!("web"), json!(client)];
    assert_eq!(["cause", "blame", "listener", "client"].map(|field| line[field].clone()), expected);
    let state: Value = serde_json::from_str(&rig.sealane.admin("/state")).unwrap();
    assert_eq!(state["refused_clients"], json!([{ "client": "127.0.0.1", "count": 1 }]));
}

#[test]
fn own_lines_are_json_beside_the_access_log() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let listener = ListenerSettings::new("web", &certificate, &Backend::echo().address);
    let address = listener.address;
    let more = "[access_log]\npath = \"stderr\"".into();
    let settings = Settings { more, ..Settings::new(vec![listener]) };
    let mut sealane = Sealane::launch(folder.path(), &settings, Path::new(BINARY));
    sealane.wait_until_said("\"message\":\"ready\"");
    let connector = Connector::new(authority.der(), &TLS13);
    let mut client = connector.connect(address).unwrap();
    client.end(true).unwrap();
    sealane.wait_until_said("\"cause\":\"clean\"");
    sealane.signal(rustix::process::Signal::HUP);
    sealane.wait_until_said("\"message\":\"reloaded");
    for line in sealane.said() {
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert!(line["time"].is_string(), "{line}");
        let is_own = line["level"].is_string() && line["message"].is_string();
        assert!(!line["message"].to_string().contains("warning: "), "{line}");
        assert!(is_own || line["connection"].is_string(), "{line}");
    }
}

#[test]
fn debug_log_shows_life_of_connections() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let backend = Backend::echo();
    let open = ListenerSettings::new("web", &certificate, &backend.address);
    let denied = ListenerSettings::new("denied", &certificate, &backend.address)
        .with("deny = [\"127.0.0.0/8\"]");
    let (address, refusing) = (open.address, denied.address);
    let more = "[log]\nlevel = \"debug\"\nformat = \"json\"\n".into();
    let settings = Settings { more, ..Settings::new(vec![open, denied]) };
    let mut sealane = Sealane::launch(folder.path(), &settings, Path::new(BINARY));
    sealane.wait_until_said("\"message\":\"ready\"");
    let connector = Connector::new(authority.der(), &TLS13);
    assert!(connector.connect(refusing).is_err());
    connector.connect(address).unwrap().echo(b"seen").unwrap();
    sealane.wait_until_said("\"cause\":\"c");
    sealane.signal(rustix::process::Signal::TERM);
    sealane.wait_until_said("\"message\":\"ended\",\"");
    let said = sealane.said().into_iter();
    let lines = said.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let events: Vec<_> = lines.filter(|line| line["target"] == "connection").collect();
    let is_denied = |line: &Value| line["cause"] == Cause::Denied.label();
    assert!(events.iter().any(is_denied), "{events:?}");
    let accepted = events.iter().find(|line| line["message"] == "accepted").unwrap();
    assert_eq!(accepted["listener"], "web");
    let own = events.iter().filter(|line| line["connection"] == accepted["connection"]);
    let shown: Vec<_> = own.map(|line| line["message"].as_str().unwrap()).collect();
    let expected =
        ["accepted", "ClientHello received", "backend chosen", "connected to backend", "ended"];
    assert_eq!(shown, expected, "{events:?}");
}
