//! The command `contexts` as people run it, against a real Redis: contexts are counted where they
//! are built, whatever a strategy is called, and each check finds the fault that it is for.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::credentials::{Credentials, Side};
use sealane_lab_model::{
    document::{Run, Strategies},
    scenario::Key,
};
use sealane_reserved_port::ReservedPort;

#[test]
fn every_strategy_builds_as_many_contexts_as_its_name_says() {
    let folder = tempfile::tempdir().unwrap();
    let roots = one_root(folder.path());
    let arguments =
        ["--target=redis", "--clients=12", "--sockets=2", "--pools=3", "--lanes=2", "--swaps=20"];
    let (output, contexts) =
        contexts(folder.path(), &[&arguments[..], &["--ca", roots.to_str().unwrap()]].concat());
    let (text, errors) = texts(&output);
    assert!(output.status.success(), "{text}\n{errors}");
    let expected = [
        ("per-socket", 24.0),
        ("per-client", 12.0),
        ("per-pool", 3.0),
        ("digest", 1.0),
        // The pair that has a thread per lane.
        ("per-pool", 3.0),
        ("per-lane", 2.0),
    ];
    assert_eq!(contexts.rows.len(), 2 * expected.len());
    let expected = expected.iter().cycle();
    for (row, (strategy, built)) in contexts.rows.iter().zip(expected) {
        assert_eq!((&*row.strategy, &row.failure), (*strategy, &None));
        let figure = |name: &str| row.figures[name][..].to_vec();
        assert_eq!(figure("contexts_built"), [*built], "{row:?}");
        assert_eq!(figure("contexts_freed"), [*built], "{row:?}");
        // The root that was named, and the server's own.
        assert_eq!(figure("certificates_parsed"), [2.0 * built], "{row:?}");
        assert_eq!((figure("sockets"), figure("pings")), (vec![24.0], vec![24.0]));
        assert_eq!(row.times["client"].count, 12);
    }
    let verdicts: Vec<_> = contexts.checks.iter().map(|check| (&*check.id, check.holds)).collect();
    let holds = Some(true);
    let expected = [
        ("E1", holds),
        // So few roots are parsed in no time.
        ("E2", None),
        ("E3", holds),
        ("E4", holds),
        ("E5", holds),
        ("E6", holds),
        ("E7", holds),
        ("E8", None),
    ];
    assert_eq!(verdicts, expected, "{text}");
}

#[test]
fn the_system_s_roots_are_parsed_once_for_equal_options() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(BUNDLE).expect("the package ca-certificates");
    let arguments = ["--target=redis", "--clients=60", "--strategy=digest", "--swaps=1"];
    let (output, contexts) = contexts(folder.path(), &arguments);
    assert!(output.status.success(), "{:?}", texts(&output));
    let roots = text.matches("-----END CERTIFICATE-----").count() + 1;
    let stacks: Vec<&str> = contexts.rows.iter().map(|row| &*row.variant["stack"]).collect();
    assert_eq!(stacks, ["openssl", "sealane"]);
    for row in &contexts.rows {
        assert_eq!(row.figures["contexts_built"], [1.0]);
        assert_eq!(row.figures["certificates_parsed"], [roots as f64]);
        assert_eq!(row.figures["pings"], [60.0]);
    }
}

#[test]
fn each_check_finds_its_fault() {
    let faults = [
        ("rebuild", ["E1", "E7"], "E5"),
        ("leak", ["E1", "E4"], "E5"),
        ("torn-swap", ["E3", "E3"], "E5"),
        ("hoard", ["E4", "E4"], "E5"),
        ("silent", ["E5", "E6"], "E4"),
    ];
    for (fault, failed, untouched) in faults {
        let folder = tempfile::tempdir().unwrap();
        let roots = one_root(folder.path());
        let fault = format!("--fault={fault}");
        let arguments =
            ["--target=redis", "--clients=4", "--strategy=digest", "--swaps=5", &fault, "--ca"];
        let (output, contexts) =
            contexts(folder.path(), &[&arguments[..], &[roots.to_str().unwrap()]].concat());
        let (text, errors) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{fault}: {text}\n{errors}");
        for stack in ["openssl", "sealane"] {
            let told =
                |row: &&sealane_lab_model::document::StrategyRow| row.variant["stack"] == stack;
            assert!(contexts.rows.iter().any(|row| told(&row) && row.failure.is_none()));
        }
        let verdicts: BTreeMap<_, _> =
            contexts.checks.iter().map(|check| (&*check.id, check.holds)).collect();
        for check in failed {
            assert_eq!(verdicts[check], Some(false), "{fault}: {text}");
            assert!(text.contains(&format!("{check} FAILS: ")), "{text}");
        }
        assert_eq!(verdicts[untouched], Some(true), "{fault}: {text}");
    }
}

#[test]
#[ignore = "valgrind and a debug build: a quarter of an hour beside other work"]
fn a_context_per_lane_is_told_from_a_shared_one_by_shared_writes() {
    let folder = tempfile::tempdir().unwrap();
    let roots = one_root(folder.path());
    let ca = ["--ca", roots.to_str().unwrap()];
    for (fault, wanted) in [(None, true), (Some("--fault=one-context"), false)] {
        let quick = ["--target=redis", "--clients=2", "--strategy=digest", "--swaps=1"];
        let counted = ["--stack=openssl", "--shared-writes"];
        let arguments = [&quick[..], &counted, &ca, fault.as_slice()].concat();
        let (output, contexts) = contexts(folder.path(), &arguments);
        let text = texts(&output);
        let found = contexts.checks.iter().find(|check| check.id == "E8");
        let found = found.unwrap_or_else(|| panic!("{text:?}"));
        assert_eq!(found.holds, Some(wanted), "{found:?} {text:?}");
        assert_eq!(output.status.success(), wanted, "{text:?}");
    }
}

#[test]
fn a_server_that_is_there_gets_the_client_s_certificate_and_must_be_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let credentials = Credentials::make(&folder.path().join("own"), Key::P256).unwrap();
    let others = Credentials::make(&folder.path().join("other"), Key::P256).unwrap();
    let redis = Redis::start(folder.path(), &credentials);
    let files = [
        credentials.root(),
        credentials.certificate(Side::Client),
        credentials.key(Side::Client),
        others.root(),
    ];
    let [ca, cert, key, other] = files.each_ref().map(|path| path.to_str().unwrap());
    for protocol in ["redis", "tls"] {
        let target = format!("--target={protocol}://localhost:{}", redis.reserved.address().port());
        let quick = [&*target, "--strategy=per-client", "--clients=3", "--swaps=1"];
        let shown = ["--ca", ca, "--cert", cert, "--key", key];
        let (output, found) = contexts(folder.path(), &[&quick[..], &shown].concat());
        assert!(output.status.success(), "{:?}", texts(&output));
        assert_eq!(found.rows[0].figures["sockets"], [3.0]);
        let pings = if protocol == "redis" { 3.0 } else { 0.0 };
        assert_eq!(found.rows[0].figures["pings"], [pings]);
        for (trusted, shown, reason) in
            [(ca, &[][..], ""), (other, &["--cert", cert, "--key", key], "certificate")]
        {
            // In TLS 1.3 a client learns with the first answer that its certificate was missing.
            if protocol == "tls" && shown.is_empty() {
                continue;
            }
            let refused = [&quick[..], &["--ca", trusted], shown].concat();
            let (output, found) = contexts(folder.path(), &refused);
            assert_eq!(output.status.code(), Some(1), "{:?}", texts(&output));
            assert_eq!(found.rows.len(), 2);
            for row in &found.rows {
                assert!(row.figures.is_empty());
                let failure = row.failure.as_deref().unwrap_or_default();
                // Threads work on them: which is the first to be refused is chance.
                let is_named = (0..3).any(|client| failure.contains(&format!("client {client}: ")));
                assert!(is_named && failure.contains(reason), "{failure}");
            }
        }
    }
}

#[test]
fn what_cannot_be_measured_is_told_before_anything_is() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, reason) in [
        (&["--target=http://localhost:80"][..], "write redis, mongodb"),
        (&["--target=redis", "--stack=libmongoc"], "--target mongodb"),
        (&["--target=tls://localhost:1", "--ca=/no/such/file"], "/no/such/file"),
    ] {
        let output = command(folder.path(), arguments).output().unwrap();
        let (text, errors) = texts(&output);
        assert!(!output.status.success() && text.is_empty(), "{text}");
        assert!(errors.contains(reason), "{errors}");
    }
}

#[test]
#[ignore = "needs Maven's downloads and libmongoc, see docs/long-checks.md"]
fn mongodb_s_protocol_is_pinged_beside_its_own_driver() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--target=mongodb", "--stack=openssl,sealane,libmongoc", "--clients=40"];
    let (output, contexts) = contexts(folder.path(), &arguments);
    let (text, errors) = texts(&output);
    println!("{text}");
    assert!(output.status.success(), "{text}\n{errors}");
    let drivers = contexts.rows.iter().filter(|row| row.strategy.starts_with("libmongoc "));
    let drivers: Vec<_> = drivers.collect();
    assert!(!drivers.is_empty());
    for driver in drivers {
        // One for each client's socket and those that watch the server, or a few of a pool.
        let is_per_socket = driver.strategy.ends_with(" (per-socket)");
        assert!(is_per_socket || driver.strategy.ends_with(" (per-pool)"), "{driver:?}");
        assert_eq!(driver.figures["contexts_built"][0] > 40.0, is_per_socket, "{driver:?}");
    }
    let pinged = |row: &sealane_lab_model::document::StrategyRow| row.figures["pings"] == [40.0];
    assert!(contexts.rows.iter().all(pinged));
}

/// Runs one round of the command and reads its document.
fn contexts(folder: &Path, arguments: &[&str]) -> (Output, Strategies) {
    let json = folder.join("run.json");
    let output = command(folder, arguments).output().unwrap();
    let run = fs::read(&json).unwrap_or_else(|error| panic!("{error}: {:?}", texts(&output)));
    let run: Run = serde_json::from_slice(&run).unwrap();
    let [strategies] = &run.strategies[..] else { panic!("{run:?}") };
    (output, strategies.clone())
}

/// A bundle of the first of the system's roots.
fn one_root(folder: &Path) -> PathBuf {
    let text = fs::read_to_string(BUNDLE).expect("the package ca-certificates");
    let (first, _) = text.split_once("-----END CERTIFICATE-----").unwrap();
    let path = folder.join("one.pem");
    fs::write(&path, format!("{first}-----END CERTIFICATE-----\n")).unwrap();
    path
}

const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.args(["writeups", "contexts", "--rounds=1", "--json"]).arg(folder.join("run.json"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A Redis that demands a certificate of its clients.
struct Redis {
    child: Child,
    reserved: ReservedPort,
}

impl Redis {
    fn start(folder: &Path, credentials: &Credentials) -> Self {
        // Redis cannot be asked for any free port.
        let reserved = ReservedPort::on_loopback().unwrap();
        let port = reserved.address().port().to_string();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", "0", "--tls-port", &port])
            .args(["--tls-auth-clients", "yes", "--save", "", "--tls-cert-file"])
            .arg(credentials.certificate(Side::Server))
            .arg("--tls-key-file")
            .arg(credentials.key(Side::Server))
            .arg("--tls-ca-cert-file")
            .arg(credentials.root())
            .arg("--dir")
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("the package redis-server");
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(reserved.address()).is_err() {
            assert!(Instant::now() < deadline, "Redis does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        Self { child, reserved }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
