//! What the write-ups' checks B4 to B7 say about the rows.

use sealane_lab_harness::strategies::{check, word};
use sealane_lab_model::{
    document::{Strategies, StrategyCheck, StrategyRow},
    statistics::Spread,
};

use crate::offload::{Strategy, Traffic};

/// Adds the checks, on a machine of so many processors.
pub(super) fn judge(strategies: &mut Strategies, workers: u64, processors: usize) {
    let rows = &strategies.rows;
    strategies.checks =
        vec![bytes(rows), stalls(rows, workers, processors), wakeups(rows), table(rows)];
}

/// B4: what went came back, wherever TLS was done.
fn bytes(rows: &[StrategyRow]) -> StrategyCheck {
    let claim = "every body comes back byte for byte, on every connection";
    let echoes: Vec<_> = of(rows, Traffic::ECHO).collect();
    let told = |row: &&StrategyRow| {
        let count = |name| row.median(name).unwrap_or_default();
        format!("{} {} bodies, {} bytes", row.strategy, count("operations"), count("body_bytes"))
    };
    let shown: Vec<String> = echoes.iter().map(told).collect();
    match echoes.is_empty() {
        true => check("B4", claim, None, "it takes --echo"),
        // A row has figures if all of its bytes were compared, and none if one differed.
        false => {
            let all = echoes.iter().all(|row| row.failure.is_none());
            check("B4", claim, Some(all), shown.join("; "))
        }
    }
}

/// B5: how long the loop is away while RSA-4096 handshakes are under way.
fn stalls(rows: &[StrategyRow], workers: u64, processors: usize) -> StrategyCheck {
    let claim = "beside RSA-4096 handshakes the loop's turn p99 is at most 2 ms, and TLS in the \
                 loop stalls it for a handshake, at least 5 times as long";
    let row = |strategy: Strategy| {
        let mut rows = of(rows, Traffic::BESIDE_HANDSHAKES);
        rows.find(|row| row.strategy == word(&strategy) && row.failure.is_none())
    };
    let (Some(inline), Some(ring)) = (row(Strategy::Inline), row(Strategy::Ring)) else {
        return check("B5", claim, None, "it takes --rsa-4096, and inline and ring");
    };
    let figure = |row: &StrategyRow, name: &str| row.median(name).unwrap_or_default();
    let ratio = |name: &str| {
        let ratios = Spread::of_ratios(inline.values(name), ring.values(name));
        ratios.map_or(0.0, |spread| spread.median)
    };
    let handshake_us = figure(inline, "handshake_us");
    let holds = |name: &str| {
        ratio(name) >= STALL_RATIO_MIN
            && figure(ring, name) <= TICK_US_MAX
            && figure(inline, name) >= handshake_us
    };
    // The loop, each worker and a client: with fewer, a turn is as long as others let it wait.
    let enough = processors as u64 > workers + 1;
    let verdict = match holds("tick_p99_us") {
        false if !enough => None,
        holds => Some(holds),
    };
    let told = |name: &str| {
        let (inline, ring) = (figure(inline, name), figure(ring, name));
        format!("inline {inline:.0} us, ring {ring:.0} us, x{:.1}", ratio(name))
    };
    let shown = format!(
        "one handshake {handshake_us:.0} us of CPU; turn p99 {}; its CPU alone {}; \
         {processors} processors for the loop, {workers} workers and a client",
        told("tick_p99_us"),
        told("tick_cpu_p99_us"),
    );
    check("B5", claim, verdict, shown)
}

/// B6: what it takes to have a notice noticed.
fn wakeups(rows: &[StrategyRow]) -> StrategyCheck {
    let claim = "the ring makes at most one wake-up call per batch, and under load at most one \
                 wake-up for two events";
    let rings = || {
        let rings = rows.iter().filter(|row| row.strategy == word(&Strategy::Ring));
        rings.filter(|row| row.failure.is_none())
    };
    let most = |rows: &mut dyn Iterator<Item = &StrategyRow>, name: &str| {
        let values = rows.flat_map(|row| row.values(name));
        values.copied().max_by(f64::total_cmp)
    };
    let Some(per_batch) = most(&mut rings(), "calls_per_batch") else {
        return check("B6", claim, None, "it takes ring");
    };
    let loaded = |row: &&StrategyRow| {
        let concurrency = row.variant["concurrency"].parse().unwrap_or(0);
        row.variant["traffic"] == Traffic::KEEP_ALIVE && concurrency >= LOADED_CONCURRENCY_MIN
    };
    let per_event = most(&mut rings().filter(loaded), "wakeups_per_event");
    let shown = match per_event {
        Some(per_event) => {
            format!("at most {per_batch:.3} calls per batch, {per_event:.3} wake-ups per event")
        }
        None => format!(
            "at most {per_batch:.3} calls per batch; a load is {LOADED_CONCURRENCY_MIN} requests \
             at a time"
        ),
    };
    let holds = match per_event {
        _ if per_batch > 1.0 => Some(false),
        Some(per_event) => Some(per_event <= WAKEUPS_PER_EVENT_MAX),
        None => None,
    };
    check("B6", claim, holds, shown)
}

/// B7: the whole table is there.
fn table(rows: &[StrategyRow]) -> StrategyCheck {
    let claim = "both bodies, three ways, from 4 to 184 requests at a time, with p50, p99 and max";
    let is_there = |strategy: &str, body: &str, concurrency: &str| {
        rows.iter().any(|row| {
            row.strategy == strategy
                && row.variant["traffic"] == Traffic::KEEP_ALIVE
                && row.variant["body"] == body
                && row.variant["concurrency"] == concurrency
                && ["p50_us", "p99_us", "max_us"].iter().all(|name| row.figures.contains_key(*name))
        })
    };
    let mut missing = Vec::new();
    for strategy in [Strategy::Inline, Strategy::Queue, Strategy::Ring] {
        for body in ["3069", "100000"] {
            for concurrency in ["4", "184"] {
                if !is_there(&word(&strategy), body, concurrency) {
                    missing.push(format!("{} {body} x{concurrency}", word(&strategy)));
                }
            }
        }
    }
    match missing.len() {
        0 => check("B7", claim, Some(true), format!("{} rows", rows.len())),
        _ => check("B7", claim, None, format!("not asked for, or failed: {}", missing.join(", "))),
    }
}

fn of<'a>(rows: &'a [StrategyRow], traffic: &'a str) -> impl Iterator<Item = &'a StrategyRow> {
    rows.iter().filter(move |row| row.variant["traffic"] == traffic)
}

const STALL_RATIO_MIN: f64 = 5.0;
const TICK_US_MAX: f64 = 2_000.0;
const LOADED_CONCURRENCY_MIN: u64 = 64;
const WAKEUPS_PER_EVENT_MAX: f64 = 0.5;
