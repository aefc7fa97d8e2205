//! Materials that cannot be used as they are: reported, and looked at again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sealane_operator::{Priority, say, say_at};

use super::Control;
use crate::state::{Faults, Verdict};

impl Control {
    /// Notes which materials are faulty now, and how they looked `before` they were read.
    pub(super) fn note_faulty(&mut self, before: &BTreeMap<PathBuf, u64>) -> Faults {
        self.state.lock().ticket_root_fault = self.root.fault().cloned();
        let faults = self.state.lock().faults_now();
        self.changes.note_faulty(before, &faults);
        faults
    }

    /// Tries the file of the ticket root again, if it could not be used.
    pub(super) fn try_root_again(&mut self) {
        if self.root.try_again(&self.running.config().tickets) {
            self.post_tickets();
        }
    }

    /// Reports an accepted reload: the faults that are left, and those of `before` that are gone.
    pub(super) fn report_reload(&self, verdict: &Verdict, before: &Faults) {
        let now = self.state.lock().faults_now();
        report_resolved(&now, before);
        let Verdict { generation, took_ms, faults, .. } = verdict;
        let text = format!("reloaded: generation {generation} in {took_ms} ms");
        match now.total {
            0 => say(&text),
            1 => say(&format!("{text}, with 1 fault")),
            total => say(&format!("{text}, with {total} faults")),
        }
        report_faults(faults);
    }

    /// Reports the faults that a refused reload has found, and those of `before` that are gone.
    pub(super) fn report_changed_faults(&self, before: &Faults) {
        let now = self.state.lock().faults_now();
        report_resolved(&now, before);
        let known = before.lines();
        let new: Vec<_> = now.lines().into_iter().filter(|line| !known.contains(line)).collect();
        report_faults(&new);
    }
}

/// Logs the faults of `before` that are gone, a line for each path.
fn report_resolved(now: &Faults, before: &Faults) {
    let is_gone = |path: &&PathBuf| !now.shown.iter().any(|fault| fault.path == **path);
    let mut gone: Vec<_> = before.shown.iter().map(|fault| &fault.path).collect();
    gone.dedup();
    if now.total == now.shown.len() {
        for path in gone.into_iter().filter(is_gone) {
            say(&format!("{}: fault resolved", path.display()));
        }
    }
}

/// Logs faults, a line each.
pub(super) fn report_faults(lines: &[String]) {
    for line in lines {
        say_at(Priority::Error, &format!("fault: {line}"));
    }
}
