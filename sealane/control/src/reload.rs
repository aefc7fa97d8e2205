//! A change of the configuration while it is served: read whole, built, and published or refused.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sd_notify::NotifyState;
use sealane_config::{Config, Mistake};
use sealane_lanes::generation::Publication;
use sealane_lanes::mailbox::Mail;
use sealane_operator::{Priority, say, say_at};

use super::build::build;
use super::kept::KeptSockets;
use super::sockets::{Bound, open_new};
use super::watch::{fingerprint, fingerprint_of_materials, is_material, unfollowed};
use super::{ConfigSource, Control, report};
use crate::process::landlock;
use crate::state::Verdict;
use crate::systemd;

impl Control {
    /// Reads the configuration and the certificates again. Publishes them, or reports the errors.
    pub(super) fn reload(&mut self) -> Verdict {
        let started = Instant::now();
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            systemd::tell(&[NotifyState::Reloading, now]);
        }
        self.fingerprint = fingerprint(self.source.file(), &self.config);
        self.lists_read_at = SystemTime::now();
        let before = (unfollowed(&self.config), self.state.lock().faults_now());
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
        let generation = self.number;
        let faults = self.note_faulty(&before.0).lines();
        let verdict = Verdict { generation, took_ms, errors, faults, warnings };
        self.state.lock().reloads.count(SystemTime::now(), verdict.clone());
        if verdict.is_accepted() {
            self.follow_files();
            self.report_reload(&verdict, &before.1);
        } else {
            // Folders that have come since must be seen to be completed.
            self.follow_files();
            let errors = verdict.errors.join("\n");
            let text = format!("reload refused, generation {generation} goes on:\n{errors}");
            say_at(Priority::Error, &text);
            self.report_changed_faults(&before.1);
        }
        systemd::tell(&[NotifyState::Ready]);
        verdict
    }

    /// Returns what is served, but probably not meant.
    fn try_reload(&mut self) -> Result<Vec<String>, Vec<String>> {
        let config = match &self.source {
            ConfigSource::File(path) => {
                Config::load_anew(path, self.config.lanes).map_err(|mistakes| {
                    mistakes.0.iter().map(Mistake::to_string).collect::<Vec<_>>()
                })?
            }
            ConfigSource::Flags(config) => (**config).clone(),
        };
        let (config, mut warnings) = self.keep_what_needs_a_restart(config);
        let is_new = |path: &Path| self.registries.last_good.is_new(path);
        let outside = landlock::mistakes(self.source.file(), &config, &self.config, is_new);
        if !outside.is_empty() {
            return Err(outside);
        }
        // Before the files are read: what changes meanwhile must differ from this afterwards.
        let seen = fingerprint(self.source.file(), &config);
        warnings.extend(self.serve(config)?);
        self.fingerprint = seen;
        Ok(warnings)
    }

    /// Serves the configuration before with its materials as they are now, so that a mistake in
    /// another one holds up none of them.
    fn serve_renewed(&mut self) -> Result<(), Vec<String>> {
        let is_same = fingerprint_of_materials(&self.config) == self.materials;
        // Stores, keys by a command and sockets are not in the fingerprint: they are tried again.
        let before = self.state.lock().faults_now();
        let is_retried = before.total > before.shown.len()
            || before.shown.iter().any(|fault| !is_material(&self.config, &fault.path));
        if is_same && !is_retried && self.bound.iter().all(Bound::is_found) {
            return Ok(());
        }
        self.serve(self.config.clone())?;
        let text = "the configuration before is served with its files as they are now, generation";
        if !is_same || self.state.lock().faults_now().lines() != before.lines() {
            say(&format!("{text} {}", self.number));
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
            self.materials = materials;
        }
        served
    }

    fn build_and_publish(&mut self, config: Config) -> Result<Vec<String>, Vec<String>> {
        let mut built = build(&config, self.number + 1, &mut self.registries, Some(&self.config))?;
        let none = &mut KeptSockets::default();
        let mut sockets = open_new(&built.generation, &config, &self.bound, none)?;
        std::mem::take(&mut sockets.faults).into_iter().for_each(|fault| built.faults.add(fault));
        sockets.keep();
        let parcels = sockets.hand_over(&mut self.lanes).inspect_err(|_| sockets.forget())?;
        report(&built.warnings);
        let warnings = std::mem::take(&mut built.warnings);
        // Its keys may be new, too.
        self.root.follow(built.tickets.take());
        self.config = config;
        let generation = self.adopt(built, &mut sockets);
        self.tell_who_is_back(&generation);
        for (lane, parcel) in self.lanes.iter().zip(parcels) {
            let generation = Arc::clone(&generation);
            lane.post(Mail::Publish(Box::new(Publication { generation, parcel })));
        }
        // Whoever comes there finds lanes that note names.
        self.follow_names_door();
        Ok(warnings)
    }

    /// Settings that a running process cannot change stay as they are, and that is said and
    /// returned.
    fn keep_what_needs_a_restart(&self, mut config: Config) -> (Config, Vec<String>) {
        let running = &self.config;
        let mut kept = Vec::new();
        if config.lanes != running.lanes || config.pin_lanes != running.pin_lanes {
            (config.lanes, config.pin_lanes) = (running.lanes, running.pin_lanes);
            kept.push("lanes");
        }
        if config.tickets.root != running.tickets.root
            || config.tickets.lifetime != running.tickets.lifetime
        {
            config.tickets.root.clone_from(&running.tickets.root);
            config.tickets.lifetime = running.tickets.lifetime;
            kept.push("tickets.root and tickets.lifetime");
        }
        let keys_max = running.limits.decoded_keys_per_lane_max;
        if config.limits.decoded_keys_per_lane_max != keys_max {
            config.limits.decoded_keys_per_lane_max = keys_max;
            kept.push("limits.decoded_keys_per_lane");
        }
        if config.admin != running.admin {
            config.admin.clone_from(&running.admin);
            kept.push("admin");
        }
        if config.process != running.process {
            config.process.clone_from(&running.process);
            kept.push("process");
        }
        if config.access_log != running.access_log {
            config.access_log.clone_from(&running.access_log);
            kept.push("access_log");
        }
        let text = |setting| format!("the change of {setting} takes effect at the next start");
        let kept: Vec<_> = kept.into_iter().map(text).collect();
        for text in &kept {
            say_at(Priority::Warning, text);
        }
        (config, kept)
    }
}

/// Changes on disk that wait until they are complete.
pub(super) struct Pending {
    first: Instant,
    last: Instant,
}

impl Pending {
    pub(super) fn note(pending: &mut Option<Self>) {
        let now = Instant::now();
        match pending {
            Some(pending) => pending.last = now,
            None => *pending = Some(Self { first: now, last: now }),
        }
    }

    fn due(&self) -> Instant {
        (self.last + DEBOUNCE).min(self.first + DEBOUNCE_MAX)
    }

    pub(super) fn is_due(&self) -> bool {
        self.due() <= Instant::now()
    }

    pub(super) fn wait(&self) -> Duration {
        self.due().saturating_duration_since(Instant::now())
    }
}

/// How long files must be quiet before they are read: editors and hooks write in several steps.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// The longest that a steady stream of changes can put off a reload.
const DEBOUNCE_MAX: Duration = Duration::from_secs(2);
