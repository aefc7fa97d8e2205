//! The table `access_log`: one line per connection.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use sealane_operator::reader::Table;

/// One line per connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where the lines go.
    pub destination: AccessLogDestination,
    /// Bytes that each lane may have waiting; lines beyond them are dropped and counted.
    pub buffer_bytes: usize,
    /// Whether there is a line for a balancer that only looked whether somebody answers.
    pub health_checks: bool,
    /// Whether lines tell the JA4 of clients.
    pub ja4: bool,
    /// Which connections have a line.
    pub only: LoggedEnds,
}

/// Which connections have a line in the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoggedEnds {
    /// All.
    #[default]
    All,
    /// Those whose end somebody is to blame for.
    Failures,
}

/// Where the lines of the access log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogDestination {
    /// A file, appended to.
    File(PathBuf),
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
}

pub(crate) fn access_log(table: &mut Table<'_>) -> Option<AccessLog> {
    let path = table.required("path", "path = \"stderr\"");
    let buffer_bytes =
        table.size_bytes("buffer", ACCESS_LOG_BUFFER_BYTES).unwrap_or(ACCESS_LOG_BUFFER_DEFAULT);
    let health_checks = table.boolean("health_checks").unwrap_or(false);
    let ja4 = table.boolean("ja4").unwrap_or(false);
    let only = table.value("only").and_then(|v| v.choice(&LOGGED_ENDS)).unwrap_or_default();
    let path = path?;
    let destination = match path.parsed(|text| Ok(text.to_owned()))?.as_str() {
        "stderr" => AccessLogDestination::Stderr,
        "stdout" => AccessLogDestination::Stdout,
        _ => AccessLogDestination::File(path.path()?),
    };
    Some(AccessLog { destination, buffer_bytes, health_checks, ja4, only })
}

const ACCESS_LOG_BUFFER_BYTES: RangeInclusive<usize> = 4 * 1024..=64 * 1024 * 1024;

const ACCESS_LOG_BUFFER_DEFAULT: usize = 1024 * 1024;

const LOGGED_ENDS: [(&str, LoggedEnds); 2] =
    [("all", LoggedEnds::All), ("failures", LoggedEnds::Failures)];
