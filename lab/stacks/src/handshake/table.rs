//! What `handshake` prints: a table for people, or another tool's lines.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use sealane_lab_model::{
    document::{HandshakePoint, HandshakeSeries, Run},
    error::Error,
    figures::{
        HINT, Tally,
        handshake::{COSTS, RATE, first, has_figures, shown, speed_up},
    },
    histogram::Times,
    statistics::{NOT_ENOUGH, ROUNDS_MIN},
    words::scenario::whole,
};

use crate::compat;

/// All figures of `run`'s handshakes, for people; empty if there are none.
#[must_use]
pub fn text(run: &Run) -> String {
    let mut text = String::new();
    let mut has_hints = false;
    for group in run.handshakes.chunk_by(|one, other| one.scenario == other.scenario) {
        let rows: Vec<String> =
            group.iter().flat_map(|series| rows(series, &mut has_hints)).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{}\n{}", whole(&group[0].scenario), head());
        rows.iter().for_each(|row| text.push_str(row));
        text.push_str(&not_counted(group));
        text.push_str(&times(group));
        verdicts(run, group).iter().for_each(|line| text.push_str(line));
        text.push('\n');
    }
    if text.is_empty() {
        return text;
    }
    if has_hints {
        let _ = writeln!(text, "{HINT} every round was disturbed, or none counts of both: a hint");
    }
    text.push_str(LEGEND);
    text
}

/// Another tool's lines, of the first stack.
pub(super) fn compat(tool: compat::Tool, run: &Run) -> String {
    let points = |series: &HandshakeSeries| {
        let line = |point: &HandshakePoint| {
            let shown = shown(point);
            if shown.is_empty() {
                return String::new();
            }
            compat::handshake_lines(tool, &series.scenario, shown.rounds())
        };
        series.points.iter().map(line).collect::<String>()
    };
    run.handshakes.iter().map(points).collect()
}

/// Says on standard error which series has no figures and why, and which figures are disturbed.
pub(super) fn write_troubles(run: &Run) -> Result<(), Error> {
    let mut text = String::new();
    for series in &run.handshakes {
        let (stack, title) = (&series.stack, whole(&series.scenario));
        if let Some(failure) = &series.failure {
            let _ = writeln!(text, "{stack}: NO FIGURES: {failure} ({title})");
        }
        for point in series.points.iter().filter(|point| !point.rounds.is_empty()) {
            let (threads, tally) = (threads(point.threads), Tally::of(&point.rounds));
            let shown = shown(point);
            if shown.is_empty() {
                let _ = writeln!(
                    text,
                    "{stack}: NO FIGURES: with {threads} no round can be used: {tally} ({title})"
                );
            } else if shown.is_hint() {
                let _ = writeln!(text, "{stack}, {threads}: every round was disturbed: {tally}");
            }
        }
    }
    io::stderr().write_all(text.as_bytes()).map_err(Error::io("standard error"))
}

/// Whether every stack did what it can do; in each scenario at least one must.
pub(super) fn is_whole(run: &Run) -> bool {
    run.handshakes.chunk_by(|one, other| one.scenario == other.scenario).all(|group| {
        let fine = |series: &HandshakeSeries| match &series.failure {
            Some(failure) => failure.starts_with("not supported: "),
            None => series.points.iter().all(|point| point.rounds.is_empty() || has_figures(point)),
        };
        group.iter().all(fine) && group.iter().any(|series| series.failure.is_none())
    })
}

fn head() -> String {
    let mut head = format!("{:<18} {:>7} {:>12} {:>8}", "stack", "threads", RATE.head, "speed-up");
    for figure in &COSTS {
        let _ = write!(head, " {:>width$}", figure.head, width = width(figure.head));
    }
    head + "  rounds that count"
}

fn rows(series: &HandshakeSeries, has_hints: &mut bool) -> Vec<String> {
    let row = |point: &HandshakePoint| {
        let shown = shown(point);
        let rate = format!("{}{:.1}", shown.mark(), shown.median(&RATE)?);
        let speed_up = speed_up(point, first(series)?)?;
        *has_hints |= shown.is_hint() || speed_up.is_hint;
        let speed_up = format!("{}{:.2}", speed_up.mark(), speed_up.spread.median);
        let (stack, threads) = (&series.stack, point.threads);
        let mut row = format!("{stack:<18} {threads:>7} {rate:>12} {speed_up:>8}");
        for figure in &COSTS {
            let value = shown.median(figure);
            let value = value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
            let _ = write!(row, " {value:>width$}", width = width(figure.head));
        }
        let _ = writeln!(row, "  {}", Tally::of(&point.rounds));
        Some(row)
    };
    series.points.iter().filter_map(row).collect()
}

fn width(head: &str) -> usize {
    head.len().max(WIDTH_MIN)
}

/// What was done besides, so that nothing is hidden.
fn not_counted(group: &[HandshakeSeries]) -> String {
    let rounds = || group.iter().flat_map(|series| &series.points).flat_map(|point| &point.rounds);
    let warm_up: u64 = rounds().map(|round| round.warm_up).sum();
    let discarded: u64 = rounds().map(|round| round.discarded).sum();
    let opened = match discarded {
        0 => String::new(),
        _ => format!(", {discarded} of them full ones that opened a session to resume"),
    };
    format!("not counted: {warm_up} handshakes of warm-up{opened}\n")
}

/// Percentiles of the time per handshake, where a round counts.
fn times(group: &[HandshakeSeries]) -> String {
    let mut text = String::new();
    for series in group {
        let Some(times) = &series.times else { continue };
        if text.is_empty() {
            let threads = threads(times.threads);
            let _ = writeln!(
                text,
                "us per handshake, {threads:<10}       P5      P50      P90      P99      max"
            );
        }
        for (side, histogram) in [("server", &times.server), ("client", &times.client)] {
            let Ok(times) = Times::read(histogram) else { continue };
            let _ = write!(text, "{:<18} {side:<8}", series.stack);
            for percentile in [5.0, 50.0, 90.0, 99.0, 100.0] {
                let time_us = times.percentile_ns(percentile) as f64 / 1e3;
                let _ = write!(text, " {time_us:>8.1}");
            }
            text.push('\n');
        }
    }
    text
}

/// At the least number of threads and at the greatest that does not make them take turns; the
/// document has them all.
fn verdicts(run: &Run, group: &[HandshakeSeries]) -> Vec<String> {
    let counts = || group.iter().flat_map(|series| &series.points).map(|point| point.threads);
    let Some(least) = counts().min() else { return Vec::new() };
    let processors = run.machine.processors;
    let most = counts().filter(|count| *count <= processors).max().unwrap_or(least);
    let title = whole(&group[0].scenario);
    let mut lines = Vec::new();
    let mut unsaid = 0;
    for comparison in &run.comparisons {
        let Some(measure) = comparison.measure.strip_suffix(&title) else { continue };
        let measure = measure.trim_end_matches(", ");
        let ends = [least, most].map(threads);
        if !ends.iter().any(|end| measure.ends_with(&format!(", {end}"))) {
            continue;
        }
        if comparison.is_enough() {
            lines.push(format!("{measure}: {}\n", comparison.verdict));
        } else {
            unsaid += 1;
        }
    }
    if unsaid > 0 {
        lines.push(format!(
            "{NOT_ENOUGH} in {unsaid} comparisons: fewer than {ROUNDS_MIN} rounds count\n"
        ));
    }
    lines
}

/// `1 thread`, `2 threads`.
pub(super) fn threads(count: usize) -> String {
    if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") }
}

const LEGEND: &str = "\
us per handshake: the middle of a round, the connection's making and dropping included. CPU us:
the threads' CPU time, divided among the sides as these times are. server-only/s: what a thread
would do if clients cost nothing. speed-up: of all threads, to the fewest. Medians over the rounds
that count.
";
const WIDTH_MIN: usize = 9;
