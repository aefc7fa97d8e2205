//! What a service manager sees: readiness, reloads, the end, and lanes on processors of their own.

use std::io::Read as _;
use std::process::Command;
use std::time::Duration;

use nix::sys::ptrace;
use nix::unistd::Pid;
use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::systemd::ServiceManager;
use crate::harness::{PATIENCE, wait_for};

#[test]
fn the_service_manager_is_told_of_readiness_of_reloads_and_of_the_end() {
    let (folder, settings) = site();
    let managers = [ServiceManager::new(folder.path()), ServiceManager::abstract_in(folder.path())];
    for manager in managers {
        let mut sealane = manager.start(folder.path(), &settings);
        let step = "EXTEND_TIMEOUT_USEC=60000000\n";
        assert_eq!(manager.read_until(""), step, "it starts");
        // After its one listener, each of the lanes.
        let next = std::iter::repeat_with(|| manager.read_until(""));
        let steps = next.take_while(|told| !told.contains("READY=1")).filter(|told| told == step);
        assert_eq!(steps.count(), settings.lanes);
        sealane.process.signal(Signal::HUP);
        // Whatever is told next.
        assert!(manager.read_until("").starts_with("RELOADING=1\nMONOTONIC_USEC="));
        manager.read_until("READY=1");
        sealane.process.signal(Signal::TERM);
        assert!(manager.read_until("").contains("STOPPING=1"));
        assert_eq!(sealane.process.wait(PATIENCE).code(), Some(0));
    }
}

#[test]
fn a_lane_that_stands_still_is_told_to_the_service_manager() {
    let (folder, mut settings) = site();
    settings.environment = vec![("WATCHDOG_USEC".into(), "300000".into())];
    let manager = ServiceManager::new(folder.path());
    let mut sealane = manager.start(folder.path(), &settings);
    for _ in 0..3 {
        manager.read_until("WATCHDOG=1");
    }
    let lane = sealane.process.threads("lane-1")[0];
    let still = Still::new(Pid::from_raw(i32::try_from(lane).unwrap()));
    sealane.wait_until_said("lane 1 does not answer");
    manager.count_waiting("");
    // So many times it could have been told since.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(manager.count_waiting("WATCHDOG=1"), 0, "a lane stands still");
    drop(still);
    manager.read_until("WATCHDOG=1");
    assert_eq!(sealane.stop(), Some(0));
}

/// A thread of a child that stands still until this goes.
struct Still(Pid);

impl Still {
    fn new(thread: Pid) -> Self {
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        let still = Self(thread);
        ptrace::interrupt(thread).unwrap();
        still
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        // Or else its process could not be waited for.
        let _ = ptrace::detach(self.0, None);
    }
}

#[test]
fn the_journal_is_told_how_much_a_line_matters() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("sealane.toml");
    std::fs::write(&config, "lanes = 0\n").unwrap();
    for is_journal in [true, false] {
        let (mut said, stderr) = std::io::pipe().unwrap();
        let file = rustix::fs::fstat(&stderr).unwrap();
        let inode = file.st_ino + u64::from(!is_journal);
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(&config).stderr(stderr);
        let status = command.env("JOURNAL_STREAM", format!("{}:{inode}", file.st_dev)).status();
        assert_eq!(status.unwrap().code(), Some(3));
        drop(command);
        let mut lines = String::new();
        said.read_to_string(&mut lines).unwrap();
        assert!(lines.lines().count() > 1, "{lines}");
        assert!(lines.lines().all(|line| line.starts_with("<3>") == is_journal), "{lines}");
    }
}

#[test]
fn lanes_start_before_all_other_threads() {
    let (folder, settings) = site();
    let sealane = Sealane::start(folder.path(), &settings);
    // The kernel lists threads in the order of their starts; the first is the control plane.
    let [all, lanes] = ["", "lane-"].map(|name| sealane.process.threads(name));
    assert_eq!(lanes.len(), settings.lanes);
    assert_eq!(all[1..=lanes.len()], lanes);
}

#[test]
fn pinned_lanes_run_on_a_processor_each() {
    let (folder, mut settings) = site();
    settings.more = "pin_lanes = true".into();
    // More lanes than processors: they go around.
    settings.lanes = std::thread::available_parallelism().unwrap().get() + 1;
    let sealane = Sealane::start(folder.path(), &settings);
    let process = sealane.process.id();
    let processors = wait_for("all lanes are pinned", || {
        let mut processors: Vec<String> = (sealane.process.threads("lane-").iter())
            .map(|thread| {
                let status = format!("/proc/{process}/task/{thread}/status");
                let status = std::fs::read_to_string(status).unwrap();
                let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list"));
                line.unwrap().split_whitespace().nth(1).unwrap().to_owned()
            })
            .collect();
        (processors.len() == settings.lanes).then(|| {
            processors.sort_unstable();
            processors.dedup();
            processors
        })
    });
    assert_eq!(processors.len(), settings.lanes - 1, "{processors:?}");
    assert!(processors.iter().all(|list| list.parse::<usize>().is_ok()), "{processors:?}");
}

#[test]
fn with_a_root_file_tickets_resume_after_a_restart_and_without_one_they_do_not() {
    for (root, resumes) in [(true, true), (false, false)] {
        for version in [&TLS12, &TLS13] {
            let backend = Backend::echo_for_many();
            let (folder, authority, mut settings) = site_before(&backend);
            if root {
                settings.more = "tickets = { root = \"tickets.root\" }".into();
            }
            let address = settings.listeners[0].address;
            let connector = Connector::new(authority.der(), version);
            let visit = || {
                let mut client = connector.connect(address).unwrap();
                client.echo(b"a word").unwrap();
                client.resumed()
            };
            let sealane = Sealane::start(folder.path(), &settings);
            assert!(!visit());
            assert!(visit());
            sealane.stop();
            let _sealane = Sealane::start(folder.path(), &settings);
            assert_eq!(visit(), resumes, "{version:?}, with a root file: {root}");
        }
    }
}

#[test]
fn the_access_log_has_a_line_for_each_connection() {
    let backend = Backend::echo_for_many();
    let (folder, authority, mut settings) = site_before(&backend);
    settings.more = "access_log = { path = \"access.log\" }".into();
    let sealane = Sealane::start(folder.path(), &settings);
    let connector = Connector::new(authority.der(), &TLS13);
    for _ in 0..3 {
        let mut client = connector.connect(settings.listeners[0].address).unwrap();
        client.echo(b"five.").unwrap();
    }
    assert_eq!(sealane.stop(), Some(0));
    let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{log}");
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(line["tls_version"], "TLSv1.3");
        assert_eq!(line["received_bytes"], 5);
        assert_eq!(line["backend"], backend.address.to_string());
        assert!(line["resumed"].is_boolean() && line["cause"].is_string(), "{number}: {line}");
    }
}

fn site_before(backend: &Backend) -> (TempDir, Authority, Settings) {
    site_before_address(&backend.address)
}

fn site_before_address(backend: &impl ToString) -> (TempDir, Authority, Settings) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let listener = ListenerSettings::new("site", &certificate, backend);
    (folder, authority, Settings::new(vec![listener]))
}

fn site() -> (TempDir, Settings) {
    let (folder, _, settings) = site_before_address(&"127.0.0.1:9");
    (folder, settings)
}
