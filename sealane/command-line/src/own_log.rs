//! The settings of the operational log of a process that serves.

use sealane_config::{AccessLogDestination, Config, Log};
use sealane_operator::log::{self, LogFormat, LogLevel, LogSettings};

/// Level and format on the command line, if they are there.
#[derive(Clone, Copy)]
pub(crate) struct LogFlags {
    pub(crate) level: Option<LogLevel>,
    pub(crate) format: Option<LogFormat>,
}

/// Follows the flags, for mistakes in the configuration.
pub(crate) fn begin(flags: LogFlags) {
    if flags.level.is_some() || flags.format.is_some() {
        log::set(LogSettings {
            level: flags.level.unwrap_or_default(),
            format: flags.format.unwrap_or_default(),
        });
    }
}

/// Follows the configuration, where the flags say nothing else. Without a format it is JSON if the
/// access log goes to standard error as well, so that every line there is JSON.
pub(crate) fn follow(flags: LogFlags, config: &Config) {
    let Log { level, format } = config.log;
    let destination = config.access_log.as_ref().map(|log| &log.destination);
    let default = match destination {
        Some(AccessLogDestination::Stderr) => LogFormat::Json,
        _ => LogFormat::Text,
    };
    log::set(LogSettings {
        level: flags.level.unwrap_or(level),
        format: flags.format.or(format).unwrap_or(default),
    });
}
