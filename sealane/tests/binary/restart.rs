//! A restart as a service manager does it: the old process ends before the new one begins, and
//! nobody who connects meanwhile is refused.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use rustix::process::Signal;
use rustls::version::TLS13;
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::systemd::ServiceManager;
use crate::harness::{PATIENCE, wait_for};

struct Site {
    folder: TempDir,
    settings: Settings,
    address: SocketAddr,
    connector: Connector,
    manager: ServiceManager,
}

fn site() -> Site {
    let backend = Backend::echo_for_many();
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let listener = ListenerSettings::new("site", &certificate, &backend.address);
    let address = listener.address;
    let settings = Settings::new(vec![listener]);
    let connector = Connector::new(authority.der(), &TLS13);
    let manager = ServiceManager::new(folder.path());
    Site { folder, settings, address, connector, manager }
}

impl Site {
    /// Starts a process, and reads what it tells up to its readiness.
    fn start(&mut self) -> Sealane {
        let sealane = self.manager.start(self.folder.path(), &self.settings);
        self.manager.read_until("READY=1");
        sealane
    }
}

/// A connection that echoes a word.
fn visit(connector: &Connector, address: SocketAddr) -> io::Result<()> {
    connector.connect(address)?.echo(b"a word")
}

/// Is set when this goes.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Whether one of its lanes has each of these files open.
fn has_open(sealane: &Sealane, files: &[String]) -> bool {
    let lanes = sealane.process.threads("lane-");
    let open: Vec<String> =
        lanes.iter().flat_map(|lane| sealane.process.open_in(*lane).into_values()).collect();
    files.iter().all(|file| open.contains(file))
}

#[test]
fn nobody_is_refused_while_it_is_restarted() {
    let mut site = site();
    // Long enough for clients to come while nobody accepts.
    site.settings.limits = "drain_timeout = \"1s\"".into();
    let mut sealane = site.start();
    let sockets = site.manager.kept_sockets();
    let (served, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let come = |connector: &Connector, address| {
        let mut failures = Vec::new();
        while !is_over.load(SeqCst) {
            match visit(connector, address) {
                Ok(()) => drop(served.fetch_add(1, SeqCst)),
                Err(error) => failures.push(error),
            }
        }
        failures
    };
    let more_come = |what| {
        let before = served.load(SeqCst);
        wait_for(what, || (served.load(SeqCst) > before + 8).then_some(()));
    };
    let failures: Vec<io::Error> = thread::scope(|scope| {
        // However this ends, clients must end, too.
        let over = Over(&is_over);
        let (connector, address) = (site.connector.clone(), site.address);
        let clients: Vec<_> = (0..2)
            .map(|_| {
                let connector = connector.clone();
                scope.spawn(move || come(&connector, address))
            })
            .collect();
        for _ in 0..3 {
            more_come("clients are served");
            assert!(has_open(&sealane, &sockets), "lanes take from what was kept");
            // Holds the drain up to its end.
            let mut stays = connector.connect(address).unwrap();
            stays.echo(b"here").unwrap();
            sealane.signal(Signal::TERM);
            sealane.process.wait(PATIENCE);
            assert_eq!(stays.read_rest().unwrap(), b"", "it is told the end");
            sealane = site.start();
            assert_eq!(site.manager.kept_sockets(), sockets);
        }
        more_come("clients are served in the end");
        drop(over);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let shown = &failures[..failures.len().min(3)];
    assert!(failures.is_empty(), "{} failed, {served:?} did not: {shown:?}", failures.len());
    assert_eq!(sockets.len(), 2, "one for each lane");
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn what_no_lane_needs_any_more_is_not_kept() {
    let mut site = site();
    let sealane = site.start();
    let name = |lane| format!("lane{lane}@{}", site.address).replace(':', "_");
    assert_eq!(site.manager.kept_names(), [name(0), name(1)]);
    assert_eq!(sealane.stop(), Some(0));

    // A lane less, and where its socket was kept, one of another address.
    let (first, elsewhere) = (name(0), TcpListener::bind("127.0.0.1:0").unwrap());
    site.manager.kept()[0] = (first.clone(), elsewhere.into());
    let foreign = site.manager.kept_sockets();
    site.settings.lanes = 1;
    let mut sealane = site.start();
    assert_eq!(site.manager.kept_names(), [first]);
    assert!(!foreign.contains(&site.manager.kept_sockets()[0]));
    assert!(has_open(&sealane, &site.manager.kept_sockets()));
    for _ in 0..8 {
        visit(&site.connector, site.address).unwrap();
    }

    // An address less, and another more. What is given up is closed before the process goes on.
    site.manager.count_waiting("");
    site.settings.listeners[0].move_to(site.address.ip());
    let moved = site.settings.listeners[0].address;
    site.settings.write(site.folder.path());
    sealane.wait_until_reloaded(1);
    site.manager.read_until("FDSTOREREMOVE=1");
    assert_eq!(site.manager.read_until(""), "BARRIER=1\n");
    site.manager.read_until("READY=1");
    assert_eq!(site.manager.kept_names(), [format!("lane0@{moved}").replace(':', "_")]);
    visit(&site.connector, moved).unwrap();
    assert_eq!(sealane.stop(), Some(0));
}

/// What the process before has kept is in the way of neither: the address of one is that of both.
#[test]
fn a_listener_moves_between_an_address_and_all_of_them() {
    let families: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::UNSPECIFIED.into()),
        (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::UNSPECIFIED.into()),
    ];
    for (one, all) in families {
        let mut site = site();
        site.settings.listeners[0].move_to(one);
        site.address = site.settings.listeners[0].address;
        for ip in [one, all, one] {
            let key = SocketAddr::new(ip, site.address.port());
            site.settings.listeners[0].address = key;
            let sealane = site.start();
            visit(&site.connector, site.address).unwrap();
            let kept = [0, 1].map(|lane| format!("lane{lane}@{key}").replace(':', "_"));
            assert_eq!(site.manager.kept_names(), kept);
            assert_eq!(sealane.stop(), Some(0));
        }
    }
}

#[test]
fn lanes_that_are_new_have_sockets_beside_those_that_were_kept() {
    let mut site = site();
    assert_eq!(site.start().stop(), Some(0));
    let before = site.manager.kept_sockets();
    site.settings.lanes = 4;
    let sealane = site.start();
    let after = site.manager.kept_sockets();
    assert_eq!((before.len(), after.len()), (2, 4));
    assert_eq!(after[..2], before);
    assert!(has_open(&sealane, &after));
    // Whoever falls to a socket that nobody takes from is never served.
    for _ in 0..32 {
        visit(&site.connector, site.address).unwrap();
    }
    assert_eq!(sealane.stop(), Some(0));
}

/// A balancer has to see that nobody is there.
#[test]
fn a_start_that_cannot_be_gives_up_what_was_kept() {
    let mut site = site();
    assert_eq!(site.start().stop(), Some(0));
    for mistake in ["certificate = \"site.pem\"", "crypto = \"none\""] {
        assert_eq!(site.manager.kept_names().len(), 2);
        site.settings.more = mistake.into();
        let mut sealane = site.manager.launch(site.folder.path(), &site.settings);
        assert_eq!(sealane.process.wait(PATIENCE).code(), Some(3));
        site.manager.read_until("BARRIER=1");
        assert!(site.manager.kept().is_empty());
        let refused = TcpStream::connect(site.address);
        assert!(refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
        site.settings.more.clear();
        assert_eq!(site.start().stop(), Some(0));
    }
}
