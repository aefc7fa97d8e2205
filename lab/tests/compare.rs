//! The command `compare` as people run it, on real servers; their figures are not looked at.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

#[test]
fn a_quick_comparison_passes_every_check_of_every_server() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let output = compare(&sealane(), &json);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    for case in ["full", "resumed", "download", "upload", "idle"] {
        let figures: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        let figure = figures["rows"][0]["figures"][case][0].as_f64();
        assert!(figure.is_some_and(|figure| figure > 0.0), "{case}: {text}\n{errors}");
    }
    assert!(text.contains("| sealane |"), "{text}");
}

/// A program that lets itself be started but does no TLS has no row, and the exit code says so.
#[test]
fn a_server_that_fails_has_no_figures() {
    let folder = tempfile::tempdir().unwrap();
    let output = compare(Path::new("/bin/false"), &folder.path().join("figures.json"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("sealane: NO FIGURES: "), "{text}");
    assert!(!text.contains("| sealane |"), "{text}");
}

fn compare(sealane: &Path, json: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealane-lab"))
        .args(["compare", "--quick", "--sealane"])
        .arg(sealane)
        .arg("--json")
        .arg(json)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The terminator's binary beside the lab's. The lab does not link it, so that it is built here.
fn sealane() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--package", "sealane", "--bin", "sealane"])
        .status()
        .unwrap();
    assert!(built.success(), "sealane does not build");
    Path::new(env!("CARGO_BIN_EXE_sealane-lab")).with_file_name("sealane")
}
