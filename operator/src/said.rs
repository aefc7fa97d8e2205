//! Log lines for the operator, on standard error, where service managers collect them.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use rustix::fs::fstat;

/// How much a line matters to an operator: journald sorts by it, and colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Something does not work.
    Error,
    /// Something works on in a way that is probably not meant.
    Warning,
    /// What is done.
    Information,
}

/// Sets the name of this program in its log lines, which is `sealane` by default.
pub fn call_this_program(name: &'static str) {
    // Only the first call counts.
    let _ = NAME.set(name);
}

/// Sets the format of all further lines. `format` returns a line with its end.
pub fn write_as(format: fn(Priority, &str) -> String) {
    // Only the first call counts.
    let _ = FORMAT.set(format);
}

/// Logs a line of the priority [`Priority::Information`].
pub fn say(text: &str) {
    say_at(Priority::Information, text);
}

/// Logs a line of this priority.
pub fn say_at(priority: Priority, text: &str) {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    let lines = match FORMAT.get() {
        Some(format) => format(priority, text),
        None => lines(*IS_JOURNAL.get_or_init(is_journal), priority, text),
    };
    // With standard error gone there is no other place to report that.
    let _ = io::stderr().write_all(lines.as_bytes());
}

/// Whether standard error is the stream that a service manager has opened to the journal: it says
/// which, and something else may stand in its place.
fn is_journal() -> bool {
    let Ok(told) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(file) = fstat(io::stderr()) else { return false };
    told == format!("{}:{}", file.st_dev, file.st_ino)
}

/// The lines of `text`; the journal takes each for an entry of its own, with its priority before
/// it.
fn lines(is_journal: bool, level: Priority, text: &str) -> String {
    let prefix = match level {
        _ if !is_journal => "",
        // From sd-daemon(3).
        Priority::Error => "<3>",
        Priority::Warning => "<4>",
        Priority::Information => "<6>",
    };
    let mut lines = String::new();
    for (number, line) in text.split('\n').enumerate() {
        let (name, colon) = match number {
            0 => (NAME.get().copied().unwrap_or("sealane"), ": "),
            _ => ("", ""),
        };
        let level = if number == 0 && level == Priority::Warning { "warning: " } else { "" };
        // Nothing fails that writes into a string.
        let _ = writeln!(lines, "{prefix}{name}{colon}{level}{line}");
    }
    lines
}

static NAME: OnceLock<&str> = OnceLock::new();
static FORMAT: OnceLock<fn(Priority, &str) -> String> = OnceLock::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_priority_where_the_journal_reads_it() {
        for (priority, number, level) in [
            (Priority::Error, 3, ""),
            (Priority::Warning, 4, "warning: "),
            (Priority::Information, 6, ""),
        ] {
            let expected = format!("sealane: {level}one\ntwo\n");
            assert_eq!(lines(false, priority, "one\ntwo"), expected);
            let expected = format!("<{number}>sealane: {level}one\n<{number}>two\n");
            assert_eq!(lines(true, priority, "one\ntwo"), expected);
        }
    }
}
