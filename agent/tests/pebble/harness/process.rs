//! A child process that never outlives its test.

use std::process::{Child, ExitStatus};

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
