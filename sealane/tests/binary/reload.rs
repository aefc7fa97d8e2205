//! Reload under load: new connections, kept ones and tickets do not notice, and a bad change
//! changes nothing.

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::version::{TLS12, TLS13};
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::sealane::{ListenerSettings, Sealane, Settings, replace};
use crate::harness::{noise, wait_for};

/// Sealane with one listener in front of an echo, and what a test changes about it.
struct Site {
    sealane: Sealane,
    settings: Settings,
    authority: Authority,
    backend: Backend,
    folder: TempDir,
}

impl Site {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificates = folder.path().join("certificates");
        std::fs::create_dir(&certificates).unwrap();
        replace(&certificates.join("site.pem"), &authority.leaf(KeyKind::P256, &NAMES));
        let backend = Backend::echo();
        let listener = ListenerSettings::new("site", &certificates, &backend.address);
        let settings = Settings::new(vec![listener]);
        let sealane = Sealane::start(folder.path(), &settings);
        Self { sealane, settings, authority, backend, folder }
    }

    fn address(&self) -> SocketAddr {
        self.settings.listeners[0].address
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn certificate(&self) -> PathBuf {
        self.path().join("certificates/site.pem")
    }

    /// Whether the kernel tells Sealane of changes in `folder`.
    fn watches(&self, folder: &Path) -> bool {
        let inode = format!(" ino:{:x} ", std::fs::metadata(folder).unwrap().ino());
        let facts = format!("/proc/{}/fdinfo", self.sealane.process.id());
        let each = std::fs::read_dir(facts).unwrap().flatten();
        let told = each.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        told.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .any(|line| line.starts_with("inotify ") && line.contains(&inode))
    }

    fn connector(&self) -> Connector {
        Connector::new(self.authority.der(), &TLS13).with_own_tickets()
    }

    fn connect(&self) -> Client {
        self.connector().connect(self.address()).unwrap()
    }

    /// Reloads by signal and waits until that is decided.
    fn reload(&self) {
        let before = self.reloads();
        self.sealane.signal(Signal::HUP);
        self.sealane.wait_for_metrics("the reload", |m| {
            m.sum("sealane_reloads_total", &[]) > before.0 + before.1
        });
    }

    /// Reloads so far: accepted, and refused.
    fn reloads(&self) -> (u64, u64) {
        let metrics = self.sealane.metrics();
        let count = |outcome| metrics.sum("sealane_reloads_total", &[("outcome", outcome)]);
        (count("accepted"), count("refused"))
    }
}

fn served_certificate(client: &Client) -> CertificateDer<'static> {
    client.tls.peer_certificates().unwrap()[0].clone().into_owned()
}

const CONNECTIONS: usize = 12_000;
const CLIENTS: usize = 16;
const KEPT: usize = 8;
const RELOADS: usize = 200;
const BAD_RELOADS: usize = 20;

/// What the clients of the load count.
#[derive(Default)]
struct Load {
    made: AtomicUsize,
    failed: AtomicUsize,
    kept_echoes: AtomicUsize,
    cut: AtomicUsize,
    over: AtomicBool,
}

impl Load {
    /// Makes connections, half of them with tickets, until the reloads are through.
    fn connect(&self, index: usize, address: SocketAddr, authority: CertificateDer<'static>) {
        let version = if index.is_multiple_of(4) { &TLS12 } else { &TLS13 };
        let connector = Connector::new(authority, version);
        let fresh = connector.clone().without_tickets();
        let message = noise(1_000, index as u64);
        for turn in 0_usize.. {
            if self.over.load(Ordering::Relaxed) && self.made() >= CONNECTIONS {
                return;
            }
            let connector = if turn.is_multiple_of(2) { &connector } else { &fresh };
            let exchange = || {
                let mut client = connector.connect(address)?;
                client.echo(&message)?;
                client.end(true)?;
                client.read_rest()
            };
            match exchange() {
                Ok(rest) => assert!(rest.is_empty()),
                Err(error) => {
                    println!("client {index}: {error:?}");
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.made.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps one connection through all reloads.
    fn keep(&self, mut client: Client) {
        let message = noise(20_000, 5);
        while !self.over.load(Ordering::Relaxed) {
            if let Err(error) = client.echo(&message) {
                println!("a kept connection: {error:?}");
                self.cut.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.kept_echoes.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(20));
        }
        let ends_clean = client.end(true).and_then(|()| client.read_rest());
        if !ends_clean.is_ok_and(|rest| rest.is_empty()) {
            self.cut.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }
}

/// What arrives in two steps, of which the first is half of something.
#[test]
fn a_new_folder_is_followed_though_the_reload_that_found_it_was_refused() {
    let mut site = Site::start();
    let folder = site.certificate().with_file_name("new.test");
    std::fs::create_dir(&folder).unwrap();
    let text = site.authority.leaf(KeyKind::P256, &["new.test"]);
    let (chain, key) = text.split_at(text.find("-----BEGIN PRIVATE KEY").unwrap());
    replace(&folder.join("fullchain.pem"), chain);
    site.sealane.wait_until_said("reload refused");
    site.sealane.wait_until_said("fullchain.pem: no private key in it");
    // A change that comes at once is seen by a look at the files that needs no watch.
    wait_for("a watch of the folder", || site.watches(&folder).then_some(()));
    replace(&folder.join("privkey.pem"), key);
    let connector = site.connector().with_name("new.test");
    wait_for("the new name", || connector.connect(site.address()).ok());
}

#[test]
fn two_hundred_reloads_and_twenty_bad_ones_cost_no_connection_and_no_ticket() {
    let mut site = Site::start();
    let good = Changes::new(&site);
    let first_leaf = std::fs::read_to_string(site.certificate()).unwrap();
    let (address, load) = (site.address(), Load::default());
    let old_tickets: Vec<Connector> = [&TLS12, &TLS13, &TLS12, &TLS13]
        .map(|version| Connector::new(site.authority.der(), version).with_own_tickets())
        .into();
    for connector in &old_tickets {
        assert!(!resumes(connector, address), "the first one of each");
    }
    site.sealane.wait_for_metrics("the first ones have ended", |m| m.open() == 0);
    let descriptors = site.sealane.process.descriptors();
    let kept: Vec<Client> = (0..KEPT).map(|_| site.connect()).collect();
    let started = Instant::now();
    thread::scope(|scope| {
        for client in kept {
            scope.spawn(|| load.keep(client));
        }
        for index in 0..CLIENTS {
            let (load, authority) = (&load, site.authority.der());
            scope.spawn(move || load.connect(index, address, authority));
        }
        // Spread over the connections, rather than over a time.
        let total = RELOADS + BAD_RELOADS;
        for number in 0..total {
            wait_for("the load goes on", || {
                (load.made() >= CONNECTIONS / total * number).then_some(())
            });
            if number % (total / BAD_RELOADS) == 5 {
                good.spoil(number, &site);
            } else {
                good.apply(number, &mut site);
            }
            site.reload();
        }
        load.over.store(true, Ordering::Relaxed);
    });
    let elapsed = started.elapsed();
    let (accepted, refused) = site.reloads();
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    println!(
        "{accepted} reloads and {refused} refused ones in {:.1} s, during {} new connections, {} \
         failed, and {} echoes on {KEPT} kept ones, {} cut",
        elapsed.as_secs_f64(),
        load.made(),
        count(&load.failed),
        count(&load.kept_echoes),
        count(&load.cut)
    );
    assert_eq!((count(&load.failed), count(&load.cut)), (0, 0));
    assert!(load.made() >= CONNECTIONS);
    assert!(count(&load.kept_echoes) >= KEPT);
    // The watched files may bring about a few more.
    assert!(accepted >= RELOADS as u64 && refused >= BAD_RELOADS as u64);

    // A ticket is good for the certificate that its session began with.
    replace(&site.certificate(), &first_leaf);
    site.reload();
    for connector in &old_tickets {
        assert!(resumes(connector, address), "a ticket from before the reloads");
    }
    let metrics = site.sealane.wait_for_metrics("the old generations are freed", |m| {
        m.open() == 0 && m.sum("sealane_generations_live", &[]) == 1
    });
    let clean = load.made() + KEPT + 2 * old_tickets.len();
    assert_eq!(metrics.ended("clean"), clean as u64, "{}", metrics.ends());
    assert_eq!(metrics.sum("sealane_panics_total", &[]), 0);
    wait_for("no descriptor is left over", || {
        (site.sealane.process.descriptors() <= descriptors).then_some(())
    });
    assert_eq!(site.sealane.stop(), Some(0));
}

/// Makes a connection and ends it; whether it resumed a session.
fn resumes(connector: &Connector, address: SocketAddr) -> bool {
    let mut client = connector.connect(address).unwrap();
    client.echo(b"an exchange").unwrap();
    client.end(true).unwrap();
    assert!(client.read_rest().unwrap().is_empty());
    client.resumed()
}

/// What the reloads change: certificates and settings, whole or spoilt.
struct Changes {
    leaves: [String; 3],
    strange_key: String,
    taken: TcpListener,
}

impl Changes {
    fn new(site: &Site) -> Self {
        let leaves = [KeyKind::P256, KeyKind::Ed25519, KeyKind::P256];
        Self {
            leaves: leaves.map(|kind| site.authority.leaf(kind, &NAMES)),
            strange_key: rcgen::KeyPair::generate().unwrap().serialize_pem(),
            taken: TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    /// Makes everything good, and different from the last time.
    fn apply(&self, number: usize, site: &mut Site) {
        replace(&site.certificate(), &self.leaves[number % self.leaves.len()]);
        site.settings.limits = format!("connections = {}", 50_000 + number);
        site.settings.listeners[0].more = listener_limits(number);
        site.settings.write(site.path());
    }

    /// Leaves something behind that must be refused.
    fn spoil(&self, number: usize, site: &Site) {
        let config = site.path().join("sealane.toml");
        let leaf = &self.leaves[0];
        let (chain, _) = leaf.split_at(leaf.find("-----BEGIN PRIVATE").unwrap());
        let mut settings = site.settings.clone();
        match number / (RELOADS / BAD_RELOADS) % 5 {
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

/// Every limit that a listener may have of its own, each time others and none that is reached.
fn listener_limits(number: usize) -> String {
    let keep_alive = match number % 2 {
        0 => "\"off\"".to_owned(),
        _ => format!("{{ idle = \"{number}s\", every = \"10s\", count = 6 }}"),
    };
    let more = 1_000 + number;
    format!(
        "allow = [\"127.0.0.0/8\", \"192.0.2.{number}\"]\n\
         backend_timeout = \"{more}s\"\n\
         client_timeout = \"{more}s\"\n\
         connections = {more}0\n\
         connections_per_client = {more}\n\
         deny = [\"198.51.100.{number}\"]\n\
         half_closed_timeout = \"{more}s\"\n\
         handshake_timeout = \"{}s\"\n\
         handshakes_per_client = \"{more}00/s\"\n\
         idle_timeout = \"{more}s\"\n\
         keepalive = {keep_alive}\n\
         steer = \"{}\"\n\
         user_timeout = \"{more}s\"\n",
        60 + number,
        if number.is_multiple_of(2) { "client" } else { "connection" },
    )
}

#[test]
fn a_changed_certificate_is_served_to_new_connections_only() {
    let site = Site::start();
    let mut old = site.connect();
    let before = served_certificate(&old);
    replace(&site.certificate(), &site.authority.leaf(KeyKind::Rsa2048, &NAMES));
    site.reload();
    let mut new = site.connect();
    assert_ne!(served_certificate(&new), before);
    old.echo(b"the old connection goes on").unwrap();
    new.echo(b"the new one works").unwrap();
    let live = |count| {
        let what = format!("{count} live generations");
        site.sealane.wait_for_metrics(&what, |m| m.sum("sealane_generations_live", &[]) == count);
    };
    live(2);
    old.end(true).unwrap();
    old.read_rest().unwrap();
    live(1);
    new.echo(b"and still does").unwrap();
}

#[test]
fn a_bad_change_changes_nothing_and_says_why() {
    let site = Site::start();
    let mut kept = site.connect();
    let before = served_certificate(&kept);
    let config = site.path().join("sealane.toml");
    let good = std::fs::read_to_string(&config).unwrap();
    let spoilt = [
        (good.replace("certificates", "certifcates"), "certifcates"),
        (good.replace("lanes = 2", "lanes = \"many\""), "lanes"),
        (good.replace("/certificates\"", "/nowhere\""), "nowhere"),
        (format!("{good}\nbackends = []\n"), "sealane.toml:"),
    ];
    for (index, (text, reason)) in spoilt.iter().enumerate() {
        let before_it = site.sealane.said().len();
        replace(&config, text);
        site.reload();
        let says = |text: &str| {
            wait_for(text, || {
                let said = site.sealane.said().split_off(before_it);
                said.iter().any(|line| line.contains(text)).then_some(())
            });
        };
        says("refused");
        says(reason);
        let mut client = site.connect();
        assert_eq!(served_certificate(&client), before, "change {index}");
        client.echo(b"new").unwrap();
        kept.echo(b"old").unwrap();
    }
    let metrics = site.sealane.metrics();
    assert_eq!(metrics.sum("sealane_generation", &[]), 1);
    assert_eq!(metrics.sum("sealane_reload_last_accepted", &[]), 0);
    replace(&config, &good);
    site.reload();
    assert_eq!(site.sealane.metrics().sum("sealane_reload_last_accepted", &[]), 1);
}

#[test]
fn listeners_open_and_close_without_touching_the_others() {
    let mut site = Site::start();
    let certificates = site.path().join("certificates");
    let second = ListenerSettings::new("second", &certificates, &site.backend.address);
    let second_address = second.address;
    let refused = |address| {
        TcpStream::connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    assert!(refused(second_address));
    let mut first = site.connect();
    site.settings.listeners.push(second);
    site.settings.write(site.path());
    site.reload();
    first.echo(b"goes on").unwrap();
    let mut on_second =
        wait_for("the new listener", || site.connector().connect(second_address).ok());
    on_second.echo(b"new").unwrap();

    let first_listener = site.settings.listeners.remove(0);
    site.settings.write(site.path());
    site.reload();
    wait_for("the old listener closes", || refused(first_listener.address).then_some(()));
    first.echo(b"its connections live on").unwrap();
    on_second.echo(b"untouched").unwrap();
    site.connector().connect(second_address).unwrap().echo(b"new").unwrap();
    first.end(true).unwrap();
    assert!(first.read_rest().unwrap().is_empty());
}

#[test]
fn replaced_files_are_noticed_without_a_signal() {
    let mut site = Site::start();
    let mut last = served_certificate(&site.connect());
    let mut changes = |what: &str, site: &Site| {
        wait_for(what, || {
            let now = served_certificate(&site.connect());
            (now != last).then(|| last = now)
        });
    };
    replace(&site.certificate(), &site.authority.leaf(KeyKind::P256, &NAMES));
    changes("a certificate renamed into place", &site);
    let mut file = std::fs::File::create(site.certificate()).unwrap();
    file.write_all(site.authority.leaf(KeyKind::Ed25519, &NAMES).as_bytes()).unwrap();
    drop(file);
    changes("a certificate written in place", &site);

    // The configuration names another folder, which is then a link that moves on.
    let releases = tempfile::tempdir().unwrap();
    for release in ["one", "two"] {
        let folder = releases.path().join(release);
        std::fs::create_dir(&folder).unwrap();
        replace(&folder.join("site.pem"), &site.authority.leaf(KeyKind::P256, &NAMES));
    }
    let current = releases.path().join("current");
    std::os::unix::fs::symlink("one", &current).unwrap();
    site.settings.listeners[0].certificates = Some(current.clone());
    site.settings.write(site.path());
    changes("the configuration renamed into place", &site);
    let next = releases.path().join("next");
    std::os::unix::fs::symlink("two", &next).unwrap();
    std::fs::rename(&next, &current).unwrap();
    changes("a link to a folder that moves on", &site);
    let leaf = site.authority.leaf(KeyKind::Ed25519, &NAMES);
    replace(&releases.path().join("two/site.pem"), &leaf);
    changes("a certificate in the folder that the link leads to now", &site);
}
