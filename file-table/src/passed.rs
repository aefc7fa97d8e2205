//! Descriptors that the parent has passed to this process, as service managers do.

use std::env;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::{FdFlags, fcntl_setfd};

/// Takes the descriptors that were passed to this process by the rules of sd_listen_fds(3), with
/// their names. Empty if none were meant for it, and at a second call.
///
/// Call it before anything else is opened or started. Then each number is a passed one, and no
/// other program inherits it.
pub fn passed() -> Vec<(String, OwnedFd)> {
    if TAKEN.swap(true, Relaxed) || number("LISTEN_PID") != Some(process::id()) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").and_then(|count| RawFd::try_from(count).ok());
    let last = FIRST.saturating_add(count.unwrap_or(0).min(PASSED_MAX));
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').chain(std::iter::repeat(""));
    let passed = (FIRST..last).zip(names);
    // Behind a number that is not open, the next may be one that this process has opened.
    passed.map_while(|(number, name)| Some((name.to_owned(), take(number)?))).collect()
}

fn number(variable: &str) -> Option<u32> {
    env::var(variable).ok()?.parse().ok()
}

fn take(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: it takes numbers alone, and returns whether one is open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open, and since before this process began. The environment names this process
    // as its owner, in which only `passed` takes it, and once.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    // It can only fail for a number that is not open.
    let _ = fcntl_setfd(&fd, FdFlags::CLOEXEC);
    Some(fd)
}

static TAKEN: AtomicBool = AtomicBool::new(false);
/// The number behind the standard streams.
const FIRST: RawFd = 3;
/// Descriptors that are taken at most.
const PASSED_MAX: RawFd = 1 << 20;
