//! The program's own log as JSON, where it shares a stream with the access log.

use sealane_config::timestamp::Timestamp;
use sealane_config::{AccessLogDestination, Config};
use sealane_operator::{Priority, write_as};
use serde::Serialize;

/// One line of the program's own log.
#[derive(Serialize)]
struct Line<'a> {
    time: Timestamp,
    level: &'static str,
    message: &'a str,
}

/// From now on writes JSON if the access log goes to standard error, so that every line there is.
pub(crate) fn follow(config: &Config) {
    let destination = config.access_log.as_ref().map(|log| &log.destination);
    if destination == Some(&AccessLogDestination::Stderr) {
        write_as(line);
    }
}

fn line(priority: Priority, text: &str) -> String {
    let level = match priority {
        Priority::Error => "error",
        Priority::Warning => "warning",
        Priority::Information => "info",
    };
    let line = Line { time: Timestamp::now(), level, message: text };
    // Strings and a time always have a form in JSON.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}
