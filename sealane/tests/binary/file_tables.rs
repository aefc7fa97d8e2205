//! A table of open files for each lane: nobody else's is in it, and nobody else writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use rustls::version::TLS13;
use sealane_file_table::same_table;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::filtered::filtered;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::tools::required;
use crate::harness::{wait_for, write_program};

const LANES: usize = 3;

struct Rig {
    connector: Connector,
    folder: tempfile::TempDir,
    sealane: Sealane,
    settings: Settings,
}

impl Rig {
    fn start() -> Self {
        Self::launch(LANES, |_| PathBuf::from(BINARY))
    }

    /// With a program that `made` in the folder, in the binary's place.
    fn launch(lanes: usize, made: impl FnOnce(&Path) -> PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let backend = Backend::echo_for_many().address;
        let listener = |name: &str| ListenerSettings::new(name, &certificate, &backend);
        let mut settings = Settings::new(vec![listener("site"), listener("other")]);
        settings.lanes = lanes;
        // A file that changes would be one more reload than are counted.
        settings.more = "watch = false".into();
        let other = settings.listeners.pop().unwrap();
        let program = made(folder.path());
        let mut sealane = Sealane::launch(folder.path(), &settings, &program);
        sealane.wait_until_said("serve: ready");
        let connector = Connector::new(authority.der(), &TLS13);
        let mut rig = Self { connector, folder, sealane, settings };
        rig.settings.listeners.push(other);
        rig
    }

    /// Serves the second listener too, or no more.
    fn reload(&mut self, with_other: bool, times: usize) {
        let other = self.settings.listeners.pop().unwrap();
        if with_other {
            self.settings.listeners.push(other);
            self.settings.write(self.folder.path());
        } else {
            self.settings.write(self.folder.path());
            self.settings.listeners.push(other);
        }
        self.sealane.signal(Signal::HUP);
        self.sealane.wait_until_reloaded(times);
    }

    fn address(&self, listener: usize) -> SocketAddr {
        self.settings.listeners[listener].address
    }

    /// The threads with tables: that of the control plane, and those of lanes.
    fn threads(&self) -> Vec<u32> {
        let process = &self.sealane.process;
        let lanes = process.threads("lane-");
        [vec![process.id()], lanes].concat()
    }

    /// What is open in each, without the standard streams.
    fn open(&self) -> Vec<BTreeMap<u32, String>> {
        let without_streams = |thread: &u32| {
            let mut open = self.sealane.process.open_in(*thread);
            open.retain(|number, _| *number > 2);
            open
        };
        self.threads().iter().map(without_streams).collect()
    }

    fn echo(&self, listener: usize) {
        let mut client = self.connector.connect(self.address(listener)).unwrap();
        client.echo(b"through whichever lane it is").unwrap();
    }

    fn state(&self) -> Value {
        serde_json::from_str(&self.sealane.admin("/state")).unwrap()
    }
}

/// Whether two threads of any process share a table.
fn same(a: u32, b: u32) -> bool {
    same_table(a, b).unwrap()
}

/// What a lane without connections has, by kind: an event queue, a bell, its end of the door, and a
/// socket for each address.
fn kinds(open: &BTreeMap<u32, String>) -> BTreeMap<&str, usize> {
    let mut kinds = BTreeMap::new();
    for file in open.values() {
        let kind = file.split_once(":[").map_or(file.as_str(), |(kind, id)| match kind {
            "anon_inode" => id,
            other => other,
        });
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

fn of_a_lane(addresses: usize) -> BTreeMap<&'static str, usize> {
    [("eventfd]", 1), ("eventpoll]", 1), ("socket", 1 + addresses)].into()
}

/// The sockets of all tables, none of which is in two.
fn distinct_sockets(tables: &[BTreeMap<u32, String>]) -> BTreeSet<&str> {
    let mut seen = BTreeSet::new();
    for socket in tables.iter().flat_map(BTreeMap::values).filter(|f| f.starts_with("socket:")) {
        assert!(seen.insert(socket.as_str()), "{socket} is open in two tables: {tables:?}");
    }
    seen
}

#[test]
fn no_two_lanes_share_a_table_nor_with_the_control_plane() {
    let rig = Rig::start();
    let threads = rig.threads();
    assert_eq!(threads.len(), LANES + 1);
    for (index, a) in threads.iter().enumerate() {
        for b in &threads[..index] {
            assert!(!same(*a, *b), "{a} and {b}");
        }
    }
    // A handler of a signal writes to a number of the control plane's.
    for lane in &threads[1..] {
        let status = format!("/proc/{}/task/{lane}/status", rig.sealane.process.id());
        let status = std::fs::read_to_string(status).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
        for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
            assert!(blocked >> (signal.as_raw() - 1) & 1 == 1, "{signal:?}");
        }
    }
    // Whatever else the process has is the control plane's.
    let others = rig.sealane.process.threads("").into_iter().filter(|id| !threads.contains(id));
    assert!(others.map(|other| assert!(same(other, threads[0]))).count() > 0);
    let tables = &rig.state()["file_tables"];
    let told = serde_json::json!({
        "lanes_that_share": 0, "lanes_with_own": LANES, "refusal": null
    });
    assert_eq!(*tables, told);
    rig.echo(0);
}

/// Listeners come and go; what a lane closes is closed, and nothing is left of it anywhere.
#[test]
fn after_a_thousand_reloads_each_lane_has_what_is_its_own() {
    let mut rig = Rig::start();
    let rounds = 500;
    for round in 0..rounds {
        rig.reload(true, 2 * round + 1);
        if round % 50 == 0 {
            rig.echo(1);
        }
        rig.reload(false, 2 * round + 2);
    }
    let tables = wait_for("the last connection has ended", || {
        let tables = rig.open();
        let at_rest = tables[1..].iter().all(|open| kinds(open) == of_a_lane(1));
        at_rest.then_some(tables)
    });
    // The control plane has the other end of each lane's door.
    let control = tables[0].values().filter(|file| file.starts_with("anon_inode:[eventfd]"));
    println!(
        "{rounds} times added and removed: {:?}, {} bells",
        kinds(&tables[1]),
        control.count()
    );
    distinct_sockets(&tables);
    let gone = TcpStream::connect(rig.address(1)).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::ConnectionRefused);
    rig.echo(0);
    rig.reload(true, 2 * rounds + 1);
    let tables = rig.open();
    assert!(tables[1..].iter().all(|open| kinds(open) == of_a_lane(2)), "{tables:?}");
    distinct_sockets(&tables);
    rig.echo(1);
}

/// A lane whose own table is full refuses a new listener, keeps what it has, and takes it later.
#[test]
fn a_lane_without_room_for_a_listener_changes_nothing() {
    const LIMIT: usize = 64;
    let mut rig = Rig::launch(1, |folder| limited(folder, LIMIT));
    // Two descriptors each, until the next would not be accepted.
    let room = LIMIT - rig.sealane.process.open_in(rig.threads()[1]).len();
    let mut clients: Vec<_> =
        (0..room / 2).map(|_| rig.connector.connect(rig.address(0)).unwrap()).collect();
    let spare = TcpStream::connect(rig.address(0)).unwrap();
    wait_for("the table is full", || {
        (rig.sealane.process.open_in(rig.threads()[1]).len() == LIMIT).then_some(())
    });
    wait_for("the client that has no backend, or the next one, is reported", || {
        let _another = TcpStream::connect(rig.address(0));
        (rig.sealane.count_said("out of file descriptors") == 1).then_some(())
    });
    rig.settings.write(rig.folder.path());
    rig.sealane.signal(Signal::HUP);
    rig.sealane.wait_until_said("lane 0 does not take its sockets: it has no file descriptor left");
    rig.sealane.wait_until_said("reload refused, generation 1 goes on");
    for client in &mut clients {
        client.echo(b"served as before").unwrap();
    }
    let refused = TcpStream::connect(rig.address(1)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "nothing is left bound");
    drop((clients, spare));
    wait_for("there is room", || {
        (rig.sealane.process.open_in(rig.threads()[1]).len() < LIMIT / 2).then_some(())
    });
    rig.sealane.signal(Signal::HUP);
    rig.sealane.wait_until_reloaded(1);
    rig.echo(1);
}

/// A program that starts Sealane with so many open files at most.
fn limited(folder: &Path, limit: usize) -> PathBuf {
    let program = folder.join("limited");
    write_program(&program, &format!("#!/bin/sh\nulimit -n {limit}\nexec {BINARY} \"$@\"\n"));
    program
}

/// Docker's filter, without privileges, refuses to unshare anything; the table of open files is
/// none of what it protects.
#[test]
fn what_a_container_refuses_takes_no_lane_its_table() {
    let Some(_) = required("python3") else { return };
    let rig = Rig::launch(LANES, |folder| filtered(folder, "unshare setns mount clone3"));
    assert_eq!(rig.state()["file_tables"]["lanes_with_own"], LANES);
    rig.echo(0);
}

/// An old filter does not know close_range: lanes share, all else is as it was, and it is said.
#[test]
fn where_the_kernel_refuses_lanes_share_one_table_and_say_so() {
    let Some(_) = required("python3") else { return };
    let mut rig = Rig::launch(LANES, |folder| filtered(folder, "unshare close_range"));
    assert_eq!(rig.sealane.count_said("all lanes share one table of open files"), 1);
    let threads = rig.threads();
    assert!(threads[1..].iter().all(|lane| same(*lane, threads[0])));
    let tables = &rig.state()["file_tables"];
    assert_eq!(tables["lanes_that_share"], LANES, "{tables}");
    assert_eq!(tables["refusal"], "Operation not permitted (os error 1)");
    let metrics = rig.sealane.metrics();
    assert_eq!(metrics.sum("sealane_lanes_with_own_file_table", &[]), 0);
    for times in 0..10 {
        rig.reload(true, 2 * times + 1);
        rig.echo(1);
        rig.reload(false, 2 * times + 2);
    }
    let gone = TcpStream::connect(rig.address(1)).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(rig.sealane.count_said("all lanes share one table of open files"), 1, "once");
    let program = rig.folder.path().join("filtered");
    let file = rig.folder.path().join("sealane.toml");
    let said = Command::new(program).arg("check").arg("--config").arg(file).output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(text.contains("warning: all lanes share one table of open files, for"), "{text}");
    assert!(text.contains("one table for all"), "{text}");
}

/// A limit holds for each lane's table: more connections than one table may have are all served.
#[test]
fn the_limit_of_open_files_holds_for_each_lane() {
    const LIMIT: usize = 100;
    let rig = Rig::launch(4, |folder| limited(folder, LIMIT));
    // The kernel spreads them as it likes: so many that no lane is full, and one table would be.
    let mut clients: Vec<_> =
        (0..80).map(|_| rig.connector.connect(rig.address(0)).unwrap()).collect();
    for client in &mut clients {
        client.echo(b"beyond the limit of one table").unwrap();
    }
    assert!(rig.sealane.process.descriptors() > LIMIT + 80);
    assert_eq!(
        rig.sealane.count_said("WARN  serve: limits.connections: the"),
        1,
        "as check has it"
    );
}
