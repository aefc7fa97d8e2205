//! Materials that cannot be used as they are: reported, and looked at again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use sealane_config::timestamp::Timestamp;
use sealane_lanes::mailbox::Mail;
use sealane_listeners::Fault;
use sealane_operator::{Priority, say, say_at};

use super::Control;
use super::watch::{fingerprint, unfollowed};
use crate::state::{Faults, Verdict};

impl Control {
    /// Notes which materials are faulty now, and how they looked `before` they were read.
    pub(super) fn note_faulty(&mut self, before: &BTreeMap<PathBuf, u64>) -> Faults {
        self.state.lock().ticket_root_fault = self.root.fault().cloned();
        let faults = self.state.lock().faults_now();
        // A store that is open is looked after without a reload.
        let is_unkept = |fault: &Fault| fault.without.is_some();
        let is_faulty = |path: &PathBuf| {
            faults.shown.iter().any(|fault| fault.path == *path && is_unkept(fault))
        };
        let faulty = before.iter().filter(|(path, _)| is_faulty(path));
        self.faulty = faulty.map(|(path, look)| (path.clone(), *look)).collect();
        self.looked_at_faulty = Instant::now();
        self.has_store_news = false;
        faults
    }

    /// Whether it is time to look for changes that no watch reports, such as of rights.
    pub(super) fn is_to_look_at_faulty(&mut self) -> bool {
        if self.has_store_news {
            return true;
        }
        if self.looked_at_faulty.elapsed() < LOOK_INTERVAL {
            return false;
        }
        self.looked_at_faulty = Instant::now();
        self.state.lock().faults_now().total > 0
    }

    /// Whether a file on disk has changed since it was read.
    pub(super) fn has_changed(&self) -> bool {
        let now = unfollowed(&self.config);
        self.has_store_news
            || self.faulty.iter().any(|(path, look)| now.get(path) != Some(look))
            || fingerprint(self.source.file(), &self.config) != self.fingerprint
    }

    /// Whether a revocation list with a date in the future when it was read is now in force: then
    /// lanes have to check their connections again.
    pub(super) fn has_list_begun(&self) -> bool {
        let read_at = Timestamp::from(self.lists_read_at);
        let now = Timestamp::from(SystemTime::now());
        let state = self.state.lock();
        let clients = state.listeners.iter().filter_map(|listener| listener.clients.as_ref());
        clients.flat_map(|clients| &clients.lists).any(|list| {
            let begins = Timestamp::from_unix_s(list.this_update_s);
            read_at < begins && begins <= now
        })
    }

    /// Tries the file of the ticket root again, if it could not be used.
    pub(super) fn try_root_again(&mut self) {
        if self.root.try_again(&self.config.tickets) {
            for lane in &self.lanes {
                lane.post(Mail::Tickets(self.root.current().clone()));
            }
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

/// How often faulty materials are looked at without a hint.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
