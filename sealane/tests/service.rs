//! What a service manager sees: readiness, reloads, the end, and lanes on processors of their own.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints its figures"
)]

mod harness;

use std::os::unix::net::UnixDatagram;

use harness::certificates::{Authority, KeyKind, NAMES};
use harness::sealane::{ListenerSettings, Sealane, Settings};
use harness::{PATIENCE, wait_for};
use rustix::process::Signal;
use tempfile::TempDir;

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

fn site() -> (TempDir, Settings) {
    let folder = tempfile::tempdir().unwrap();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, Authority::new().leaf(KeyKind::P256, &NAMES)).unwrap();
    let listener = ListenerSettings::new("site", &certificate, &"127.0.0.1:9");
    (folder, Settings::new(vec![listener]))
}
