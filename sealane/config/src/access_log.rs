//! The table `access_log`: one line per connection.

use std::path::PathBuf;

use sealane_operator::key::{Bool, Bytes, Choice, Group, Key, Or, PathKind};
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
    /// Whether lines have the JA4 of clients.
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
    /// Those that ended by a fault.
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

pub(crate) fn access_log(table: &Table<'_>) -> Option<AccessLog> {
    let path = table.required(&PATH, "path = \"stderr\"");
    let buffer_bytes = table.get(&BUFFER);
    let health_checks = table.get(&HEALTH_CHECKS);
    let ja4 = table.get(&JA4);
    let only = table.get(&ONLY);
    let path = path?;
    let destination = match path.parsed(|text| Ok(text.to_owned()))?.as_str() {
        "stderr" => AccessLogDestination::Stderr,
        "stdout" => AccessLogDestination::Stdout,
        _ => AccessLogDestination::File(path.path()?),
    };
    Some(AccessLog { destination, buffer_bytes, health_checks, ja4, only })
}

pub(crate) static GROUP: Group = Group::new(
    "access_log",
    "One JSON line per connection. Off without this table. A change takes effect at the next \
     start.",
    &[&PATH, &BUFFER, &HEALTH_CHECKS, &ONLY, &JA4],
)
.restart();

static PATH: Key<PathKind> = Key::new(
    "path",
    PathKind,
    "A file, \"stderr\" or \"stdout\". With \"stderr\" the lines of Sealane's own log are JSON \
     objects too.",
)
.examples(&["\"stderr\""])
.required();

static BUFFER: Key<Or<Bytes>> = Key::new(
    "buffer",
    Or(Bytes(4 * 1024..=64 * 1024 * 1024), 1024 * 1024),
    "How many bytes of lines each lane buffers. Lines beyond it are dropped and counted.",
);

static HEALTH_CHECKS: Key<Or<Bool>> = Key::new(
    "health_checks",
    Or(Bool, false),
    "Whether health checks of a load balancer are logged: connections with a PROXY header that \
     marks them as its own, and connections that close without sending data.",
);

static ONLY: Key<Or<Choice<LoggedEnds>>> = Key::new(
    "only",
    Or(Choice(&[("all", LoggedEnds::All), ("failures", LoggedEnds::Failures)]), LoggedEnds::All),
    "\"failures\" logs only connections that ended by a fault of a client, a backend, a limit or \
     Sealane. docs/log.md explains each cause.",
);

static JA4: Key<Or<Bool>> = Key::new(
    "ja4",
    Or(Bool, false),
    "Whether lines have the client's JA4, a fingerprint of its TLS library. It costs the lane one \
     digest for each connection.",
);
