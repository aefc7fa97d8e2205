//! Certificates where ACME clients keep them, made by the clients themselves at a real ACME server,
//! Pebble; and their hook, which imports what they renew into a store.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::acme::{Acme, first_of};
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::{tools, wait_for};

#[test]
fn what_acme_clients_keep_is_served_where_it_lies_and_renewed_without_a_word() {
    let Some(acme) = Acme::start(&["certbot", "lego", "dehydrated"]) else { return };
    acme.certbot(&["certonly", "-d", "a.test", "-d", "www.a.test"]);
    acme.certbot(&["certonly", "-d", "other.test"]);
    acme.lego("b.test");
    acme.dehydrated("c.test");
    let folders = ["certbot/live", "lego/certificates", "dehydrated/certs"];
    let listeners = folders.map(|folder| {
        ListenerSettings::new(folder.split_once('/').unwrap().0, &acme.path(folder), &acme.backend)
            .with("unknown_names = \"refuse\"")
    });
    let [address, of_lego, of_dehydrated] = listeners.each_ref().map(|each| each.address);
    let mut sealane = Sealane::start(acme.folder.path(), &Settings::new(listeners.into()));
    let metrics = sealane.metrics();
    assert_eq!(metrics.sum("sealane_certificates", &[]), 4);
    for (address, name, file) in [
        (address, "a.test", "certbot/live/a.test/fullchain.pem"),
        (address, "www.a.test", "certbot/live/a.test/fullchain.pem"),
        (address, "other.test", "certbot/live/other.test/fullchain.pem"),
        (of_lego, "b.test", "lego/certificates/b.test.crt"),
        (of_dehydrated, "c.test", "dehydrated/certs/c.test/fullchain.pem"),
    ] {
        assert_eq!(acme.served(address, name), first_of(&acme.path(file)), "{name}");
    }
    // A link moves in a folder of a folder; nobody tells Sealane.
    let before = acme.served(address, "a.test");
    acme.certbot(&["renew", "--cert-name", "a.test", "--force-renewal"]);
    let renewed = first_of(&acme.path("certbot/live/a.test/fullchain.pem"));
    assert_ne!(before, renewed);
    wait_for("the renewed certificate", || {
        (acme.served(address, "a.test") == renewed).then_some(())
    });
    // And a name that is new.
    acme.certbot(&["certonly", "-d", "new.test"]);
    wait_for("the new name", || acme.connector("new.test").connect(address).ok());
    sealane.wait_until_said("reloaded: generation ");
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn a_hook_imports_what_a_client_has_obtained_into_a_store() {
    let Some(acme) = Acme::start(&["certbot", "lego", "dehydrated"]) else { return };
    let store = PathBuf::from(format!("store:{}", acme.path("store").display()));
    let listener = ListenerSettings::new("acme", &store, &acme.backend);
    let mut settings = Settings::new(vec![listener.with("unknown_names = \"refuse\"")]);
    settings.more = "store_key = { file = \"key\" }".into();
    let address = settings.listeners[0].address;
    let first = acme.path("first.pem");
    std::fs::write(&first, Authority::new().leaf(KeyKind::P256, &["kept.test"])).unwrap();
    let mut import = Command::new(BINARY);
    import.args(["certificates", "import", "--create", "--store"]).arg(acme.path("store"));
    tools::output(import.arg("--key-file").arg(acme.path("key")).arg(first));
    let sealane = Sealane::start(acme.folder.path(), &settings);

    let hook = HOOK.display().to_string();
    acme.certbot(&["certonly", "-d", "a.test", "--deploy-hook", &hook]);
    acme.lego_with("b.test", &["--run-hook", &hook]);
    acme.dehydrated_with("c.test", &["--hook", &hook]);
    for (name, file) in [
        ("a.test", "certbot/live/a.test/fullchain.pem"),
        ("b.test", "lego/certificates/b.test.crt"),
        ("c.test", "dehydrated/certs/c.test/fullchain.pem"),
    ] {
        assert_eq!(acme.served(address, name), first_of(&acme.path(file)), "{name}");
    }
    acme.certbot(&["renew", "--cert-name", "a.test", "--force-renewal"]);
    let renewed = first_of(&acme.path("certbot/live/a.test/fullchain.pem"));
    assert_eq!(acme.served(address, "a.test"), renewed, "when the client has ended");
    assert_eq!(sealane.count_said("reloaded"), 0);

    // As acme.sh and newer versions of lego call it, and with options in place of a configuration.
    let (store, key_file) = (acme.path("store"), acme.path("key"));
    let options = format!("--store {} --key-file {}", store.display(), key_file.display());
    for (name, chain, key) in [
        ("d.test", "CERT_FULLCHAIN_PATH", "CERT_KEY_PATH"),
        ("e.test", "LEGO_HOOK_CERT_PATH", "LEGO_HOOK_CERT_KEY_PATH"),
    ] {
        acme.lego(name);
        let file = |kind: &str| acme.path("lego/certificates").join(format!("{name}.{kind}"));
        let mut hook = acme.client(HOOK.to_str().unwrap());
        hook.env(chain, file("crt")).env(key, file("key"));
        tools::output(hook.env("SEALANE_IMPORT", &options).env("SEALANE_CONFIG", "absent"));
        assert_eq!(acme.served(address, name), first_of(&file("crt")), "{name}");
    }
    let alone = tools::run(&mut Command::new(&*HOOK));
    assert_eq!(alone.status.code(), Some(2));
    let said = String::from_utf8(alone.stderr).unwrap();
    assert!(said.contains("is run by an ACME client"), "{said}");
}

/// What certbot makes is for root alone: whoever may not read it is told who that is, and what to
/// do.
#[test]
fn who_may_not_read_a_key_is_told_what_to_do() {
    if !rustix::process::geteuid().is_root() || tools::required("setpriv").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    std::fs::create_dir(&live).unwrap();
    let mode = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(folder.path(), 0o755);
    mode(&live, 0o700);
    let config = format!(
        "[[listener]]\naddress = \"127.0.0.1:1\"\nbackends = [\"127.0.0.1:2\"]\n\
         certificates = [{live:?}]\n"
    );
    std::fs::write(folder.path().join("sealane.toml"), config).unwrap();
    // The program itself may stand where nobody else comes to.
    let binary = folder.path().join("sealane");
    crate::harness::install(BINARY.as_ref(), &binary);
    let check = || {
        let mut check = Command::new("setpriv");
        check.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&binary);
        check.args(["check", "--config", "sealane.toml"]).current_dir(folder.path());
        check
    };
    let told = tools::run(&mut check());
    let text = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.status.code(), Some(3), "{text}");
    let expected = "live: the user of this process, number 65534, may not read it; give access";
    assert!(text.contains(expected) && text.contains("(acme-hook)"), "{text}");
    // On the way there, behind a link: it is the folder that is closed, and not the file.
    mode(&live, 0o755);
    let archive = folder.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    mode(&archive, 0o700);
    std::os::unix::fs::symlink(&archive, live.join("a.test")).unwrap();
    std::os::unix::fs::symlink("../archive/b.pem", live.join("b.pem")).unwrap();
    let told = tools::run(&mut check());
    let text = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.status.code(), Some(3), "{text}");
    let at = archive.display();
    assert!(
        text.contains(&format!(
            "b.pem: the user of this process, number 65534, may not enter {at};"
        )),
        "{text}"
    );
    // Beside what can be served a closed folder is passed over, a link into one is not.
    mode(&archive, 0o755);
    std::fs::remove_file(live.join("b.pem")).unwrap();
    std::fs::write(live.join("a.pem"), Authority::new().leaf(KeyKind::P256, &NAMES)).unwrap();
    mode(&live.join("a.pem"), 0o644);
    std::fs::create_dir(live.join("lost+found")).unwrap();
    mode(&live.join("lost+found"), 0o700);
    let told = tools::run(&mut check());
    let text = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.status.code(), Some(0), "{text}");
    assert!(text.contains("lost+found: ") && text.contains("; it is passed over"), "{text}");
}

static HOOK: std::sync::LazyLock<PathBuf> = std::sync::LazyLock::new(|| {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/acme-hook")
});
