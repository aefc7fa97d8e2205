//! What every test here starts: an authority, agents, and a gate between them.

pub mod agent;
pub mod authority;
pub mod etcd;
pub mod gate;
pub mod process;
pub mod serve;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
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

/// A program that `./check` installs; without it, and without CI set, a test does nothing.
pub fn required(path: PathBuf) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path);
    }
    let name = path.display();
    assert!(
        std::env::var_os("CI").is_none(),
        "{name} is missing; ./check --only install brings it"
    );
    println!("SKIPPED: {name} is missing; ./check --only install brings it");
    None
}

/// Leaves a file to its owner.
pub fn close(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// How long anything may take on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(120);
