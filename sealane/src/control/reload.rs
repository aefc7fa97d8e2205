//! A change of the configuration while it is served: read whole, built, and published or refused.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sd_notify::NotifyState;
use sealane_lanes::generation::Publication;
use sealane_lanes::mailbox::Mail;

use super::build::build;
use super::kept::KeptSockets;
use super::sockets::open_new;
use super::watch::fingerprint;
use super::{ConfigSource, Control, report};
use crate::config::Config;
use crate::operator::{Priority, say, say_at};
use crate::systemd;

impl Control {
    /// Reads configuration and certificates again and publishes them, or says what is wrong.
    pub(super) fn reload(&mut self) {
        let started = Instant::now();
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            systemd::tell(&[NotifyState::Reloading, now]);
        }
        self.fingerprint = fingerprint(self.source.file(), &self.config);
        if let Some(log) = &self.log {
            log.reopen();
        }
        let outcome = self.try_reload();
        let told = outcome.clone().map_err(|problems| problems.join("\n"));
        self.state.lock().reloads.count(SystemTime::now(), told);
        match outcome {
            Ok(()) => {
                say(&format!(
                    "reloaded: generation {} in {} ms",
                    self.number,
                    started.elapsed().as_millis()
                ));
            }
            Err(problems) => {
                // Folders that have come since must be seen to be completed.
                self.follow_files();
                let text = format!(
                    "reload refused, generation {} goes on:\n{}",
                    self.number,
                    problems.join("\n")
                );
                say_at(Priority::Error, &text);
            }
        }
        systemd::tell(&[NotifyState::Ready]);
    }

    fn try_reload(&mut self) -> Result<(), Vec<String>> {
        let config = match &self.source {
            ConfigSource::File(path) => {
                Config::load(path).map_err(|mistakes| vec![mistakes.to_string()])?
            }
            ConfigSource::Flags(config) => (**config).clone(),
        };
        let config = self.keep_what_needs_a_restart(config);
        if let Some((key, problem)) = config.limits.too_few_for(config.lanes) {
            // Fewer lanes in the file, which run only after the next start.
            return Err(vec![format!("limits.{key}: {problem}")]);
        }
        // Before the files are read: what changes meanwhile must differ from this afterwards.
        let seen = fingerprint(self.source.file(), &config);
        self.serve(config)?;
        self.fingerprint = seen;
        self.follow_files();
        Ok(())
    }

    /// Reads what `config` names, builds the next generation of it, and publishes that.
    pub(super) fn serve(&mut self, config: Config) -> Result<(), Vec<String>> {
        let names = self.registries.names.clone();
        // What was found for something that is not served is looked up again.
        self.build_and_publish(config).inspect_err(|_| self.registries.names = names)
    }

    fn build_and_publish(&mut self, config: Config) -> Result<(), Vec<String>> {
        let built = build(&config, self.number + 1, &mut self.registries)?;
        let none = &mut KeptSockets::default();
        let mut sockets = open_new(&built.generation, &config, &self.bound, none)?;
        sockets.keep();
        let parcels = sockets.hand_over(&mut self.lanes).inspect_err(|_| sockets.forget())?;
        report(&built.warnings);
        self.config = config;
        let generation = self.adopt(built, &mut sockets);
        for (lane, parcel) in self.lanes.iter().zip(parcels) {
            let generation = Arc::clone(&generation);
            lane.post(Mail::Publish(Box::new(Publication { generation, parcel })));
        }
        Ok(())
    }

    /// Settings that a running process cannot change stay as they are, and that is said.
    fn keep_what_needs_a_restart(&self, mut config: Config) -> Config {
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
        if (&config.admin, &config.admin_hosts) != (&running.admin, &running.admin_hosts) {
            config.admin.clone_from(&running.admin);
            config.admin_hosts.clone_from(&running.admin_hosts);
            kept.push("admin");
        }
        if config.access_log != running.access_log {
            config.access_log.clone_from(&running.access_log);
            kept.push("access_log");
        }
        for setting in kept {
            let text = format!("the change of {setting} takes effect at the next start");
            say_at(Priority::Warning, &text);
        }
        config
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
