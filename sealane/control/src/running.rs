//! The configuration that is served, and its source: [`Running`].

use std::path::{Path, PathBuf};

use sealane_config::{Config, Mistake};
use tracing::warn;

/// Where the configuration comes from, and so whether it can be read again.
pub enum ConfigSource {
    /// A file, read again at each reload.
    File(PathBuf),
    /// Flags; a reload reads only the certificates again.
    Flags(Box<Config>),
}

/// The configuration that is served.
pub(super) struct Running {
    source: ConfigSource,
    config: Config,
}

impl Running {
    pub(super) fn new(source: ConfigSource, config: Config) -> Self {
        Self { source, config }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// The file of the configuration, if it has one.
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.source {
            ConfigSource::File(path) => Some(path),
            ConfigSource::Flags(_) => None,
        }
    }

    /// Another configuration is served now.
    pub(super) fn replace(&mut self, config: Config) {
        self.config = config;
    }

    /// Reads the configuration again, without the settings that need a restart; those are logged,
    /// and returned as warnings.
    ///
    /// # Errors
    /// A line for each mistake.
    pub(super) fn read_again(&self) -> Result<(Config, Vec<String>), Vec<String>> {
        let config = match &self.source {
            ConfigSource::File(path) => {
                Config::load_anew(path, self.config.lanes).map_err(|mistakes| {
                    mistakes.0.iter().map(Mistake::to_string).collect::<Vec<_>>()
                })?
            }
            ConfigSource::Flags(config) => (**config).clone(),
        };
        Ok(self.keep_what_needs_a_restart(config))
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
            warn!("{text}");
        }
        (config, kept)
    }
}
