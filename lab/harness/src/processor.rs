//! The calling thread's processors and the CPU time that it, or its process, has used.

use std::fs;

use rustix::{
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use sealane_lab_model::error::Error;

/// Ties the calling thread to `processors`; what it starts from then on inherits that.
///
/// # Errors
/// This process may not run on any of them.
pub fn confine(processors: &[usize]) -> Result<(), Error> {
    let mut set = CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    sched_setaffinity(None, &set)
        .map_err(|error| Error::io(format!("run on processors {processors:?}"))(error.into()))
}

/// Ties the calling thread, number `number` of its trial, to its processor; to none if there is
/// none.
///
/// # Errors
/// This process may not run there.
pub fn pin(processors: &[usize], number: usize) -> Result<(), Error> {
    match processors.len() {
        0 => Ok(()),
        count => confine(&[processors[number % count]]),
    }
}

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// How often the calling thread has waited in the kernel: for a lock, a socket, or time.
///
/// # Errors
/// The kernel does not tell.
pub fn thread_waits() -> Result<u64, Error> {
    let status = fs::read_to_string(STATUS).map_err(Error::file(STATUS))?;
    let mut lines = status.lines();
    let told = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    told.and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| Error::Check(format!("{STATUS} does not tell how often a thread waited")))
}

/// CPU time of all threads of this process.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

const STATUS: &str = "/proc/thread-self/status";
