//! A server under test as a [`Process`]: measured with everything that it forks.

use std::{
    collections::BTreeMap,
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use sealane_lab_model::error::Error;

use crate::{
    child::Child,
    descendants::{numbers_in, tree},
};

/// A running server, which is dereferenced for what every [`Child`] can.
pub struct Process {
    child: Child,
    /// Whether it has a thread for each connection, whose time is gone with it.
    threads_pass: bool,
}

impl Process {
    /// Starts `command`, with what it prints in `log`.
    ///
    /// # Errors
    /// [`Error::Io`] of the system.
    pub fn start(mut command: Command, log: &Path) -> Result<Self, Error> {
        let child = Child::logged(&mut command, log)?.asked_by(Signal::TERM, END_TIME_MAX);
        Ok(Self { child, threads_pass: false })
    }

    /// Says that it has a thread for each connection: its processor time is then read to the tick.
    pub fn with_passing_threads(mut self) -> Self {
        self.threads_pass = true;
        self
    }

    /// What every thread of every process has used so far, user and system.
    pub fn cpu(&self) -> Result<Cpu, Error> {
        let (mut threads, mut coarse_ns) = (BTreeMap::new(), 0);
        for pid in self.tree()? {
            // Of several processes one may end at any time.
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            coarse_ns += ticks_in(&stat).unwrap_or(0) * TICK_NS;
            let Ok(tasks) = numbers_in(Path::new(&format!("/proc/{pid}/task"))) else { continue };
            for thread in tasks {
                let path = format!("/proc/{pid}/task/{thread}/schedstat");
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let nanoseconds = text.split(' ').next().and_then(|field| field.parse().ok());
                let name = fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm"));
                let kind = Kind::of(pid, thread, &name.unwrap_or_default());
                threads.insert(thread, (kind, nanoseconds.unwrap_or(0)));
            }
        }
        Ok(Cpu { threads, coarse_ns, threads_pass: self.threads_pass })
    }

    /// The proportional set size of every process, in bytes.
    pub fn pss_bytes(&self) -> Result<u64, Error> {
        let mut sum_kib = 0;
        for pid in self.tree()? {
            let path = format!("/proc/{pid}/smaps_rollup");
            // One that has just ended has none, and no file or an empty one.
            let text = fs::read_to_string(&path).unwrap_or_default();
            if text.is_empty() {
                continue;
            }
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
            let kib: Option<u64> =
                line.and_then(|line| line.trim_end_matches(" kB").trim().parse().ok());
            sum_kib += kib.ok_or_else(|| Error::Check(format!("{path} has no Pss")))?;
        }
        Ok(sum_kib * 1024)
    }

    /// The most memory that each process has had resident so far, in bytes, summed up.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn peak_bytes(&self) -> Result<u64, Error> {
        let of = |pid: u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        Ok(self.tree()?.into_iter().filter_map(of).sum::<u64>() * 1024)
    }

    /// The libraries mapped by any of its processes, by path.
    pub fn libraries(&self) -> Result<Vec<PathBuf>, Error> {
        let mut found = Vec::new();
        for pid in self.tree()? {
            let path = format!("/proc/{pid}/maps");
            let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
            found.extend(
                text.lines()
                    .filter_map(|line| line.find('/').map(|at| &line[at..]))
                    .map(PathBuf::from),
            );
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// The first process and all that descend from it.
    fn tree(&self) -> Result<Vec<u32>, Error> {
        tree(self.child.id())
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

/// The clock ticks that the process `first` and all that descend from it have used so far.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn ticks(first: u32) -> Result<u64, Error> {
    let of = |pid: u32| ticks_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    Ok(tree(first)?.into_iter().filter_map(of).sum())
}

/// Processor time so far.
pub struct Cpu {
    /// Nanoseconds by thread, exact.
    threads: BTreeMap<u32, (Kind, u64)>,
    /// Nanoseconds of all processes, of their threads and children that ended too, to the tick.
    coarse_ns: u64,
    threads_pass: bool,
}

/// What a thread is to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A thread that does TLS, and is named so.
    Lane,
    /// The one that the process began with.
    Main,
    /// A thread that is neither.
    Other,
}

impl Kind {
    fn of(pid: u32, thread: u32, name: &str) -> Self {
        match name.starts_with(LANE) {
            true => Self::Lane,
            false if pid == thread => Self::Main,
            false => Self::Other,
        }
    }
}

impl Cpu {
    /// Nanoseconds used since `earlier`. Exact, unless threads ended and took their figures with
    /// them: then to the clock tick of each process, 10 ms.
    pub fn since(&self, earlier: &Self) -> u64 {
        if self.threads_pass
            || earlier.threads.keys().any(|thread| !self.threads.contains_key(thread))
        {
            return self.coarse_ns.saturating_sub(earlier.coarse_ns);
        }
        let exact = self.by_thread(earlier).iter().sum();
        // Threads that came and went between the two show only in the coarse count.
        let coarse = self.coarse_ns.saturating_sub(earlier.coarse_ns);
        if coarse > exact + exact / 10 + TICKS_DOUBTFUL * TICK_NS { coarse } else { exact }
    }

    /// Nanoseconds of each thread that used any, most first: how work is dealt to workers.
    pub fn by_thread(&self, earlier: &Self) -> Vec<u64> {
        let used = self.used(earlier).map(|(_, ns)| ns);
        let mut used: Vec<u64> = used.filter(|ns| *ns > 0).collect();
        used.sort_unstable_by(|a, b| b.cmp(a));
        used
    }

    /// Nanoseconds of all threads of that kind.
    pub fn of_kind(&self, kind: Kind, earlier: &Self) -> u64 {
        self.used(earlier).filter(|(its, _)| *its == kind).map(|(_, ns)| ns).sum()
    }

    fn used(&self, earlier: &Self) -> impl Iterator<Item = (Kind, u64)> {
        self.threads.iter().map(|(thread, (kind, ns))| {
            let before = earlier.threads.get(thread).map_or(0, |(_, ns)| *ns);
            (*kind, ns.saturating_sub(before))
        })
    }
}

/// User and system time in a `/proc/PID/stat`, of the process and of its children that ended.
fn ticks_in(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum())
}

const END_TIME_MAX: Duration = Duration::from_secs(2);
/// How the names of Sealane's threads for TLS begin.
const LANE: &str = "lane-";
/// A tick of the kernel's interface, on every architecture that this runs on.
const TICK_NS: u64 = 10_000_000;
/// Ticks by which the coarse count may be off without a reason.
const TICKS_DOUBTFUL: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ended_is_counted_to_the_tick() {
        let cpu = |threads: &[(u32, u64)], coarse_ns| Cpu {
            threads: threads.iter().map(|(thread, ns)| (*thread, (Kind::Other, *ns))).collect(),
            coarse_ns,
            threads_pass: false,
        };
        let earlier = cpu(&[(1, 10), (2, 20)], TICK_NS);
        let later = cpu(&[(1, 15), (2, 20), (3, 4)], TICK_NS);
        assert_eq!(later.since(&earlier), 9);
        assert_eq!(later.by_thread(&earlier), [5, 4]);
        assert_eq!(cpu(&[(1, 15)], 3 * TICK_NS).since(&earlier), 2 * TICK_NS);
        let came_and_went = cpu(&[(1, 15), (2, 20)], 50 * TICK_NS);
        assert_eq!(came_and_went.since(&earlier), 49 * TICK_NS);
    }

    #[test]
    fn each_thread_s_time_is_told_by_what_it_is() {
        let kinds =
            [Kind::of(7, 7, "node\n"), Kind::of(7, 8, "lane-0\n"), Kind::of(7, 9, "node\n")];
        assert_eq!(kinds, [Kind::Main, Kind::Lane, Kind::Other]);
        let cpu = |used: [u64; 3]| Cpu {
            threads: (7..).zip(kinds.into_iter().zip(used)).collect(),
            coarse_ns: 0,
            threads_pass: false,
        };
        let (earlier, later) = (cpu([1, 10, 100]), cpu([3, 30, 300]));
        let told = kinds.map(|kind| later.of_kind(kind, &earlier));
        assert_eq!(told, [2, 20, 200]);
    }

    #[test]
    fn time_is_found_behind_a_strange_command() {
        assert_eq!(ticks_in("1 (a) b) S 1 1 1 0 -1 4 9 9 9 9 10 20 30 40 20 0 1"), Some(100));
    }

    #[test]
    fn a_process_is_measured_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c 'while :; do :; done' & wait"]);
        let process = Process::start(command, &folder.path().join("log")).unwrap();
        while process.tree().unwrap().len() < 2 {
            std::thread::yield_now();
        }
        let before = process.cpu().unwrap();
        while process.cpu().unwrap().since(&before) == 0 {
            std::thread::yield_now();
        }
        assert!(process.peak_bytes().unwrap() >= process.pss_bytes().unwrap());
        assert!(process.pss_bytes().unwrap() > 0);
    }
}
