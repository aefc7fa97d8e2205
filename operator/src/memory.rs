//! Who may look into the memory of this process.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use tracing::warn;

/// Lets nobody else of this user read this process's memory, and no file get it: for programs that
/// have keys there.
pub fn hide_memory() {
    if let Err(error) = set_core_dumps(false) {
        warn!("cannot decide who may look into memory: {error}");
    }
}

/// Decides whether a file may get this process's memory, and others of its user may look into it.
///
/// # Errors
/// The system's.
pub fn set_core_dumps(are_allowed: bool) -> io::Result<()> {
    if are_allowed {
        return Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?);
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Programs that it starts have a memory of their own, and with it dumps again.
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}
