//! A change of the configuration while it is served: read whole, built, and published or refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use sd_notify::NotifyState;
use sealane_config::Config;
use tracing::{error, info};

use super::build::build;
use super::kept::KeptSockets;
use super::watch::{fingerprint, fingerprint_of_materials, is_material, unfollowed};
use super::{Control, report};
use crate::process::landlock;
use crate::state::{Faults, Verdict};
use crate::systemd;

impl Control {
    /// Reads the configuration and the certificates again. Publishes them, or reports the errors.
    pub(super) fn reload(&mut self) -> Verdict {
        let started = Instant::now();
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            systemd::tell(&[NotifyState::Reloading, now]);
        }
        self.changes.begin_read(self.running.file(), self.running.config());
        let before = (unfollowed(self.running.config()), self.state.lock().faults_now());
        if let Some(log) = &self.log {
            log.reopen();
        }
        self.try_root_again();
        let (errors, warnings) = match self.try_reload() {
            Ok(warnings) => (Vec::new(), warnings),
            Err(mut problems) => {
                let mut more = self.serve_renewed().err().unwrap_or_default();
                more.retain(|each| !problems.contains(each));
                problems.extend(more);
                (problems, Vec::new())
            }
        };
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let generation = self.lanes.number();
        let faults = self.note_faulty(&before.0).lines();
        let verdict = Verdict { generation, took_ms, errors, faults, warnings };
        self.state.lock().reloads.count(SystemTime::now(), verdict.clone());
        if verdict.is_accepted() {
            self.changes.follow(self.running.file(), self.running.config());
            self.report_reload(&verdict, &before.1);
        } else {
            // Folders that have come since must be seen to be completed.
            self.changes.follow(self.running.file(), self.running.config());
            let errors = verdict.errors.join("\n");
            let text = format!("reload refused, generation {generation} goes on:\n{errors}");
            error!("{text}");
            self.report_changed_faults(&before.1);
        }
        systemd::tell(&[NotifyState::Ready]);
        verdict
    }

    /// Returns what is served, but probably not meant.
    fn try_reload(&mut self) -> Result<Vec<String>, Vec<String>> {
        let (config, mut warnings) = self.running.read_again()?;
        let is_new = |path: &Path| self.registries.last_good.is_new(path);
        let (file, running) = (self.running.file(), self.running.config());
        let outside = landlock::mistakes(file, &config, running, is_new);
        if !outside.is_empty() {
            return Err(outside);
        }
        // Before the files are read: what changes meanwhile must differ from this afterwards.
        let seen = fingerprint(file, &config);
        warnings.extend(self.serve(config)?);
        self.changes.end_read(seen);
        Ok(warnings)
    }

    /// Serves the configuration before with its materials as they are now, so that a mistake in
    /// another one holds up none of them.
    fn serve_renewed(&mut self) -> Result<(), Vec<String>> {
        let is_same = self.changes.has_same_materials(self.running.config());
        // Stores, keys by a command and sockets are not in the fingerprint: they are tried again.
        let before = self.state.lock().faults_now();
        let is_retried = before.total > before.shown.len()
            || before.shown.iter().any(|fault| !is_material(self.running.config(), &fault.path));
        if is_same && !is_retried && self.bound.are_found() {
            return Ok(());
        }
        self.serve(self.running.config().clone())?;
        let text = "the configuration before is served with its files as they are now, generation";
        if !is_same || self.state.lock().faults_now().lines() != before.lines() {
            info!("{text} {}", self.lanes.number());
        }
        Ok(())
    }

    /// Reads what `config` names, builds the next generation of it, and publishes that; returns
    /// what is probably not meant.
    fn serve(&mut self, config: Config) -> Result<Vec<String>, Vec<String>> {
        let names = self.registries.names.clone();
        let materials = fingerprint_of_materials(&config);
        // What was found for something that is not served is looked up again.
        let served = self.build_and_publish(config).inspect_err(|_| {
            self.registries.names = names;
            // What was known for something that is not served is not believed later.
            self.registries.health.prune();
        });
        if served.is_ok() {
            self.changes.serve_materials(materials);
        }
        served
    }

    fn build_and_publish(&mut self, config: Config) -> Result<Vec<String>, Vec<String>> {
        let (number, running) = (self.lanes.number() + 1, self.running.config());
        let mut built = build(&config, number, &mut self.registries, Some(running))?;
        let none = &mut KeptSockets::default();
        let mut sockets = self.bound.open_new(&built.generation, &config, none)?;
        std::mem::take(&mut sockets.faults).into_iter().for_each(|fault| built.faults.add(fault));
        sockets.keep();
        let parcels = self.lanes.hand_over(&mut sockets).inspect_err(|_| sockets.forget())?;
        report(&built.warnings);
        let warnings = std::mem::take(&mut built.warnings);
        // Its keys may be new, too.
        self.root.follow(built.tickets.take());
        self.running.replace(config);
        let generation = self.adopt(built, &mut sockets);
        self.registries.health.tell_who_is_back(&generation, &self.lanes);
        self.lanes.publish(&generation, parcels.into_iter());
        // Whoever comes there finds lanes that note names.
        self.names_door.follow(self.running.config().on_demand_store(), &self.state);
        Ok(warnings)
    }
}

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
            0 => info!("{text}"),
            1 => info!("{text}, with 1 fault"),
            total => info!("{text}, with {total} faults"),
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
            info!("{}: fault resolved", path.display());
        }
    }
}

/// Logs faults, a line each.
pub(super) fn report_faults(lines: &[String]) {
    for line in lines {
        error!("fault: {line}");
    }
}
