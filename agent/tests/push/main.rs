//! The agent's listener: real clients with certificates of several authorities push, read back and
//! remove, and others try to; and a running `sealane serve` serves what came.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    dead_code,
    reason = "a test fails by panicking, and prints its figures; the harness is another's too"
)]

mod bounds;
#[path = "../pebble/harness/process.rs"]
mod process;
mod roles;
mod site;
mod streams;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Waits for what must come.
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < until, "waited for {what} for {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program of this workspace, as it was built beside the agent; without it, and without CI set, a
/// test does nothing.
fn beside(name: &str) -> Option<PathBuf> {
    let path = Path::new(site::BINARY).with_file_name(name);
    if path.is_file() {
        return Some(path);
    }
    assert!(std::env::var_os("CI").is_none(), "{} has to be built first", path.display());
    println!("SKIPPED: {} has to be built first", path.display());
    None
}

/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);
