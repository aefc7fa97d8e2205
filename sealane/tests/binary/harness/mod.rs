//! What the tests of the binary share: real certificates, a real nginx, real backends, and Sealane
//! itself as a process.
#![allow(dead_code, reason = "`binary` and `figures` use their own part each")]
#![allow(unreachable_pub, reason = "nothing of a test binary can be reached from outside")]

pub mod acme;
pub mod backend;
pub mod certificates;
pub mod client;
pub mod filtered;
pub mod header_reader;
pub mod nginx;
pub mod peers;
pub mod process;
pub mod sealane;
pub mod secured;
pub mod secured_nginx;
pub mod site;
pub mod systemd;
pub mod tools;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long anything that a test waits for may take on a slow machine before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `ready` returns something, and fails with `what` if it never does.
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes a program of `text`, a script.
pub fn write_program(path: &Path, text: &str) {
    let source = path.with_extension("text");
    std::fs::write(&source, text).unwrap();
    install(&source, path);
}

/// Copies a program, by another process: whatever another thread of this one starts meanwhile holds
/// for a moment what is open for writing here, and the kernel runs no file that is.
pub fn install(program: &Path, copy: &Path) {
    let installed = Command::new("install").args(["-m", "755"]).args([program, copy]).status();
    assert!(installed.unwrap().success());
}

/// Raises this process's limit of open files as far as it may go, and says how far that is.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).unwrap();
    wanted
}

/// The SHA-256 of `bytes`, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    use std::fmt::Write as _;
    let mut text = String::new();
    for byte in sha2::Sha256::digest(bytes) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// `len` bytes that do not repeat, the same for the same `seed`.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
