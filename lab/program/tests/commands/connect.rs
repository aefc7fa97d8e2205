//! The command `connect` as people run it, against OpenSSL's own server.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    thread,
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn parameters_are_those_asked_for_and_are_shown() {
    let server = Server::start(&[]);
    let run = |arguments: &[&str]| {
        let output = server.connect(&[&["--count", "20", "--handshakes-only"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    };
    let shown = run(&["--tls", "1.2", "--cipher", "chacha20-poly1305", "--group", "x25519"]);
    let line = "20 x TLS 1.2, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, X25519, full";
    assert!(shown.contains(line), "{shown}");
    let shown = run(&["--tls", "1.3", "--cipher", "aes256-gcm", "--group", "p384"]);
    assert!(shown.contains("20 x TLS 1.3, TLS_AES_256_GCM_SHA384, secp384r1, full"), "{shown}");
    assert!(shown.contains("20 operations in") && shown.contains("p99.9"), "{shown}");
}

#[test]
fn the_resumed_share_is_counted_and_checked() {
    let server = Server::start(&[]);
    let arguments = ["--count", "200", "--concurrency", "4", "--threads", "1"];
    let outcome = server.json(&[&arguments[..], &["--resumed", "0.5"]].concat());
    let (offered, resumed) =
        (number(&outcome["tickets_offered"]), number(&outcome["tickets_resumed"]));
    // The first ones of those that were to resume had no ticket yet.
    assert!((90..=100).contains(&offered), "{outcome}");
    assert_eq!(offered, resumed, "{outcome}");
    let negotiated = outcome["negotiated"].as_object().unwrap();
    let counted: u64 = negotiated
        .iter()
        .filter(|(what, _)| what.contains(", resumed"))
        .map(|(_, count)| number(count))
        .sum();
    assert_eq!(counted, resumed, "{outcome}");
    let never = Server::start(&["-no_ticket", "-no_cache", "-num_tickets", "0"]);
    let outcome = never.json(&[&arguments[..], &["--resumed", "1"]].concat());
    assert_eq!(number(&outcome["tickets_resumed"]), 0, "{outcome}");
}

#[test]
fn failures_are_results_by_kind_and_end_with_status_1() {
    let server = Server::start(&["-groups", "P-384"]);
    let fails = |arguments: &[&str], roots: &Path, kind: &str| {
        let output = lab(&server.address)
            .args(["--name", "localhost", "--count", "3", "--roots"])
            .arg(roots)
            .args(arguments)
            .output()
            .unwrap();
        let text = text(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("3 failed") && text.contains(kind), "{text}");
        assert!(!text.contains("p99"), "a latency of nothing: {text}");
    };
    let roots = server.folder.path().join("root.pem");
    fails(&["--group", "x25519"], &roots, "3 x alert from the server");
    let other = Server::start(&[]);
    fails(&[], &other.folder.path().join("root.pem"), "3 x certificate");
    server.end();
    let output = lab(&server.address).args(["--insecure", "--count", "3"]).output().unwrap();
    assert!(text(&output).contains("3 x connection refused"), "{}", text(&output));
}

/// The server stands still for a while in the middle of an open loop. Of what was due meanwhile,
/// the latency from the intended time tells all; compared within the run, with the stall as the
/// only time that is known.
#[test]
fn an_open_loop_counts_from_the_intended_time() {
    let server = Server::start(&[]);
    let pid = Pid::from_child(&server.child);
    let stall = Duration::from_millis(400);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            // Somewhere in the middle; where does not matter.
            thread::sleep(Duration::from_millis(600));
            kill_process(pid, Signal::STOP).unwrap();
            thread::sleep(stall);
            kill_process(pid, Signal::CONT).unwrap();
        });
        server.json(&["--rate", "50", "--count", "100", "--threads", "1", "--handshakes-only"])
    });
    let at = |which: &str, percentile: f64| {
        let points = outcome[which]["percentiles"].as_array().unwrap();
        let point = points.iter().find(|point| point[0].as_f64().unwrap() >= percentile).unwrap();
        Duration::from_secs_f64(point[1].as_f64().unwrap() / 1e9)
    };
    assert_eq!(number(&outcome["operations"]), 100, "{outcome}");
    // The first that was due found the server standing at most one step after it had stopped.
    let step = Duration::from_millis(20);
    // Three digits are kept.
    let almost = stall - step - stall / 100;
    assert!(at("intended", 100.0) >= almost, "{outcome}");
    // 20 of the 100 were due during the stall, in even steps.
    assert!(at("intended", 90.0) >= stall / 4, "{outcome}");
}

/// The same stall in a closed loop of one: a single operation tells of it, and the ten that would
/// have come meanwhile do not.
#[test]
fn a_closed_loop_of_one_hides_what_would_have_come() {
    let server = Server::start(&[]);
    let outcome = server.json(&["--count", "50", "--concurrency", "1", "--threads", "1"]);
    assert_eq!(outcome["service"]["hdr"], outcome["intended"]["hdr"], "{outcome}");
    assert_eq!(outcome["arrivals"], "closed");
}

#[test]
fn keep_alive_connects_anew_where_the_server_closes() {
    let server = Server::start(&["-WWW"]);
    fs::write(server.folder.path().join("page"), "HTTP/1.1 200 OK\r\n\r\nhello").unwrap();
    // OpenSSL's server closes after each answer: the handshakes that this takes are told.
    let output = server.connect(&["--keep-alive", "/page", "--count", "10", "--concurrency", "2"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("10 x TLS 1.3"), "{}", text(&output));
}

/// `openssl s_server` on a free port.
struct Server {
    child: Child,
    /// The pipe with whose end it ends.
    _input: Option<ChildStdin>,
    address: String,
    folder: tempfile::TempDir,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pem = credentials(folder.path());
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-cert"])
            .arg(&pem)
            .arg("-key")
            .arg(&pem)
            .args(if arguments.contains(&"-WWW") { &[][..] } else { &["-www"] })
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let accept = lines.find_map(|line| Some(line.unwrap().strip_prefix("ACCEPT ")?.to_owned()));
        let address = accept.expect("s_server says where it listens");
        // Its pipe must not fill up.
        thread::spawn(move || lines.for_each(drop));
        Self { _input: child.stdin.take(), child, address, folder }
    }

    fn connect(&self, arguments: &[&str]) -> Output {
        let roots = self.folder.path().join("root.pem");
        let mut command = lab(&self.address);
        command.args(["--name", "localhost", "--roots"]).arg(roots);
        command.args(arguments).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.json");
        let output = self.connect(&[arguments, &["--json", file.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{}", text(&output));
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }

    /// Ends the process, and not what is left of it here.
    fn end(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
        while fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .is_ok_and(|stat| !stat.contains(") Z "))
        {
            thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lab(server: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.args(["connect", server]).stdin(Stdio::null());
    command
}

/// A root in `root.pem`, and a leaf with its key in the file whose path is given back.
fn credentials(folder: &Path) -> PathBuf {
    let mut root = CertificateParams::new(Vec::new()).unwrap();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &root).unwrap();
    fs::write(folder.join("root.pem"), root.pem()).unwrap();
    let pem = folder.join("leaf.pem");
    fs::write(&pem, leaf.pem() + &key.serialize_pem()).unwrap();
    pem
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
