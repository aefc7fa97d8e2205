//! Folders and files that go away while Sealane serves, and pipes where a file should be.

use std::fs;
use std::process::Command;

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::harness::sealane::{BINARY, replace};
use crate::harness::tools::output;
use crate::harness::wait_for;
use crate::unix_listeners::stream_to;

use super::{Rig, reload, wait_for_faults};

/// A setting that a reload cannot change refuses no reload.
#[test]
fn folders_made_again_hold_up_no_renewal() {
    for is_sandboxed in [true, false] {
        let mut rig = Rig::new(&[("good.pem", ""), ("good.pem", "")]);
        rig.certify("good.pem", "a.test");
        for folder in ["logs", "roots", "sockets"] {
            fs::create_dir(rig.path(folder)).unwrap();
        }
        let socket = rig.path("sockets/tls.sock");
        rig.settings.listeners[1].socket = Some(socket.clone());
        rig.settings.more = format!(
            "tickets.root = \"roots/root\"\naccess_log.path = \"logs/access.jsonl\"\n\
             process.sandbox = {is_sandboxed}"
        );
        let sealane = rig.start();
        let before = rig.served(0, "a.test").unwrap();
        for folder in ["logs", "roots", "sockets"] {
            fs::remove_dir_all(rig.path(folder)).unwrap();
        }
        for folder in ["logs", "roots"] {
            fs::create_dir(rig.path(folder)).unwrap();
        }
        rig.certify("good.pem", "a.test");
        rig.renewed("a.test", &before);
        let (code, text) = reload(&sealane);
        assert_eq!(code, Some(5), "{text}");
        assert!(text.contains("listener listener-1: "), "{text}");
        assert!(text.contains("; meanwhile clients cannot connect to it"), "{text}");
        // The kernel may refuse another folder than that of the start.
        let is_closed = !rig.path("logs/access.jsonl").exists();
        assert!(!is_closed || is_sandboxed);
        let log = is_closed.then_some(("access.jsonl", false));
        let expected: Vec<_> = [("tls.sock", false)].into_iter().chain(log).collect();
        wait_for_faults(&sealane, &expected);
        if is_closed {
            assert!(text.contains("/logs is outside of what this process may write"), "{text}");
        }
        fs::create_dir(rig.path("sockets")).unwrap();
        reload(&sealane);
        wait_for_faults(&sealane, log.as_slice());
        drop(stream_to(&socket));
        let metrics = sealane.metrics();
        assert_eq!(metrics.sum("sealane_reloads_total", &[("outcome", "refused")]), 0);
    }
}

/// A log that goes bad while it is written is reported as one is that was bad at the start.
#[test]
fn log_that_cannot_be_opened_again_is_a_fault() {
    let mut rig = Rig::new(&[("good.pem", "")]);
    rig.certify("good.pem", "a.test");
    fs::create_dir(rig.path("logs")).unwrap();
    rig.settings.more =
        "access_log.path = \"logs/access.jsonl\"\nprocess.sandbox = false".to_owned();
    let sealane = rig.start();
    assert_eq!(reload(&sealane).0, Some(0));
    fs::rename(rig.path("logs"), rig.path("away")).unwrap();
    let (code, text) = reload(&sealane);
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("lines go into the file that was open before"), "{text}");
    assert!(sealane.admin("/healthz").starts_with("degraded: a fault in /"));
    fs::create_dir(rig.path("logs")).unwrap();
    wait_for_faults(&sealane, &[]);
    assert_eq!(reload(&sealane).0, Some(0));
}

/// A mistake in the configuration holds up none of the materials of the one before.
#[test]
fn mistake_holds_up_no_store_key_or_socket() {
    let mut rig = Rig::new(&[("good.pem", ""), ("store", ""), ("other.pem", "")]);
    rig.certify("good.pem", "a.test");
    rig.certify("other.pem", "a.test");
    let store = format!("store:{}", rig.path("store").display());
    rig.settings.listeners[1].certificates = Some(store.into());
    let socket = rig.path("tls.sock");
    rig.settings.listeners[2].socket = Some(socket.clone());
    rig.settings.more = "store_key.file = \"store.key\"\nprocess.sandbox = false".to_owned();
    rig.certify("stored.pem", "stored.test");
    let import = |to: &[&str]| {
        let mut import = Command::new(BINARY);
        import.current_dir(rig.folder.path()).args(["certificates", "import", "--create"]);
        output(import.arg("stored.pem").args(to));
    };
    import(&["--store", "other", "--key-file", "store.key"]);
    let sealane = rig.start();
    wait_for_faults(&sealane, &[("store", false)]);
    let right = fs::read_to_string(rig.path("sealane.toml")).unwrap();
    replace(&rig.path("right.toml"), &right);
    let wrong = format!("mistake = 1\n{right}");
    replace(&rig.path("sealane.toml"), &wrong);
    assert_eq!(reload(&sealane).0, Some(3));

    import(&["--config", "right.toml"]);
    wait_for("the store is served", || rig.served(1, "stored.test").ok());
    wait_for_faults(&sealane, &[]);
    fs::remove_file(&socket).unwrap();
    assert_eq!(reload(&sealane).0, Some(3));
    drop(stream_to(&socket));

    // A fault is logged when it is found, and not at each reload.
    replace(&rig.path("store.key"), "not a key");
    wait_for_faults(&sealane, &[("store.key", true)]);
    let logged = || {
        let said = sealane.said().into_iter().filter(|line| line.contains("fault: "));
        said.filter(|line| line.contains("store.key: ")).count()
    };
    wait_for("the log", || (logged() == 1).then_some(()));
    assert_eq!(reload(&sealane).0, Some(3));
    assert_eq!(reload(&sealane).0, Some(3));
    assert_eq!(logged(), 1, "{:#?}", sealane.said());
    assert!(sealane.admin("/healthz").starts_with("degraded: the last reload was refused"));
}

/// To open a pipe would never end.
#[test]
fn pipes_for_a_configuration_are_refused_at_once() {
    let mut rig = Rig::new(&[("good.pem", "")]);
    rig.certify("good.pem", "a.test");
    fs::create_dir(rig.path("conf.d")).unwrap();
    rig.settings.more = "include = [\"conf.d/*.toml\"]".to_owned();
    let mut sealane = rig.start();
    let (pipe, refusal) = (rig.path("conf.d/x.toml"), "x.toml: cannot be read: it is a named pipe");
    mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
    sealane.wait_until_said(refusal);
    let (code, text) = rig.check();
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains(refusal), "{text}");
    let start = Command::new(BINARY).args(["serve", "--config"]).arg(&pipe).output().unwrap();
    assert_eq!(start.status.code(), Some(3));
    let mut convert = Command::new(BINARY);
    convert.args(["convert", "haproxy"]).arg(&pipe);
    assert_eq!(convert.output().unwrap().status.code(), Some(3));
    // A mistake in the configuration holds up no renewal.
    let before = rig.served(0, "a.test").unwrap();
    rig.certify("good.pem", "a.test");
    rig.renewed("a.test", &before);
    assert!(sealane.admin("/healthz").starts_with("degraded: the last reload was refused"));
    fs::remove_file(&pipe).unwrap();
    wait_for("the reload", || (sealane.admin("/healthz") == "ok\n").then_some(()));
    assert_eq!(sealane.stop(), Some(0));
}
