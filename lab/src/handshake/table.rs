//! What `handshake` prints: a table for people, or another tool's lines.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write as _},
};

use super::figures::{self, median, shown};
use crate::{
    compat,
    counted::Counted,
    document::{HandshakePoint, HandshakeSeries, Run},
    error::Error,
    histogram::Times,
    scenario::{Group, Key, Kind, Scenario, Share, Version},
    statistics::{NOT_ENOUGH, ROUNDS_MIN},
};

/// All figures of `run`'s handshakes, for people; empty if there are none.
#[must_use]
pub fn text(run: &Run) -> String {
    let mut text = String::new();
    let mut disturbed = false;
    for group in run.handshakes.chunk_by(|one, other| one.scenario == other.scenario) {
        let rows: Vec<String> =
            group.iter().flat_map(|series| rows(series, &mut disturbed)).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{}\n{HEAD}", title(&group[0].scenario));
        rows.iter().for_each(|row| text.push_str(row));
        text.push_str(&not_counted(group));
        text.push_str(&times(group));
        verdicts(run, group).iter().for_each(|line| text.push_str(line));
        text.push('\n');
    }
    if text.is_empty() {
        return text;
    }
    if disturbed {
        text.push_str("* every round was disturbed (by what, stands at the end): a hint only\n");
    }
    text.push_str(LEGEND);
    text
}

/// Another tool's lines, of the first stack.
pub(super) fn compat(tool: compat::Tool, run: &Run) -> String {
    let points = |series: &HandshakeSeries| {
        let line = |point: &HandshakePoint| {
            let Counted { rounds, .. } = shown(point);
            if rounds.is_empty() {
                return String::new();
            }
            compat::handshake_lines(tool, &series.scenario, &rounds)
        };
        series.points.iter().map(line).collect::<String>()
    };
    run.handshakes.iter().map(points).collect()
}

/// Says on standard error which series has no figures and why, and which figures are disturbed.
pub(super) fn write_troubles(run: &Run) -> Result<(), Error> {
    let mut text = String::new();
    for series in &run.handshakes {
        let (stack, title) = (&series.stack, title(&series.scenario));
        if let Some(failure) = &series.failure {
            let _ = writeln!(text, "{stack}: NO FIGURES: {failure} ({title})");
        }
        for point in series.points.iter().filter(|point| !point.rounds.is_empty()) {
            let (threads, causes) = (threads(point.threads), causes(point));
            let Counted { rounds, is_hint } = shown(point);
            if rounds.is_empty() {
                let _ = writeln!(
                    text,
                    "{stack}: NO FIGURES: with {threads} no round can be used: {causes} ({title})"
                );
            } else if is_hint {
                let _ = writeln!(text, "{stack}, {threads}: every round was disturbed: {causes}");
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
            None => series.points.iter().all(has_figures),
        };
        group.iter().all(fine) && group.iter().any(|series| series.failure.is_none())
    })
}

/// Whether some round of the point can be shown, as far as there are rounds yet.
fn has_figures(point: &HandshakePoint) -> bool {
    point.rounds.is_empty() || !shown(point).rounds.is_empty()
}

fn rows(series: &HandshakeSeries, disturbed: &mut bool) -> Vec<String> {
    let single = series.points.first().filter(|point| point.threads == 1);
    let single = single.and_then(|point| median(&shown(point).rounds, figures::rate_per_thread));
    let row = |point: &HandshakePoint| {
        let Counted { rounds, is_hint } = shown(point);
        let rate = median(&rounds, figures::rate_per_thread)?;
        let speed_up = single.map_or("-".to_owned(), |single| {
            format!("{:.2}", rate * point.threads as f64 / single)
        });
        let figure = |figure: figures::Figure| median(&rounds, figure).unwrap_or_default();
        let server_us = figure(figures::server_us);
        *disturbed |= is_hint;
        let mark = if is_hint { '*' } else { ' ' };
        let stack = &series.stack;
        let threads = point.threads;
        Some(format!(
            "{stack:<18} {threads:>7} {rate:>12.1}{mark} {speed_up:>8} {server_us:>9.1} {:>9.1} \
             {:>9.1} {:>9.1} {:>13.0}  {}\n",
            figure(figures::server_cpu_us),
            figure(figures::client_us),
            figure(figures::client_cpu_us),
            1e6 / server_us,
            causes(point),
        ))
    };
    series.points.iter().filter_map(row).collect()
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

/// `5 of 5`, or why some do not count.
fn causes(point: &HandshakePoint) -> String {
    let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
    for cause in point.rounds.iter().filter_map(|round| round.invalid.as_deref()) {
        *causes.entry(cause).or_default() += 1;
    }
    let all = point.rounds.len();
    let valid = all - causes.values().sum::<usize>();
    let causes: String = causes.iter().map(|(cause, count)| format!(", {count} {cause}")).collect();
    format!("{valid} of {all}{causes}")
}

/// At the least number of threads and at the greatest that does not make them take turns; the
/// document has them all.
fn verdicts(run: &Run, group: &[HandshakeSeries]) -> Vec<String> {
    let counts = || group.iter().flat_map(|series| &series.points).map(|point| point.threads);
    let Some(least) = counts().min() else { return Vec::new() };
    let processors = run.machine.processors;
    let most = counts().filter(|count| *count <= processors).max().unwrap_or(least);
    let title = title(&group[0].scenario);
    let mut lines = Vec::new();
    let mut unsaid = 0;
    for comparison in &run.comparisons {
        let Some(measure) = comparison.measure.strip_suffix(&title) else { continue };
        let measure = measure.trim_end_matches(", ");
        let ends = [least, most].map(threads);
        if !ends.iter().any(|end| measure.ends_with(&format!(", {end}"))) {
            continue;
        }
        if !comparison.verdict.starts_with(NOT_ENOUGH) {
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

/// A scenario in words.
pub(super) fn title(scenario: &Scenario) -> String {
    let kind = match scenario.kind {
        Kind::Full => "full",
        Kind::SessionId => "session id",
        Kind::Ticket => "ticket",
    };
    let group = match scenario.group {
        Group::P256 => "P-256",
        Group::P384 => "P-384",
        Group::X25519 => "X25519",
        Group::X25519MlKem768 => "X25519MLKEM768",
    };
    let key = match scenario.key {
        Key::Ed25519 => "Ed25519",
        Key::P256 => "ECDSA P-256",
        Key::P384 => "ECDSA P-384",
        Key::Rsa2048 => "RSA-2048",
        Key::Rsa4096 => "RSA-4096",
    };
    let tickets = match (scenario.version, scenario.tickets) {
        (Version::Tls12, _) => String::new(),
        (Version::Tls13, 1) => ", 1 ticket".to_owned(),
        (Version::Tls13, count) => format!(", {count} tickets"),
    };
    let version = match scenario.version {
        Version::Tls12 => "1.2",
        Version::Tls13 => "1.3",
    };
    let client = if scenario.client_certificate { ", client certificate" } else { "" };
    let share = match scenario.share {
        Share::Context => "one context",
        Share::Session => "one context and client session",
        Share::Thread => "a context per thread",
    };
    let suite = scenario.suite();
    format!("{kind}, TLS {version}, {suite}, {group}, {key}{client}{tickets}, {share}")
}

const HEAD: &str = "stack              threads  hs/s/thread  speed-up server us    CPU us \
                    client us    CPU us server-only/s  rounds that count";
const LEGEND: &str = "\
us per handshake, the connection's making and dropping included. CPU us: the threads' CPU time,
divided among the sides by their median times. server-only/s: what a thread would do if clients
cost nothing. Medians over the rounds that count.
";
