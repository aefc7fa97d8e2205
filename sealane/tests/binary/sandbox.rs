//! What the process may open since its start: what its configuration needs, and nothing else.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use rustls::version::TLS13;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::tools;
use crate::harness::wait_for;

/// A configuration in one folder, and all that it may come to want in another.
struct Rig {
    authority: Authority,
    backend: Backend,
    connector: Connector,
    home: TempDir,
    settings: Settings,
    world: TempDir,
}

impl Rig {
    /// With these lines before its tables.
    fn new(more: &str) -> Self {
        let (authority, backend) = (Authority::new(), Backend::echo_for_many());
        let [home, world] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let connector = Connector::new(authority.der(), &TLS13);
        let settings = Settings::new(Vec::new());
        let mut rig = Self { authority, backend, connector, home, settings, world };
        rig.settings.more = more.into();
        let certificate = rig.home.path().join("site.pem");
        rig.certify(&certificate);
        rig.settings.listeners = vec![rig.listener("site", &certificate)];
        rig
    }

    /// Writes a certificate with its key, and the folders around it.
    fn certify(&self, file: &Path) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, self.authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    }

    fn listener(&self, name: &str, certificates: &Path) -> ListenerSettings {
        ListenerSettings::new(name, certificates, &self.backend.address)
    }

    /// None where the kernel has no Landlock.
    fn start(&self) -> Option<Sealane> {
        let sealane = Sealane::start(self.home.path(), &self.settings);
        let process = process_of(&sealane);
        let refusal = process["landlock_refusal"].as_str().unwrap_or_default();
        if refusal.starts_with("the kernel has ") {
            println!("SKIPPED: {refusal}");
            return None;
        }
        Some(sealane)
    }

    fn write(&self) {
        self.settings.write(self.home.path());
    }

    fn visit(&self, address: SocketAddr) {
        let mut client = self.connector.connect(address).unwrap();
        client.echo(b"a word").unwrap();
    }

    /// Somewhere in the world.
    fn at(&self, name: &str) -> PathBuf {
        self.world.path().join(name)
    }

    /// Lets `sealane` read the settings, and returns why it does not take them, for the first time.
    fn refusal(&self, sealane: &mut Sealane) -> String {
        self.write();
        sealane.wait_until_said("reload refused");
        let said = wait_for("the reason", || {
            let said = sealane.said();
            let at = said.iter().position(|line| line.contains("reload refused"))?;
            // Each line has time, level and target before it.
            let texts = said[at + 1..].iter().map(|line| line.split_once(" reload: "));
            let texts: Vec<_> = texts.map(|parts| parts.map_or("", |(_, text)| text)).collect();
            Some(texts.join("\n")).filter(|text| !text.is_empty())
        });
        self.visit(self.settings.listeners[0].address);
        said
    }
}

fn process_of(sealane: &Sealane) -> Value {
    let state: Value = serde_json::from_str(&sealane.admin("/state")).unwrap();
    state["process"].clone()
}

#[test]
fn a_reload_that_wants_another_folder_is_refused_by_its_line_unless_that_was_foreseen() {
    let mut rig = Rig::new("");
    let new = rig.at("new/other.pem");
    rig.certify(&new);
    let Some(mut sealane) = rig.start() else { return };
    assert!(process_of(&sealane)["landlock"].as_i64().unwrap() >= 1);
    let before = rig.settings.listeners[0].certificates.replace(new.clone());
    let said = rig.refusal(&mut sealane);
    let text = fs::read_to_string(rig.home.path().join("sealane.toml")).unwrap();
    let line = 1 + text.lines().position(|line| line.starts_with("certificates")).unwrap();
    let expected = format!(
        "{}:{line}:17: listener[0].certificates[0]: {} is outside of what this process may read \
         since its start (Landlock); restart Sealane; if it will be replaced again, name the \
         folder around it in process.sandbox_read before that: {}",
        rig.home.path().join("sealane.toml").display(),
        new.display(),
        rig.world.path().display(),
    );
    assert_eq!(said, expected);
    assert_eq!(sealane.stop(), Some(0));

    // A restart allows it, and then what was there before is read again beside the configuration.
    let Some(mut sealane) = rig.start() else { return };
    rig.visit(rig.settings.listeners[0].address);
    rig.settings.listeners[0].certificates.clone_from(&before);
    rig.write();
    sealane.wait_until_reloaded(1);
    assert_eq!(sealane.stop(), Some(0));

    let foreseen = format!("process.sandbox_read = [{:?}]", rig.world.path());
    for (more, holds) in [(&*foreseen, true), ("process.sandbox = false", false)] {
        rig.settings.more = more.into();
        rig.settings.listeners[0].certificates.clone_from(&before);
        let Some(mut sealane) = rig.start() else { return };
        let process = process_of(&sealane);
        assert_eq!(process["landlock"].is_number(), holds, "{process}");
        let status = tools::output(&mut sealane.command(&["status"]));
        let unlimited = "what it may open is not limited: process.sandbox is false";
        assert_eq!(status.contains(unlimited), !holds, "{status}");
        rig.settings.listeners[0].certificates = Some(new.clone());
        rig.write();
        sealane.wait_until_reloaded(1);
        rig.visit(rig.settings.listeners[0].address);
        assert_eq!(sealane.count_said("not limited"), 0, "{:?}", sealane.said());
        assert_eq!(sealane.stop(), Some(0));
    }
}

/// A deployment replaces the whole certificate folder, and the operator applies the log's remedy.
#[test]
fn printed_remedy_lets_a_folder_be_replaced() {
    let mut rig = Rig::new("");
    let (folder, file) = (rig.at("certificates"), rig.at("certificates/site.pem"));
    rig.certify(&file);
    rig.settings.listeners[0].certificates = Some(folder.clone());
    let swap = |rig: &Rig, number: usize| {
        rig.certify(&rig.at("next/site.pem"));
        fs::rename(&folder, rig.at(&format!("before-{number}"))).unwrap();
        fs::rename(rig.at("next"), &folder).unwrap();
    };
    let Some(mut sealane) = rig.start() else { return };
    swap(&rig, 1);
    sealane.wait_until_said(" is outside of what this process may read");
    // Certificates that were read before are still served, and block no other file.
    rig.visit(rig.settings.listeners[0].address);
    let refused = [("outcome", "refused")];
    assert_eq!(sealane.metrics().sum("sealane_reloads_total", &refused), 0);
    let said = sealane.said().concat();
    let (_, remedy) = said.split_once("in process.sandbox_read before that: ").unwrap();
    let around = remedy.split(';').next().unwrap();
    rig.settings.more = format!("process.sandbox_read = [{around:?}]");
    assert_eq!(sealane.stop(), Some(0));

    let Some(sealane) = rig.start() else { return };
    swap(&rig, 2);
    sealane.wait_for_metrics("the reload", |metrics| {
        metrics.sum("sealane_reloads_total", &[("outcome", "accepted")]) > 0
    });
    assert_eq!(sealane.metrics().sum("sealane_material_faults", &[]), 0, "{:#?}", sealane.said());
}

/// Moves a link as who renews does.
fn relink(link: &Path, target: &str) {
    let beside = PathBuf::from(format!("{}.new", link.display()));
    symlink(target, &beside).unwrap();
    fs::rename(beside, link).unwrap();
}

#[test]
fn links_that_lead_on_are_followed_as_certbot_kubernetes_and_releases_move_them() {
    let mut rig = Rig::new("");
    let certbot = |rig: &Rig, name: &str, number: u32| {
        let [live, archive] =
            ["live", "archive"].map(|kind| rig.at("encrypt").join(kind).join(name));
        rig.certify(&archive.join(format!("fullchain{number}.pem")));
        fs::create_dir_all(&live).unwrap();
        let target = format!("../../archive/{name}/fullchain{number}.pem");
        relink(&live.join("fullchain.pem"), &target);
    };
    let kubernetes = |rig: &Rig, number: u32| {
        rig.certify(&rig.at(&format!("kube/..{number}/tls.pem")));
        relink(&rig.at("kube/..data"), &format!("..{number}"));
    };
    let release = |rig: &Rig, number: u32| {
        rig.certify(&rig.at(&format!("app/releases/{number}/tls.pem")));
        relink(&rig.at("app/current"), &format!("releases/{number}"));
    };
    certbot(&rig, "a.test", 1);
    kubernetes(&rig, 1);
    relink(&rig.at("kube/tls.pem"), "..data/tls.pem");
    release(&rig, 1);
    for (name, path) in
        [("certbot", "encrypt/live"), ("kube", "kube"), ("release", "app/current/tls.pem")]
    {
        let listener = rig.listener(name, &rig.at(path));
        rig.settings.listeners.push(listener);
    }
    let Some(mut sealane) = rig.start() else { return };
    let mut times = 0;
    let mut wait = |sealane: &mut Sealane| {
        times += 1;
        sealane.signal(Signal::HUP);
        sealane.wait_until_reloaded(times);
    };
    certbot(&rig, "a.test", 2);
    kubernetes(&rig, 2);
    release(&rig, 2);
    fs::remove_dir_all(rig.at("app/releases/1")).unwrap();
    wait(&mut sealane);
    // Another name, whose folder is new as well.
    certbot(&rig, "b.test", 1);
    wait(&mut sealane);
    for listener in &rig.settings.listeners {
        rig.visit(listener.address);
    }
    assert_eq!(sealane.count_said("reload refused"), 0, "{:?}", sealane.said());

    // A link that leads elsewhere is not followed, and both ends of it are named.
    let hidden = rig.at("hidden/x.pem");
    rig.certify(&hidden);
    symlink(&hidden, rig.at("kube/x.pem")).unwrap();
    sealane.signal(Signal::HUP);
    let leads = format!("{} leads to {}", rig.at("kube/x.pem").display(), hidden.display());
    sealane.wait_until_said(&leads);
    rig.visit(rig.settings.listeners[0].address);
}

/// The kernel's refusal, and not ours: a log is opened anew before anything is looked at.
#[test]
fn a_folder_that_a_link_puts_in_the_place_of_the_logs_gets_nothing() {
    let mut rig = Rig::new("");
    let logs = rig.at("logs");
    for folder in [&logs, &rig.at("hidden")] {
        fs::create_dir(folder).unwrap();
    }
    rig.settings.more = format!("access_log.path = {:?}", logs.join("access.log"));
    let Some(mut sealane) = rig.start() else { return };
    // Moved away as it is meant, and made again.
    fs::rename(logs.join("access.log"), logs.join("access.log.1")).unwrap();
    sealane.signal(Signal::HUP);
    wait_for("the log is there again", || fs::metadata(logs.join("access.log")).ok());
    fs::rename(&logs, rig.at("before")).unwrap();
    symlink(rig.at("hidden"), &logs).unwrap();
    sealane.signal(Signal::HUP);
    let expected = format!(
        "access_log.path: {} leads to {}, which is outside of what this process may write since \
         its start (Landlock); restart Sealane",
        logs.display(),
        rig.at("hidden").display()
    );
    sealane.wait_until_said(&expected);
    sealane.wait_until_said("Permission denied");
    rig.visit(rig.settings.listeners[0].address);
    assert_eq!(fs::read_dir(rig.at("hidden")).unwrap().count(), 0);
}

#[test]
fn sockets_stores_includes_and_programs_that_a_reload_wants_are_told_by_their_keys() {
    let rig = Rig::new("");
    for folder in ["sockets", "store", "conf.d"] {
        fs::create_dir(rig.at(folder)).unwrap();
    }
    let world = rig.world.path().display();
    let first = rig.settings.listeners[0].certificates.clone().unwrap();
    let key = rig.home.path().join("store.key");
    fs::write(&key, format!("{}=\n", "A".repeat(43))).unwrap();
    let key = format!("store_key.file = {key:?}");
    let at_socket = |listener: &mut ListenerSettings| {
        listener.socket = Some(rig.at("sockets/tls.sock"));
    };
    let in_store = |listener: &mut ListenerSettings| {
        listener.certificates = Some(format!("store:{world}/store").into());
    };
    let include = format!("include = [\"{world}/conf.d/*.toml\"]");
    type Change<'c> = &'c dyn Fn(&mut ListenerSettings);
    let cases: [(&str, Change<'_>, String); 4] = [
        (
            "",
            &at_socket,
            format!(
                "listener[1].address: {world}/sockets is outside of what this process may write"
            ),
        ),
        (
            &key,
            &in_store,
            format!(
                "listener[1].certificates[0]: {world}/store is outside of what this process may \
                 write"
            ),
        ),
        (
            &include,
            &|_| {},
            format!("include[0]: {world}/conf.d is outside of what this process may read"),
        ),
        (
            "store_key.command = [\"/bin/echo\", \"key\"]",
            &|_| {},
            "store_key.command[0]: this process can start no other program since its start \
             (Landlock); restart Sealane"
                .into(),
        ),
    ];
    for (more, change, expected) in cases {
        let mut rig = Rig { settings: rig.settings.clone(), ..Rig::new("") };
        rig.settings.environment.clear();
        let Some(mut sealane) = rig.start() else { return };
        let mut second = rig.listener("second", &first);
        change(&mut second);
        rig.settings.listeners.push(second);
        rig.settings.more = more.into();
        rig.write();
        sealane.wait_until_said("reload refused");
        wait_for("the reason", || (sealane.count_said(&expected) > 0).then_some(()));
        assert_eq!(sealane.stop(), Some(0));
    }
}

#[test]
fn a_reload_uses_the_folders_that_the_service_manager_has_made() {
    let mut rig = Rig::new("");
    let (runtime, first) = (rig.at("run"), rig.settings.listeners[0].certificates.clone().unwrap());
    fs::create_dir(&runtime).unwrap();
    let folders = format!("{}:{}", rig.at("absent").display(), runtime.display());
    rig.settings.environment.push(("RUNTIME_DIRECTORY".into(), folders));
    let Some(mut sealane) = rig.start() else { return };
    let mut second = rig.listener("second", &first);
    second.socket = Some(runtime.join("tls.sock"));
    rig.settings.listeners.push(second);
    rig.write();
    sealane.wait_until_reloaded(1);
    assert!(runtime.join("tls.sock").exists());
    assert_eq!(sealane.stop(), Some(0));
    assert!(!runtime.join("tls.sock").exists());
}

#[test]
fn a_program_that_prints_keys_keeps_the_sandbox_away_and_that_is_told() {
    let mut rig = Rig::new("store_key.command = [\"/bin/echo\", \"key\"]");
    let Some(sealane) = rig.start() else { return };
    let expected = "what this process may open is not limited: store_key.command starts a program, \
                    and what that opens nobody can tell; name a file or a credential instead";
    assert_eq!(sealane.count_said(expected), 1, "{:?}", sealane.said());
    let check = |rig: &Rig| {
        rig.write();
        let mut command = Command::new(BINARY);
        command.args(["check", "--config"]).arg(rig.home.path().join("sealane.toml"));
        tools::output(&mut command)
    };
    assert!(check(&rig).contains(&format!("warning: {expected}")), "{}", check(&rig));
    rig.settings.more.clear();
    assert!(!check(&rig).contains("not limited"), "{}", check(&rig));
}
