//! What a connection costs, as counts that repeat: system calls, memory, descriptors. Times are
//! printed, never asserted. The figures hold for debug and release builds: both make the same calls
//! and the same allocations.
//!
//! A binary of its own: it holds most of the descriptors that a process may have.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints its figures"
)]

#[path = "binary/harness/mod.rs"]
mod harness;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::process::Process;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::tools::required;
use crate::harness::wait_for;

/// System calls of a lane for one connection at a time: a full TLS 1.3 handshake with X25519 and an
/// ECDSA P-256 key, a request, and an answer from a backend that then ends, on a connection of its
/// own.
const CALLS_PER_CONNECTION_MAX: f64 = 22.0;
/// Memory of an idle established connection after one exchange.
const IDLE_BYTES_MAX: u64 = 1584;
/// The same under TLS 1.2, where rustls has its records; `check` reckons with it for all.
const KEPT_BYTES_MAX: u64 = 3 * 1024;
/// By how much memory may be more with a route, and a client that a PROXY header announced.
const ANNOUNCED_BYTES_MAX: u64 = 128;
/// Memory of 2,000 connections that never say a word.
const SILENT_BYTES_MAX: u64 = 15 << 20;
/// What a table of connections that has grown to 2,000 keeps of that.
const TABLE_BYTES_MAX: u64 = 2 << 20;
/// By how much memory may differ after tens of thousands of connections.
const FLAT_BYTES_MAX: u64 = 1 << 20;
const HANDSHAKE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Memory with 10,000 certificates.
const CERTIFICATES_BYTES_MAX: u64 = 60 << 20;

/// What is asked of a listener whose clients a balancer announces, and who go by a route; its own
/// backend takes no connection.
const ANNOUNCED: &str = "accept_proxy = \"required\"\nproxy_from = [\"127.0.0.0/8\"]\n\
     connections_per_client = 100_000\nhandshakes_per_client = \"100000/s\"";
const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.9 4000 443\r\n";

/// Sealane on one lane, warm.
struct Site {
    sealane: Sealane,
    address: SocketAddr,
    authority: Authority,
    folder: TempDir,
    /// What each connection begins with.
    header: &'static [u8],
    /// Each test has the machine's descriptors for itself.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Site {
    fn start(backend: &Backend) -> Self {
        Self::limited(backend, "")
    }

    fn limited(backend: &Backend, limits: &str) -> Self {
        Self::with(
            &|certificate| ListenerSettings::new("site", certificate, &backend.address),
            limits,
            b"",
        )
    }

    /// With PROXY headers, a route and limits per client on the path of every connection.
    fn announced(backend: &Backend) -> Self {
        let route = format!(
            "{ANNOUNCED}\n[[listener.route]]\nnames = [\"sealane.test\"]\nbackends = [\"{}\"]",
            backend.address
        );
        let nobody = ReservedPort::on_loopback().unwrap();
        let listener = |certificate: &Path| {
            ListenerSettings::new("site", certificate, &nobody.address()).with(&route)
        };
        Self::with(&listener, "", HEADER)
    }

    fn with(
        listener: &dyn Fn(&Path) -> ListenerSettings,
        limits: &str,
        header: &'static [u8],
    ) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let listener = listener(&certificate);
        let address = listener.address;
        let mut settings = Settings::new(vec![listener]);
        settings.lanes = 1;
        settings.limits = limits.into();
        let sealane = Sealane::start(folder.path(), &settings);
        let site = Self { sealane, address, authority, folder, header, _alone: alone };
        for _ in 0..200 {
            let mut client = site.connect(&site.full(), b"");
            client.write_all(&[b'x'; 500]).unwrap();
            client.end(true).unwrap();
            assert_eq!(client.read_rest().unwrap(), [b'x'; 500]);
        }
        site.wait_until_open(0);
        site
    }

    /// A connection of which `first` leaves with the handshake's last bytes.
    fn connect(&self, connector: &Connector, first: &[u8]) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        connector.behind(self.header, stream, first).unwrap()
    }

    /// Clients that make full handshakes.
    fn full(&self) -> Connector {
        Connector::new(self.authority.der(), &TLS13).without_tickets()
    }

    fn wait_until_open(&self, count: u64) {
        self.sealane.wait_for_metrics(&format!("{count} connections"), |m| m.open() == count);
    }
}

/// One exchange, and both ends.
fn exchange(mut client: Client) {
    client.echo(&[b'x'; 500]).unwrap();
    client.end(true).unwrap();
    assert!(client.read_rest().unwrap().is_empty());
}

#[test]
fn system_calls_per_connection() {
    calls_are_few(Site::start);
}

/// A header that comes with the hello is read with it.
#[test]
fn system_calls_per_announced_connection() {
    calls_are_few(Site::announced);
}

fn calls_are_few(start: impl Fn(&Backend) -> Site) {
    let Some(strace) = required("strace") else { return };
    // The answer and the end leave in one segment, so that it is always one event.
    let site = start(&Backend::start(|mut stream| {
        let mut request = [0; 500];
        stream.read_exact(&mut request).unwrap();
        socket2::SockRef::from(&stream).set_tcp_cork(true).unwrap();
        stream.write_all(&request).unwrap();
    }));
    let connector = Connector::with_x25519(site.authority.der(), &TLS13).without_tickets();
    let calls = calls_per_connection(&strace, &site, || {
        // The request leaves with the end of the handshake, again in one segment.
        let mut client = site.connect(&connector, &[b'x'; 500]);
        assert_eq!(client.read_rest().unwrap(), [b'x'; 500]);
        client.end(true).unwrap();
    });
    assert!(
        calls <= CALLS_PER_CONNECTION_MAX,
        "{calls} system calls per connection are more than {CALLS_PER_CONNECTION_MAX}"
    );
}

/// Prints and returns the lane's system calls for each of the connections that `connect` makes.
fn calls_per_connection(strace: &Path, site: &Site, connect: impl Fn()) -> f64 {
    let lanes = site.sealane.process.threads("lane-");
    assert_eq!(lanes.len(), 1);
    let log = site.folder.path().join("strace");
    let count = 200;
    let busy = traced(strace, lanes[0], &log, || {
        for _ in 0..count {
            connect();
            // The end of one and the start of the next must not share a turn.
            site.wait_until_open(0);
        }
    });
    println!("system calls per connection, over {count}:");
    let mut total = 0.0;
    for (name, calls) in &busy {
        let each = f64::from(*calls) / f64::from(count);
        println!("  {name:<16} {each:.2}");
        // Timers, which do not depend on the number of connections, may come due meanwhile.
        total += if name == "epoll_pwait" { each.floor() } else { each };
    }
    println!("  {:<16} {total:.2}", "in all");
    total
}

/// The system calls of one thread while `work` runs, by name.
fn traced(strace: &Path, thread: u32, log: &Path, work: impl FnOnce()) -> BTreeMap<String, u32> {
    let messages = log.with_extension("messages");
    let mut command = Command::new(strace);
    command.args(["-p", &thread.to_string(), "-o"]).arg(log).stdin(Stdio::null());
    let child = command.stderr(std::fs::File::create(&messages).unwrap()).spawn().unwrap();
    let mut tracer = Process::new(child);
    wait_for("strace attaches (it needs the right to trace)", || {
        let said = std::fs::read_to_string(&messages).unwrap();
        assert!(!said.contains("not permitted"), "{said}");
        said.contains("attached").then_some(())
    });
    work();
    tracer.signal(Signal::INT);
    tracer.wait(harness::PATIENCE);
    let mut calls = BTreeMap::new();
    for line in std::fs::read_to_string(log).unwrap().lines() {
        // In debug builds the standard library asks whether a descriptor that it closes is open.
        if let Some((name, rest)) = line.split_once('(')
            && !name.contains([' ', '<'])
            && !rest.contains("F_GETFD")
        {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// All lanes share the map of the process's memory, and its lock.
#[test]
fn a_lane_asks_for_no_memory_while_connections_come_and_go() {
    let Some(strace) = required("strace") else { return };
    let site = Site::start(&Backend::echo_for_many());
    let connector = Connector::with_x25519(site.authority.der(), &TLS13).without_tickets();
    let lanes = site.sealane.process.threads("lane-");
    let calls = traced(&strace, lanes[0], &site.folder.path().join("strace"), || {
        for _ in 0..2 {
            let connect = |_| {
                let mut client = site.connect(&connector, b"");
                client.echo(&[b'x'; 500]).unwrap();
                client
            };
            let clients: Vec<Client> = (0..500).map(connect).collect();
            site.wait_until_open(500);
            drop(clients);
            site.wait_until_open(0);
        }
    });
    let asks = ["brk", "madvise", "mmap", "mprotect", "mremap", "munmap"];
    let asked: Vec<_> = calls.iter().filter(|(name, _)| asks.contains(&name.as_str())).collect();
    println!("a lane's calls about memory over 1,000 connections: {asked:?}");
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn random_bytes_come_from_a_new_seed_in_every_second_with_a_handshake() {
    let Some(strace) = required("strace") else { return };
    let site = Site::start(&Backend::echo());
    let second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let lanes = site.sealane.process.threads("lane-");
    let calls = traced(&strace, lanes[0], &site.folder.path().join("strace"), || {
        for _ in 0..3 {
            let before = second();
            wait_for("the next second", || (second() > before).then_some(()));
            exchange(site.full().connect(site.address).unwrap());
            site.wait_until_open(0);
        }
    });
    let seeds = calls.get("getrandom").copied().unwrap_or_default();
    // Without that, three handshakes take no seed, or at most one.
    assert!(seeds >= 3, "{calls:?}");
}

#[test]
fn memory_per_idle_connection() {
    let each = idle_bytes(&Site::start(&Backend::echo_for_many()), &TLS13, 5_000, "");
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes each are more than {IDLE_BYTES_MAX}");
    // In programs of their own: a lane keeps what connections before have left.
    let kept = idle_bytes(&Site::start(&Backend::echo_for_many()), &TLS12, 2_000, " TLS 1.2");
    assert!(kept <= KEPT_BYTES_MAX, "{kept} bytes each are more than {KEPT_BYTES_MAX}");
    let site = Site::announced(&Backend::echo_for_many());
    let announced = idle_bytes(&site, &TLS13, 5_000, " announced");
    let more = announced.saturating_sub(each);
    assert!(more <= ANNOUNCED_BYTES_MAX, "{more} bytes more each than {ANNOUNCED_BYTES_MAX}");
}

/// Prints and returns the memory of each of many idle connections.
fn idle_bytes(
    site: &Site,
    version: &'static SupportedProtocolVersion,
    count: u64,
    what: &str,
) -> u64 {
    let before = site.sealane.process.private_bytes();
    let connector = Connector::with_x25519(site.authority.der(), version).without_tickets();
    let clients: Vec<Client> = (0..count)
        .map(|_| {
            let mut client = site.connect(&connector, b"");
            client.echo(&[b'x'; 500]).unwrap();
            client
        })
        .collect();
    site.wait_until_open(count);
    let each = (site.sealane.process.private_bytes() - before) / count;
    println!("{each} bytes per idle established{what} connection at {count}");
    drop(clients);
    site.wait_until_open(0);
    each
}

#[test]
fn silent_connections_cost_little_and_give_it_back() {
    let count = 2_000_usize;
    let site = Site::limited(&Backend::echo(), "handshake_timeout = \"2m\"");
    let facts = || (site.sealane.process.private_bytes(), site.sealane.process.descriptors());
    let (bytes_before, descriptors_before) = facts();
    let mut peaks = Vec::new();
    for _ in 0..3 {
        let connect = |_| TcpStream::connect(site.address).unwrap();
        let silent: Vec<TcpStream> = (0..count).map(connect).collect();
        site.wait_until_open(count as u64);
        // The answer with the metrics has its descriptor too, until it is closed.
        let expected = descriptors_before + count;
        wait_for("a descriptor each", || {
            (site.sealane.process.descriptors() <= expected).then_some(())
        });
        peaks.push(facts().0.saturating_sub(bytes_before));
        drop(silent);
        site.wait_until_open(0);
        wait_for("the descriptors are back", || (facts().1 <= descriptors_before).then_some(()));
    }
    let left = facts().0.saturating_sub(bytes_before);
    println!(
        "{count} silent connections: {} KiB, then {} and {}; {} KiB left afterwards",
        peaks[0] >> 10,
        peaks[1] >> 10,
        peaks[2] >> 10,
        left >> 10
    );
    assert!(peaks[0] <= SILENT_BYTES_MAX, "{} bytes", peaks[0]);
    // The table of connections keeps its room for the next ones; the rest comes back.
    assert!(peaks[2] <= peaks[0] + (FLAT_BYTES_MAX >> 3), "{peaks:?}");
    assert!(left <= TABLE_BYTES_MAX, "{left} bytes do not come back");
}

#[test]
fn memory_and_descriptors_are_flat_after_20_000_connections() {
    flat_after(20_000);
}

/// `cargo test --release -p sealane --test figures -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes; the shorter one above runs every time"]
fn memory_and_descriptors_are_flat_after_100_000_connections() {
    flat_after(100_000);
}

fn flat_after(count: usize) {
    let site = Site::start(&Backend::echo());
    let connectors = [&TLS12, &TLS13].map(|version| Connector::new(site.authority.der(), version));
    let run = |count: usize| {
        thread::scope(|scope| {
            for client in 0..4 {
                let (site, connector) = (&site, &connectors[client % 2]);
                let (resuming, fresh) = (connector.clone(), connector.clone().without_tickets());
                scope.spawn(move || {
                    for turn in 0..count / 4 {
                        let connector = if turn % 2 == 0 { &resuming } else { &fresh };
                        exchange(connector.connect(site.address).unwrap());
                    }
                });
            }
        });
        site.wait_until_open(0);
    };
    // A connection's timer stays until the time of its handshake is over, whatever became of it: as
    // many as the rate allows are part of what is there before.
    let warm_until = Instant::now() + HANDSHAKE_TIMEOUT_DEFAULT;
    let mut warm = 0;
    while Instant::now() < warm_until {
        run(2_000);
        warm += 2_000;
    }
    let (bytes, descriptors) =
        (site.sealane.process.private_bytes(), site.sealane.process.descriptors());
    let started = Instant::now();
    run(count);
    let growth = site.sealane.process.private_bytes().saturating_sub(bytes);
    println!(
        "{count} connections in {:.0} s: {} KiB more than the {} before",
        started.elapsed().as_secs_f64(),
        growth >> 10,
        bytes >> 10
    );
    assert!(growth <= FLAT_BYTES_MAX, "{growth} bytes of growth");
    wait_for("no descriptor is left over", || {
        (site.sealane.process.descriptors() <= descriptors).then_some(())
    });
    let metrics = site.sealane.metrics();
    assert_eq!(metrics.ended("clean"), (count + warm) as u64 + 200, "{}", metrics.ends());
    assert!(metrics.resumed(0, "TLSv1.2") > 0 && metrics.resumed(0, "TLSv1.3") > 0);
}

#[test]
fn ten_thousand_certificates() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let count = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificates = folder.path().join("certificates");
    std::fs::create_dir(&certificates).unwrap();
    for number in 0..count {
        let leaf = authority.leaf(KeyKind::P256, &[&site_name(number)]);
        std::fs::write(certificates.join(format!("{number}.pem")), leaf).unwrap();
    }
    let backend = Backend::echo();
    let listener = ListenerSettings::new("sites", &certificates, &backend.address);
    let address = listener.address;
    let started = Instant::now();
    let sealane = Sealane::start(folder.path(), &Settings::new(vec![listener]));
    let build = if BINARY.contains("/release/") { "release" } else { "debug" };
    println!("{count} certificates: ready after {:?} ({build} build)", started.elapsed());
    let connector = Connector::new(authority.der(), &TLS13).without_tickets();
    for number in (0..count).step_by(997) {
        // The client verifies that the certificate is for that name.
        exchange(connector.clone().with_name(&site_name(number)).connect(address).unwrap());
    }
    let bytes = sealane.process.private_bytes();
    println!("{count} certificates: {} KiB", bytes >> 10);
    assert!(bytes <= CERTIFICATES_BYTES_MAX, "{bytes} bytes");
    let metrics = sealane.metrics();
    assert_eq!(metrics.sum("sealane_certificates", &[]), count as u64);
    let decoded = metrics.sum("sealane_keys_decoded_total", &[]);
    assert!(decoded <= 2 * 11, "{decoded} keys decoded: only what is asked for should be");

    // Names that nobody has are served the default certificate and leave nothing behind.
    let unknown = |number: usize| {
        let name = format!("unknown-{number}.example");
        let refused = connector.clone().with_name(&name).connect(address);
        assert!(refused.is_err(), "the client must refuse a certificate for another name");
    };
    (0..200).for_each(unknown);
    let before = sealane.process.private_bytes();
    (200..2_200).for_each(unknown);
    let growth = sealane.process.private_bytes().saturating_sub(before);
    println!("2000 unknown names: {} KiB", growth >> 10);
    assert!(growth <= FLAT_BYTES_MAX / 2, "{growth} bytes for names that nobody has");
}

fn site_name(number: usize) -> String {
    format!("site-{number}.example")
}
