//! Backends by name, while names lead somewhere and while they do not.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::process::Process;
use crate::harness::sealane::{BINARY, ListenerSettings, Metrics, Sealane, Settings};
use crate::harness::{tools, wait_for};

const NAME: &str = "backend.sealane.test";

/// A process for which `file` stands in `place`; none if this user may not mount.
fn start(folder: &Path, settings: &Settings, file: &Path, place: &str) -> Option<Sealane> {
    const MOUNTED: &str = "mount --bind \"$1\" \"$2\" || exit 77; shift 2; exec \"$@\"";
    let in_place = |command: &mut Command| {
        command.args(["--mount", "sh", "-c", MOUNTED, "sh"]).arg(file).arg(place);
        command.stdin(Stdio::null());
    };
    let mut probe = Command::new("unshare");
    in_place(&mut probe);
    if !probe.arg("true").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: this user may not mount a file");
        return None;
    }
    let mut command = Command::new("unshare");
    in_place(&mut command);
    command.arg(BINARY);
    let mut sealane = Sealane::launch_by(folder, settings, command);
    sealane.wait_until_said("serve: ready");
    Some(sealane)
}

#[test]
fn a_name_that_leads_nowhere_at_the_start_is_served_once_it_leads_somewhere() {
    let backend = Backend::echo_for_many();
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let hosts: PathBuf = folder.path().join("hosts");
    std::fs::write(&hosts, "").unwrap();
    let named = format!("{NAME}:{}", backend.address.port());
    let listener = ListenerSettings::new("site", &certificate, &named);
    let address = listener.address;
    let mut settings = Settings::new(vec![listener]);
    settings.more = "watch = false".into();
    let started = start(folder.path(), &settings, &hosts, "/etc/hosts");
    let Some(mut sealane) = started else { return };
    assert_eq!(sealane.count_said(&format!("{named} does not resolve yet: ")), 1);
    let connector = Connector::new(authority.der(), &TLS13);
    let is_served = || {
        let client = connector.connect(address);
        client.is_ok_and(|mut client| client.echo(b"a word").is_ok())
    };
    assert!(!is_served());
    sealane.wait_for_metrics("it is told why", |metrics| metrics.ended("backend_unresolved") == 1);

    // In place, for it is this file that is mounted. What has changed elsewhere is not looked at.
    let good = std::fs::read(&certificate).unwrap();
    std::fs::write(&certificate, "none").unwrap();
    std::fs::write(&hosts, format!("127.0.0.1 {NAME}\n")).unwrap();
    sealane.wait_until_said(&format!("backends {NAME} are at 127.0.0.1"));
    sealane.wait_until_said("backends have moved: generation 2");
    wait_for("it is served", || is_served().then_some(()));
    std::fs::write(&certificate, good).unwrap();

    // A reload while names lead nowhere keeps what was known, but takes nothing that is new.
    std::fs::write(&hosts, "").unwrap();
    sealane.signal(Signal::HUP);
    sealane.wait_until_reloaded(1);
    assert_eq!(sealane.count_said(&format!("{named} does not resolve any more: ")), 1);
    assert!(is_served());
    settings.listeners[0].backends.push("new.sealane.test:1".into());
    settings.write(folder.path());
    sealane.signal(Signal::HUP);
    sealane.wait_until_said("backend new.sealane.test:1 cannot be looked up: ");
    assert!(is_served());
    assert_eq!(sealane.stop(), Some(0));
}

/// Name servers that this process has started.
static STARTED: AtomicU8 = AtomicU8::new(0);

/// A real name server, on an address of its own.
struct NameServer {
    folder: TempDir,
    process: Process,
}

impl NameServer {
    /// One that knows nobody; none if the machine has no such program, or this user may not listen.
    fn start() -> Option<Self> {
        let program = tools::required("dnsmasq")?;
        let folder = tempfile::tempdir().unwrap();
        // No other test of this machine has it.
        let [.., high, low] = std::process::id().to_be_bytes();
        let nets_before = STARTED.fetch_add(1, Ordering::Relaxed);
        let address = format!("127.{}.{high}.{low}", 83 + nets_before);
        let mut command = Command::new(program);
        command.args(["--keep-in-foreground", "--no-resolv", "--no-hosts", "--bind-interfaces"]);
        command.args(["--user=root", "--pid-file=", "--conf-file=/dev/null", "--log-facility=-"]);
        command.args(["--local=/sealane.test/", "--local-ttl=0"]);
        command.arg(format!("--listen-address={address}"));
        command.arg(format!("--addn-hosts={}", folder.path().join("hosts").display()));
        std::fs::write(folder.path().join("hosts"), "").unwrap();
        let resolver = format!("nameserver {address}\noptions timeout:1 attempts:1\n");
        std::fs::write(folder.path().join("resolv.conf"), resolver).unwrap();
        let mut process = Process::new(command.stdin(Stdio::null()).spawn().unwrap());
        let is_there = || {
            // What this leaves on the way is no answer: a port that nobody has refuses it.
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect((address.as_str(), 53)).unwrap();
            socket.send(&[0]).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let refused = socket.recv(&mut [0; 64]);
            refused.is_err_and(|error| error.kind() != ErrorKind::ConnectionRefused)
        };
        let is_up = wait_for("the name server listens", || match process.status() {
            Some(_) => Some(false),
            None => is_there().then_some(true),
        });
        if !is_up {
            println!("SKIPPED: this user may not listen on port 53");
        }
        is_up.then_some(Self { folder, process })
    }

    /// From now on `NAME` leads to these.
    fn lead_to(&self, addresses: &[IpAddr]) {
        let lines: String = addresses.iter().map(|at| format!("{at} {NAME}\n")).collect();
        std::fs::write(self.folder.path().join("hosts"), lines).unwrap();
        self.process.signal(Signal::HUP);
    }
}

/// A port that nobody else gets at any address, and its number.
fn reserved_port() -> (ReservedPort, u16) {
    let reserved = ReservedPort::on(Ipv4Addr::UNSPECIFIED.into()).unwrap();
    let port = reserved.address().port();
    (reserved, port)
}

/// A backend at 127.0.0.`last` that answers whatever it hears with that figure.
fn start_backend(last: u8, port: u16) -> IpAddr {
    let address = IpAddr::from([127, 0, 0, last]);
    Backend::start_at(SocketAddr::new(address, port), move |mut stream| {
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() {
            stream.write_all(&[b'0' + last]).unwrap();
        }
    });
    address
}

/// A site whose backends are where `NAME` leads.
struct Followed {
    sealane: Sealane,
    connector: Connector,
    address: SocketAddr,
    _folder: TempDir,
}

impl Followed {
    /// With such lines for its listener; none if this user may not mount.
    fn start(names: &NameServer, port: u16, lines: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let listener = ListenerSettings::new("site", &certificate, &format!("{NAME}:{port}"));
        let listener = listener.with(&format!("resolve = \"1s\"\n{lines}"));
        let address = listener.address;
        let resolver = names.folder.path().join("resolv.conf");
        let settings = Settings::new(vec![listener]);
        let sealane = start(folder.path(), &settings, &resolver, "/etc/resolv.conf")?;
        let connector = Connector::new(authority.der(), &TLS13);
        Some(Self { sealane, connector, address, _folder: folder })
    }

    fn connect(&self) -> Client {
        self.connector.connect(self.address).unwrap()
    }

    /// Who answers 16 clients: on each lane backends take turns.
    fn answers(&self) -> String {
        let answers: BTreeSet<_> = (0..16).map(|_| ask(&mut self.connect())).collect();
        answers.into_iter().collect()
    }
}

fn ask(client: &mut Client) -> char {
    let mut word = [0];
    client.write_all(b"?").unwrap();
    client.read_exact(&mut word).unwrap();
    char::from(word[0])
}

#[test]
fn every_address_of_a_name_is_a_backend_and_names_are_followed() {
    let Some(names) = NameServer::start() else { return };
    let (_reserved, port) = reserved_port();
    let all = [2, 3, 4, 5].map(|last| start_backend(last, port));
    let addresses = &all[..3];
    names.lead_to(&addresses[..2]);
    let Some(mut site) = Followed::start(&names, port, "") else { return };
    site.sealane.wait_for_metrics("the name has led somewhere", |metrics| {
        metrics.sum("sealane_backend_name_addresses", &[("name", NAME)]) == 2
    });
    assert_eq!(site.answers(), "23");
    let mut stays = site.connect();
    let before = ask(&mut stays);

    names.lead_to(&addresses[2..]);
    site.sealane.wait_until_said(&format!("backends {NAME} are at 127.0.0.4"));
    site.sealane.wait_until_lanes_serve();
    assert_eq!(site.answers(), "4");
    assert_eq!(ask(&mut stays), before, "who is there stays");

    // Whatever befalls the name server, what was known is served.
    names.lead_to(&[]);
    site.sealane.wait_until_said(&format!("backends {NAME} does not resolve any more: "));
    names.process.signal(Signal::STOP);
    let failures = |metrics: &Metrics| metrics.sum("sealane_backend_name_failures_total", &[]);
    let so_far = failures(&site.sealane.metrics());
    site.sealane.wait_for_metrics("more look-ups fail", |m| failures(m) > so_far + 1);
    assert_eq!(site.answers(), "4");
    names.process.signal(Signal::CONT);
    names.lead_to(&addresses[2..]);
    site.sealane.wait_until_said(&format!("backends {NAME} resolves again"));
    names.lead_to(addresses);
    site.sealane
        .wait_until_said(&format!("backends {NAME} are at 127.0.0.2, 127.0.0.3, 127.0.0.4"));
    site.sealane.wait_until_lanes_serve();
    assert_eq!(site.answers(), "234");
    assert_eq!(site.sealane.count_said("does not resolve any more"), 1, "it is told once");
    assert_eq!(ask(&mut stays), before);

    // Who drains a name drains wherever it leads, until it is put back.
    let named = format!("{NAME}:{port}");
    tools::output(&mut site.sealane.command(&["backends", "drain", &named]));
    names.lead_to(&all[3..]);
    site.sealane.wait_until_said(&format!("backends {NAME} are at 127.0.0.5"));
    site.sealane.wait_until_lanes_serve();
    let mut refused = site.connect();
    let asked = refused.write_all(b"?").and_then(|()| refused.read(&mut [0]));
    assert!(!matches!(asked, Ok(1)), "a new address of a drained name gets nobody");
    site.sealane
        .wait_for_metrics("it is told why", |metrics| metrics.ended("backend_refused") == 1);
    tools::output(&mut site.sealane.command(&["backends", "restore", &named]));
    assert_eq!(site.answers(), "5");
    drop(stays);
    assert_eq!(site.sealane.stop(), Some(0));
}

/// What a lane remembers of backends begins anew where their name leads now.
#[test]
fn who_is_coming_back_goes_on_with_it_where_the_name_leads_elsewhere() {
    let Some(names) = NameServer::start() else { return };
    let (_reserved, port) = reserved_port();
    let [third, fourth] = [3, 4].map(|last| start_backend(last, port));
    let second = IpAddr::from([127, 0, 0, 2]);
    names.lead_to(&[second, third]);
    let check = "[listener.check]\nevery = \"100ms\"\nrise = 1\nfall = 1\nslow_start = \"1h\"";
    let Some(mut site) = Followed::start(&names, port, check) else { return };
    let line = |what: &str| format!("backend {NAME}:{port} at {second}:{port} is {what}");
    site.sealane.wait_until_said(&line("down"));
    start_backend(2, port);
    site.sealane.wait_until_said(&line("up"));
    assert_eq!(site.answers(), "3", "it has hardly a share yet");
    names.lead_to(&[second, third, fourth]);
    site.sealane.wait_until_said(&format!("backends {NAME} are at {second}, {third}, {fourth}"));
    site.sealane.wait_until_lanes_serve();
    assert_eq!(site.answers(), "34", "nor has it a full one now");
    assert_eq!(site.sealane.stop(), Some(0));
}
