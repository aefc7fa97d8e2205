//! Locks of the kernel that threads of one process share, each with its remedy: of the file table,
//! which is waited for on a processor, and of the memory map.

use sealane_lab_model::document::{Live, LiveFinding, LiveKind};

use crate::live::{
    names::{FILE_TABLE, MEMORY_MAP},
    samples::TABLE_SPIN,
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
    let spin = profile.functions.iter().find(|function| function.function == TABLE_SPIN);
    let share = spin.map_or(0.0, |spin| spin.share);
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

const MAP: &str = "\
, the kernel's of the process's memory map: mmap, munmap and their like wait for each other, and \
page faults for them; threads that keep their memory, or processes, do not";
const REMEDY: &str = "\
threads with a table each (close_range with CLOSE_RANGE_UNSHARE in the thread itself), or \
processes, do not; `sealane-lab count --kernel` counts how often a connection writes it";
const SHARE_MIN: f64 = 0.05;
const TABLE_GROWS: &str = "\
, the kernel's while the file table that they share grows, which waits for all processors: grow it \
before the first thread starts (fcntl with F_DUPFD of the limit, and close), or give each thread a \
table of its own (close_range with CLOSE_RANGE_UNSHARE)";

#[cfg(test)]
mod tests {
    use sealane_lab_model::document::LiveThread;

    use super::*;
    use crate::live::{nameless::Nameless, samples::fold};

    /// `of_100` samples as perf prints them, the others elsewhere.
    fn live(kernel: &[&str], of_100: usize) -> Live {
        let sample = |kernel: &[&str]| {
            let inside: String =
                kernel.iter().map(|name| format!("\tff {name} ([kernel.kallsyms])\n")).collect();
            format!("server 12/13 1 task-clock: \n{inside}\t11 accept4 (/lib/libc.so.6)\n\n")
        };
        let text = sample(kernel).repeat(of_100) + &sample(&[]).repeat(100 - of_100);
        let events = fold(&text, &mut Nameless::default());
        let thread = |tid| LiveThread { tid, cpu_ns: 900_000_000, ..LiveThread::default() };
        Live {
            watched_seconds: 1.0,
            processors_allowed: 4,
            threads: vec![thread(1), thread(2)],
            profile: Some(events["task-clock"].profile("task-clock", 99)),
            ..Live::default()
        }
    }

    const SPIN: [&str; 6] = [
        "native_queued_spin_lock_slowpath",
        "_raw_spin_lock",
        "alloc_fd",
        "get_unused_fd_flags",
        "__x64_sys_accept4",
        "do_syscall_64",
    ];

    #[test]
    fn a_spin_for_the_table_is_told_with_its_remedy() {
        let found = |kernel: &[&str], of_100| {
            let live = live(kernel, of_100);
            table_lock(&live, &Seen::of(&live))
        };
        let told = found(&SPIN, 37).unwrap();
        assert_eq!(told.kind, LiveKind::FileTable);
        assert!(told.sentence.starts_with("37% of its CPU time"), "{}", told.sentence);
        assert!(told.sentence.contains("CLOSE_RANGE_UNSHARE"), "{}", told.sentence);
        assert!(found(&SPIN, 1).is_none());
        let another = [&SPIN[..2], &SPIN[4..]].concat();
        assert!(found(&another, 37).is_none(), "of another lock");
        assert!(found(&SPIN[1..], 37).is_none(), "it takes one that is free");
        let path = &live(&SPIN, 37).profile.unwrap().paths[1].path;
        assert_eq!(path[1..], ["accept4 (system call) (kernel)", "accept4 (libc.so.6)"]);
    }
}
