//! The table `log`: the operational log on standard error.

use sealane_operator::key::{Choice, Group, Key, Or};
use sealane_operator::log::{LogFormat, LogLevel};
use sealane_operator::reader::Table;

/// The operational log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The lowest level of lines that are written.
    pub level: LogLevel,
    /// The form of lines; none: text, or JSON where the access log goes to standard error.
    pub format: Option<LogFormat>,
}

pub(crate) fn log(table: &Table<'_>) -> Log {
    Log { level: table.get(&LEVEL), format: table.value(&FORMAT).and_then(|v| FORMAT.read(&v)) }
}

pub(crate) static GROUP: Group = Group::new(
    "log",
    "The operational log, on standard error. A change takes effect at the next start.",
    &[&LEVEL, &FORMAT],
)
.restart();

static LEVEL: Key<Or<Choice<LogLevel>>> = Key::new(
    "level",
    Or(Choice(&LogLevel::NAMES), LogLevel::Info),
    "Lines of this level and above are written. \"debug\" also logs the life of each connection \
     while it happens, at most 5,000 events per second and lane. --log-level takes precedence.",
);

static FORMAT: Key<Choice<LogFormat>> = Key::new(
    "format",
    Choice(&LogFormat::NAMES),
    "The form of lines. Text has time, level, target and message, followed by key=value; in the \
     journal a priority takes the place of time and level. --log-format takes precedence.",
)
.examples(&["\"json\""])
.without("text, or JSON if access_log.path is \"stderr\"");
