//! A child process that never outlives its test.

use std::fs;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use super::wait_for;

/// A child that is killed, by its id, when the test is done with it.
pub struct Process {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    pub fn new(child: Child) -> Self {
        Self { child, ended: None }
    }

    /// The time on processors that it has taken so far.
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        // proc(5), fields 14 and 15, in hundredths of a second; two stand before the bracket.
        let hundredths: u64 =
            fields[11..=12].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(hundredths * 10)
    }

    /// The private memory in MiB, without what is read of files.
    pub fn private_mib(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let rollup = fs::read_to_string(path).unwrap();
        let kib = |line: &str| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        rollup.lines().filter(|line| line.starts_with("Private_Dirty")).map(kib).sum::<u64>() >> 10
    }

    /// The number that the kernel knows it by.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        assert!(self.ended.is_none(), "the process has ended already");
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
            .unwrap();
    }

    pub fn status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().unwrap();
        }
        self.ended
    }

    /// Waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        wait_for("the end of a process", || self.status())
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
