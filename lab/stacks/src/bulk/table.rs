//! A run of `bulk` for people, [`text`], and for spreadsheets, [`csv`].

use std::fmt::Write;

use sealane_lab_harness::strategies;
use sealane_lab_model::{
    document::{BulkRound, BulkSeries, Run},
    figures::{
        Figure, HINT, Shown, Tally,
        bulk::{CHECK, CPU, LOCK_CALLS, MIGRATED, RATE},
    },
    statistics::Spread,
};

/// A table; below it what the comparisons say, and why a series has no figures.
#[must_use]
pub fn text(run: &Run) -> String {
    let series = &run.bulk;
    let mut text = String::new();
    if !series.is_empty() {
        let rate = format!("{} [min-max]", RATE.head);
        let heads = FIGURES.iter().map(|figure| figure.head).chain([&*rate, "rounds that count"]);
        let mut cells: Vec<Vec<String>> =
            vec![HEAD.iter().copied().chain(heads).map(str::to_owned).collect()];
        cells.extend(series.iter().map(row));
        text.push_str(&aligned(&cells));
    }
    text.push_str(NOTE);
    if series.iter().any(|series| Shown::of(&series.rounds).is_hint()) {
        let _ = writeln!(text, "{HINT} every round was disturbed: a hint");
    }
    for comparison in &run.comparisons {
        let _ = writeln!(text, "{}", comparison.verdict);
    }
    for series in series {
        if let Some(why) = &series.failure {
            let _ = writeln!(text, "{}: {why}", name(series));
        }
    }
    text + &strategies::told(&run.checks, &run.bulk_judgement())
}

/// One line per series, and a head.
#[must_use]
pub fn csv(series: &[BulkSeries]) -> String {
    let mut text = CSV_HEAD.join(",");
    text.push('\n');
    for series in series {
        let shown = Shown::of(&series.rounds);
        let spread = shown.spread(&RATE);
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
            series.verify.clone().unwrap_or_default(),
            series.rounds.len().to_string(),
        ];
        let figures = [
            number(spread.map(|spread| spread.median)),
            number(spread.map(|spread| spread.min)),
            number(spread.map(|spread| spread.max)),
            number(shown.median(&CPU)),
            number(shown.median(&MIGRATED)),
            number(shown.median(&LOCK_CALLS)),
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
    let shown = Shown::of(&series.rounds);
    let rate = shown.spread(&RATE).map(|Spread { median, min, max }| {
        format!("{}{median:.0} [{min:.0}-{max:.0}]", shown.mark())
    });
    let mut row = vec![series.stack.clone()];
    row.extend([
        series.runtime.clone(),
        series.loops.clone().unwrap_or_default(),
        series.emulate.clone().unwrap_or_default(),
        series.threads.to_string(),
        series.connections.to_string(),
        format!("{}x{}", series.messages, series.message_bytes),
    ]);
    let figure = |figure| shown.median(figure).map(|value| format!("{value:.0}"));
    let figures = FIGURES.iter().map(figure).chain([rate]);
    row.extend(figures.map(|value| value.unwrap_or_else(|| "-".to_owned())));
    row.push(Tally::of(&series.rounds).to_string());
    row
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

const HEAD: &[&str] = &["stack", "runtime", "loops", "emulate", "threads", "conns", "messages"];
const FIGURES: [Figure<BulkRound>; 3] = [CPU, CHECK, MIGRATED];
const CSV_HEAD: &[&str] = &[
    "stack",
    "runtime",
    "loops",
    "emulate",
    "threads",
    "connections",
    "messages",
    "message_bytes",
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
    rounds that count; migrated:\nconnections whose records more than one thread handled.\n";
