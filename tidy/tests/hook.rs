//! The hook `.githooks/commit-msg`, run as git runs it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{env, fs, path::Path, process};

#[test]
fn hook_accepts_area_and_verb() {
    for message in [
        "store: fix a lost tombstone after a restore\n\nProblem: it was served.\n",
        "# A remark of git.\n\nfleet: roll back a configuration that kills the process\n",
        "Merge branch 'main'\n",
        "fixup! store: fix a lost tombstone\n",
    ] {
        assert!(is_accepted(message), "{message}");
    }
}

#[test]
fn hook_rejects_other_subjects() {
    for message in [
        "",
        "Fix a lost tombstone\n",
        "store: say 503 by its state\n",
        "store: fix\n",
        "store: fix a lost tombstone.\n",
        "Problem: none\n\nstore: fix a lost tombstone\n",
        &format!("store: fix {}\n", "a".repeat(72)),
    ] {
        assert!(!is_accepted(message), "{message}");
    }
}

fn is_accepted(message: &str) -> bool {
    let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.githooks/commit-msg");
    let thread = std::thread::current();
    let name = format!("sealane-hook-{}-{}", process::id(), thread.name().unwrap());
    let file = env::temp_dir().join(name);
    fs::write(&file, message).unwrap();
    let output = process::Command::new(hook).arg(&file).output().unwrap();
    fs::remove_file(file).unwrap();
    output.status.success()
}
