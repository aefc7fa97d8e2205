//! Tests of the admin address, over real sockets.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use sealane_config::{self as config, Spoken};
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_lanes::cause::Cause;
use sealane_lanes::counters::Counters;
use sealane_listeners::{EXPIRIES_SHOWN_MAX, Summary};
use sealane_traffic::admission::RefusedClients;
use sealane_traffic::backends::{BackendCounters, monotonic_ms};
use serde_json::{Value, json};

use super::*;
use crate::state::*;

#[test]
fn health_follows_the_phase() {
    let (admin, state) = on_loopback();
    let health = || ask(&admin, "GET", "/healthz");
    assert!(health().starts_with("HTTP/1.1 503 ") && health().ends_with("\r\n\r\nstarting\n"));
    state.lock().phase = Phase::Serving;
    assert!(health().starts_with("HTTP/1.1 200 ") && health().ends_with("\r\n\r\nok\n"));
    state.lock().phase = Phase::Draining;
    assert!(health().starts_with("HTTP/1.1 503 ") && health().ends_with("\r\n\r\ndraining\n"));
    admin.stop();
}

#[test]
fn readyz_fails_when_no_backend_is_up() {
    let (admin, state) = on_loopback();
    let is_ready = || ask(&admin, "GET", "/readyz").starts_with("HTTP/1.1 200 ");
    assert!(!is_ready(), "it starts");
    state.lock().phase = Phase::Serving;
    assert!(is_ready(), "no backend is configured");
    let down = backend(Some(Err("refused".to_owned())), &[]);
    state.lock().backends = vec![down.clone(), backend(Some(Ok(())), &[])];
    assert!(is_ready(), "one is up");
    state.lock().backends = vec![down.clone(), down];
    assert!(!is_ready());
    assert!(ask(&admin, "GET", "/healthz").starts_with("HTTP/1.1 200 "), "as before");
    state.lock().phase = Phase::Draining;
    assert!(ask(&admin, "GET", "/readyz").ends_with("\r\n\r\ndraining\n"));
    admin.stop();
}

#[test]
fn state_shows_the_most_refused_clients_first() {
    let (admin, state) = on_loopback();
    let lanes = [RefusedClients::default(), RefusedClients::default()];
    for (lane, client, times) in
        [(0, "192.0.2.1", 2), (0, "192.0.2.2", 1), (1, "192.0.2.2", 3), (1, "192.0.2.3", 1)]
    {
        (0..times).for_each(|_| lanes[lane].note(client.parse().ok(), Cause::Denied));
    }
    state.lock().refused = lanes.map(Arc::new).into();
    let answer = ask(&admin, "GET", "/state");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let shown: Value = serde_json::from_str(body).unwrap();
    let shown = shown["refused_clients"].as_array().unwrap();
    let expected = [("192.0.2.2", 4), ("192.0.2.1", 2), ("192.0.2.3", 1)];
    assert_eq!(*shown, expected.map(|(client, count)| json!({ "client": client, "count": count })));
    admin.stop();
}

#[test]
fn unchecked_backend_is_down_while_lanes_wait() {
    let (admin, state) = on_loopback();
    state.lock().phase = Phase::Serving;
    let lanes = [Arc::new(BackendCounters::default()), Arc::new(BackendCounters::default())];
    let backend = backend(None, &lanes);
    state.lock().backends = vec![backend.clone()];
    let seen = || {
        let shown = &shown_state(&admin)["backends"][0];
        let is_ready = ask(&admin, "GET", "/readyz").starts_with("HTTP/1.1 200 ");
        (is_ready, shown["state"].clone(), shown["why"].clone())
    };
    assert_eq!(seen(), (true, "up".into(), Value::Null));
    (0..6).for_each(|_| lanes[0].note_failure(0));
    let why = "the last 6 attempts to connect failed; the next client may be sent there";
    assert_eq!(seen(), (true, "failing".into(), why.into()), "the other lane tries it");
    (0..6).for_each(|_| lanes[1].note_failure(0));
    let (is_ready, name, why) = seen();
    assert_eq!((is_ready, name), (false, "down".into()));
    let why = why.as_str().unwrap().to_owned();
    assert!(why.starts_with("the last 6 attempts to connect failed; retry in "), "{why}");
    let later_ms = monotonic_ms() + 32_000;
    assert_eq!(report::BackendState::of(&backend, later_ms), report::BackendState::Failing);
    lanes.iter().for_each(|lane| lane.note_success());
    assert_eq!(seen(), (true, "up".into(), Value::Null));
    lanes[0].drain(true);
    assert_eq!(seen(), (false, "drained".into(), Value::Null));
    admin.stop();
}

#[test]
fn every_path_is_answered_or_refused() {
    let (admin, _state) = on_loopback();
    assert!(ask(&admin, "GET", "/").contains("\n/metrics "));
    assert!(ask(&admin, "GET", "/metrics?x=y").contains("\nsealane_lanes 0\n"));
    assert!(
        ask(&admin, "GET", "/metrics").contains("\r\nContent-Type: text/plain; version=0.0.4;")
    );
    assert!(ask(&admin, "GET", "/state").contains("\r\nContent-Type: application/json\r\n"));
    for path in ["/metrics/", "/../etc/passwd", "*", "/%2e"] {
        assert!(ask(&admin, "GET", path).starts_with("HTTP/1.1 404 "), "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert!(ask(&admin, method, "/state").starts_with("HTTP/1.1 405 "), "{method}");
    }
    assert!(ask(&admin, "HEAD", "/state").ends_with("\r\n\r\n"));
    admin.stop();
}

/// A page of a stranger's, whose name now leads to this machine, asks for it by that name.
#[test]
fn over_tcp_nobody_is_answered_who_asks_for_a_foreign_name() {
    let (admin, _state) = on_loopback();
    let Some(Address::Tcp(address)) = admin.addresses().next() else { panic!("TCP was asked for") };
    let ask = |host: &str| {
        let mut client = TcpStream::connect(address).unwrap();
        write!(client, "GET /state HTTP/1.1\r\nHost: {host}:{}\r\n\r\n", address.port()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let rebound = ask("evil.example");
    assert!(rebound.starts_with("HTTP/1.1 421 ") && !rebound.contains("listeners"), "{rebound}");
    for host in ["127.0.0.1", "localhost", "admin"] {
        assert!(ask(host).starts_with("HTTP/1.1 200 "), "{host}");
    }
    admin.stop();
}

#[test]
fn state_tells_what_the_control_plane_and_the_lanes_know() {
    let (admin, state) = on_loopback();
    let lanes = [Arc::new(Counters::default()), Arc::new(Counters::default())];
    let (first, second) = (Arc::new(1), Arc::new(2));
    {
        let mut state = state.lock();
        state.phase = Phase::Serving;
        state.lanes = lanes.to_vec();
        state.generations.publish(1, &first);
        state.generations.publish(2, &second);
        let errors = vec!["line 3: \"no\"".to_owned()];
        let verdict = Verdict { generation: 2, errors, ..Verdict::default() };
        state.reloads.count(SystemTime::UNIX_EPOCH, verdict);
    }
    lanes[1].generation.set(2);
    lanes[1].ended(Cause::Idle).add(5);
    let shown = shown_state(&admin);
    assert_eq!(shown["pid"], std::process::id());
    assert_eq!(shown["generation"]["live"], serde_json::json!([1, 2]));
    assert_eq!(shown["lanes"][1]["generation"], 2);
    assert_eq!(shown["lanes"][1]["ended"], serde_json::json!({ "idle": 5 }));
    let last = serde_json::json!({
        "time": "1970-01-01T00:00:00.000Z", "outcome": "refused", "errors": ["line 3: \"no\""],
        "faults": [], "warnings": [], "generation": 2, "took_ms": 0,
    });
    assert_eq!(shown["reloads"]["recent"], serde_json::json!([last]));
    drop(first);
    let generation = serde_json::json!({ "newest": 2, "live": [2], "live_total": 1 });
    assert_eq!(shown_state(&admin)["generation"], generation);
    admin.stop();
}

#[test]
fn what_a_listener_speaks_and_takes_is_shown() {
    let (admin, state) = on_loopback();
    let special = Summary {
        limits: [("idle_timeout", "1m".to_owned())].into(),
        proxy_from: Some(vec!["10.0.0.0/8".into()]),
        speaks: Spoken::Relay,
        ..plain_listener("main")
    };
    state.lock().listeners = vec![plain_listener("main"), special];
    let shown = &shown_state(&admin)["listeners"];
    let keys = ["speaks", "proxy_from", "limits"];
    let facts = |number: usize| keys.map(|key| shown[number][key].to_string());
    assert_eq!(facts(0), ["\"tls\"", "null", "{}"]);
    assert_eq!(facts(1), ["\"relay\"", "[\"10.0.0.0/8\"]", "{\"idle_timeout\":\"1m\"}"]);
    admin.stop();
}

#[test]
fn the_certificates_that_expire_first_are_shown() {
    let key = KeyPair::generate().unwrap();
    let crypto = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
    let mut builder = IndexBuilder::new(&crypto, 0);
    let total = EXPIRIES_SHOWN_MAX + 20;
    for number in 0..total {
        // In no order: 7 and the total have no common divisor but 1.
        let year = 2030 + i32::try_from(number * 7 % total).unwrap();
        let mut params = CertificateParams::new([format!("y{year}.example")]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let pem = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
        builder.add(&format!("{year}.pem"), pem.as_bytes());
    }
    let indexed = builder.finish(DefaultCertificate::First);
    assert!(indexed.errors.is_empty());
    let inventory = indexed.index.inventory(EXPIRIES_SHOWN_MAX);
    assert_eq!(inventory.certificates, total as u64);
    let names: Vec<_> = inventory.soonest.iter().map(|each| each.names[0].clone()).collect();
    let expected: Vec<_> =
        (2030..).take(EXPIRIES_SHOWN_MAX).map(|year| format!("y{year}.example")).collect();
    assert_eq!(names, expected);

    let (admin, state) = on_loopback();
    state.lock().listeners = vec![Summary { certificates: inventory, ..plain_listener("main") }];
    let shown = &shown_state(&admin)["certificates"];
    assert_eq!(shown["total"], total);
    assert_eq!(shown["soonest_to_expire"][0]["not_after"], "2030-01-01T00:00:00.000Z");
    assert_eq!(shown["soonest_to_expire"][0]["key"], "ECDSA P-256");
    admin.stop();
}

#[test]
fn a_unix_socket_is_its_owners_alone_and_goes_with_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let admin = on_unix(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(ask(&admin, "GET", "/healthz").ends_with("starting\n"));
    let fetched = Command::new("curl")
        .args(["--silent", "--show-error", "--unix-socket"])
        .arg(&path)
        .arg("http://localhost/metrics")
        .output();
    // The test's own client has shown the same where there is no curl.
    if let Ok(fetched) = fetched {
        assert!(String::from_utf8(fetched.stdout).unwrap().contains("\nsealane_lanes 0\n"));
    }
    admin.stop();
    assert!(!path.exists());
}

#[test]
fn a_stale_socket_makes_way_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    drop(UnixListener::bind(&path).unwrap());
    let admin = on_unix(&path).unwrap();
    let error = on_unix(&path).map(drop).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::AddrInUse, "{error}");
    assert!(ask(&admin, "GET", "/healthz").ends_with("starting\n"), "the first one serves on");

    // Another process took the path over: its socket stays.
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    admin.stop();
    assert!(path.exists());
    drop(other);

    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    let error = on_unix(&path).map(drop).unwrap_err().to_string();
    assert!(error.contains("admin.sock cannot be served: a file that is no socket"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

/// A lane looks at orders and at what it serves apart.
#[test]
fn names_are_told_where_no_lane_has_heard_of_them_yet() {
    let folder = tempfile::tempdir().unwrap();
    let _door = NamesSocket::start(folder.path(), SharedState::default()).unwrap();
    let answer = ask_socket(&folder.path().join("names.sock"), "POST", "/names/wanted");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"names\": []"), "{answer}");
}

fn backend(checked: Option<Result<(), String>>, lanes: &[Arc<BackendCounters>]) -> BackendSummary {
    BackendSummary {
        address: "192.0.2.1:80".into(),
        checked,
        label: "192.0.2.1:80".into(),
        other_labels: Vec::new(),
        lanes: lanes.to_vec(),
        tls: false,
    }
}

fn on_loopback() -> (Admin, SharedState) {
    let state = SharedState::default();
    let address = Some("127.0.0.1:0".parse().unwrap());
    let wanted = config::Admin { address, hosts: vec!["admin".into()], socket: None };
    (Admin::start(&wanted, &idle(state.clone())).unwrap(), state)
}

fn on_unix(path: &Path) -> Result<Admin, AdminError> {
    let wanted = config::Admin::from(Address::Unix(path.to_owned()));
    Admin::start(&wanted, &idle(SharedState::default()))
}

/// Orders to a process that takes none any more.
fn idle(state: SharedState) -> Orders {
    Orders { state, reload: Arc::new(drop), uploads: Uploads::default() }
}

fn ask(admin: &Admin, method: &str, path: &str) -> String {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: admin\r\n\r\n");
    let mut answer = String::new();
    match admin.addresses().next().unwrap() {
        Address::Tcp(address) => {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            client.read_to_string(&mut answer).unwrap();
        }
        Address::Unix(socket) => return ask_socket(socket, method, path),
    }
    answer
}

fn ask_socket(socket: &Path, method: &str, path: &str) -> String {
    let mut client = UnixStream::connect(socket).unwrap();
    write!(client, "{method} {path} HTTP/1.1\r\nHost: admin\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

fn shown_state(admin: &Admin) -> Value {
    let answer = ask(admin, "GET", "/state");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}
