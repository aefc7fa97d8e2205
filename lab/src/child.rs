//! One step as a process: [`Child`].

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{error::Error, process::tree as process_tree};

/// A running child; dropping it asks it to end, then ends it and everything it started.
pub(crate) struct Child {
    process: process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts `command`, with what it prints in `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self, Error> {
        let out = File::create(log).map_err(Error::file(log))?;
        let error = out.try_clone().map_err(Error::file(log))?;
        let what = format!("start {}", command.get_program().to_string_lossy());
        // In its own group, Ctrl-C reaches the lab alone, which ends its children in order.
        command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(error);
        Ok(Self { process: command.spawn().map_err(Error::io(what))?, log: log.to_owned() })
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// The last line of what it printed.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.unwrap_or("it ended without a word").trim().to_owned()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        if self.ended().is_none() {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + END_TIME_MAX;
        while self.ended().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        if self.ended().is_none() {
            // What it started for itself has groups of its own, and nobody else left to end it.
            for descendant in process_tree(self.process.id()).unwrap_or_default() {
                if let Some(pid) = i32::try_from(descendant).ok().and_then(Pid::from_raw) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
        // The group may outlive its first process; it is ours alone, because we made it.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.process.wait();
    }
}

/// To finish a round and write it.
const END_TIME_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_deaf_child_started_in_another_group_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; setsid sleep 1000 & while :; do sleep 0.1; done"]);
        let child = Child::start(command, &folder.path().join("log")).unwrap();
        let sleeps = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line == b"sleep\x001000\0"
        };
        let sleep = loop {
            let tree = process_tree(child.process.id()).unwrap();
            if let Some(pid) = tree.into_iter().find(sleeps) {
                break pid;
            }
            thread::yield_now();
        };
        drop(child);
        let deadline = Instant::now() + Duration::from_secs(10);
        while sleeps(&sleep) {
            assert!(Instant::now() < deadline, "{sleep} still runs");
            thread::yield_now();
        }
    }
}
