//! The end of the process: what is under way finishes, what is idle is told, a second signal ends
//! at once.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::systemd::ServiceManager;
use crate::harness::{PATIENCE, noise, sha256, wait_for};

/// What the process says with its exit when it cut connections.
const CUT: Option<i32> = Some(4);

struct Site {
    sealane: Sealane,
    address: SocketAddr,
    connectors: [Connector; 2],
    folder: TempDir,
    settings: Settings,
}

fn start(backend: &Backend, drain_timeout: &str) -> Site {
    start_with(backend, &format!("drain_timeout = {drain_timeout:?}"))
}

fn start_with(backend: &Backend, limits: &str) -> Site {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let listener = ListenerSettings::new("site", &certificate, &backend.address);
    let address = listener.address;
    let mut settings = Settings::new(vec![listener]);
    settings.limits = limits.into();
    let sealane = Sealane::start(folder.path(), &settings);
    let connectors = [&TLS12, &TLS13].map(|version| Connector::new(authority.der(), version));
    Site { sealane, address, connectors, folder, settings }
}

#[test]
fn a_transfer_under_way_is_finished_and_nothing_new_is_accepted() {
    for signal in [Signal::TERM, Signal::INT] {
        let go = Arc::new(Barrier::new(3));
        let told = Arc::clone(&go);
        let backend = Backend::start(move |mut stream| {
            stream.read_exact(&mut [0]).unwrap();
            stream.write_all(&noise(1_000_000, 1)).unwrap();
            told.wait();
            stream.write_all(&noise(5_000_000, 2)).unwrap();
        });
        let mut site = start(&backend, "60s");
        let mut clients = site.connectors.each_ref().map(|c| c.connect(site.address).unwrap());
        for client in &mut clients {
            client.write_all(b"?").unwrap();
            let mut first = vec![0; 1_000_000];
            client.read_exact(&mut first).unwrap();
            assert_eq!(sha256(&first), sha256(&noise(1_000_000, 1)));
        }
        site.sealane.signal(signal);
        site.sealane.wait_until_said("draining");
        wait_for("the listener closes", || {
            let refused = TcpStream::connect(site.address);
            refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused).then_some(())
        });
        go.wait();
        for mut client in clients {
            let rest = client.read_rest().unwrap();
            assert_eq!(sha256(&rest), sha256(&noise(5_000_000, 2)));
            client.end(true).unwrap();
        }
        assert_eq!(site.sealane.process.wait(PATIENCE).code(), Some(0));
    }
}

#[test]
fn at_the_deadline_idle_connections_end_cleanly_and_moving_ones_do_not() {
    let backend = Backend::start(|mut stream| {
        let mut kind = [0];
        while stream.read_exact(&mut kind).is_ok() && kind[0] == b'e' {
            stream.write_all(&kind).unwrap();
        }
        // Anything else is answered without end.
        while kind[0] == b'm' && stream.write_all(&[0; 100]).is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let mut site = start(&backend, "3s");
    let mut idle = site.connectors.each_ref().map(|c| c.connect(site.address).unwrap());
    for client in &mut idle {
        client.echo(b"e").unwrap();
    }
    let mut moving = site.connectors[1].connect(site.address).unwrap();
    moving.write_all(b"m").unwrap();
    let mut silent = TcpStream::connect(site.address).unwrap();
    site.sealane.wait_for_metrics("all four are there", |m| m.open() == 4);
    site.sealane.signal(Signal::TERM);
    assert!(matches!(silent.read(&mut [0]), Ok(0) | Err(_)), "a silent client has nothing to lose");
    let moved = moving.read_rest();
    assert!(moved.is_err(), "an answer that the deadline cut looks whole");
    for mut client in idle {
        assert_eq!(client.read_rest().unwrap(), b"", "an idle client is told the end");
    }
    assert_eq!(site.sealane.process.wait(PATIENCE).code(), CUT);
    site.sealane.wait_until_said("cut");
}

#[test]
fn a_second_signal_ends_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let backend = Backend::echo();
        // Longer than a test waits: it is the signal that ends it.
        let mut site = start(&backend, "10m");
        let mut client = site.connectors[1].connect(site.address).unwrap();
        client.echo(b"here").unwrap();
        site.sealane.signal(signal);
        site.sealane.wait_until_said("draining");
        client.echo(b"and still here").unwrap();
        site.sealane.signal(signal);
        assert_eq!(site.sealane.process.wait(PATIENCE).code(), CUT);
        assert!(client.read_rest().is_err(), "a cut connection looks finished");
    }
}

#[test]
fn without_connections_it_ends_at_once_and_well() {
    let site = start(&Backend::echo(), "10m");
    assert_eq!(site.sealane.stop(), Some(0));
}

/// What /healthz answers with, if it does.
fn health(site: &Site) -> Option<String> {
    let mut stream = UnixStream::connect(site.folder.path().join("admin.sock")).ok()?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split(' ').nth(1)?.to_owned())
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Longer than a test waits: it is a signal that ends the delay.
#[test]
fn balancers_hear_of_the_end_while_clients_are_served() {
    for (health_delay, answer) in [("0s", "503"), ("10m", "200")] {
        let backend = Backend::echo_for_many();
        let delays = format!("drain_delay = \"10m\"\nhealth_delay = {health_delay:?}");
        let mut site = start_with(&backend, &delays);
        let mut stays = site.connectors[1].connect(site.address).unwrap();
        stays.echo(b"before").unwrap();
        assert_eq!(health(&site).as_deref(), Some("200"));
        site.sealane.signal(Signal::TERM);
        site.sealane.wait_until_said("leaving: clients are served for 10m more");
        wait_for("balancers hear of it when they should", || {
            (health(&site).as_deref() == Some(answer)).then_some(())
        });
        for connector in &site.connectors {
            connector.connect(site.address).unwrap().echo(b"meanwhile").unwrap();
        }
        stays.echo(b"still").unwrap();
        assert_eq!(site.sealane.count_said("draining"), 0);
        assert_eq!(health(&site).as_deref(), Some(answer));
        site.sealane.signal(Signal::TERM);
        site.sealane.wait_until_said("draining");
        wait_for("the listener closes", || is_refused(site.address).then_some(()));
        stays.echo(b"and still").unwrap();
        assert_eq!(health(&site).as_deref(), Some("503"));
        site.sealane.signal(Signal::TERM);
        assert_eq!(site.sealane.process.wait(PATIENCE).code(), CUT);
    }
}

#[test]
fn after_its_delay_it_drains_by_itself() {
    // On a slow machine a short delay is over before anybody has looked.
    let is_seen = [1, 5, 25].into_iter().any(|delay_s| {
        let delays = format!("drain_delay = \"{delay_s}s\"\nhealth_delay = \"100ms\"");
        let mut site = start_with(&Backend::echo(), &delays);
        site.sealane.signal(Signal::TERM);
        site.sealane.wait_until_said(&format!("leaving: clients are served for {delay_s}s more"));
        let mut is_told = false;
        while !is_told && site.sealane.count_said("draining") == 0 {
            is_told = health(&site).as_deref() == Some("503");
        }
        let is_first = is_told && site.sealane.count_said("draining") == 0;
        site.sealane.wait_until_said("draining");
        assert_eq!(site.sealane.process.wait(PATIENCE).code(), Some(0));
        is_first
    });
    assert!(is_seen, "balancers never hear of it before it drains");
}

/// The service manager was told how long it takes.
#[test]
fn a_reload_does_not_change_how_long_the_end_takes() {
    let mut site = start_with(&Backend::echo(), "drain_delay = \"10m\"");
    site.sealane.signal(Signal::TERM);
    site.sealane.wait_until_said("leaving: clients are served for 10m more");
    site.settings.limits = "drain_delay = \"0s\"".into();
    site.settings.write(site.folder.path());
    // One that drains has no ear for the second.
    for times in [1, 2] {
        site.sealane.signal(Signal::HUP);
        site.sealane.wait_until_said_times("reload: reloaded", times);
    }
    site.connectors[1].connect(site.address).unwrap().echo(b"still").unwrap();
    site.sealane.signal(Signal::TERM);
    site.sealane.wait_until_said("draining");
    assert_eq!(site.sealane.process.wait(PATIENCE).code(), Some(0));
}

#[test]
fn the_service_manager_waits_as_long_as_the_end_may_take() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, Authority::new().leaf(KeyKind::P256, &NAMES)).unwrap();
    let listener = ListenerSettings::new("site", &certificate, &"127.0.0.1:9");
    let mut settings = Settings::new(vec![listener]);
    settings.limits = "drain_delay = \"20m\"\ndrain_timeout = \"2h\"".into();
    let manager = ServiceManager::new(folder.path());
    let mut sealane = manager.start(folder.path(), &settings);
    sealane.signal(Signal::TERM);
    let wait = |told: String| {
        let wait = told.lines().find_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC="));
        wait.unwrap().parse::<u64>().unwrap() / 1_000_000
    };
    let (delay, timeout) = (20 * 60, 2 * 3_600);
    assert!(wait(manager.read_until("STOPPING=1")) > delay + timeout);
    sealane.signal(Signal::TERM);
    // What is over is not told again.
    assert!((timeout + 1..delay + timeout).contains(&wait(manager.read_until("STOPPING=1"))));
    assert_eq!(sealane.process.wait(PATIENCE).code(), Some(0));
}
