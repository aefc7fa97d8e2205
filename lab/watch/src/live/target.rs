//! The server that is watched: [`Target`], a process and all that it started. It is looked at, and
//! never signalled.

use std::{
    fs::{self, File},
    io::Read,
    process,
};

use sealane_lab_harness::descendants::tree;
use sealane_lab_model::{document::LiveProcess, error::Error};

/// A process that exists, is no kernel thread and not the lab itself.
pub(super) struct Target {
    pub(super) pid: u32,
    pub(super) name: String,
    /// Empty if not to be seen.
    pub(super) executable: String,
    /// When it began, in ticks since the machine did: tells it from a later one with its number.
    started: u64,
}

impl Target {
    /// The process `pid`.
    ///
    /// # Errors
    /// There is none, or it is none to be watched; the operator asked for the wrong one.
    pub(super) fn open(pid: u32) -> Result<Self, Error> {
        let wrong = |why: String| Err(Error::Check(format!("process {pid}: {why}")));
        let Some(stat) = Stat::of(pid) else {
            return wrong(
                "there is none with this id, or this user may not see it; `pgrep -a NAME` lists \
                 the ids of a program"
                    .into(),
            );
        };
        if pid == process::id() {
            return wrong("that is this command itself; give the id of a server".into());
        }
        if stat.is_of_kernel {
            return wrong(format!(
                "{} is a thread of the kernel and has no code of a server; give the server's id",
                stat.name
            ));
        }
        if stat.has_ended() {
            return wrong("it has ended and waits for its parent to notice".into());
        }
        let status = text_of(&format!("/proc/{pid}/status")).unwrap_or_default();
        let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")).map(str::trim);
        if let Some(group) = group.filter(|group| *group != pid.to_string()) {
            return wrong(format!("it is a thread of process {group}; give that id"));
        }
        let executable = fs::read_link(format!("/proc/{pid}/exe"));
        let executable = executable.map(|path| printable(&path.to_string_lossy()));
        let executable = executable.unwrap_or_default();
        Ok(Self { pid, name: stat.name, executable, started: stat.started })
    }

    /// Whether it still runs: the same process, not another that got its number.
    pub(super) fn lives(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.started == self.started && !stat.has_ended())
    }

    /// The process and its descendants, without the lab's own, [`PROCESSES_MAX`] at most.
    pub(super) fn processes(&self) -> Vec<LiveProcess> {
        let own = tree(process::id()).unwrap_or_default();
        let all = tree(self.pid).unwrap_or_else(|_| vec![self.pid]);
        let theirs = all.into_iter().filter(|pid| !own.contains(pid));
        let processes = theirs.filter_map(|pid| {
            let stat = Stat::of(pid).filter(|stat| !stat.has_ended())?;
            Some(LiveProcess { pid, name: stat.name })
        });
        processes.take(PROCESSES_MAX).collect()
    }
}

/// What `/proc/PID/stat` tells of a process or thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) name: String,
    pub(super) state: char,
    pub(super) user_ticks: u64,
    pub(super) system_ticks: u64,
    /// Threads of the process.
    threads: u64,
    started: u64,
    is_of_kernel: bool,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&text_of(&format!("/proc/{pid}/stat"))?)
    }

    /// Whether it has ended; its first thread may do so before the others, which work on.
    fn has_ended(&self) -> bool {
        self.state == ENDED && self.threads < 2
    }

    /// The name stands in brackets, and may hold brackets and blanks itself.
    pub(super) fn parse(stat: &str) -> Option<Self> {
        let (before, after) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        // The state is field 3 of the whole line, and the first behind the name.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            name: printable(before.split_once('(')?.1),
            state: fields.first()?.chars().next()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            threads: number(20)?,
            started: number(22)?,
            is_of_kernel: number(9)? & FLAG_OF_KERNEL != 0,
        })
    }
}

/// The text of a file in `/proc`; who chose a name in it may have cut a character, or worse.
pub(super) fn text_of(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    // The kernel does not know how long such a file is, and is not asked.
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Without what a terminal would obey: names are chosen by those who are watched.
pub(super) fn printable(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}

/// More are not followed; the sums then lack the others.
pub(super) const PROCESSES_MAX: usize = 64;

const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// `PF_KTHREAD` of the kernel's flags.
const FLAG_OF_KERNEL: u64 = 0x0020_0000;
/// The state of a process that has ended.
const ENDED: char = 'Z';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_is_read_whole() {
        let line = "12 (a) b (c) S 1 12 12 0 -1 4194560 9 9 9 9 31 32 0 0 20 0 4 0 777 1 1";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.started), ("a) b (c", 'S', 777));
        assert_eq!((stat.user_ticks, stat.system_ticks, stat.is_of_kernel), (31, 32, false));
        assert!(!stat.has_ended());
        let leader = Stat::parse(&line.replace(" S ", " Z ")).unwrap();
        assert!(!leader.has_ended(), "its other threads work on");
        let alone = line.replace(" S ", " Z ").replace(" 4 0 777", " 1 0 777");
        assert!(Stat::parse(&alone).unwrap().has_ended());
        let hostile = line.replace("a) b (c", "\u{1b}[31m\n\u{9b}x");
        let name = Stat::parse(&hostile).unwrap().name;
        assert_eq!(name, "\u{fffd}[31m\u{fffd}\u{fffd}x", "no terminal obeys it");
        assert_eq!(Stat::parse("12 (a"), None);
        assert_eq!(Stat::parse("12 (a) S 1 2"), None);
    }

    #[test]
    fn what_cannot_be_watched_is_refused_with_the_reason() {
        let said = |pid| Target::open(pid).err().unwrap().to_string();
        assert!(said(u32::MAX).contains("there is none"));
        assert!(said(process::id()).contains("this command itself"));
        let thread = std::thread::spawn(|| {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            Target::open(u32::try_from(own).unwrap()).err().unwrap().to_string()
        });
        let said = thread.join().unwrap();
        assert!(said.contains(&format!("a thread of process {}", process::id())), "{said}");
    }

    #[test]
    fn another_process_with_the_same_number_is_not_it() {
        let mut command = process::Command::new("sleep");
        let mut child = command.arg("600").spawn().unwrap();
        let mut target = Target::open(child.id()).unwrap();
        assert!(target.lives());
        target.started += 1;
        assert!(!target.lives(), "a later process");
        target.started -= 1;
        child.kill().unwrap();
        while target.lives() {
            std::thread::yield_now();
        }
        let said = Target::open(child.id()).err().unwrap().to_string();
        assert!(said.contains("has ended"), "{said}");
        child.wait().unwrap();
    }
}
