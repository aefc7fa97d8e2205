//! Whether memory, in which keys are, can get to a disk: [`lock`] has the kernel keep all of it.

use std::fs;
use std::sync::OnceLock;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use sealane_config::value::size_text;
use tracing::Level;

/// Lets this process lock all the memory that it will have, if it may allow itself that. It must be
/// called before root is left.
pub fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Memlock);
    for limit in [None, maximum] {
        if setrlimit(Resource::Memlock, Rlimit { current: limit, maximum: limit }).is_ok() {
            return;
        }
    }
}

/// Lets the kernel write no memory of this process to a disk, neither what it has nor what it will
/// have, if that can be.
pub fn lock() {
    // It is asked for once.
    let _ = LOCKED.set(lock_all());
}

/// The line for the log if memory is not locked, and its level.
pub fn warning() -> Option<(Level, String)> {
    let why = verdict().err()?;
    let is_swapping = fs::read_to_string(SWAPS).is_ok_and(|swaps| swaps.lines().count() > 1);
    let (priority, now) = match is_swapping {
        true => (Level::WARN, ""),
        false => (Level::INFO, ", which this machine does not have now"),
    };
    Some((priority, format!("memory with keys may be written to swap{now}: {why}")))
}

/// Whether memory is locked.
///
/// # Errors
/// Why not.
pub fn verdict() -> Result<(), &'static str> {
    match LOCKED.get() {
        Some(Ok(())) => Ok(()),
        Some(Err(why)) => Err(why),
        None => Err("it was not asked for"),
    }
}

/// All or nothing: with a limit, memory that the process asks for later would be refused beyond it.
/// Pages are locked once they are used, so that what is set aside takes none.
fn lock_all() -> Result<(), String> {
    let limit = getrlimit(Resource::Memlock).current;
    // Root, whom no limit of this kind holds unless it is that of a user namespace alone.
    let is_exempt = capabilities(None)
        .is_ok_and(|own| own.effective.contains(CapabilitySet::IPC_LOCK))
        && fs::read_to_string(USERS).is_ok_and(|users| users.contains(ALL_USERS));
    if let (Some(bytes), false) = (limit, is_exempt) {
        return Err(format!(
            "this process may lock {} of it, and locks all or nothing; LimitMEMLOCK=infinity in \
             the unit, or ulimit -l unlimited, allows it",
            size_text(bytes)
        ));
    }
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    mlockall(all).map_err(|error| format!("the system does not lock it: {error}"))
}

static LOCKED: OnceLock<Result<(), String>> = OnceLock::new();

/// How many users there are where nobody has taken some aside.
const ALL_USERS: &str = "4294967295";
const SWAPS: &str = "/proc/swaps";
const USERS: &str = "/proc/self/uid_map";
