//! The command `count` as people run it: what it refuses, and that counts repeat. What each
//! instrument finds is tested beside it, in `src/count/tests.rs`; the shared writes of whole
//! handshakes, which take a build of their own, in `./check --only counts`.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use sealane_lab_model::document::Run;

fn count(arguments: &[&str]) -> Command {
    let mut command = crate::with_valgrind();
    command.arg("count").args(arguments);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn locks_of_openssl_are_the_same_three_times() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let output = count(&["--stack=openssl", "--locks", "--repeats=3", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("3 times the same"), "{text}");
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let counted = &run.counts[0];
    assert!(run.complete && counted.exact && counted.repeats == 3, "{counted:?}");
    let locks = counted.locks.as_ref().unwrap();
    // Every OpenSSL takes some; how many is its version's.
    assert!(locks.read.server > 0.0 && locks.shared > 0, "{locks:?}");
    let site = &locks.sites[0];
    assert!(!site.path.is_empty() && site.path[0].contains("libcrypto"), "{site:?}");
}

#[test]
fn bytes_are_counted_per_mib_of_a_connection_that_stays() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let asked = ["--stack=openssl", "--kind=bulk", "--locks", "--json"];
    let output = count(&asked).arg(&json).output().unwrap();
    let text = text(&output);
    assert!(output.status.success() && text.contains("per MiB"), "{text}");
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let counted = &run.counts[0];
    assert_eq!(counted.unit.as_deref(), Some("MiB"));
    // A handshake of any OpenSSL takes more locks than 64 records.
    let read = &counted.locks.as_ref().unwrap().read;
    assert!(read.server < 64.0 && read.client < 64.0, "{read:?}");
    let refused = count(&["--stack=openssl", "--kind=bulk", "--record=x"]).output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
}

#[test]
fn missing_valgrind_is_told_with_the_package_that_brings_it() {
    for what in ["--lines", "--instructions"] {
        let output = count(&["--stack=openssl", what]).env("PATH", "").output().unwrap();
        let text = text(&output);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains("valgrind is missing; run: apt-get install valgrind"), "{text}");
        assert!(!text.contains("per handshake"), "a figure all the same: {text}");
    }
}

#[test]
fn a_build_without_the_switches_for_valgrind_names_the_one_with_them() {
    let mut own = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    let output = own.args(["count", "--stack=rustls-ring", "--lines"]).output().unwrap();
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("lab/build-for-counting"), "{text}");
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("build-for-counting");
    assert!(script.exists());
}

#[test]
fn a_stack_that_cannot_do_it_has_no_figures() {
    let asked = ["--stack=openssl,no-such-stack", "--locks", "--kind=session-id", "--tls=1.3"];
    let output = count(&asked).output().unwrap();
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    assert_eq!(text.matches("no figures: ").count(), 2, "{text}");
    assert!(text.contains("no stack is called no-such-stack"), "{text}");
}
