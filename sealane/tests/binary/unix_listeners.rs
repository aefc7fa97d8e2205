//! Listeners on unix sockets: for programs of the same machine, with permissions instead of
//! addresses; and what is counted of each listener.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::peers::haproxy;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::tools::{self, required};
use crate::harness::{PATIENCE, wait_for};

/// Sealane with a listener on a unix socket and one on TCP, in front of an echo.
struct Rig {
    connector: Connector,
    folder: tempfile::TempDir,
    path: PathBuf,
    sealane: Sealane,
    settings: Settings,
}

impl Rig {
    /// With `lanes`, and these lines for the listener on the unix socket.
    fn start(lanes: usize, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let backend = Backend::echo().address;
        let listener = |name: &str| ListenerSettings::new(name, &certificate, &backend);
        let path = folder.path().join("tls.sock");
        let mut local = listener("local").with(more);
        local.socket = Some(path.clone());
        let mut settings = Settings::new(vec![local, listener("web")]);
        settings.lanes = lanes;
        settings.more = format!("[access_log]\npath = {:?}", folder.path().join("access.log"));
        let sealane = Sealane::start(folder.path(), &settings);
        let connector = Connector::new(authority.der(), &TLS13);
        Self { connector, folder, path, sealane, settings }
    }

    fn connect(&self) -> Client {
        self.connector.over(stream_to(&self.path), b"").unwrap()
    }

    /// The line of the log's first connection to a listener of this name.
    fn line_of(&self, listener: &str) -> Value {
        wait_for("a line of the log", || {
            let text = fs::read_to_string(self.folder.path().join("access.log")).ok()?;
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.into_iter().find(|line| line["listener"] == listener)
        })
    }

    /// What all lanes count of a listener.
    fn counted(&self, name: &str, listener: &str, label: Option<(&str, &str)>) -> u64 {
        let labels: Vec<_> = [("listener", listener)].into_iter().chain(label).collect();
        self.sealane.metrics().sum(&format!("sealane_listener_{name}"), &labels)
    }

    fn mode(&self) -> u32 {
        fs::metadata(&self.path).unwrap().permissions().mode() & 0o777
    }

    fn reload(&mut self, times: usize) {
        self.settings.write(self.folder.path());
        self.sealane.wait_until_reloaded(times);
    }
}

/// A stream socket is read and written as one of TCP is.
pub(crate) fn stream_to(path: &Path) -> TcpStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    TcpStream::from(OwnedFd::from(stream))
}

/// Nothing tells a reset from an end there, where nothing was sent.
fn is_ended(mut stream: TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn clients_come_by_a_unix_socket_and_have_no_address() {
    let rig = Rig::start(2, "");
    assert_eq!(rig.mode(), 0o660, "whatever the process's mask takes off");
    let mut client = rig.connect();
    client.echo(b"hello").unwrap();
    client.end(true).unwrap();
    client.read_rest().unwrap();
    let line = rig.line_of("local");
    assert_eq!((&line["client"], &line["cause"]), (&Value::Null, &"clean".into()));
    let path = rig.path.clone();
    assert_eq!(rig.sealane.stop(), Some(0));
    assert!(!path.exists(), "it goes with the process");
}

#[test]
fn a_reload_keeps_the_socket_changes_who_may_open_it_and_takes_it_away() {
    let mut rig = Rig::start(2, "");
    let mut client = rig.connect();
    client.echo(b"before").unwrap();
    rig.settings.listeners[0].more = "socket_mode = \"0600\"".into();
    rig.reload(1);
    assert_eq!(rig.mode(), 0o600);
    client.echo(b"after").unwrap();
    rig.connect().echo(b"another").unwrap();

    let local = rig.settings.listeners.remove(0);
    rig.reload(2);
    assert!(!rig.path.exists());
    client.echo(b"goes on").unwrap();
    rig.settings.listeners.push(local);
    rig.reload(3);
    rig.connect().echo(b"again").unwrap();

    // Who takes the file away gets it back by a reload, and nobody is lost.
    fs::remove_file(&rig.path).unwrap();
    rig.sealane.signal(Signal::HUP);
    rig.sealane.wait_until_reloaded(4);
    rig.connect().echo(b"and again").unwrap();
    client.echo(b"still").unwrap();
    drop(client);
    assert_eq!(rig.sealane.stop(), Some(0));
}

#[test]
fn a_stale_socket_makes_way_and_a_living_one_is_left() {
    let mut rig = Rig::start(1, "");
    // Somebody else's, who has no room for a caller any more.
    let other = rig.folder.path().join("other.sock");
    let theirs = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let address = SockAddr::unix(&other).unwrap();
    theirs.bind(&address).unwrap();
    theirs.listen(0).unwrap();
    let callers: Vec<_> = std::iter::from_fn(|| {
        let caller = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        caller.set_nonblocking(true).unwrap();
        caller.connect(&address).is_ok().then_some(caller)
    })
    .collect();
    assert!(!callers.is_empty());
    rig.settings.listeners[0].socket = Some(other.clone());
    rig.settings.write(rig.folder.path());
    rig.sealane.wait_until_said("cannot listen on unix:");
    assert!(rig.sealane.count_said("another process listens there") > 0);
    assert!(rig.path.exists() && other.exists(), "nothing has changed");
    rig.connect().echo(b"still").unwrap();
    drop(theirs);

    rig.settings.listeners[0].socket = Some(rig.path.clone());
    rig.settings.write(rig.folder.path());
    let Rig { mut sealane, folder, path, settings, connector } = rig;
    sealane.signal(Signal::KILL);
    sealane.process.wait(PATIENCE);
    assert!(path.exists(), "nobody could take it away");
    let sealane = Sealane::start(folder.path(), &settings);
    connector.over(stream_to(&path), b"").unwrap().echo(b"anew").unwrap();
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn haproxy_announces_clients_by_a_unix_socket() {
    let Some(program) = required("haproxy") else { return };
    let more = "accept_proxy = \"required\"\nproxy_from = [\"unix\"]\nallow = [\"127.0.0.0/8\"]";
    let mut rig = Rig::start(2, more);
    let port = ReservedPort::on_loopback().unwrap();
    // Who is denied before HAProxy has sent all that it announces is not announced once more.
    let text = format!(
        "global\nmaxconn 100\ndefaults\nmode tcp\nretries 0\ntimeout connect 9s\n\
         timeout client 9s\n\
         timeout server 9s\nlisten a\nbind {}\nserver s unix@{} send-proxy-v2\n",
        port.address(),
        rig.path.display()
    );
    let config = rig.folder.path().join("haproxy.cfg");
    let _haproxy = haproxy(&program, &config, &text, &[&port]);
    let mut client = rig.connector.connect(port.address()).unwrap();
    client.echo(b"hello").unwrap();
    let address = client.stream.local_addr().unwrap().to_string();
    drop(client);
    wait_for("its line", || {
        let text = fs::read_to_string(rig.folder.path().join("access.log")).ok()?;
        let has = text.lines().any(|line| line.contains(&format!("\"client\":\"{address}\"")));
        has.then_some(())
    });
    // What it announces counts: nobody of that network may come now, and all is counted once.
    let mut stays = rig.connector.connect(port.address()).unwrap();
    rig.settings.listeners[0].more = more.replace("allow", "deny");
    rig.reload(1);
    assert!(rig.connector.connect(port.address()).is_err());
    stays.echo(b"it came before").unwrap();
    drop(stays);
    rig.sealane.wait_for_metrics("all have left", |metrics| {
        let of =
            |name: &str| metrics.sum(&format!("sealane_listener_{name}"), &[("listener", "local")]);
        let came = of("connections_accepted_total");
        metrics.ended("denied") == 1
            && of("connections") == 0
            && came >= 3
            && of("connections_ended_total") == came
    });
    assert_eq!(rig.sealane.stop(), Some(0));
}

#[test]
fn clients_without_an_address_are_counted_too() {
    let rig = Rig::start(1, "connections = 2");
    let mut first = rig.connect();
    let second = rig.connect();
    assert!(is_ended(stream_to(&rig.path)), "there is room for two");
    rig.sealane
        .wait_for_metrics("it is counted", |all| all.ended("limit_listener_connections") == 1);
    drop(second);
    rig.sealane.wait_for_metrics("one has left", |metrics| {
        metrics.sum("sealane_listener_connections", &[("listener", "local")]) == 1
    });
    rig.connect().echo(b"room").unwrap();
    first.echo(b"on").unwrap();
    drop(first);
    assert_eq!(rig.sealane.stop(), Some(0));
}

/// A balancer that does not know its client's address says so.
#[test]
fn clients_that_are_announced_without_an_address_are_counted_too() {
    let rig = Rig::start(1, "accept_proxy = \"required\"\nproxy_from = [\"unix\"]");
    for header in [&b"PROXY UNKNOWN\r\n"[..], b"PROXY TCP4 192.0.2.7 192.0.2.8 4000 443\r\n"] {
        let mut socket = stream_to(&rig.path);
        socket.write_all(header).unwrap();
        let mut client = rig.connector.over(socket, b"").unwrap();
        client.echo(b"hello").unwrap();
        assert_eq!(rig.counted("connections", "local", None), 1);
        drop(client);
        rig.sealane.wait_for_metrics("it has left", |metrics| {
            metrics.sum("sealane_listener_connections", &[("listener", "local")]) == 0
        });
    }
    assert_eq!(rig.sealane.stop(), Some(0));
}

#[test]
fn what_came_to_each_listener_is_counted() {
    let rig = Rig::start(2, "");
    let mut client = rig.connect();
    client.echo(b"12345").unwrap();
    client.end(true).unwrap();
    client.read_rest().unwrap();
    let web = rig.settings.listeners[1].address;
    let connector = rig.connector.clone().with_own_tickets();
    for _ in 0..2 {
        let mut client = connector.connect(web).unwrap();
        client.echo(b"123").unwrap();
        client.end(true).unwrap();
        client.read_rest().unwrap();
    }
    // It leaves before it has said anything.
    drop(TcpStream::connect(web).unwrap());
    rig.sealane.wait_for_metrics("all have ended", |metrics| {
        let ended = |listener| {
            metrics.sum("sealane_listener_connections_ended_total", &[("listener", listener)])
        };
        (ended("local"), ended("web")) == (1, 3)
    });
    assert_eq!(rig.counted("connections_accepted_total", "local", None), 1);
    assert_eq!(rig.counted("connections_accepted_total", "web", None), 3);
    assert_eq!(rig.counted("connections", "web", None), 0);
    let resumed = |of| rig.counted("handshakes_total", "web", Some(("resumed", of)));
    assert_eq!((resumed("false"), resumed("true")), (1, 1), "its clients share their tickets");
    assert_eq!(rig.counted("handshakes_total", "local", None), 1);
    let ended = |blame| rig.counted("connections_ended_total", "web", Some(("blame", blame)));
    assert_eq!((ended("client"), ended("nobody")), (1, 2));
    for direction in ["received", "sent"] {
        let bytes = |of| rig.counted("plaintext_bytes_total", of, Some(("direction", direction)));
        assert_eq!((bytes("local"), bytes("web")), (5, 6));
    }
    assert_eq!(rig.sealane.stop(), Some(0));
}

#[test]
fn openssl_and_the_flags_know_unix_sockets() {
    let Some(openssl) = required("openssl") else { return };
    let rig = Rig::start(1, "");
    let path = rig.folder.path().join("flags.sock");
    let child = std::process::Command::new(BINARY)
        .args(["serve", "--lanes", "1", "--listen", &format!("unix:{}", path.display())])
        .args(["--backend", &format!("tls://{}", rig.settings.listeners[1].address)])
        .arg("--certificates")
        .arg(rig.folder.path().join("site.pem"))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut flags = crate::harness::process::Process::new(child);
    wait_for("the socket", || path.exists().then_some(()));
    for socket in [&path, &rig.path] {
        let mut command = std::process::Command::new(&openssl);
        command.args(["s_client", "-servername", NAMES[0], "-unix"]).arg(socket);
        let said = tools::output_with_input(&mut command, b"");
        assert!(said.contains("-----BEGIN CERTIFICATE-----"), "{said}");
    }
    flags.signal(Signal::TERM);
    assert_eq!(flags.wait(PATIENCE).code(), Some(0));
    assert!(!path.exists());
    assert_eq!(rig.sealane.stop(), Some(0));
}
