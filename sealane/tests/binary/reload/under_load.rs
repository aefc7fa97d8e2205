//! Reloads that change every key, and bad ones, while clients come and stay: no connection and no
//! ticket is lost.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::version::{TLS12, TLS13};

use super::Site;
use super::every_key::{
    ANNOUNCED, CHALLENGE, CHALLENGED, Changing, LISTENERS, LOCAL, Manner, PASSING, SITE, SPEAKING,
};
use crate::harness::certificates::{KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::sealane::{ListenerSettings, replace};
use crate::harness::tools::required;
use crate::harness::{PATIENCE, noise, wait_for};
use crate::unix_listeners::stream_to;

/// Unless `SEALANE_RELOADS` has another number.
const RELOADS: usize = 60;
/// One of this many is bad, and comes in the midst of them.
const BAD_EACH: usize = 11;
/// For each listener: how many clients come to it, one connection after another, how many at least
/// between two reloads, and how many stay.
const CLIENTS: [usize; LISTENERS] = [10, 3, 1, 1, 1, 1, 1];
const BETWEEN_RELOADS: [usize; LISTENERS] = [36, 8, 4, 2, 2, 2, 2];
const KEPT: [usize; LISTENERS] = [8, 0, 2, 0, 0, 2, 0];
/// The manners of the other listeners, which change in so many ways, of each of which one stays.
const MANNERS: usize = 3;

/// By which a balancer announces a client that may come wherever the balancer may.
const HEADERS: [&[u8]; 2] = [
    b"PROXY TCP4 127.0.0.2 127.0.0.1 4000 443\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x17\x7f\0\0\x02\x7f\0\0\x01\x0f\xa0\x01\xbb\
      \x05\0\x04unid\xe3\0\x01x",
];

/// Clients, and what they count.
struct Load {
    addresses: [SocketAddr; LISTENERS],
    /// The path of the listener [`LOCAL`], in place of its address.
    socket: PathBuf,
    /// By version, with tickets.
    connectors: [Connector; 2],
    /// Shows a certificate, speaks HTTP, and has one suite: its tickets come from two servers.
    known: Connector,
    made: [AtomicUsize; LISTENERS],
    failed: AtomicUsize,
    kept_echoes: AtomicUsize,
    cut: AtomicUsize,
    over: AtomicBool,
    /// The number of the reload that is served; held by who must know it.
    served: RwLock<usize>,
}

/// Ends the load, also of a test that fails.
struct Over<'l>(&'l AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A connection that is echoed.
enum Kept {
    Plain(TcpStream),
    Tls(Box<Client>),
}

impl Kept {
    fn echo(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tls(client) => client.echo(bytes),
            Self::Plain(stream) => {
                let mut back = vec![0; bytes.len()];
                stream.write_all(bytes)?;
                stream.read_exact(&mut back)?;
                if back == bytes { Ok(()) } else { Err(io::Error::other("the echo differs")) }
            }
        }
    }

    /// Ends it, and hears that the other side has ended it well.
    fn end(&mut self) -> io::Result<()> {
        let mut rest = Vec::new();
        match self {
            Self::Tls(client) => client.end(true).and_then(|()| client.read_to_end(&mut rest))?,
            Self::Plain(stream) => {
                stream.shutdown(Shutdown::Write)?;
                stream.read_to_end(&mut rest)?
            }
        };
        if rest.is_empty() { Ok(()) } else { Err(io::Error::other("more than an echo")) }
    }
}

impl Load {
    fn new(site: &Site, shown: &str) -> Self {
        let connector = |version| Connector::new(site.authority.der(), version).with_own_tickets();
        let addresses: Vec<SocketAddr> =
            site.settings.listeners.iter().map(|listener| listener.address).collect();
        Self {
            addresses: addresses.try_into().unwrap(),
            socket: site.settings.listeners[LOCAL].socket.clone().unwrap(),
            connectors: [connector(&TLS12), connector(&TLS13)],
            known: Connector::with_suite(site.authority.der(), TLS13_AES_128_GCM_SHA256)
                .with_own_tickets()
                .showing(shown)
                .with_alpn(&["http/1.1"]),
            made: Default::default(),
            failed: AtomicUsize::new(0),
            kept_echoes: AtomicUsize::new(0),
            cut: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            served: RwLock::new(0),
        }
    }

    /// Reloads, good ones and bad ones, while all clients come and some stay; says how many stayed.
    fn through_reloads(
        &self,
        site: &mut Site,
        changing: &mut Changing,
        spoiling: &Spoiling,
    ) -> usize {
        thread::scope(|scope| {
            let (over, mut kept, mut number) = (Over(&self.over), 0, 0);
            for (listener, (clients, stay)) in CLIENTS.into_iter().zip(KEPT).enumerate() {
                for index in 0..clients {
                    scope.spawn(move || self.come(listener, index));
                }
                for _ in 0..stay {
                    kept += self.keep_one(scope, listener, manner(listener, number));
                }
            }
            for at in 0..reloads() + bad_reloads() {
                // Spread over the connections, rather than over a time.
                self.wait(at);
                if at % BAD_EACH == BAD_EACH / 2 {
                    spoiling.apply(at, site);
                    site.reload();
                    continue;
                }
                number += 1;
                let mut served = self.served.write().unwrap();
                site.change(number, changing);
                *served = number;
                if number <= MANNERS {
                    for listener in [ANNOUNCED, PASSING, SPEAKING] {
                        kept += self.keep_one(scope, listener, manner(listener, number));
                    }
                }
            }
            drop(over);
            kept
        })
    }

    /// Makes connections to `listener`, half of them with tickets, until the reloads are through.
    fn come(&self, listener: usize, index: usize) {
        let message = noise(1_000, index as u64);
        for turn in 0_usize.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let exchanged = match listener {
                PASSING | SPEAKING => {
                    let Ok(served) = self.served.read() else { return };
                    self.exchange(listener, manner(listener, *served), turn + index, &message)
                }
                _ => self.exchange(listener, manner(listener, 0), turn + index, &message),
            };
            if let Err(error) = exchanged {
                println!("a client of listener {listener}: {error:?}");
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
            self.made[listener].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn exchange(
        &self,
        listener: usize,
        manner: Manner,
        turn: usize,
        message: &[u8],
    ) -> io::Result<()> {
        match manner {
            Manner::Challenge => return challenged(self.addresses[listener]),
            Manner::Request => return redirected(self.addresses[listener]),
            Manner::Announced | Manner::Plain | Manner::Tls => {}
        }
        let mut kept = self.connect(listener, manner, turn)?;
        kept.echo(message)?;
        kept.end()
    }

    fn connect(&self, listener: usize, manner: Manner, turn: usize) -> io::Result<Kept> {
        let stream = match listener {
            LOCAL => stream_to(&self.socket),
            _ => connected(self.addresses[listener])?,
        };
        let (header, connector) = match manner {
            Manner::Challenge | Manner::Plain | Manner::Request => {
                return Ok(Kept::Plain(stream));
            }
            Manner::Announced => (HEADERS[turn % HEADERS.len()], &self.known),
            Manner::Tls if listener >= PASSING => (&b""[..], &self.known),
            Manner::Tls => (&b""[..], &self.connectors[usize::from(!turn.is_multiple_of(4))]),
        };
        let connector = connector.clone();
        let fresh = turn.is_multiple_of(2);
        let connector = if fresh { connector.without_tickets() } else { connector };
        Ok(Kept::Tls(Box::new(connector.behind(header, stream, b"")?)))
    }

    /// Keeps one connection through all reloads.
    fn keep(&self, mut kept: Kept) {
        let message = noise(20_000, 5);
        while !self.over.load(Ordering::Relaxed) {
            if let Err(error) = kept.echo(&message) {
                println!("a kept connection: {error:?}");
                self.cut.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.kept_echoes.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(20));
        }
        if let Err(error) = kept.end() {
            println!("a kept connection's end: {error:?}");
            self.cut.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins to keep one that comes to `listener` in the manner of now.
    fn keep_one<'s>(&'s self, scope: &'s Scope<'s, '_>, listener: usize, manner: Manner) -> usize {
        if manner == Manner::Request {
            return 0;
        }
        let kept = self.connect(listener, manner, listener).unwrap();
        scope.spawn(move || self.keep(kept));
        1
    }

    /// Waits until as many have come to every listener as shall before reload number `number`.
    fn wait(&self, number: usize) {
        wait_for("the load goes on", || {
            let mut each = self.made.iter().zip(BETWEEN_RELOADS);
            each.all(|(made, between)| count(made) >= number * between).then_some(())
        });
    }
}

fn manner(listener: usize, number: usize) -> Manner {
    match listener {
        ANNOUNCED | LOCAL => Manner::Announced,
        CHALLENGED => Manner::Challenge,
        PASSING => Manner::of_passing(number),
        SPEAKING => Manner::of_speaking(number),
        _ => Manner::Tls,
    }
}

fn connected(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A request that is sent elsewhere, and the end.
fn redirected(address: SocketAddr) -> io::Result<()> {
    let answer = answer_to("/", address)?;
    if answer.starts_with("HTTP/1.1 308 ") { Ok(()) } else { Err(io::Error::other(answer)) }
}

/// A challenge that is answered.
fn challenged(address: SocketAddr) -> io::Result<()> {
    let (token, text) = CHALLENGE;
    let answer = answer_to(&format!("{}{token}", sealane_traffic::challenges::PREFIX), address)?;
    if answer.ends_with(text) { Ok(()) } else { Err(io::Error::other(answer)) }
}

fn answer_to(path: &str, address: SocketAddr) -> io::Result<String> {
    let mut stream = connected(address)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: sealane.test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn count(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::Relaxed)
}

#[test]
fn reloads_lose_no_connection_and_no_ticket() {
    if required("openssl").is_none() {
        return;
    }
    let (mut site, mut changing) = Site::changing();
    let spoiling = Spoiling::new(&site);
    let first_leaf = std::fs::read_to_string(site.certificate()).unwrap();
    let load = Load::new(&site, &changing.shown);
    let address = site.address();
    let old_tickets: Vec<Connector> = [&TLS12, &TLS13, &TLS12, &TLS13]
        .map(|version| Connector::new(site.authority.der(), version).with_own_tickets())
        .into();
    for connector in &old_tickets {
        assert!(!resumes(connector, address), "the first one of each");
    }
    site.sealane.wait_for_metrics("the first ones have ended", |m| m.open() == 0);
    let (descriptors, started) = (site.sealane.process.descriptors(), Instant::now());
    let kept = load.through_reloads(&mut site, &mut changing, &spoiling);
    let (accepted, refused) = site.reloads();
    println!(
        "{accepted} reloads and {refused} refused ones in {:.1} s, during {:?} new connections, {} \
         failed, and {} echoes on {kept} kept ones, {} cut",
        started.elapsed().as_secs_f64(),
        load.made.each_ref().map(count),
        count(&load.failed),
        count(&load.kept_echoes),
        count(&load.cut)
    );
    assert_eq!((count(&load.failed), count(&load.cut)), (0, 0));
    assert!(count(&load.kept_echoes) >= kept);
    // The watched files may bring about a few more. Two of five leave a certificate with a fault,
    // which keeps its last good state.
    assert!(accepted >= reloads() as u64 && refused >= bad_reloads() as u64 / 2);

    // A ticket is good for the certificate and the rules that its session began with.
    replace(&site.certificate(), &first_leaf);
    site.settings.listeners[SITE].more.clear();
    site.settings.write(site.path());
    site.reload();
    site.sealane.wait_until_lanes_serve();
    for connector in &old_tickets {
        assert!(resumes(connector, address), "a ticket from before the reloads");
    }
    let metrics = site.sealane.wait_for_metrics("the old generations are freed", |m| {
        m.open() == 0 && m.sum("sealane_generations_live", &[]) == 1
    });
    let ended = metrics.sum("sealane_connections_ended_total", &[]);
    let least = load.made.iter().map(count).sum::<usize>() + kept + 2 * old_tickets.len();
    let well = metrics.ended("clean") + metrics.ended("redirected");
    assert!(well == ended && ended >= least as u64, "{least}: {}", metrics.ends());
    assert_eq!(metrics.sum("sealane_panics_total", &[]), 0);
    wait_for("no descriptor is left over", || {
        (site.sealane.process.descriptors() <= descriptors).then_some(())
    });
    assert_eq!(site.sealane.stop(), Some(0));
}

fn reloads() -> usize {
    std::env::var("SEALANE_RELOADS").map_or(RELOADS, |text| text.parse().unwrap())
}

fn bad_reloads() -> usize {
    reloads() / (BAD_EACH - 1)
}

/// Makes a connection and ends it; whether it resumed a session.
fn resumes(connector: &Connector, address: SocketAddr) -> bool {
    let mut client = connector.connect(address).unwrap();
    client.echo(b"an exchange").unwrap();
    client.end(true).unwrap();
    assert!(client.read_rest().unwrap().is_empty());
    client.resumed()
}

/// What bad reloads find.
struct Spoiling {
    leaf: String,
    strange_key: String,
    taken: TcpListener,
}

impl Spoiling {
    fn new(site: &Site) -> Self {
        Self {
            leaf: site.authority.leaf(KeyKind::P256, &NAMES),
            strange_key: rcgen::KeyPair::generate().unwrap().serialize_pem(),
            taken: TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    /// Leaves something behind that must change nothing.
    fn apply(&self, number: usize, site: &Site) {
        let config = site.path().join("sealane.toml");
        let (chain, _) = self.leaf.split_at(self.leaf.find("-----BEGIN PRIVATE").unwrap());
        let mut settings = site.settings.clone();
        match number / BAD_EACH % 5 {
            0 => replace(&config, "lanes = \n"),
            1 => replace(&site.certificate(), &format!("{chain}{}", self.strange_key)),
            2 => replace(&site.certificate(), chain),
            3 => {
                settings.limits = "conections = 5".into();
                settings.write(site.path());
            }
            _ => {
                let (certificates, backend) =
                    (site.path().join("certificates"), site.backend.address);
                let mut taken = ListenerSettings::new("taken", &certificates, &backend);
                taken.address = self.taken.local_addr().unwrap();
                settings.listeners.push(taken);
                settings.write(site.path());
            }
        }
    }
}
