//! Locks of the kernel that threads of one process share, each with its remedy: of the file table,
//! which is waited for on a processor, and of the memory map.

use crate::{
    document::{Live, LiveFinding, LiveKind, LivePath},
    live::names::{FILE_TABLE, MEMORY_MAP},
};

use super::{PROFILE_MIN, READY_MIN, Seen, percent};

/// What is said of threads that sleep in such a state.
pub(super) fn told() -> [(&'static str, &'static str); 2] {
    [(FILE_TABLE, TABLE_GROWS), (MEMORY_MAP, MAP)]
}

/// Threads that spin for the lock of their file table.
pub(super) fn table_lock(live: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let profile = live.profile.as_ref().filter(|profile| profile.samples >= PROFILE_MIN)?;
    let several = seen.with(|worker| worker.ready, READY_MIN).0.len() >= 2;
    let spins = |path: &&LivePath| {
        let has = |names: &[&str]| {
            let kernel = path.path.iter().filter(|frame| frame.ends_with(KERNEL));
            kernel.into_iter().any(|frame| names.iter().any(|name| frame.starts_with(name)))
        };
        has(&SPINS) && has(&TABLE_FUNCTIONS)
    };
    let share: f64 = profile.paths.iter().filter(spins).map(|path| path.share).sum();
    if !several || share < SHARE_MIN {
        return None;
    }
    let sentence = format!(
        "{} of its CPU time it spins in the kernel for the lock of its file table, which accept, \
         socket, open and close take: {REMEDY}",
        percent(share)
    );
    let rule = format!(
        "at least {} of {PROFILE_MIN} samples or more are in a spin lock of the kernel under a \
         function of the file table, and several threads run",
        percent(SHARE_MIN)
    );
    Some(LiveFinding { kind: LiveKind::FileTable, sentence, rule })
}

const KERNEL: &str = "(kernel)";
const MAP: &str = "\
, the kernel's of the process's memory map: mmap, munmap and their like wait for each other, and \
page faults for them; threads that keep their memory, or processes, do not";
const REMEDY: &str = "\
threads with a table each (close_range with CLOSE_RANGE_UNSHARE in the thread itself), or \
processes, do not; `sealane-lab count --kernel` counts how often a connection writes it";
const SHARE_MIN: f64 = 0.05;
const SPINS: [&str; 4] = [
    "__pv_queued_spin_lock_slowpath",
    "_raw_spin_lock ",
    "native_queued_spin_lock_slowpath",
    "queued_spin_lock",
];
const TABLE_FUNCTIONS: [&str; 8] = [
    "__close_range",
    "alloc_fd",
    "close_fd",
    "do_dup2",
    "expand_files",
    "file_close_fd",
    "get_unused_fd",
    "put_unused_fd",
];
const TABLE_GROWS: &str = "\
, the kernel's while the file table that they share grows, which waits for all processors: grow it \
before the first thread starts (fcntl with F_DUPFD of the limit, and close), or give each thread a \
table of its own (close_range with CLOSE_RANGE_UNSHARE)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{LiveProfile, LiveThread};

    fn live(path: &[&str], share: f64) -> Live {
        let thread = |tid| LiveThread { tid, cpu_ns: 900_000_000, ..LiveThread::default() };
        let path = path.iter().map(|frame| (*frame).to_owned()).collect();
        let paths = vec![LivePath { path, share, kind: String::new() }];
        let profile = LiveProfile { samples: 1_000, paths, ..LiveProfile::default() };
        Live {
            watched_seconds: 1.0,
            processors_allowed: 4,
            threads: vec![thread(1), thread(2)],
            profile: Some(profile),
            ..Live::default()
        }
    }

    const SPIN: [&str; 4] = [
        "native_queued_spin_lock_slowpath (kernel)",
        "_raw_spin_lock (kernel)",
        "alloc_fd (kernel)",
        "accept4 (libc.so.6)",
    ];

    #[test]
    fn a_spin_for_the_table_is_told_with_its_remedy() {
        let found = |path: &[&str], share| {
            let live = live(path, share);
            table_lock(&live, &Seen::of(&live))
        };
        let told = found(&SPIN, 0.37).unwrap();
        assert_eq!(told.kind, LiveKind::FileTable);
        assert!(told.sentence.starts_with("37% of its CPU time"), "{}", told.sentence);
        assert!(told.sentence.contains("CLOSE_RANGE_UNSHARE"), "{}", told.sentence);
        assert!(found(&SPIN, 0.01).is_none());
        assert!(found(&SPIN[..2], 0.37).is_none(), "of another lock");
        assert!(found(&SPIN[2..], 0.37).is_none(), "it works there, and does not wait");
    }
}
