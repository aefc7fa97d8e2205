//! The settings of the operational log of a process that serves.

use sealane_config::{AccessLogDestination, Config};
use sealane_operator::log::{self, LogFormat, LogLevel, LogSettings};

/// Follows the flags. Without a format it is JSON if the access log goes to standard error as well,
/// so that every line there is JSON.
pub(crate) fn follow((level, format): (Option<LogLevel>, Option<LogFormat>), config: &Config) {
    let destination = config.access_log.as_ref().map(|log| &log.destination);
    let default = match destination {
        Some(AccessLogDestination::Stderr) => LogFormat::Json,
        _ => LogFormat::Text,
    };
    let (level, format) = (level.unwrap_or_default(), format.unwrap_or(default));
    log::set(LogSettings { level, format });
}
