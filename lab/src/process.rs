//! A server under test as a [`Process`]: started in a group of its own, measured with everything
//! it forks, and ended with it, whatever happens.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::error::Error;

/// A running child and its descendants; dropping it ends them.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// It has a thread for each connection, whose time is gone with it.
    threads_pass: bool,
}

impl Process {
    /// Starts `command`, with what it prints in `log`.
    pub(crate) fn start(mut command: Command, log: PathBuf) -> Result<Self, Error> {
        let out = File::create(&log).map_err(Error::file(&log))?;
        let error = out.try_clone().map_err(Error::file(&log))?;
        let what = format!("start {}", command.get_program().to_string_lossy());
        // In its own group, Ctrl-C reaches the lab alone, which ends its children in order. Some
        // end with their standard input, which lasts as long as this.
        command.process_group(0).stdin(Stdio::piped()).stdout(out).stderr(error);
        Ok(Self { child: command.spawn().map_err(Error::io(what))?, log, threads_pass: false })
    }

    /// Says that it has a thread for each connection: its processor time is then read to the tick.
    pub(crate) fn with_passing_threads(mut self) -> Self {
        self.threads_pass = true;
        self
    }

    /// The number of the first process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the first process still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// How the first process ended, once it has.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The last lines of what it printed.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// What every thread of every process has used so far, user and system.
    pub(crate) fn cpu(&self) -> Result<Cpu, Error> {
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

    /// Sends a signal to the first process.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let Some(pid) = self.pid() else { return Ok(()) };
        kill_process(pid, signal).map_err(|error| Error::io("signal the server")(error.into()))
    }

    /// The proportional set size of every process, in bytes.
    pub(crate) fn pss_bytes(&self) -> Result<u64, Error> {
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

    /// The libraries mapped by any of its processes, by path.
    pub(crate) fn libraries(&self) -> Result<Vec<PathBuf>, Error> {
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

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()).ok()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(pid) = self.pid() else { return };
        if self.runs() {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_millis(END_TIME_MAX_MS);
        while self.runs() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        // The group may outlive its first process; it is ours alone, because we made it.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The process `first` and all that descend from it.
///
/// # Errors
/// If `/proc` cannot be read.
pub(crate) fn tree(first: u32) -> Result<Vec<u32>, Error> {
    let mut parents = Vec::new();
    for pid in numbers_in(Path::new("/proc"))? {
        // Others come and go while this reads.
        let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { continue };
        // A name may be no text.
        if let Some(parent) = parent_in(&String::from_utf8_lossy(&stat)) {
            parents.push((pid, parent));
        }
    }
    let mut tree = vec![first];
    let mut next = 0;
    while next < tree.len() {
        let parent = tree[next];
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    Ok(tree)
}

/// The clock ticks that the process `first` and all that descend from it have used so far.
///
/// # Errors
/// If `/proc` cannot be read.
pub(crate) fn ticks(first: u32) -> Result<u64, Error> {
    let of = |pid: u32| ticks_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    Ok(tree(first)?.into_iter().filter_map(of).sum())
}

/// Processor time so far.
pub(crate) struct Cpu {
    /// Nanoseconds by thread, exact.
    threads: BTreeMap<u32, (Kind, u64)>,
    /// Nanoseconds of all processes, of their threads and children that ended too, to the tick.
    coarse_ns: u64,
    threads_pass: bool,
}

/// What a thread is to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It does TLS, and is named so.
    Lane,
    /// The one that the process began with.
    Main,
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
    pub(crate) fn since(&self, earlier: &Self) -> u64 {
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
    pub(crate) fn by_thread(&self, earlier: &Self) -> Vec<u64> {
        let used = self.used(earlier).map(|(_, ns)| ns);
        let mut used: Vec<u64> = used.filter(|ns| *ns > 0).collect();
        used.sort_unstable_by(|a, b| b.cmp(a));
        used
    }

    /// Nanoseconds of all threads of that kind.
    pub(crate) fn of_kind(&self, kind: Kind, earlier: &Self) -> u64 {
        self.used(earlier).filter(|(its, _)| *its == kind).map(|(_, ns)| ns).sum()
    }

    fn used(&self, earlier: &Self) -> impl Iterator<Item = (Kind, u64)> {
        self.threads.iter().map(|(thread, (kind, ns))| {
            let before = earlier.threads.get(thread).map_or(0, |(_, ns)| *ns);
            (*kind, ns.saturating_sub(before))
        })
    }
}

/// The entries of a folder of `/proc` that are numbers.
fn numbers_in(folder: &Path) -> Result<Vec<u32>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::file(folder))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The parent in a `/proc/PID/stat`; the command before it may hold spaces and brackets.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// User and system time in a `/proc/PID/stat`, of the process and of its children that ended.
fn ticks_in(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum())
}

/// The path of the program `name`.
///
/// # Errors
/// [`Error::Missing`] with the Debian package that brings it.
pub(crate) fn installed(name: &str, package: &str) -> Result<PathBuf, Error> {
    on_path(name).ok_or_else(|| Error::Missing {
        program: name.to_owned(),
        remedy: format!("apt-get install {package}"),
    })
}

/// Where the program `name` is, if it is installed.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        // Debian keeps servers where a shell without a login does not look.
        .chain(SERVER_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

const END_TIME_MAX_MS: u64 = 2_000;
/// How the names of Sealane's threads for TLS begin.
const LANE: &str = "lane-";
const LOG_LINES_SHOWN: usize = 8;
const SERVER_FOLDERS: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];
/// A tick of the kernel's interface, on every architecture that this runs on.
const TICK_NS: u64 = 10_000_000;
/// Ticks by which the coarse count may be off without a reason.
const TICKS_DOUBTFUL: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_a_strange_command() {
        assert_eq!(parent_in("12 (a) b) c) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("nonsense"), None);
    }

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
    fn a_process_is_measured_with_its_children_and_ends_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c 'while :; do :; done' & wait"]);
        let process = Process::start(command, folder.path().join("log")).unwrap();
        while process.tree().unwrap().len() < 2 {
            thread::yield_now();
        }
        let before = process.cpu().unwrap();
        while process.cpu().unwrap().since(&before) == 0 {
            thread::yield_now();
        }
        assert!(process.pss_bytes().unwrap() > 0);
        let tree = process.tree().unwrap();
        drop(process);
        // The kernel takes a moment to end what it has killed.
        let deadline = Instant::now() + Duration::from_secs(10);
        while tree.iter().any(|pid| still_runs(*pid)) {
            assert!(Instant::now() < deadline, "one of {tree:?} still runs");
            thread::yield_now();
        }
    }

    fn still_runs(pid: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }
}
