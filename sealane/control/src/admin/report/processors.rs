//! How much processor time each lane's thread has had, as the kernel counts it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Milliseconds by the number of the lane; those are missing of which the kernel does not tell.
pub(super) fn of_lanes() -> BTreeMap<usize, u64> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return BTreeMap::new() };
    threads.flatten().filter_map(|thread| of_lane(&thread.path())).collect()
}

fn of_lane(thread: &Path) -> Option<(usize, u64)> {
    let name = fs::read_to_string(thread.join("comm")).ok()?;
    let number = name.trim_end().strip_prefix("lane-")?.parse().ok()?;
    // Nanoseconds on a processor come first, says the kernel's documentation of scheduler
    // statistics.
    let times = fs::read_to_string(thread.join("schedstat")).ok()?;
    let ran_ns: u64 = times.split_whitespace().next()?.parse().ok()?;
    Some((number, ran_ns / 1_000_000))
}
