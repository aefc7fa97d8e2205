//! A run of `bulk` for people, [`text`], and for spreadsheets, [`csv`].

use std::fmt::Write;

use crate::{
    counted::Counted,
    document::{BulkRound, BulkSeries, Run},
    statistics::Spread,
};

/// A table; below it what the comparisons say, and why a series has no figures.
pub(crate) fn text(run: &Run) -> String {
    let series = &run.bulk;
    let (memory, sockets): (Vec<_>, Vec<_>) =
        series.iter().partition(|series| series.runtime == "memory");
    let mut text = String::new();
    for (rows, head) in [(memory, MEMORY_HEAD), (sockets, SOCKETS_HEAD)] {
        if rows.is_empty() {
            continue;
        }
        let mut cells = vec![head.iter().map(|word| (*word).to_owned()).collect()];
        cells.extend(rows.iter().map(|series| row(series)));
        text.push_str(&aligned(&cells));
    }
    text.push_str(NOTE);
    for comparison in &run.comparisons {
        let _ = writeln!(text, "{}", comparison.verdict);
    }
    for series in series {
        if let Some(why) = &series.failure {
            let _ = writeln!(text, "{}: {why}", name(series));
        }
    }
    text
}

/// One line per series, and a head.
pub(crate) fn csv(series: &[BulkSeries]) -> String {
    let mut text = CSV_HEAD.join(",");
    text.push('\n');
    for series in series {
        let spread = rates(series);
        let number =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1}"));
        let first = [
            quoted(&series.stack),
            series.runtime.clone(),
            series.loops.clone().unwrap_or_default(),
            series.emulate.clone().unwrap_or_default(),
            series.threads.to_string(),
            series.connections.to_string(),
            series.messages.to_string(),
            series.message_bytes.to_string(),
            series.record_bytes.map_or(String::new(), |bytes| bytes.to_string()),
            series.verify.clone().unwrap_or_default(),
            series.rounds.len().to_string(),
        ];
        let figures = [
            number(spread.map(|spread| spread.median)),
            number(spread.map(|spread| spread.min)),
            number(spread.map(|spread| spread.max)),
            number(median(series, cpu_ms_per_gb)),
            number(median(series, |round| round.migrated as f64)),
            number(median(series, |round| round.lock_calls as f64)),
            quoted(series.failure.as_deref().unwrap_or_default()),
        ];
        let line: Vec<String> = first.into_iter().chain(figures).collect();
        text.push_str(&line.join(","));
        text.push('\n');
    }
    text
}

/// Which series this is, for a message.
pub(crate) fn name(series: &BulkSeries) -> String {
    let mut name = format!("{} {}", series.stack, series.runtime);
    for word in [&series.loops, &series.emulate].into_iter().flatten() {
        name.push(' ');
        name.push_str(word);
    }
    let _ = write!(name, " T={} C={}", series.threads, series.connections);
    name
}

fn row(series: &BulkSeries) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
    let rates = rates(series);
    let rate = rates.map_or("-".to_owned(), |Spread { median, min, max }| {
        format!("{median:.0} [{min:.0}-{max:.0}]")
    });
    let cpu = number(median(series, cpu_ms_per_gb));
    if series.runtime == "memory" {
        let rate_of = |ns: fn(&BulkRound) -> Option<u64>| {
            number(median(series, |round| {
                // Bytes per nanosecond of one thread, in MB/s.
                ns(round).map_or(f64::NAN, |ns| round.bytes as f64 / ns as f64 * 1e3)
            }))
        };
        return vec![
            series.stack.clone(),
            series.emulate.clone().unwrap_or_default(),
            series.threads.to_string(),
            series.message_bytes.to_string(),
            series.record_bytes.map_or(String::new(), |bytes| bytes.to_string()),
            rate_of(|round| round.ends.as_ref().map(|ends| ends.send_ns)),
            rate_of(|round| round.ends.as_ref().map(|ends| ends.receive_ns)),
            rate_of(|round| round.ends.as_ref().map(|ends| ends.send_cpu_ns)),
            rate_of(|round| round.ends.as_ref().map(|ends| ends.receive_cpu_ns)),
            rate,
            rounds(series),
        ];
    }
    vec![
        series.stack.clone(),
        series.runtime.clone(),
        series.loops.clone().unwrap_or_default(),
        series.emulate.clone().unwrap_or_default(),
        series.threads.to_string(),
        series.connections.to_string(),
        format!("{}x{}", series.messages, series.message_bytes),
        rate,
        cpu,
        number(median(series, check_ms_per_gb)),
        number(median(series, |round| round.migrated as f64)),
        rounds(series),
    ]
}

/// MB/s of wall time.
pub(crate) fn rate(round: &BulkRound) -> f64 {
    round.bytes as f64 / round.wall_ns as f64 * 1e3
}

/// MB/s of the rounds that count.
pub(crate) fn rates(series: &BulkSeries) -> Option<Spread> {
    let rounds = Counted::of(&series.rounds).rounds.into_iter();
    Spread::of(&rounds.map(rate).collect::<Vec<f64>>())
}

/// How many rounds count of how many, with a mark if none does.
pub(crate) fn rounds(series: &BulkSeries) -> String {
    let all = series.rounds.len();
    let valid = series.rounds.iter().filter(|round| round.invalid.is_none()).count();
    match valid {
        0 if all > 0 => format!("0/{all} *"),
        _ => format!("{valid}/{all}"),
    }
}

fn cpu_ms_per_gb(round: &BulkRound) -> f64 {
    round.cpu_ns as f64 / round.bytes as f64 * 1e3
}

fn check_ms_per_gb(round: &BulkRound) -> f64 {
    round.check_ns as f64 / round.bytes as f64 * 1e3
}

fn median(series: &BulkSeries, figure: impl Fn(&BulkRound) -> f64) -> Option<f64> {
    let values: Vec<f64> = Counted::of(&series.rounds).rounds.into_iter().map(figure).collect();
    Spread::of(&values).map(|spread| spread.median)
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A stack's name may be a path, and a failure any text.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

const MEMORY_HEAD: &[&str] = &[
    "stack",
    "emulate",
    "threads",
    "message",
    "record",
    "send",
    "receive",
    "send/cpu",
    "receive/cpu",
    "MB/s [min-max]",
    "rounds",
];
const SOCKETS_HEAD: &[&str] = &[
    "stack",
    "runtime",
    "loops",
    "emulate",
    "threads",
    "conns",
    "messages",
    "MB/s [min-max]",
    "cpu ms/GB",
    "check ms/GB",
    "migrated",
    "rounds",
];
const CSV_HEAD: &[&str] = &[
    "stack",
    "runtime",
    "loops",
    "emulate",
    "threads",
    "connections",
    "messages",
    "message_bytes",
    "record_bytes",
    "verify",
    "rounds",
    "mb_per_s_median",
    "mb_per_s_min",
    "mb_per_s_max",
    "cpu_ms_per_gb_median",
    "migrated_median",
    "lock_calls_median",
    "failure",
];
const NOTE: &str = "MB/s: 1,000,000 bytes per second of all threads together, median of the \
    rounds; send and receive: of one\nthread, by wall and by CPU time; migrated: connections \
    whose records more than one thread handled;\nrounds: that count of all; *: none \
    counts, so all are shown (steal, or threads kept from their processors).\n";
