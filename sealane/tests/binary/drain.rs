//! The end of the process: what is under way finishes, what is idle is told, a second signal ends
//! at once.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
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
use crate::harness::{PATIENCE, noise, sha256, wait_for};

/// What the process says with its exit when it cut connections.
const CUT: Option<i32> = Some(4);

struct Site {
    sealane: Sealane,
    address: SocketAddr,
    connectors: [Connector; 2],
    _folder: TempDir,
}

fn start(backend: &Backend, drain_timeout: &str) -> Site {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let listener = ListenerSettings::new("site", &certificate, &backend.address);
    let address = listener.address;
    let mut settings = Settings::new(vec![listener]);
    settings.limits = format!("drain_timeout = {drain_timeout:?}");
    let sealane = Sealane::start(folder.path(), &settings);
    let connectors = [&TLS12, &TLS13].map(|version| Connector::new(authority.der(), version));
    Site { sealane, address, connectors, _folder: folder }
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
