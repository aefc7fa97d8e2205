//! The command `quick`, stopped by the operator: the whole of it takes minutes.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

#[test]
fn ctrl_c_ends_the_step_and_draws_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let mut quick = Command::new(env!("CARGO_BIN_EXE_sealane-lab"))
        .args(["quick", "--output"])
        .arg(&page)
        .arg("--keep")
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let first = folder.path().join("handshake.json");
    let until = Instant::now() + PATIENCE;
    while !first.is_file() {
        assert!(Instant::now() < until, "no round in {PATIENCE:?}");
        assert!(quick.try_wait().unwrap().is_none(), "it ended by itself");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(runs_with(folder.path()), "the step is a process of its own");
    let pid = Pid::from_raw(i32::try_from(quick.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let status = quick.wait().unwrap();
    assert_eq!(status.code(), Some(130), "it was interrupted");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("is not complete"), "the page says so");
    assert!(!runs_with(folder.path()), "a process is left behind");
}

/// Whether a process has that folder in its command line, as the steps have, `quick` aside.
fn runs_with(folder: &Path) -> bool {
    let folder = folder.to_str().unwrap();
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(folder) && line.contains("--json")
    })
}

const PATIENCE: Duration = Duration::from_secs(120);
