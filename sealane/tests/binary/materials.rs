//! One bad certificate, list, key, store or folder holds up nothing else: at the start, at a reload
//! and by the watch. The policy itself is tested where it is: `sealane/listeners/src/last_good.rs`.

mod gone;
mod quoted;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustls::Error;
use rustls::pki_types::CertificateDer;
use rustls::version::TLS13;
use serde_json::Value;
use tempfile::TempDir;

use crate::client_certificates::authority::ClientAuthority;
use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind};
use crate::harness::client::Connector;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings, replace};
use crate::harness::tools::{output, required};
use crate::harness::wait_for;

/// Listeners in front of an echo backend, with their materials in a folder.
struct Rig {
    authority: Authority,
    backend: Backend,
    folder: TempDir,
    settings: Settings,
}

impl Rig {
    /// With a listener for each of these certificates and further keys.
    fn new(listeners: &[(&str, &str)]) -> Self {
        let (folder, backend) = (tempfile::tempdir().unwrap(), Backend::echo_for_many());
        let listeners = listeners.iter().enumerate().map(|(number, (certificates, more))| {
            let path = folder.path().join(certificates);
            let name = format!("listener-{number}");
            ListenerSettings::new(&name, &path, &backend.address).with(more)
        });
        let settings = Settings::new(listeners.collect());
        Self { authority: Authority::new(), backend, folder, settings }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate with its key; its text.
    fn certify(&self, file: &str, name: &str) -> String {
        let text = self.authority.leaf(KeyKind::P256, &[name]);
        fs::create_dir_all(self.path(file).parent().unwrap()).unwrap();
        replace(&self.path(file), &text);
        text
    }

    fn start(&self) -> Sealane {
        Sealane::start(self.folder.path(), &self.settings)
    }

    /// The certificate that a listener serves for `name`, if a client can use it.
    fn served(&self, listener: usize, name: &str) -> Result<CertificateDer<'static>, String> {
        let connector = Connector::new(self.authority.der(), &TLS13).with_name(name);
        let mut client = connector
            .connect(self.settings.listeners[listener].address)
            .map_err(|error| error.to_string())?;
        client.echo(b"a word").map_err(|error| error.to_string())?;
        Ok(client.tls.peer_certificates().unwrap()[0].clone().into_owned())
    }

    /// Waits until another certificate than `before` is served for `name`.
    fn renewed(&self, name: &str, before: &CertificateDer<'_>) -> CertificateDer<'static> {
        wait_for("the renewed certificate", || self.served(0, name).ok().filter(|it| it != before))
    }

    fn check(&self) -> (Option<i32>, String) {
        let mut check = Command::new(BINARY);
        check.args(["check", "--config"]).arg(self.path("sealane.toml"));
        let checked = check.output().unwrap();
        (checked.status.code(), String::from_utf8(checked.stdout).unwrap())
    }
}

/// Paths of the faults that the process reports, and whether the last good state is used.
fn faults(sealane: &Sealane) -> Vec<(String, bool)> {
    let state: Value = serde_json::from_str(&sealane.admin("/state")).unwrap();
    let shown = state["faults"]["shown"].as_array().unwrap();
    let short = |fault: &Value| {
        let path = fault["path"].as_str().unwrap();
        (path.rsplit('/').next().unwrap().to_owned(), fault["last_good"].as_bool().unwrap())
    };
    shown.iter().map(short).collect()
}

fn wait_for_faults(sealane: &Sealane, expected: &[(&str, bool)]) {
    let expected: Vec<_> =
        expected.iter().map(|(path, kept)| ((*path).to_owned(), *kept)).collect();
    wait_for(&format!("{expected:?}"), || (faults(sealane) == expected).then_some(()));
    let metrics = sealane.metrics();
    assert_eq!(metrics.sum("sealane_material_faults", &[]), expected.len() as u64);
    let named = metrics.0.lines().filter(|line| line.starts_with("sealane_material_fault{"));
    assert_eq!(named.count(), expected.len());
}

/// The exit code and the output of `sealane reload`.
fn reload(sealane: &Sealane) -> (Option<i32>, String) {
    let done = sealane.command(&["reload"]).output().unwrap();
    (done.status.code(), String::from_utf8(done.stdout).unwrap())
}

#[test]
fn bad_certificate_holds_up_no_renewal() {
    let rig = Rig::new(&[("certificates", "")]);
    let good = rig.certify("certificates/a.pem", "a.test");
    rig.certify("certificates/b.pem", "b.test");
    let (chain, _) = good.split_at(good.find("-----BEGIN PRIVATE KEY").unwrap());
    replace(&rig.path("certificates/a.pem"), chain);
    let mut sealane = rig.start();
    assert_eq!(faults(&sealane), [("a.pem".to_owned(), false)]);
    assert_eq!(sealane.count_said("a.pem: no private key in it"), 1, "{:#?}", sealane.said());
    let first = rig.served(0, "b.test").unwrap();
    assert!(rig.served(0, "a.test").is_err());
    assert!(sealane.admin("/healthz").starts_with("degraded: a fault in /"));
    let status = output(&mut sealane.command(&["status"]));
    assert!(status.contains("degraded: 1 fault\n"), "{status}");
    assert!(status.contains("/certificates/a.pem: no private key in it"), "{status}");
    let (code, text) = rig.check();
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("error: listener listener-0: "), "{text}");

    // Repaired, then bad again: the last good state is served, also when others are renewed.
    replace(&rig.path("certificates/a.pem"), &good);
    wait_for_faults(&sealane, &[]);
    sealane.wait_until_said("/certificates/a.pem: fault resolved");
    sealane.wait_until_lanes_serve();
    let served = rig.served(0, "a.test").unwrap();
    assert_eq!((reload(&sealane).0, sealane.admin("/healthz").as_str()), (Some(0), "ok\n"));
    replace(&rig.path("certificates/a.pem"), "<html>");
    rig.certify("certificates/b.pem", "b.test");
    let second = rig.renewed("b.test", &first);
    wait_for_faults(&sealane, &[("a.pem", true)]);
    for _ in 0..2 {
        let (code, text) = reload(&sealane);
        assert_eq!(code, Some(5), "{text}");
        assert!(text.contains(" ms, with 1 fault\n  fault: listener listener-0: "), "{text}");
        assert!(text.contains("; meanwhile its last good state is served\n"), "{text}");
        assert_eq!(rig.served(0, "a.test").unwrap(), served);
    }
    rig.certify("certificates/a.pem", "a.test");
    rig.renewed("a.test", &served);
    assert_eq!(rig.served(0, "b.test").unwrap(), second);
    let metrics = sealane.metrics();
    assert_eq!(metrics.sum("sealane_reloads_total", &[("outcome", "refused")]), 0);
}

#[test]
fn listeners_without_materials_refuse_and_others_serve() {
    let mut rig = Rig::new(&[
        ("good.pem", ""),
        ("bad.pem", ""),
        ("good.pem", "deny = [\"file:deny\"]"),
        ("good.pem", "[listener.clients]\ncertificates = \"required\"\nroots = [\"roots\"]"),
    ]);
    rig.certify("good.pem", "a.test");
    fs::write(rig.path("deny"), "10.0.0.0/8\n10.0.0.0.0\n").unwrap();
    for name in ["bad.pem", "roots"] {
        fs::write(rig.path(name), "<html>").unwrap();
    }
    let sealane = rig.start();
    let undercut = "requires client certificates, but listener listener-0, without a client";
    assert!(rig.check().1.contains(&format!("warning: listener listener-3: {undercut}")));
    assert_eq!(sealane.count_said(undercut), 1, "as check has it");
    let bad = [("bad.pem", false), ("deny", false), ("roots", false)];
    wait_for_faults(&sealane, &bad);
    assert!(sealane.admin("/healthz").starts_with("degraded: 3 faults, in /"));
    rig.served(0, "a.test").unwrap();
    for listener in 1..4 {
        let refused = rig.served(listener, "a.test").unwrap_err();
        assert!(!refused.contains("timed out"), "{listener}: {refused}");
    }
    fs::write(rig.path("deny"), "10.0.0.0/8\n").unwrap();
    wait_for("the listener admits clients", || rig.served(2, "a.test").ok());
    wait_for_faults(&sealane, &[("bad.pem", false), ("roots", false)]);
    assert_eq!(sealane.stop(), Some(0));

    // Where none can serve a client, a load balancer should know.
    rig.settings.listeners.truncate(2);
    fs::write(rig.path("good.pem"), "").unwrap();
    let sealane = rig.start();
    let answer = sealane.admin_answer("/healthz");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("degraded: no listener can serve a client; 2 faults"), "{answer}");
    rig.certify("good.pem", "a.test");
    wait_for_faults(&sealane, &[("bad.pem", false)]);
    assert!(sealane.admin("/healthz").starts_with("degraded: a fault in /"));
}

#[test]
fn expired_list_refuses_its_clients_alone() {
    if required("openssl").is_none() {
        return;
    }
    let keys = "[listener.clients]\ncertificates = \"required\"\nroots = [\"roots\"]\n\
                crls = [\"list.crl\"]";
    let rig = Rig::new(&[("good.pem", ""), ("good.pem", keys)]);
    rig.certify("good.pem", "a.test");
    let clients = ClientAuthority::root(rig.folder.path(), "Clients CA");
    fs::write(rig.path("roots"), clients.pem()).unwrap();
    let ended = clients.list_until(&[], "20200102000000Z");
    fs::write(rig.path("list.crl"), &ended).unwrap();
    let sealane = rig.start();
    assert_eq!(faults(&sealane), [("list.crl".to_owned(), false)]);
    assert_eq!(rig.check().0, Some(3));
    let connector = Connector::new(rig.authority.der(), &TLS13)
        .with_name("a.test")
        .showing(&clients.issue(1, |_| ()).pem());
    let address = rig.settings.listeners[1].address;
    let alert = || {
        let answer = connector.connect(address).and_then(|mut client| client.echo(b"x"));
        let refused = answer.err()?;
        match refused.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(Error::AlertReceived(alert)) => Some(*alert),
            _ => panic!("no alert, but {refused:?}"),
        }
    };
    assert!(alert().is_some(), "the client is refused");
    // It holds up no renewal of the neighbour.
    let before = rig.served(0, "a.test").unwrap();
    rig.certify("good.pem", "a.test");
    rig.renewed("a.test", &before);
    fs::write(rig.path("list.crl"), clients.list(&[])).unwrap();
    wait_for("the client is admitted", || alert().is_none().then_some(()));
    wait_for_faults(&sealane, &[]);
    fs::write(rig.path("list.crl"), &ended).unwrap();
    wait_for("the client is refused", alert);
    let health = sealane.admin("/healthz");
    assert!(
        health.starts_with("degraded: a fault in /") && !health.contains("expired"),
        "{health}"
    );
    fs::write(rig.path("list.crl"), "nothing of the kind").unwrap();
    let (code, told) = reload(&sealane);
    let expected =
        format!("clients: crls: {}: no revocation list ", rig.path("list.crl").display());
    assert!(code == Some(5) && told.contains(&expected), "{told}");
    let said = format!("reload: fault: listener listener-1: {expected}");
    assert_eq!(sealane.count_said(&said), 1, "{:#?}", sealane.said());
    let before = rig.served(0, "a.test").unwrap();
    rig.certify("good.pem", "a.test");
    rig.renewed("a.test", &before);
    assert_eq!(sealane.metrics().sum("sealane_reloads_total", &[("outcome", "refused")]), 0);
}

/// Materials of the process and not of a listener: keys, the log's folder, a store.
#[test]
fn bad_keys_folders_and_stores_hold_up_no_start() {
    let mut rig = Rig::new(&[("good.pem", "")]);
    rig.certify("good.pem", "a.test");
    let in_store = ListenerSettings::new("stored", &rig.path("good.pem"), &rig.backend.address);
    rig.settings.listeners.push(in_store);
    rig.settings.listeners[1].certificates =
        Some(format!("store:{}", rig.path("store").display()).into());
    rig.settings.more = "tickets.root = \"root\"\naccess_log.path = \"logs/access.jsonl\"\n\
                         store_key.file = \"store.key\"\nprocess.sandbox = false"
        .into();
    fs::write(rig.path("root"), "not a root").unwrap();
    fs::write(rig.path("store.key"), "not a key").unwrap();
    let mut sealane = rig.start();
    let log = ("access.jsonl", false);
    wait_for_faults(&sealane, &[("store.key", false), ("store", false), ("root", false), log]);
    rig.served(0, "a.test").unwrap();
    rig.served(1, "a.test").unwrap_err();
    assert_eq!(fs::read_to_string(rig.path("root")).unwrap(), "not a root", "left as it is");

    fs::create_dir(rig.path("logs")).unwrap();
    wait_for("the log", || fs::metadata(rig.path("logs/access.jsonl")).ok());
    fs::remove_file(rig.path("root")).unwrap();
    fs::remove_file(rig.path("store.key")).unwrap();
    let mut import = Command::new(BINARY);
    import.args(["certificates", "import", "--create", "--config"]).arg(rig.path("sealane.toml"));
    rig.certify("stored.pem", "stored.test");
    output(import.arg(rig.path("stored.pem")));
    wait_for("the store is served", || rig.served(1, "stored.test").ok());
    wait_for_faults(&sealane, &[]);
    sealane.wait_until_said("/root: fault resolved");
    assert!(fs::read_to_string(rig.path("root")).unwrap().starts_with("sealane-ticket-root"));

    // The keys that were read last open the store, also if their file is invalid now.
    fs::write(rig.path("store.key"), "not a key").unwrap();
    wait_for_faults(&sealane, &[("store.key", true)]);
    sealane.wait_until_lanes_serve();
    rig.served(1, "stored.test").unwrap();
}
