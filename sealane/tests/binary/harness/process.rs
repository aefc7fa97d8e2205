//! A child process that never outlives its test, and whose facts can be read.

use std::collections::BTreeMap;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A child that is killed, by its id, when the test is done with it.
pub struct Process {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    pub fn new(child: Child) -> Self {
        Self { child, ended: None }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        assert!(self.ended.is_none(), "the process has ended already");
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().unwrap();
        }
        self.ended
    }

    /// The status with which the process exits within `patience`.
    pub fn wait(&mut self, patience: Duration) -> ExitStatus {
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.status() {
                return status;
            }
            assert!(Instant::now() < until, "the process goes on after {patience:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Open file descriptors: of the control plane's table, and of each lane's.
    pub fn descriptors(&self) -> usize {
        let lanes = self.threads("lane-");
        [self.id()].iter().chain(&lanes).map(|thread| self.open_in(*thread).len()).sum()
    }

    /// What is open in the table of a thread, by number, and what each stands for.
    pub fn open_in(&self, thread: u32) -> BTreeMap<u32, String> {
        let folder = format!("/proc/{}/task/{thread}/fd", self.id());
        let open = std::fs::read_dir(folder).unwrap().flatten().filter_map(|entry| {
            // It may have been closed meanwhile.
            let file = std::fs::read_link(entry.path()).ok()?;
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            Some((number, file.to_str().unwrap().to_owned()))
        });
        open.collect()
    }

    /// Private memory in bytes: what goes away when the process does.
    pub fn private_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.id())).unwrap();
        let kib: u64 = text
            .lines()
            .filter(|line| line.starts_with("Private_"))
            .map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap())
            .sum();
        kib * 1024
    }

    /// The share of memory (PSS) and what of that is private and anonymous, in MiB.
    pub fn memory_mib(&self) -> (u64, u64) {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.id())).unwrap();
        let mib = |field: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            line.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
        };
        (mib("Pss:"), mib("Pss_Anon:"))
    }

    /// The ids of its threads whose name begins with `prefix`.
    pub fn threads(&self, prefix: &str) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let named = tasks.flatten().filter(|task| {
            std::fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name.starts_with(prefix))
        });
        named.map(|task| task.file_name().to_str().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status().is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}
