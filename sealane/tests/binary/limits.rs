//! Limits and refusals through the real binary: who suffers is who should, it is counted, and the
//! others do not notice.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;

use rustls::version::{TLS12, TLS13};
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use crate::harness;
use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::tools::{required, run_with_input};
use crate::harness::{PATIENCE, wait_for, write_program};

/// Sealane on one lane in front of an echo.
struct Site {
    sealane: Sealane,
    address: SocketAddr,
    connectors: [Connector; 2],
    _folder: TempDir,
}

impl Site {
    fn start(change: impl FnOnce(&mut Settings, &TempDir)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let backend = Backend::echo().address;
        let mut settings =
            Settings::new(vec![ListenerSettings::new("site", &certificate, &backend)]);
        settings.lanes = 1;
        change(&mut settings, &folder);
        let address = settings.listeners[0].address;
        let sealane = Sealane::start(folder.path(), &settings);
        let connectors = [&TLS12, &TLS13].map(|version| Connector::new(authority.der(), version));
        Self { sealane, address, connectors, _folder: folder }
    }

    fn limited(limits: &str) -> Self {
        Self::start(|settings, _| settings.limits = limits.into())
    }

    fn connect(&self) -> Client {
        self.connectors[1].connect(self.address).unwrap()
    }

    /// A client that says nothing.
    fn silent(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn wait_until_ended(&self, cause: &str, count: u64) {
        let what = format!("{count} ended by {cause}");
        self.sealane.wait_for_metrics(&what, |metrics| metrics.ended(cause) == count);
    }
}

fn is_reset(mut stream: &TcpStream) -> bool {
    stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn beyond_the_limit_of_connections_the_newest_is_reset() {
    let site = Site::limited("connections = 5");
    let mut clients: Vec<Client> = (0..5).map(|_| site.connect()).collect();
    let one_more = site.silent();
    assert!(is_reset(&one_more));
    site.wait_until_ended("limit_connections", 1);
    for client in &mut clients {
        client.echo(b"still here").unwrap();
    }
    let mut last = clients.pop().unwrap();
    last.end(true).unwrap();
    last.read_rest().unwrap();
    site.sealane.wait_for_metrics("room for one", |metrics| metrics.open() == 4);
    site.connect().echo(b"room again").unwrap();
}

#[test]
fn beyond_the_limit_of_handshakes_the_oldest_is_reset() {
    let site = Site::limited("handshakes_in_flight = 3");
    let silent: Vec<TcpStream> = (0..3)
        .map(|count| {
            let stream = site.silent();
            site.sealane.wait_for_metrics("it is accepted", |m| m.open() == count + 1);
            stream
        })
        .collect();
    site.connect().echo(b"goes on").unwrap();
    assert!(is_reset(&silent[0]), "the oldest suffers");
    site.wait_until_ended("limit_handshakes", 1);
    silent[1].set_nonblocking(true).unwrap();
    let second = (&silent[1]).read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(second, Err(ErrorKind::WouldBlock), "the second oldest does not");
}

#[test]
fn silence_has_an_end_before_and_after_the_handshake() {
    let site = Site::limited("handshake_timeout = \"1s\"\nidle_timeout = \"1s\"");
    assert!(is_reset(&site.silent()));
    site.wait_until_ended("handshake_timeout", 1);
    let mut hello = site.silent();
    hello.write_all(&[22, 3, 1, 2, 0]).unwrap();
    assert!(is_reset(&hello), "the first bytes of a hello buy no time");
    site.wait_until_ended("handshake_timeout", 2);
    let mut idle = site.connect();
    idle.echo(b"a word").unwrap();
    assert!(idle.read_rest().is_err(), "an idle timeout is no clean end");
    site.wait_until_ended("idle", 1);
}

/// One byte a second of a record that never ends kept a connection, and its backend's, for good.
#[test]
fn bytes_that_complete_no_record_are_silence() {
    let site = Site::limited("idle_timeout = \"2s\"");
    let mut dribbling = site.connect();
    dribbling.echo(b"a word").unwrap();
    let mut socket = dribbling.stream.try_clone().unwrap();
    socket.write_all(&[23, 3, 3, 0x40, 0]).unwrap();
    let mut busy = site.connect();
    // By its end the other one has been reset, whatever it sent meanwhile.
    wait_for("the end of the one that dribbles", || {
        let _ = socket.write_all(&[0]);
        busy.echo(b"still here").unwrap();
        (site.sealane.metrics().ended("idle") == 1).then_some(())
    });
    assert!(dribbling.read_rest().is_err(), "an idle timeout is no clean end");
    busy.echo(b"and still").unwrap();
}

#[test]
fn at_its_greatest_age_a_connection_is_told_the_end() {
    let site = Site::limited("connection_age = \"1s\"");
    for (before, connector) in site.connectors.iter().enumerate() {
        let mut client = connector.connect(site.address).unwrap();
        while client.echo(b"busy").is_ok() {}
        // What reads now is close_notify, or the end behind it: no reset, and nothing that is cut.
        assert_eq!(client.read_rest().unwrap(), b"");
        drop(client);
        site.wait_until_ended("limit_age", before as u64 + 1);
    }
    assert_eq!(site.sealane.metrics().ended("idle"), 0);
}

/// Each growth of a table that threads share stops the lane that needs it for some milliseconds;
/// neither a lane's own nor the first one grows.
#[test]
fn no_table_of_open_files_grows_while_connections_arrive() {
    const CONNECTIONS: usize = 4_000;
    if harness::raise_descriptor_limit() < 4 * CONNECTIONS as u64 {
        println!("SKIPPED: this process may not have the descriptors");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let backend = Backend::echo_for_many();
    let listener = ListenerSettings::new("site", &certificate, &backend.address);
    let address = listener.address;
    let sealane = Sealane::start(folder.path(), &Settings::new(vec![listener]));
    let threads = [vec![sealane.process.id()], sealane.process.threads("lane-")].concat();
    let tables = || {
        let size_of = |thread: &u32| {
            let path = format!("/proc/{}/task/{thread}/status", sealane.process.id());
            let status = std::fs::read_to_string(path).unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
            size.trim().parse::<usize>().unwrap()
        };
        threads.iter().map(size_of).collect::<Vec<_>>()
    };
    let before = tables();
    let connector = Connector::with_x25519(authority.der(), &TLS13);
    let mut growths = 0;
    let mut last = before.clone();
    let clients: Vec<Client> = (0..CONNECTIONS)
        .map(|_| {
            let client = connector.connect(address).unwrap();
            let sizes = tables();
            growths += usize::from(sizes != last);
            last = sizes;
            client
        })
        .collect();
    let open = sealane.wait_for_metrics("all are open", |m| m.open() == CONNECTIONS as u64);
    println!("{} open, tables of {before:?}, {growths} growths", open.open());
    assert!(sealane.process.descriptors() > CONNECTIONS, "they cost descriptors");
    assert_eq!((growths, tables()), (0, before));
    drop(clients);
}

#[test]
fn plain_http_gets_an_answer_that_says_so() {
    let site = Site::limited("");
    let mut plain = site.silent();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(answer.contains("https://"), "{answer}");
    drop(plain);
    site.wait_until_ended("plain_http", 1);
    let mut other = site.silent();
    other.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 10], "the alert unexpected_message, and a clean end");
    drop(other);
    site.wait_until_ended("not_tls", 1);
}

#[test]
fn unknown_names_are_refused_with_the_right_alert() {
    let site = Site::start(|settings, _| {
        settings.listeners[0].more = "unknown_names = \"refuse\"".into();
    });
    for connector in &site.connectors {
        connector.connect(site.address).unwrap().echo(b"known").unwrap();
        let error = connector.clone().with_name("nobody.example").connect(site.address);
        let error = error.err().expect("an unknown name was served").to_string();
        assert!(error.contains("UnrecognisedName"), "{error}");
    }
    site.wait_until_ended("unknown_name", 2);
}

#[test]
fn a_backend_that_refuses_is_passed_over_and_one_that_is_alone_cuts() {
    let nobody = ReservedPort::on_loopback().unwrap();
    let closed = nobody.address().to_string();
    let site = Site::start(|settings, _| {
        settings.listeners[0].backends.insert(0, closed.clone());
    });
    for _ in 0..10 {
        site.connect().echo(b"somebody answers").unwrap();
    }
    assert_eq!(site.sealane.metrics().ended("backend_refused"), 0);

    let site = Site::start(|settings, _| settings.listeners[0].backends = vec![closed.clone()]);
    let error = site.connect().read_rest().expect_err("no backend looks like an empty answer");
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof));
    site.wait_until_ended("backend_refused", 1);
}

#[test]
fn ipv6_in_front_and_a_unix_socket_behind() {
    let site = Site::start(|settings, folder| {
        let path = folder.path().join("backend.sock");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                stream.write_all(&bytes).unwrap();
            }
        });
        settings.listeners[0].move_to(Ipv6Addr::LOCALHOST.into());
        settings.listeners[0].backends = vec![format!("unix:{}", path.display())];
    });
    for connector in &site.connectors {
        let mut client = connector.connect(site.address).unwrap();
        let bytes = harness::noise(3_000_000, 9);
        client.write_all(&bytes).unwrap();
        client.end(true).unwrap();
        assert_eq!(harness::sha256(&client.read_rest().unwrap()), harness::sha256(&bytes));
    }
    site.wait_until_ended("clean", 2);
}

#[test]
fn open_files_are_limited_by_what_the_system_allows_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let backend = Backend::echo();
    let settings =
        Settings::new(vec![ListenerSettings::new("site", &certificate, &backend.address)]);
    // As a service manager or a shell starts it.
    let wrapper = folder.path().join("start");
    let script = format!("#!/bin/sh\nulimit -Sn 200\nexec {BINARY} \"$@\"\n");
    write_program(&wrapper, &script);
    let mut sealane = Sealane::launch(folder.path(), &settings, &wrapper);
    sealane.wait_until_said("serve: ready");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", sealane.process.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [.., soft, hard, _] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    assert_eq!(soft, hard, "{line}");
    assert_eq!(sealane.stop(), Some(0));
}

/// Devices with small buffers ask for small records, in either of two extensions.
#[test]
fn records_keep_to_the_limit_of_a_client() {
    let Some(openssl) = required("openssl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let leaf = folder.path().join("a.pem");
    std::fs::write(&leaf, Authority::new().leaf(KeyKind::Rsa2048, &NAMES)).unwrap();
    let backend = Backend::start(|mut stream| {
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(&[b'x'; 50_000]).unwrap();
    });
    let listener = ListenerSettings::new("web", &leaf, &backend.address);
    let address = listener.address;
    let sealane = Sealane::start(folder.path(), &Settings::new(vec![listener]));
    for version in ["-tls1_2", "-tls1_3"] {
        for (limit, overhead) in [("512", 32), ("1024", 32)] {
            let mut command = Command::new(&openssl);
            command.args(["s_client", version, "-servername", NAMES[0], "-maxfraglen", limit]);
            command.args(["-msg", "-ign_eof", "-connect"]).arg(address.to_string());
            let shown = run_with_input(&mut command, b"GET\n").stdout;
            let shown = String::from_utf8_lossy(&shown);
            let mut lines = shown.lines();
            let mut received = Vec::new();
            while let Some(line) = lines.next() {
                // The data before it ends without a line break.
                if line.contains("<<<") && line.contains("RecordHeader") {
                    let header: Vec<_> = lines.next().unwrap().split_whitespace().collect();
                    let [high, low] = [header[3], header[4]];
                    received.push(usize::from_str_radix(&format!("{high}{low}"), 16).unwrap());
                }
            }
            let bytes_max = limit.parse::<usize>().unwrap() + overhead;
            assert!(received.iter().sum::<usize>() > 50_000, "{version}: {received:?}");
            assert!(received.iter().all(|len| *len <= bytes_max), "{version}: {received:?}");
        }
    }
    assert_eq!(sealane.stop(), Some(0));
}
