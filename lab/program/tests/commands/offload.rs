//! The command `offload` as people run it, small, and its server under clients that misbehave.
//! Figures are not looked at, but counts are.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::net::sockopt::set_socket_linger;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use sealane_lab_harness::credentials::{Credentials, SERVER_NAME};
use sealane_lab_model::{
    document::{Run, Strategies, StrategyRow},
    scenario::Key,
};
use serde_json::Value;

#[test]
fn every_way_gives_the_same_bytes_and_a_ring_wakes_less() {
    let strategies = offload(&[
        "--body=3069,100000",
        "--concurrency=4,70",
        "--echo=200",
        "--rsa-4096=0",
        "--window-ms=100",
    ]);
    assert_eq!(strategies.rows.len(), 15);
    for row in &strategies.rows {
        assert_eq!(row.failure, None, "{row:?}");
        assert!(count(row, "operations") > 0.0 && count(row, "broken") == 0.0, "{row:?}");
        assert!(row.times["response"].count > 0 && row.times["tick"].count > 0);
        if row.variant["traffic"] == "echo" {
            assert_eq!((count(row, "operations"), count(row, "body_bytes")), (200.0, 2e7));
        }
        match &*row.strategy {
            "inline" => assert!(!row.figures.contains_key("events"), "there is nobody to tell"),
            "queue" => assert!(count(row, "calls_per_event") > 0.0, "{row:?}"),
            _ => assert!(count(row, "calls_per_batch") <= 1.0, "{row:?}"),
        }
    }
    let loaded = |strategy: &str| {
        let mut rows = strategies.rows.iter().filter(|row| row.variant["concurrency"] == "70");
        let row = rows.find(|row| row.strategy == strategy && row.variant["body"] == "3069");
        count(row.unwrap(), "calls_per_event")
    };
    assert!(loaded("ring") <= 0.5 && loaded("ring") < loaded("queue"));
    assert_eq!(verdict(&strategies, "B4"), Some(true));
    assert_eq!(verdict(&strategies, "B6"), Some(true));
    assert_eq!(verdict(&strategies, "B7"), None, "it was not asked for all of it");
}

#[test]
fn without_workers_tls_is_in_the_loop() {
    let strategies =
        offload(&["--workers=0", "--body=3069", "--concurrency=4", "--echo=50", "--rsa-4096=0"]);
    let names: Vec<_> = strategies.rows.iter().map(|row| &*row.strategy).collect();
    assert_eq!(names, ["inline", "inline"]);
    assert_eq!(verdict(&strategies, "B4"), Some(true));
    let refused = run(&["--workers=0", "--mode=ring"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("without workers"), "{text}");
}

#[test]
fn stalls_are_told_beside_the_time_of_a_handshake() {
    let strategies = offload(&[
        "--mode=inline,ring",
        "--body=3069",
        "--concurrency=4",
        "--echo=0",
        "--rsa-4096=2",
        "--window-ms=200",
    ]);
    assert_eq!(strategies.rows.len(), 4);
    for row in &strategies.rows {
        assert_eq!(row.failure, None, "{row:?}");
        let beside = row.variant["traffic"].contains("RSA-4096");
        assert_eq!(row.figures.contains_key("handshake_us"), beside, "{row:?}");
    }
    assert!(strategies.checks.iter().any(|check| check.id == "B5" && check.shown.contains("us")));
}

#[test]
fn a_fault_stays_with_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    Credentials::make(folder.path(), Key::P256).unwrap();
    for strategy in ["inline", "queue", "ring"] {
        let mut server = Server::start(strategy, folder.path(), 60);
        // With one worker, every connection shares it.
        let mut standing = client(server.address, folder.path());
        ask(&mut standing, 3_069);
        for number in 0..FAULTS {
            fault(number, &server, folder.path());
            ask(&mut standing, 3_069);
        }
        ask(&mut client(server.address, folder.path()), 100_000);
        let account = server.account();
        assert_eq!(account["accepted"], FAULTS + 2, "{strategy}: {account}");
        assert_eq!(account["broken"], FAULTS, "{strategy}: {account}");
        server.end();
    }
}

#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    Credentials::make(folder.path(), Key::P256).unwrap();
    for strategy in ["inline", "queue", "ring"] {
        let mut server = Server::start(strategy, folder.path(), 60);
        let mut deaf = client(server.address, folder.path());
        // More than its socket and all pipes hold.
        deaf.write_all(request(BACKLOG_BYTES).as_bytes()).unwrap();
        let mut other = client(server.address, folder.path());
        ask(&mut other, 100_000);
        answer(&mut deaf, BACKLOG_BYTES);
        ask(&mut other, 100_000);
        assert_eq!(server.account()["broken"], 0, "{strategy}");
        server.end();
    }
}

#[test]
fn a_server_that_nobody_ends_ends_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    Credentials::make(folder.path(), Key::P256).unwrap();
    let mut server = Server::start("ring", folder.path(), 1);
    ask(&mut client(server.address, folder.path()), 11);
    assert!(!server.child.wait().unwrap().success(), "it says that it was late");
}

/// One connection that goes wrong, in one of several ways; the server has noticed when it returns.
fn fault(number: u64, server: &Server, folder: &Path) {
    match number % 3 {
        0 => {
            let mut garbage = TcpStream::connect(server.address).unwrap();
            garbage.set_read_timeout(Some(PATIENCE)).unwrap();
            garbage.write_all(&[0x55; 600]).unwrap();
            // The server closes it, with an alert or none.
            let _ = garbage.read_to_end(&mut Vec::new());
        }
        1 => {
            let mut broken = client(server.address, folder);
            ask(&mut broken, 11);
            broken
                .sock
                .write_all(b"\x17\x03\x03\x00\x20no record of this connection......")
                .unwrap();
            assert!(broken.sock.read_to_end(&mut Vec::new()).is_ok());
        }
        _ => {
            let mut reset = client(server.address, folder);
            // An answer is on its way, or about to be, when the reset comes.
            reset.write_all(request(BACKLOG_BYTES).as_bytes()).unwrap();
            reset.read_exact(&mut [0; 1_000]).unwrap();
            set_socket_linger(&reset.sock, Some(Duration::ZERO)).unwrap();
        }
    }
}

/// The server alone, with one worker.
struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(strategy: &str, credentials: &Path, seconds_max: u64) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sealane-lab"))
            .args(["offload-server", "--workers=1"])
            .arg(format!("--seconds-max={seconds_max}"))
            .arg(format!("--strategy={strategy}"))
            .arg("--credentials")
            .arg(credentials)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        Self { child, input, output, address: line.trim().parse().unwrap() }
    }

    fn account(&mut self) -> Value {
        self.input.as_mut().unwrap().write_all(b"account\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Ends the client, which does so by itself when its input does, connections or not.
    fn end(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Client = StreamOwned<ClientConnection, TcpStream>;

fn client(address: SocketAddr, folder: &Path) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(Credentials::at(folder).root()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket)
}

fn request(bytes: usize) -> String {
    format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: {SERVER_NAME}\r\n\r\n")
}

/// The length is looked at here, the bytes by the lab's own client.
fn answer(client: &mut Client, bytes: usize) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    let mut came = vec![0; head.len() + bytes];
    client.read_exact(&mut came).unwrap();
    assert!(came.starts_with(head.as_bytes()));
}

fn ask(client: &mut Client, bytes: usize) {
    client.write_all(request(bytes).as_bytes()).unwrap();
    answer(client, bytes);
}

/// Runs it and reads its document.
fn offload(arguments: &[&str]) -> Strategies {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let mut arguments = arguments.to_vec();
    arguments.extend(["--rounds=1", "--json", json.to_str().unwrap()]);
    let Output { stdout, stderr, .. } = run(&arguments);
    let texts = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let [strategies] = &run.strategies[..] else { panic!("{texts:?}") };
    strategies.clone()
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.args(["writeups", "offload"]).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn count(row: &StrategyRow, name: &str) -> f64 {
    row.figures.get(name).map_or(0.0, |values| values[0])
}

fn verdict(strategies: &Strategies, id: &str) -> Option<bool> {
    strategies.checks.iter().find(|check| check.id == id).unwrap().holds
}

const BACKLOG_BYTES: usize = 20_000_000;
const FAULTS: u64 = 9;
const PATIENCE: Duration = Duration::from_secs(20);
