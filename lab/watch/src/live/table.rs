//! What was seen, as text for a terminal: [`text`].

use std::fmt::Write;

use sealane_lab_model::{
    document::{Live, LivePath},
    number::number,
    words::states,
};

use super::samples::LOCK;

/// Everything worth a line; `--json` has the rest.
pub fn text(live: &Live) -> String {
    let mut text = String::new();
    head(&mut text, live);
    for finding in &live.findings {
        let _ = writeln!(text, "=> {}.\n   rule: {}", finding.sentence, finding.rule);
    }
    threads(&mut text, live);
    calls(&mut text, live);
    futex(&mut text, live);
    profile(&mut text, live);
    if !live.unseen.is_empty() {
        text += "\nnot seen:\n";
    }
    for unseen in &live.unseen {
        let _ = writeln!(
            text,
            "  - {}: {}\n    to allow it: {}",
            unseen.what, unseen.why, unseen.remedy
        );
    }
    text
}

fn head(text: &mut String, live: &Live) {
    let threads = live.threads.len() + live.threads_left_out;
    let _ = writeln!(
        text,
        "MEASURED process {} ({}{}{}), {} s: {} process{}, {threads} thread{}, {} of {} processors \
         used{}",
        live.pid,
        live.name,
        if live.executable.is_empty() { "" } else { ", " },
        live.executable,
        number(live.watched_seconds),
        live.processes.len(),
        if live.processes.len() == 1 { "" } else { "es" },
        if threads == 1 { "" } else { "s" },
        number(live.processors_used),
        live.processors_allowed,
        if live.ended { "; it ended meanwhile" } else { "" },
    );
}

fn threads(text: &mut String, live: &Live) {
    let _ = writeln!(
        text,
        "\n{:>9} {:>9}  {:<16} {:>6} {:>6} {:>6} {:>9} {:>9} {:>8}  sleeps in",
        "process", "thread", "name", "CPU %", "delay%", "lock %", "sleeps/s", "taken/s", "accepts"
    );
    let seconds = live.watched_seconds.max(f64::MIN_POSITIVE);
    for thread in live.threads.iter().take(ROWS_MAX) {
        let percent = |ns: u64| number((ns as f64 / 1e7 / seconds).round());
        let rate = |count: u64| number((count as f64 / seconds).round());
        let _ = writeln!(
            text,
            "{:>9} {:>9}  {:<16} {:>6} {:>6} {:>6} {:>9} {:>9} {:>8}  {}",
            thread.pid,
            thread.tid,
            thread.name,
            percent(thread.cpu_ns),
            percent(thread.run_delay_ns),
            number((100.0 * thread.lock_wait).round()),
            rate(thread.voluntary_switches),
            rate(thread.involuntary_switches),
            thread.accepts.map_or("-".to_owned(), |accepts| number(accepts as f64)),
            states(thread)
        );
    }
    let more = (live.threads.len() + live.threads_left_out).saturating_sub(ROWS_MAX);
    if more > 0 {
        let _ = writeln!(text, "{:>9} {more} more", "");
    }
}

fn calls(text: &mut String, live: &Live) {
    let Some(calls) = &live.calls else { return };
    let seconds = calls.counted_seconds.max(f64::MIN_POSITIVE);
    let _ = writeln!(
        text,
        "\nsystem calls, by {} in {} s:\n  {:<24} {:>12} {:>14}",
        calls.instrument,
        number(seconds),
        "call",
        "calls/s",
        "ms inside/s"
    );
    if calls.calls.is_empty() {
        *text += "  none ended\n";
    }
    for call in calls.calls.iter().take(ROWS_MAX) {
        let _ = writeln!(
            text,
            "  {:<24} {:>12} {:>14}",
            call.call,
            number(call.count as f64 / seconds),
            number(call.inside_ns as f64 / 1e6 / seconds)
        );
    }
}

fn futex(text: &mut String, live: &Live) {
    let Some(futex) = &live.futex else { return };
    let counted = futex.waits.zip(futex.waited_ns).map_or(String::new(), |(waits, ns)| {
        format!(", {} waits, {} s together", number(waits as f64), number(ns as f64 / 1e9))
    });
    if futex.waits == Some(0) && futex.samples == 0 {
        *text += "\nwaits in futex: none ended\n";
        return;
    }
    let _ = writeln!(text, "\nwaits in futex{counted}:");
    for address in futex.addresses.iter().take(PATHS_SHOWN) {
        let _ = writeln!(
            text,
            "  {} in process {}: {} waits, {} s, {} threads",
            address.address,
            address.pid,
            number(address.waits as f64),
            number(address.waited_ns as f64 / 1e9),
            address.threads
        );
    }
    paths(text, "where they begin", futex.samples, futex.paths.iter().collect());
}

fn profile(text: &mut String, live: &Live) {
    let Some(profile) = &live.profile else { return };
    let _ = writeln!(
        text,
        "\nCPU time by function, {} samples of {}:",
        number(profile.samples as f64),
        profile.event
    );
    for function in profile.functions.iter().take(ROWS_MAX) {
        let share = number(100.0 * function.share);
        let _ = writeln!(text, "  {share:>5}%  {} ({})", function.function, function.owner);
    }
    let locks = profile.paths.iter().filter(|path| path.kind == LOCK);
    paths(text, "CPU time in locks", profile.samples, locks.collect());
}

fn paths(text: &mut String, title: &str, samples: u64, paths: Vec<&LivePath>) {
    if paths.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}, of {} samples:", number(samples as f64));
    for path in paths.into_iter().take(PATHS_SHOWN) {
        let shown: Vec<&str> = path.path.iter().take(FRAMES_SHOWN).map(String::as_str).collect();
        let share = number(100.0 * path.share);
        let kind = if path.kind.is_empty() { "-" } else { &path.kind };
        let _ = writeln!(text, "  {share:>5}%  {kind:<6}  {}", shown.join(" <- "));
    }
}

const FRAMES_SHOWN: usize = 6;
const PATHS_SHOWN: usize = 5;
const ROWS_MAX: usize = 12;
