//! The process: who it is once root has started it, and who may look into it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, geteuid};
use rustix::thread::{CapabilitySet, capabilities};
use rustls::version::TLS13;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::site::Site;
use crate::harness::tools::{self, required};
use crate::harness::{PATIENCE, wait_for};

/// A user that every machine has, and nobody is.
const NOBODY: &str = "nobody";

/// What a process needs that is another user's: a folder that is that user's.
struct Rig {
    connector: Connector,
    folder: tempfile::TempDir,
    settings: Settings,
    user: u32,
}

impl Rig {
    /// For a process with these lines before its tables; none for who is not root, and so cannot
    /// become somebody else.
    fn new(more: &str) -> Option<Self> {
        if !geteuid().is_root() {
            println!("SKIPPED: it takes root to become somebody else");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let backend = Backend::echo_for_many().address;
        let listener = ListenerSettings::new("site", &certificate, &backend);
        let mut settings = Settings::new(vec![listener]);
        settings.more = more.into();
        let id = tools::output(Command::new("id").args(["-u", NOBODY]));
        let user = id.trim().parse().unwrap();
        for path in [folder.path(), &certificate] {
            chown(path, Some(user), None).unwrap();
        }
        let connector = Connector::new(authority.der(), &TLS13);
        Some(Self { connector, folder, settings, user })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn start(&self) -> Sealane {
        Sealane::start(self.path(), &self.settings)
    }

    /// Starts it by `command`, as a program that is added to it.
    fn start_by(&self, command: &[&str]) -> Sealane {
        let mut by = Command::new(command[0]);
        by.args(&command[1..]).arg(BINARY).current_dir(self.path());
        let mut sealane = Sealane::launch_by(self.path(), &self.settings, by);
        sealane.wait_until_said("serve: ready");
        sealane
    }

    fn visit(&self, address: SocketAddr) {
        let mut client = self.connector.connect(address).unwrap();
        client.echo(b"a word").unwrap();
    }

    /// What `serve` says of a configuration that it does not take, and what `check` says.
    fn refused(&self) -> [String; 2] {
        self.settings.write(self.path());
        ["serve", "check"].map(|command| self.refused_by(command))
    }

    fn refused_by(&self, command: &str) -> String {
        let mut sealane = Command::new(BINARY);
        sealane.args([command, "--config"]).arg(self.path().join("sealane.toml"));
        let output = tools::run(&mut sealane);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }
}

/// What the kernel says of a field of every thread of a process: one thing.
fn of_all_threads(sealane: &Sealane, field: &str) -> String {
    let process = sealane.process.id();
    let mut values: Vec<String> = (sealane.process.threads("").iter())
        .map(|thread| {
            let status = format!("/proc/{process}/task/{thread}/status");
            let status = fs::read_to_string(status).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
            line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert!(values.len() > 4, "it has lanes, and threads beside them");
    values.dedup();
    assert_eq!(values.len(), 1, "{field}: {values:?}");
    values.remove(0)
}

#[test]
fn every_thread_leaves_root_with_one_capability_and_what_it_makes_is_the_users() {
    let log = "[access_log]\npath = \"access.log\"";
    let Some(rig) = Rig::new(&format!("process.user = {NOBODY:?}\n{log}")) else { return };
    let mut sealane = rig.start();
    let user = rig.user.to_string();
    assert_eq!(of_all_threads(&sealane, "Uid"), [user.as_str(); 4].join(" "));
    let group = tools::output(Command::new("id").args(["-g", NOBODY]));
    assert_eq!(of_all_threads(&sealane, "Gid"), [group.trim(); 4].join(" "));
    let groups = tools::output(Command::new("id").args(["-G", NOBODY]));
    assert_eq!(of_all_threads(&sealane, "Groups"), groups.trim());
    let bind = 1 << 10;
    let sets = [("CapPrm", bind), ("CapEff", bind), ("CapBnd", bind), ("CapInh", 0), ("CapAmb", 0)];
    for (set, only) in sets {
        let found = u64::from_str_radix(&of_all_threads(&sealane, set), 16).unwrap();
        assert_eq!(found, only, "{set}: CAP_NET_BIND_SERVICE is number 10");
    }
    assert_eq!(of_all_threads(&sealane, "NoNewPrivs"), "1");
    let state: Value = serde_json::from_str(&sealane.admin("/state")).unwrap();
    assert_eq!(state["process"]["user"], rig.user);
    rig.visit(rig.settings.listeners[0].address);
    // What is moved away is opened again, in a folder that root left to the user.
    let path = |name: &str| rig.path().join(name);
    fs::rename(path("access.log"), path("access.log.1")).unwrap();
    sealane.signal(Signal::HUP);
    sealane.wait_until_reloaded(1);
    wait_for("the log is there again", || fs::metadata(path("access.log")).ok());
    for name in ["access.log", "access.log.1", "admin.sock"] {
        assert_eq!(fs::metadata(path(name)).unwrap().uid(), rig.user, "{name}");
    }
    assert_eq!(sealane.count_said("process: runs as the user nobody"), 1);
    assert_eq!(sealane.count_said("serves as root"), 0);
    assert_eq!(sealane.stop(), Some(0));
    assert!(!path("admin.sock").exists(), "its file goes with it");
}

#[test]
fn the_group_is_the_one_that_is_named_and_those_that_the_user_is_in() {
    let Some(rig) = Rig::new("process = { user = \"q\", group = \"named\" }") else { return };
    if required("unshare").is_none() {
        return;
    }
    let file = |name: &str, text: &str| {
        let path = rig.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // Users of its own alone, in a view of the file system of its own.
    let users = file("passwd", &format!("root:x:0:0::/:\nq:x:{}:1:::\n", rig.user));
    let groups = file("group", "root:x:0:\nown:x:1:\nnamed:x:70001:\nfurther:x:70002:x,q\n");
    let script = format!(
        "mount --bind {users} /etc/passwd && mount --bind {groups} /etc/group && exec \"$@\""
    );
    let sealane = rig.start_by(&["unshare", "--mount", "sh", "-c", &script, "sh"]);
    assert_eq!(of_all_threads(&sealane, "Uid"), [rig.user.to_string().as_str(); 4].join(" "));
    assert_eq!(of_all_threads(&sealane, "Gid"), ["70001"; 4].join(" "));
    assert_eq!(of_all_threads(&sealane, "Groups"), "70001 70002");
}

/// An address at a port that only some may bind, and that no other test has.
fn low() -> SocketAddr {
    let [.., a, b] = std::process::id().to_be_bytes();
    ([127, 83, a, b], 81).into()
}

#[test]
fn a_reload_binds_a_low_port_if_root_started_it_and_else_says_why_not() {
    let Some(mut rig) = Rig::new(&format!("process.user = {NOBODY:?}")) else { return };
    let Some(setpriv) = required("setpriv") else { return };
    let mut low_listener = rig.settings.listeners[0].clone();
    (low_listener.name, low_listener.address) = ("low".into(), low());
    let [first, both] = [vec![], vec![low_listener]]
        .map(|more| [vec![rig.settings.listeners[0].clone()], more].concat());
    let mut sealane = rig.start();
    rig.settings.listeners = both.clone();
    rig.settings.write(rig.path());
    sealane.wait_until_reloaded(1);
    rig.visit(low());
    assert_eq!(sealane.stop(), Some(0));
    // Somebody who never had the capability is told what is missing, and goes on.
    rig.settings.listeners = first;
    rig.settings.more.clear();
    let ids = [format!("--reuid={NOBODY}"), format!("--regid={}", rig.user)];
    let setpriv = setpriv.to_str().unwrap();
    let mut sealane = rig.start_by(&[setpriv, &ids[0], &ids[1], "--clear-groups"]);
    rig.settings.listeners = both;
    rig.settings.write(rig.path());
    sealane.wait_until_said("reload: reload refused");
    let said = format!("cannot listen on {}: Permission denied", low());
    wait_for("the reason", || (sealane.count_said(&said) == 1).then_some(()));
    let said = sealane.said().join("\n");
    assert!(said.contains("low ports are for root") && said.contains("CAP_NET_BIND_SERVICE"));
    rig.visit(rig.settings.listeners[0].address);
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn what_that_user_cannot_read_or_be_is_told_at_once_by_serve_and_check() {
    let Some(mut rig) = Rig::new("process.user = \"zzz-nobody\"") else { return };
    let unknown = "process.user: there is no user \"zzz-nobody\" on this machine";
    let cases = [
        ("process.user = \"zzz-nobody\"", unknown),
        ("process.user = \"root\"", "process.user: \"root\" is root, with whom nothing is left"),
        (
            "process = { user = \"nobody\", group = \"zzz\" }",
            "process.group: there is no group \"zzz\" on this machine",
        ),
        (
            "process.group = \"nobody\"",
            "sealane.toml:2:17: process.group: means nothing without a user",
        ),
        ("process.user = \"a:b\"", "process.user: \"a:b\" is not the name of a user or a group"),
    ];
    for (more, expected) in cases {
        rig.settings.more = more.into();
        for said in rig.refused() {
            assert!(said.contains(expected), "{said}");
        }
    }
    // `check` reads as that user, and reports a certificate that only root may read.
    rig.settings.more = format!("process.user = {NOBODY:?}");
    let certificate = rig.path().join("site.pem");
    chown(&certificate, Some(0), None).unwrap();
    fs::set_permissions(&certificate, PermissionsExt::from_mode(0o600)).unwrap();
    let expected =
        format!("site.pem: the user of this process, number {}, may not read it", rig.user);
    rig.settings.write(rig.path());
    let said = rig.refused_by("check");
    assert!(said.contains(&expected), "{said}");
    chown(&certificate, Some(rig.user), None).unwrap();
    chown(rig.path(), Some(0), None).unwrap();
    fs::set_permissions(rig.path(), PermissionsExt::from_mode(0o700)).unwrap();
    for said in rig.refused() {
        assert!(said.contains("sealane.toml: cannot be read: Permission denied"), "{said}");
    }
}

#[test]
fn only_root_becomes_somebody_and_whoever_is_that_user_stays_it() {
    let Some(mut rig) = Rig::new("process.user = \"daemon\"") else { return };
    let Some(setpriv) = required("setpriv") else { return };
    rig.settings.write(rig.path());
    let mut command = Command::new(&setpriv);
    command.args(["--reuid", NOBODY, "--clear-groups", BINARY, "serve", "--config"]);
    let output = tools::run(command.arg(rig.path().join("sealane.toml")));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!("only root can become \"daemon\", and this is the user {}", rig.user);
    assert!(output.status.code() == Some(3) && said.contains(&expected), "{said}");
    rig.settings.more = format!("process.user = {NOBODY:?}");
    let setpriv = setpriv.to_str().unwrap();
    let sealane = rig.start_by(&[setpriv, "--reuid", NOBODY, "--clear-groups"]);
    assert_eq!(sealane.count_said("runs as"), 0, "{:?}", sealane.said());
    rig.visit(rig.settings.listeners[0].address);
    drop(sealane);

    // Of its own user, but not of the group that is named.
    rig.settings.more = format!("process = {{ user = {NOBODY:?}, group = \"daemon\" }}");
    rig.settings.write(rig.path());
    let mut command = Command::new(setpriv);
    command.args([
        "--reuid",
        NOBODY,
        "--regid",
        "0",
        "--clear-groups",
        BINARY,
        "serve",
        "--config",
    ]);
    let output = tools::run(command.arg(rig.path().join("sealane.toml")));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "process.group: \"daemon\" is not the group of this process, which is 0";
    assert!(output.status.code() == Some(3) && said.contains(expected), "{said}");
}

/// The process is another user's, because root may look into all of its own.
#[test]
fn no_core_is_left_and_nobody_of_that_user_looks_in_unless_that_is_allowed() {
    for is_allowed in [false, true] {
        let more = format!("process = {{ user = {NOBODY:?}, allow_core_dump = {is_allowed} }}");
        let Some(rig) = Rig::new(&more) else { return };
        let mut sealane = rig.start_by(&["sh", "-c", "ulimit -c unlimited && exec \"$@\"", "sh"]);
        let process = sealane.process.id();
        // The kernel gives to root what others of the user may not look into.
        let owner = fs::metadata(format!("/proc/{process}/environ")).unwrap().uid();
        assert_eq!(owner, if is_allowed { rig.user } else { 0 });
        let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
        let limit = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let limit: Vec<_> = limit.split_whitespace().skip(4).take(2).collect();
        assert_eq!(limit, [if is_allowed { "unlimited" } else { "0" }; 2]);
        let state: Value = serde_json::from_str(&sealane.admin("/state")).unwrap();
        assert_eq!(state["process"]["core_dump"], is_allowed);
        sealane.signal(Signal::ABORT);
        let status = sealane.process.wait(PATIENCE);
        assert_eq!((status.signal(), status.core_dumped()), (Some(6), is_allowed));
    }
}

#[test]
fn root_without_user_is_warned() {
    let Some(rig) = Rig::new("") else { return };
    let mut sealane = rig.start();
    sealane.wait_until_said("serve: running as root");
    assert_eq!(of_all_threads(&sealane, "NoNewPrivs"), "1");
}

/// What the kernel says of each part of a process's memory: whether it is locked. The state of the
/// kernel's random numbers is left out: that is dropped, and never swapped.
fn parts(process: u32) -> Vec<(String, bool)> {
    let maps = fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
    let mut parts = Vec::new();
    let mut name = "";
    for line in maps.lines() {
        if line.split_once(' ').is_some_and(|(range, _)| range.contains('-')) {
            name = line;
        } else if let Some(flags) = line.strip_prefix("VmFlags: ") {
            let has = |wanted| flags.split(' ').any(|flag| flag == wanted);
            if !has("dp") {
                parts.push((name.to_owned(), has("lo")));
            }
        }
    }
    parts
}

#[test]
fn memory_is_locked_where_the_limit_allows_all_of_it_and_else_that_is_said() {
    let Some(mut rig) = Rig::new("") else { return };
    let (Some(prlimit), Some(setpriv)) = (required("prlimit"), required("setpriv")) else { return };
    let prlimit = [prlimit.to_str().unwrap(), "--memlock=65536:65536"];
    let setpriv = [setpriv.to_str().unwrap(), "--reuid", NOBODY, "--clear-groups"];
    let own = capabilities(None).unwrap().effective;
    let become_nobody = format!("process.user = {NOBODY:?}");
    // Root locks what it likes, and raises the limit for the user that it becomes; the root of some
    // machines and containers may not.
    let as_nobody = [&prlimit[..], &setpriv].concat();
    for (command, more, is_locked) in [
        (&prlimit[..], "", own.contains(CapabilitySet::IPC_LOCK)),
        (&prlimit, &*become_nobody, own.contains(CapabilitySet::SYS_RESOURCE)),
        (&as_nobody, "", false),
    ] {
        rig.settings.more = more.into();
        let mut sealane = rig.start_by(command);
        rig.visit(rig.settings.listeners[0].address);
        if !is_locked {
            sealane.wait_until_said("memory with keys may be written to swap");
        }
        let mut parts = parts(sealane.process.id());
        parts.retain(|(name, _)| name.contains(" rw-p ") && !name.contains("[vvar"));
        // Stacks, heaps and what threads were given later.
        assert!(parts.len() > 10, "{parts:?}");
        let others: Vec<_> = parts.iter().filter(|(_, locked)| *locked != is_locked).collect();
        assert!(others.is_empty(), "{command:?} {more}: {others:?}");
        let state: Value = serde_json::from_str(&sealane.admin("/state")).unwrap();
        assert_eq!(state["process"]["memory_locked"], is_locked, "{}", state["process"]);
        let why = "this process may lock 64KiB of it, and locks all or nothing; \
                   LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited, allows it";
        let said = sealane.said().join("\n");
        let is_said = said.contains("memory with keys may be written to swap");
        assert_eq!((is_said, said.contains(why)), (!is_locked, !is_locked), "{said}");
        let status = tools::output(&mut sealane.command(&["status"]));
        assert_eq!(status.contains(why), !is_locked, "{status}");
        let checked = Command::new(command[0])
            .args(&command[1..])
            .args([BINARY, "check", "--config"])
            .arg(rig.path().join("sealane.toml"))
            .output();
        let checked = String::from_utf8(checked.unwrap().stdout).unwrap();
        assert_eq!(checked.contains(why), !is_locked, "{checked}");
        assert_eq!(sealane.stop(), Some(0));
        // What the next user could not remove.
        wait_for("the socket is gone", || (!rig.path().join("admin.sock").exists()).then_some(()));
    }
}

/// The pages of a store are a file's: locked, each that was ever read would stay in memory.
#[test]
fn of_locked_memory_a_store_is_no_part() {
    let site = Site::start();
    site.served("kept.test").unwrap();
    let process = site.sealane().process.id();
    if !capabilities(None).unwrap().effective.contains(CapabilitySet::IPC_LOCK) {
        println!("SKIPPED: it takes root to lock memory here");
        return;
    }
    let parts = parts(process);
    let store = parts.iter().filter(|(name, _)| name.ends_with("/store/data.mdb"));
    let store: Vec<_> = store.map(|(_, is_locked)| *is_locked).collect();
    assert_eq!(store, [false], "{parts:?}");
    assert!(parts.iter().any(|(_, is_locked)| *is_locked), "{parts:?}");
}
