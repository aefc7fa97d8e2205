//! What a service manager sees: readiness, reloads, the end, and lanes on processors of their own.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::{PATIENCE, wait_for};

#[test]
fn the_service_manager_is_told_of_readiness_of_reloads_and_of_the_end() {
    let (folder, mut settings) = site();
    let path = folder.path().join("notify.sock");
    let told = UnixDatagram::bind(&path).unwrap();
    told.set_read_timeout(Some(PATIENCE)).unwrap();
    settings.environment = vec![("NOTIFY_SOCKET".into(), path.display().to_string())];
    let mut sealane = Sealane::start(folder.path(), &settings);
    let next = || {
        let mut message = [0; 256];
        let len = told.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..len]).into_owned()
    };
    assert!(next().contains("READY=1"));
    sealane.process.signal(Signal::HUP);
    assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(next().contains("READY=1"));
    sealane.process.signal(Signal::TERM);
    assert!(next().contains("STOPPING=1"));
    assert_eq!(sealane.process.wait(PATIENCE).code(), Some(0));
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
        assert_eq!(line["client_bytes"], 5);
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
