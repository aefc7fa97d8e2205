//! PROXY headers that Sealane reads: from programs that send them, at every split, and from those
//! who may not.

mod senders;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use rustls::version::TLS13;
use sealane_traffic::proxy_header::decode;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::{PATIENCE, wait_for};

const BELIEVES_LOOPBACK: &str = "accept_proxy = \"required\"\nproxy_from = [\"127.0.0.0/8\"]";
/// What a client is announced as: one of a network for documentation.
const ANNOUNCED: &str = "192.0.2.7:4000";
/// The name that a [`Connector`] asks for.
const NAME: &str = "sealane.test";
const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.9 4000 443\r\n";

/// Sealane with one listener that takes PROXY headers, in front of an echo.
struct Rig {
    address: SocketAddr,
    authority: Authority,
    folder: tempfile::TempDir,
    sealane: Sealane,
}

impl Rig {
    fn start(listener: &str) -> Self {
        Self::start_with(listener, "", "")
    }

    fn start_with(listener: &str, access_log: &str, limits: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let settings =
            ListenerSettings::new("web", &certificate, &Backend::echo().address).with(listener);
        let address = settings.address;
        let log = folder.path().join("access.log");
        let mut settings = Settings::new(vec![settings]);
        settings.more = format!("[access_log]\npath = {log:?}\n{access_log}");
        settings.limits = limits.to_owned();
        let sealane = Sealane::start(folder.path(), &settings);
        Self { address, authority, folder, sealane }
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }

    /// The log's lines, once there are `count`.
    fn lines(&self, count: usize) -> Vec<Value> {
        logged(self.folder.path(), count)
    }

    fn await_end(&self, cause: &str, count: u64) {
        self.sealane.wait_for_metrics(cause, |metrics| metrics.ended(cause) == count);
    }
}

/// The lines of the log in a folder, once there are `count`.
fn logged(folder: &Path, count: usize) -> Vec<Value> {
    let path = folder.join("access.log");
    wait_for("the log's lines", || {
        let text = std::fs::read_to_string(&path).ok()?;
        let lines: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// How the other side ends a connection on which nothing was answered.
fn end_of(mut socket: TcpStream) -> Result<usize, ErrorKind> {
    socket.read(&mut [0; 1]).map_err(|error| error.kind())
}

#[test]
fn a_header_split_at_any_byte_announces_the_client() {
    let rig = Rig::start(BELIEVES_LOOPBACK);
    let connector = Connector::new(rig.authority.der(), &TLS13);
    let version2 = [
        &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x15"[..],
        &[192, 0, 2, 7, 198, 51, 100, 9, 15, 160, 1, 187],
        b"\x02\0\x03b.x",
        b"\x04\0\0",
    ]
    .concat();
    let mut expected = 0;
    for header in [LINE, &version2] {
        for split in 0..=header.len() {
            let mut socket = rig.connect();
            socket.write_all(&header[..split]).unwrap();
            socket.write_all(&header[split..]).unwrap();
            let mut client = connector.over(socket, b"").unwrap();
            client.echo(b"hello").unwrap();
            client.end(true).unwrap();
            expected += 1;
        }
    }
    for line in rig.lines(expected) {
        assert_eq!(line["client"], ANNOUNCED, "{line}");
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert_eq!(line["server_name"], NAME, "{line}");
        assert!(line["authority"].is_null() || line["authority"] == "b.x", "{line}");
    }
    assert_eq!(rig.sealane.stop(), Some(0));
}

#[test]
fn who_may_not_announce_clients_is_reset_and_told_of() {
    let everybody_else = "accept_proxy = \"required\"\nproxy_from = [\"10.0.0.0/8\"]";
    let mut rig = Rig::start(everybody_else);
    assert_eq!(end_of(rig.connect()), Err(ErrorKind::ConnectionReset));
    rig.await_end("proxy_untrusted", 1);
    rig.sealane.wait_until_said("127.0.0.1 is not in proxy_from");
    assert_eq!(rig.sealane.metrics().ended("proxy_missing"), 0);
    assert_eq!(rig.sealane.stop(), Some(0));
}

#[test]
fn what_is_no_header_is_reset_and_shown() {
    let mut rig = Rig::start(BELIEVES_LOOPBACK);
    let connector = Connector::new(rig.authority.der(), &TLS13);
    assert!(connector.connect(rig.address).is_err(), "TLS without a header");
    rig.await_end("proxy_missing", 1);
    rig.sealane.wait_until_said("sent no PROXY header (\"\\x16\\x03\\x01");

    let mut socket = rig.connect();
    socket.write_all(b"PROXY TCP4 192.0.2.7 198.51.100.9 4000 99999\r\n").unwrap();
    assert_eq!(end_of(socket), Err(ErrorKind::ConnectionReset));
    rig.await_end("proxy_malformed", 1);
    let said = rig.sealane.said();
    let told: Vec<_> = said.iter().filter(|line| line.contains("PROXY")).collect();
    assert!(told.len() <= 2, "at most one for each lane: {told:?}");
    assert_eq!(rig.sealane.stop(), Some(0));
}

#[test]
fn a_header_that_does_not_come_ends_the_connection_early() {
    let rig = Rig::start_with(BELIEVES_LOOPBACK, "", "proxy_timeout = \"50ms\"");
    let mut socket = rig.connect();
    socket.write_all(&LINE[..LINE.len() - 1]).unwrap();
    assert_eq!(end_of(socket), Err(ErrorKind::ConnectionReset));
    rig.await_end("preamble_timeout", 1);
    assert_eq!(rig.sealane.metrics().ended("handshake_timeout"), 0);
    assert_eq!(rig.sealane.stop(), Some(0));
}

#[test]
fn a_health_check_is_clean_and_has_a_line_only_if_that_is_wanted() {
    for (setting, lines) in [("", 1), ("health_checks = true", 2)] {
        let rig = Rig::start_with(BELIEVES_LOOPBACK, setting, "");
        let mut socket = rig.connect();
        socket.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        assert_eq!(end_of(socket), Ok(0), "no reset");
        rig.await_end("clean", 1);
        // The next line in the log is a client's.
        let mut socket = rig.connect();
        socket.write_all(b"PROXY UNKNOWN\r\n").unwrap();
        drop(socket);
        let seen = rig.lines(lines);
        let mut causes: Vec<_> = seen.iter().map(|line| line["cause"].as_str().unwrap()).collect();
        // Lines of two lanes may change places.
        causes.sort_unstable();
        assert_eq!(causes, ["clean", "client_gone"][2 - lines..]);
        for line in seen {
            assert_eq!(line["client"], line["peer"], "its own address counts");
        }
        assert_eq!(rig.sealane.stop(), Some(0));
    }
}

/// Every value of a header with addresses and three types, as a backend gets it.
fn told(keys: &str) -> (Option<SocketAddr>, Option<SocketAddr>, Vec<u8>) {
    let (sender, got) = channel();
    let sender = Mutex::new(sender);
    let backend = Backend::start(move |mut stream| {
        let (mut bytes, mut piece) = (Vec::new(), [0; 512]);
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            bytes.extend_from_slice(&piece[..len]);
            if let Some(header) = decode(&bytes).unwrap() {
                let types = header.values().map(|value| value.kind).collect();
                let told = (header.client(), header.local(), types);
                return sender.lock().unwrap().send(told).unwrap();
            }
        }
    });
    let mut rig = Rig::start(BELIEVES_LOOPBACK);
    let path = rig.folder.path().join("sealane.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let from = text.split("backends = [\"").nth(1).unwrap().split('"').next().unwrap();
    let changed = text
        .replace(from, &backend.address.to_string())
        .replace(BELIEVES_LOOPBACK, &format!("{BELIEVES_LOOPBACK}\n{keys}"));
    crate::harness::sealane::replace(&path, &changed);
    rig.sealane.wait_until_reloaded(1);
    let mut socket = rig.connect();
    let header = [
        &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x18"[..],
        &[192, 0, 2, 7, 198, 51, 100, 9, 15, 160, 1, 187],
        b"\xea\0\x01x\x05\0\x01u\xe0\0\x01y",
    ]
    .concat();
    socket.write_all(&header).unwrap();
    let connector = Connector::new(rig.authority.der(), &TLS13);
    let client = connector.over(socket, b"").unwrap();
    let told = got.recv_timeout(PATIENCE).unwrap();
    drop(client);
    assert_eq!(rig.sealane.stop(), Some(0));
    told
}

#[test]
fn what_was_announced_goes_on_to_backends() {
    for (keys, types) in [
        ("proxy_header = \"v1\"", &[][..]),
        ("proxy_header = \"v2\"\nproxy_tlvs = [\"crc32c\"]", &[0x03]),
        (
            "proxy_header = \"v2\"\nproxy_tlvs = [\"unique-id\"]\nproxy_pass_tlvs = [0xEA]",
            &[0xea, 0x05],
        ),
        ("proxy_header = \"pass\"\nproxy_tlvs = [\"alpn\"]", &[0xea, 0x05, 0xe0]),
    ] {
        let (client, local, told) = told(keys);
        assert_eq!(client, ANNOUNCED.parse().ok(), "{keys}");
        assert_eq!(local, "198.51.100.9:443".parse().ok(), "{keys}");
        assert_eq!(told, types, "{keys}");
    }
}

/// What is reloaded counts for the next connection: who is believed, and whether anybody is asked.
#[test]
fn a_reload_changes_who_is_believed() {
    let mut rig = Rig::start(BELIEVES_LOOPBACK);
    let connector = Connector::new(rig.authority.der(), &TLS13);
    let path = rig.folder.path().join("sealane.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    for (round, keys) in
        ["", "accept_proxy = \"required\"\nproxy_from = [\"::1\"]", BELIEVES_LOOPBACK]
            .into_iter()
            .enumerate()
    {
        crate::harness::sealane::replace(&path, &text.replace(BELIEVES_LOOPBACK, keys));
        rig.sealane.wait_until_reloaded(round + 1);
        let mut socket = rig.connect();
        if round > 0 {
            // It may have been reset by then.
            let _ = socket.write_all(LINE);
        }
        let served = connector.over(socket, b"").and_then(|mut client| client.end(true));
        assert_eq!(served.is_ok(), round != 1, "{keys}: {served:?}");
    }
    assert_eq!(rig.sealane.stop(), Some(0));
}

/// Who was let in by its announced address leaves again, though no backend takes it at once.
#[test]
fn a_client_that_cannot_be_served_is_not_counted_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let absent = format!("unix:{}", folder.path().join("absent.sock").display());
    let settings = ListenerSettings::new("web", &certificate, &absent)
        .with(&format!("{BELIEVES_LOOPBACK}\nconnections = 2"));
    let address = settings.address;
    let sealane = Sealane::start(folder.path(), &Settings::new(vec![settings]));
    let connector = Connector::new(authority.der(), &TLS13);
    for count in 1..=6 {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(LINE).unwrap();
        let _ = connector.over(socket, b"");
        sealane.wait_for_metrics("it is refused", |m| m.ended("backend_refused") == count);
    }
    assert_eq!(sealane.metrics().ended("limit_listener_connections"), 0);
    assert_eq!(sealane.stop(), Some(0));
}

/// Whose address nobody tells is not the balancer, and lists are about who is told.
#[test]
fn lists_are_about_who_is_announced() {
    let rig = Rig::start(&format!("{BELIEVES_LOOPBACK}\nallow = [\"192.0.2.0/24\"]"));
    let connector = Connector::new(rig.authority.der(), &TLS13);
    for (header, served) in [
        (LINE, true),
        (b"PROXY UNKNOWN\r\n", true),
        (b"PROXY TCP4 203.0.113.1 198.51.100.9 4000 443\r\n", false),
    ] {
        let mut socket = rig.connect();
        socket.write_all(header).unwrap();
        let echoed = connector.over(socket, b"").and_then(|mut client| client.echo(b"hello"));
        assert_eq!(echoed.is_ok(), served, "{}", header.escape_ascii());
    }
    rig.await_end("denied", 1);
    assert_eq!(rig.sealane.stop(), Some(0));
}
