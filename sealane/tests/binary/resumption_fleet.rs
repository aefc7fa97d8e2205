//! Tickets of a fleet: processes with copies of one root behind a real balancer, while keys change.
//!
//! A key lives for ten minutes at least. Here it lives for seconds, because the wall clock of every
//! process goes faster (`resumption_fleet/fast_clock.c`): by the same clock for all, as on machines
//! that keep the time.

mod stored;
mod tally;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::version::{TLS12, TLS13};
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::peers::haproxy;
use crate::harness::process::Process;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::tools::{output, required};
use crate::harness::wait_for;
use tally::Tally;

#[test]
fn two_machines_resume_as_one_does_while_keys_change() {
    hold(&[1, 2], Duration::from_secs(3), Duration::from_secs(7));
}

#[test]
#[ignore = "three minutes"]
fn two_and_five_machines_resume_as_one_does_with_a_new_key_every_ten_seconds() {
    hold(&[1, 2, 5], Duration::from_secs(10), Duration::from_mins(1));
}

/// Fails unless all that are offered a ticket within its lifetime resume, and nobody fails, for so
/// long, at each number of machines.
fn hold(sizes: &[u8], lifetime: Duration, long: Duration) {
    let (Some(haproxy), Some(cc)) = (required("haproxy"), required("cc")) else { return };
    for machines in sizes {
        let fleet = Fleet::start(&haproxy, &cc, *machines, lifetime, Kept::InFiles);
        let epoch = epoch_of(&fleet.roots[0]);
        let all = fleet.load(lifetime, long);
        println!("{machines} machines, a new key every {lifetime:?}: {all:?}");
        all.hold(usize::from(*machines));
        let rotations = long.as_secs() / lifetime.as_secs();
        wait_for("all roots have moved on, and to the same", || {
            let have_moved = epoch_of(&fleet.roots[0]) >= epoch + rotations;
            let texts: BTreeSet<_> = fleet.roots.iter().map(|root| text_of(root)).collect();
            (have_moved && texts.len() == 1).then_some(())
        });
        fleet.stop(&all);
    }
}

/// Machines with a certificate in common, each with a copy of one root, and what stands before
/// them.
struct Fleet {
    addresses: Vec<SocketAddr>,
    authority: Authority,
    balancer: SocketAddr,
    /// When the clock of the machines began to go faster.
    clock_from_s: u64,
    haproxy: Process,
    machines: Vec<Sealane>,
    roots: Vec<PathBuf>,
    _folder: TempDir,
}

/// Where machines have their roots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// The first makes one, of which the others get copies.
    InFiles,
    /// Each in a store of its own, which is empty.
    InStores,
}

impl Fleet {
    /// So many machines whose keys are new after `lifetime`; all but the first join it later, with
    /// a copy of the root that it began with.
    fn start(program: &Path, cc: &Path, machines: u8, lifetime: Duration, kept: Kept) -> Self {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let leaf = authority.leaf(KeyKind::P256, &NAMES);
        let clock_from_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let clock = fast_clock(cc, folder.path(), lifetime, clock_from_s);
        let copy = folder.path().join("copy-of-the-root");
        let (mut addresses, mut roots, mut running) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..machines {
            let own = folder.path().join(number.to_string());
            std::fs::create_dir(&own).unwrap();
            let certificate = own.join("site.pem");
            std::fs::write(&certificate, &leaf).unwrap();
            let says_which = Backend::start(move |mut stream| {
                // A client that does not want to know fails by itself.
                let _ = std::io::Write::write_all(&mut stream, &[number]);
            });
            let has_file = kept == Kept::InFiles;
            let root = own.join(if has_file { "ticket-root" } else { "store" });
            if has_file && number > 0 {
                std::fs::copy(&copy, &root).unwrap();
            }
            let named = if has_file { root.display().to_string() } else { stored::make(&root) };
            let listener = ListenerSettings::new("site", &certificate, &says_which.address);
            addresses.push(listener.address);
            let mut settings = Settings::new(vec![listener]);
            settings.more = format!(
                "tickets = {{ root = {named:?}, lifetime = {KEY_LIFETIME:?} }}\n{}",
                if has_file { "" } else { stored::KEY_OF_STORE }
            );
            settings.environment.clone_from(&clock);
            running.push(Sealane::start(&own, &settings));
            if has_file && number == 0 && machines > 1 {
                std::fs::copy(&root, &copy).unwrap();
                wait_for("keys change", || (text_of(&root) != text_of(&copy)).then_some(()));
            }
            roots.push(root);
        }
        let port = ReservedPort::on_loopback().unwrap();
        let haproxy = balance(program, folder.path(), &addresses, &port);
        let balancer = port.address();
        let machines = running;
        Self {
            addresses,
            authority,
            balancer,
            clock_from_s,
            haproxy,
            machines,
            roots,
            _folder: folder,
        }
    }

    /// Clients that come for so long, one connection after the other, with what tickets they have.
    fn load(&self, lifetime: Duration, long: Duration) -> Tally {
        let until = Instant::now() + long;
        let often = Duration::from_millis(5);
        // Not a multiple of the machines: in step, each client would always get the same one. The
        // last one's tickets are of the key before more often than not.
        let clients =
            [(&TLS13, often), (&TLS12, often), (&TLS13, often), (&TLS13, lifetime.mul_f64(0.7))];
        thread::scope(|scope| {
            let clients = clients.map(|(version, pause)| {
                let connector = Connector::new(self.authority.der(), version).with_own_tickets();
                scope.spawn(move || self.visits(&connector, lifetime, pause, until))
            });
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        })
    }

    fn visits(
        &self,
        connector: &Connector,
        lifetime: Duration,
        pause: Duration,
        until: Instant,
    ) -> Tally {
        Tally::of_visits(lifetime, pause, until, || {
            let mut client = connector.connect(self.balancer).unwrap();
            let resumed = client.resumed();
            let [machine] = client.read_rest().unwrap()[..] else { panic!("half an answer") };
            (resumed, machine)
        })
    }

    /// Ends all of it; fails unless the machines have seen what clients did.
    fn stop(self, seen: &Tally) {
        drop(self.haproxy);
        let (mut handshakes, mut resumed) = (0, 0);
        for machine in self.machines {
            let metrics = machine.metrics();
            handshakes += metrics.sum("sealane_handshakes_total", &[]);
            resumed += metrics.sum("sealane_handshakes_total", &[("resumed", "true")]);
            assert_eq!(machine.stop(), Some(0));
        }
        assert_eq!((handshakes, resumed), (seen.handshakes, seen.resumed + seen.resumed_late));
    }
}

/// HAProxy, which passes on connection by connection to one machine after the other.
fn balance(program: &Path, folder: &Path, machines: &[SocketAddr], port: &ReservedPort) -> Process {
    let mut text = format!(
        "defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
         listen fleet\n bind {}\n balance roundrobin\n",
        port.address()
    );
    for (number, address) in machines.iter().enumerate() {
        text += &format!(" server m{number} {address}\n");
    }
    haproxy(program, &folder.join("haproxy.cfg"), &text, &[port])
}

/// What makes [`KEY_LIFETIME`] pass within `lifetime` for whoever has it in its environment.
fn fast_clock(cc: &Path, folder: &Path, lifetime: Duration, from_s: u64) -> Environment {
    let library = folder.join("fast_clock.so");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary/resumption_fleet/fast_clock.c");
    output(Command::new(cc).args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source));
    let rate = KEY_LIFETIME_S / lifetime.as_secs();
    let library = library.to_str().unwrap().to_owned();
    [
        ("LD_PRELOAD", library),
        ("FAST_CLOCK_RATE", rate.to_string()),
        ("FAST_CLOCK_FROM", from_s.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Variables of a process.
type Environment = Vec<(String, String)>;

/// The oldest epoch whose tickets are good, by the file of a root.
fn epoch_of(root: &Path) -> u64 {
    text_of(root).split(' ').nth(3).unwrap().parse().unwrap()
}

fn text_of(root: &Path) -> String {
    std::fs::read_to_string(root).unwrap()
}

/// The shortest that there is.
const KEY_LIFETIME: &str = "10m";
const KEY_LIFETIME_S: u64 = 600;
