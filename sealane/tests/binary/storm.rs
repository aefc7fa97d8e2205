//! More new clients than a lane can serve: an open loop of clients that leave after a while.
//!
//! The figures: `cargo test -p sealane --test binary storm -- --ignored --nocapture`; `STORM_RATE`,
//! `STORM_SECONDS` and `STORM_LANES` change it.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use rustls::version::TLS13;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::tools::output;

/// The results of the clients of a storm.
#[derive(Debug, Default)]
struct Storm {
    clients: usize,
    /// Clients that could not connect.
    refused: usize,
    /// Clients that got the server's flight before they left.
    answered: usize,
}

/// How long a client of the storm waits.
const STAY: Duration = Duration::from_secs(1);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// Sends hellos at a fixed rate, regardless of the responses.
fn storm(address: SocketAddr, hello: &[u8], rate: u64, lasts: Duration) -> Storm {
    let (mut storm, mut open) = (Storm::default(), VecDeque::new());
    let begun = Instant::now();
    let leave = |storm: &mut Storm, mut stream: TcpStream| {
        stream.set_nonblocking(true).unwrap();
        storm.answered += usize::from(matches!(stream.read(&mut [0; 64]), Ok(1..)));
    };
    while begun.elapsed() < lasts {
        let due = u64::try_from(begun.elapsed().as_millis()).unwrap() * rate / 1_000;
        while (storm.clients as u64) < due {
            storm.clients += 1;
            let wait = Duration::from_millis(20);
            match TcpStream::connect_timeout(&address, wait).and_then(|mut stream| {
                stream.write_all(hello)?;
                Ok(stream)
            }) {
                Ok(stream) => open.push_back((Instant::now(), stream)),
                Err(_) => storm.refused += 1,
            }
            while open.front().is_some_and(|(since, _)| since.elapsed() > STAY) {
                leave(&mut storm, open.pop_front().unwrap().1);
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    open.into_iter().for_each(|(_, stream)| leave(&mut storm, stream));
    storm
}

/// Full handshakes and an exchange each, one after the other.
fn visit(connector: &Connector, address: SocketAddr, goes_on: &AtomicBool) -> Vec<u128> {
    let mut took_ms = Vec::new();
    while goes_on.load(SeqCst) {
        let begun = Instant::now();
        let served = connector.connect(address).and_then(|mut client| client.echo(b"a user"));
        if served.is_ok() && goes_on.load(SeqCst) {
            took_ms.push(begun.elapsed().as_millis());
        }
        thread::sleep(Duration::from_millis(300));
    }
    took_ms.sort_unstable();
    took_ms
}

#[test]
fn clients_that_never_complete_give_way_and_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::Rsa2048, &NAMES)).unwrap();
    let listener = ListenerSettings::new("web", &certificate, &Backend::echo_for_many().address);
    let address = listener.address;
    let mut settings = Settings::new(vec![listener]);
    settings.lanes = 1;
    let mut sealane = Sealane::start(folder.path(), &settings);
    let connector = Connector::with_x25519(authority.der(), &TLS13).without_tickets();
    let hello = connector.hello();
    let greet = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        // The lane may have reset it already.
        let _ = stream.write_all(&hello);
        stream
    };
    let mut silent: Vec<_> = (0..10).map(greet).collect();
    // A client may take half a second to complete its handshake.
    thread::sleep(Duration::from_secs(1));
    silent.extend((0..SILENT_CLIENTS).map(greet));
    sealane.wait_for_metrics("some give way", |metrics| metrics.ended(GAVE_WAY) > 0);
    sealane.wait_until_said("handshakes were reset");
    let status = output(&mut sealane.command(&["status"]));
    let overload = status.lines().find(|line| line.starts_with("overload: "));
    assert!(overload.is_some_and(|line| line.ends_with(" were reset since the start")), "{status}");
    drop(silent);
}

/// Several times as many as a lane can answer in 200 ms.
const SILENT_CLIENTS: usize = 800;
const GAVE_WAY: &str = "limit_handshake_queue";

#[test]
#[ignore = "a measurement of ten seconds that takes both cores"]
fn users_are_served_during_a_storm() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::Rsa2048, &NAMES)).unwrap();
    let listener = ListenerSettings::new("web", &certificate, &Backend::echo_for_many().address);
    let address = listener.address;
    let mut settings = Settings::new(vec![listener]);
    settings.lanes = usize::try_from(setting("STORM_LANES", 2)).unwrap();
    let sealane = Sealane::start(folder.path(), &settings);
    let connector = Connector::with_x25519(authority.der(), &TLS13).without_tickets();
    let (goes_on, hello) = (AtomicBool::new(true), connector.hello());
    let lasts = Duration::from_secs(setting("STORM_SECONDS", 6));
    let (storm, users, stalls_ms) = thread::scope(|scope| {
        let users: Vec<_> =
            (0..3).map(|_| scope.spawn(|| visit(&connector, address, &goes_on))).collect();
        let stream = scope.spawn(|| {
            let mut client = connector.connect(address).unwrap();
            let mut longest = 0;
            while goes_on.load(SeqCst) {
                let begun = Instant::now();
                client.echo(&[7; 1_000]).unwrap();
                longest = longest.max(begun.elapsed().as_millis());
                thread::sleep(Duration::from_millis(10));
            }
            longest
        });
        let storm = storm(address, &hello, setting("STORM_RATE", 1_500), lasts);
        goes_on.store(false, SeqCst);
        let users: Vec<_> = users.into_iter().flat_map(|user| user.join().unwrap()).collect();
        (storm, users, stream.join().unwrap())
    });
    let begun = Instant::now();
    connector.connect(address).unwrap().echo(b"afterwards").unwrap();
    let after_ms = begun.elapsed().as_millis();
    let metrics = sealane.wait_for_metrics("all ends", |metrics| metrics.open() == 0);
    let accepted = metrics.sum("sealane_connections_accepted_total", &[]);
    println!("{storm:?}, {accepted} accepted");
    println!("users served, in ms: {users:?}");
    println!("longest stall of a stream {stalls_ms} ms; first handshake afterwards {after_ms} ms");
    assert!(!users.is_empty(), "no user is served during the storm");
}
