//! The operational log, on standard error: everything that a program of ours logs by `tracing`.
//!
//! [`start`] is for every program: plain lines with the program's name, as commands write them. A
//! process that goes on running calls [`set`] once it knows its settings: from then on each line
//! has its time, level and target, as text or as JSON. To the journal, which has the time, each
//! line goes with its priority before it (`sd-daemon(3)`).

use std::fmt::{self, Write as _};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::ValueEnum;
use rustix::fs::fstat;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber, callsite};
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer as _, fmt as layer, registry};

use crate::timestamp::Timestamp;

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Time, level, target and message in one line, followed by fields as `key=value`.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

impl LogFormat {
    /// All, by their names.
    pub const NAMES: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];
}

/// The lowest level of lines that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Something does not work.
    Error,
    /// Something works on, probably not as it is meant.
    Warning,
    /// Events of the process: start, reload, a backend that is down.
    #[default]
    Info,
    /// The life of each connection as well.
    Debug,
}

impl LogLevel {
    /// All, by their names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("error", Self::Error),
        ("warning", Self::Warning),
        ("info", Self::Info),
        ("debug", Self::Debug),
    ];

    fn of(number: u8) -> Self {
        let mut levels = Self::NAMES.iter().map(|(_, level)| *level);
        levels.find(|level| *level as u8 == number).unwrap_or_default()
    }
}

impl From<LogLevel> for Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warning => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}

/// The lines that are written, and their form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// Lines of lower levels are not written.
    pub level: LogLevel,
    /// The form of a line.
    pub format: LogFormat,
}

/// Writes lines from now on, at level `info` and above: with the name of `program`, or to the
/// journal.
pub fn start(program: &'static str) {
    let is_ours = FilterFn::new(|metadata| {
        let is_at_level =
            *metadata.level() <= Level::from(LogLevel::of(LEVEL.load(Ordering::Relaxed)));
        is_at_level && metadata.target().starts_with(OWN_TARGETS)
    });
    if is_journal() {
        STYLE.store(Style::Journal as u8, Ordering::Relaxed);
    }
    let lines = layer::layer().event_format(Lines { program }).with_writer(io::stderr);
    // Only the first call counts.
    let _ = tracing::subscriber::set_global_default(
        registry().with(lines.with_filter(is_ours.with_max_level_hint(LevelFilter::TRACE))),
    );
}

/// Writes lines for a log from now on.
pub fn set(settings: LogSettings) {
    let style = match settings.format {
        LogFormat::Json => Style::Json,
        LogFormat::Text if is_journal() => Style::Journal,
        LogFormat::Text => Style::Text,
    };
    LEVEL.store(settings.level as u8, Ordering::Relaxed);
    STYLE.store(style as u8, Ordering::Relaxed);
    callsite::rebuild_interest_cache();
}

/// The form of lines on this standard error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// For the terminal of a command.
    Command,
    Text,
    Json,
    Journal,
}

impl Style {
    fn current() -> Self {
        let number = STYLE.load(Ordering::Relaxed);
        let known = [Self::Text, Self::Json, Self::Journal];
        known.into_iter().find(|style| *style as u8 == number).unwrap_or(Self::Command)
    }
}

static STYLE: AtomicU8 = AtomicU8::new(Style::Command as u8);
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);
/// Crates of this project; lines of others are not for operators.
const OWN_TARGETS: &str = "sealane";

/// Whether standard error is the stream that a service manager has opened to the journal: it says
/// which, and something else may stand in its place.
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(file) = fstat(io::stderr()) else { return false };
    named == format!("{}:{}", file.st_dev, file.st_ino)
}

struct Lines {
    program: &'static str,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (level, target) = (*event.metadata().level(), short(event.metadata().target()));
        let now = Timestamp::now().to_string();
        writer.write_str(&line(Style::current(), self.program, &now, level, target, &fields))
    }
}

/// The last part of the path of a module, such as `reload`.
fn short(target: &str) -> &str {
    let last = target.rsplit("::").next().unwrap_or(target);
    last.strip_prefix("sealane_").unwrap_or(last)
}

fn line(
    style: Style,
    program: &str,
    now: &str,
    level: Level,
    target: &str,
    fields: &Fields,
) -> String {
    match style {
        Style::Json => {
            let own = [("time", now), ("level", name_of(level)), ("target", target)];
            let own = own.into_iter().chain([("message", fields.message.as_str())]);
            let own = own.map(|(key, text)| (key, Value::from(text)));
            let pairs = own.chain(fields.others.iter().map(|(key, value)| (*key, value.clone())));
            let pairs: Vec<_> =
                pairs.map(|(key, value)| format!("{}:{value}", Value::from(key))).collect();
            format!("{{{}}}\n", pairs.join(","))
        }
        Style::Text => prefixed(&format!("{now} {level:<5} {target}: "), &fields.text()),
        Style::Command => {
            let warning = if level == Level::WARN { "warning: " } else { "" };
            format!("{program}: {warning}{}\n", fields.text())
        }
        Style::Journal => {
            let priority = match level {
                Level::ERROR => 3,
                Level::WARN => 4,
                Level::INFO => 6,
                Level::DEBUG | Level::TRACE => 7,
            };
            // The journal takes each line for an entry of its own.
            prefixed(&format!("<{priority}>{target}: "), &fields.text())
        }
    }
}

/// Each line of `text` with `prefix`, for collectors that take every line for an entry.
fn prefixed(prefix: &str, text: &str) -> String {
    text.split('\n').fold(String::new(), |mut lines, line| {
        // Writing into a string does not fail.
        let _ = writeln!(lines, "{prefix}{line}");
        lines
    })
}

fn name_of(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// The message of an event, and its other fields in their order.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn record(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.others.push((name, value)),
        }
    }

    /// The message, followed by `key=value`; a value is quoted if it is not one plain word.
    fn text(&self) -> String {
        let mut text = self.message.clone();
        for (key, value) in &self.others {
            let is_plain = |text: &str| {
                !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || "\"=".contains(c))
            };
            let _ = match value {
                Value::String(value) if is_plain(value) => write!(text, " {key}={value}"),
                other => write!(text, " {key}={other}"),
            };
        }
        text
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.record(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.record(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        Fields {
            message: "one\ntwo".into(),
            others: vec![("generation", 2.into()), ("path", "/a b".into()), ("host", "a.b".into())],
        }
    }

    fn shown(style: Style, level: Level) -> String {
        line(
            style,
            "sealane",
            "2026-11-28T03:31:16.123Z",
            level,
            short("sealane_control::reload"),
            &fields(),
        )
    }

    #[test]
    fn text_line_has_time_level_target_and_fields() {
        assert_eq!(
            shown(Style::Text, Level::INFO),
            "2026-11-28T03:31:16.123Z INFO  reload: one\n\
             2026-11-28T03:31:16.123Z INFO  reload: two generation=2 path=\"/a b\" host=a.b\n"
        );
    }

    #[test]
    fn json_line_is_one_object() {
        let line = shown(Style::Json, Level::WARN);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.starts_with("{\"time\":\"2026-11-28T03:31:16.123Z\",\"level\":"), "{line}");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["level"], "warning");
        assert_eq!(value["message"], "one\ntwo");
        assert_eq!(value["generation"], 2);
    }

    #[test]
    fn journal_lines_begin_with_their_priority() {
        for (level, priority) in [(Level::ERROR, 3), (Level::WARN, 4), (Level::INFO, 6)] {
            let lines = shown(Style::Journal, level);
            assert!(
                lines.starts_with(&format!("<{priority}>reload: one\n<{priority}>reload: two "))
            );
        }
    }

    #[test]
    fn command_line_has_the_name_of_the_program() {
        assert!(shown(Style::Command, Level::WARN).starts_with("sealane: warning: one\n"));
        assert!(shown(Style::Command, Level::ERROR).starts_with("sealane: one\n"));
    }
}
