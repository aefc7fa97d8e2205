//! Backends by name, while names lead somewhere and while they do not.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use rustls::version::TLS13;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::wait_for;

const NAME: &str = "backend.sealane.test";

/// A process whose /etc/hosts is `hosts`; none if this user may not mount.
fn start(folder: &Path, settings: &Settings, hosts: &Path) -> Option<Sealane> {
    const MOUNTED: &str = "mount --bind \"$1\" /etc/hosts || exit 77; shift; exec \"$@\"";
    let in_place = |command: &mut Command| {
        command.args(["--mount", "sh", "-c", MOUNTED, "sh"]).arg(hosts).stdin(Stdio::null());
    };
    let mut probe = Command::new("unshare");
    in_place(&mut probe);
    if !probe.arg("true").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: this user may not mount a file");
        return None;
    }
    let mut command = Command::new("unshare");
    in_place(&mut command);
    command.arg(BINARY);
    let mut sealane = Sealane::launch_by(folder, settings, command);
    sealane.wait_until_said("sealane: ready");
    Some(sealane)
}

#[test]
fn a_name_that_leads_nowhere_at_the_start_is_served_once_it_leads_somewhere() {
    let backend = Backend::echo_for_many();
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let hosts: PathBuf = folder.path().join("hosts");
    std::fs::write(&hosts, "").unwrap();
    let named = format!("{NAME}:{}", backend.address.port());
    let listener = ListenerSettings::new("site", &certificate, &named);
    let address = listener.address;
    let mut settings = Settings::new(vec![listener]);
    let Some(mut sealane) = start(folder.path(), &settings, &hosts) else { return };
    assert_eq!(sealane.count_said(&format!("{named} does not resolve yet: ")), 1);
    let connector = Connector::new(authority.der(), &TLS13);
    let is_served = || {
        let client = connector.connect(address);
        client.is_ok_and(|mut client| client.echo(b"a word").is_ok())
    };
    assert!(!is_served());
    sealane.wait_for_metrics("it is told why", |metrics| metrics.ended("backend_refused") == 1);

    // In place, for it is this file that is mounted.
    std::fs::write(&hosts, format!("127.0.0.1 {NAME}\n")).unwrap();
    sealane.wait_until_said("backends are found: generation 2");
    wait_for("it is served", || is_served().then_some(()));

    // A reload while names lead nowhere keeps what was known, but takes nothing that is new.
    std::fs::write(&hosts, "").unwrap();
    sealane.signal(Signal::HUP);
    sealane.wait_until_reloaded(1);
    assert_eq!(sealane.count_said(&format!("{named} does not resolve any more: ")), 1);
    assert!(is_served());
    settings.listeners[0].backends.push("new.sealane.test:1".into());
    settings.write(folder.path());
    sealane.wait_until_said("backend new.sealane.test:1 cannot be looked up: ");
    assert!(is_served());
    assert_eq!(sealane.stop(), Some(0));
}
