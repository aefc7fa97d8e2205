//! The processors of this process.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity};

/// The processors that this process may run on, which in a container are not all of the machine's.
///
/// # Errors
/// The kernel refuses.
pub fn processors() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}
