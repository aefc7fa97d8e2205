//! What the write-ups' checks B4 to B7 say about the rows, and B8, which is what was published.

use sealane_lab_harness::strategies::{check, word};
use sealane_lab_model::{
    document::{Strategies, StrategyCheck, StrategyRow},
    statistics::{ROUNDS_MIN, Spread},
};

use crate::offload::{Strategy, Traffic};

/// Adds the checks, on a machine of so many processors.
pub(super) fn judge(strategies: &mut Strategies, workers: u64, processors: usize) {
    let rows = &strategies.rows;
    strategies.checks = vec![
        bytes(rows),
        stalls(rows, workers, processors),
        wakeups(rows),
        table(rows),
        published(rows, processors),
    ];
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

/// B5: how long the loop is kept while RSA-4096 handshakes are under way. In processor time any
/// machine decides it; by the clock a turn is as long as others let it wait, so that it takes a
/// processor for the loop, each worker and a client.
fn stalls(rows: &[StrategyRow], workers: u64, processors: usize) -> StrategyCheck {
    let claim = "beside RSA-4096 handshakes the loop's turn p99 is at most 2 ms, and TLS in the \
                 loop keeps it for a handshake, at least 5 times as long: in CPU time, and by the \
                 clock where loop, workers and client have a processor each";
    let row = |strategy: Strategy| row(rows, strategy, Traffic::BESIDE_HANDSHAKES);
    let (Some(inline), Some(ring)) = (row(Strategy::Inline), row(Strategy::Ring)) else {
        return check("B5", claim, None, "it takes --rsa-4096, and inline and ring");
    };
    let handshake_us = inline.median("handshake_us").unwrap_or_default();
    let judged = |name: &str| {
        let [here, there] = [inline, ring].map(|row| row.median(name).unwrap_or_default());
        let ratios = Spread::of_ratios(inline.values(name), ring.values(name));
        let ratio = ratios.map_or(0.0, |spread| spread.median);
        let told = format!("inline {here:.0} us, ring {there:.0} us, x{ratio:.1}");
        let holds = ratio >= STALL_RATIO_MIN && there <= TICK_US_MAX;
        (holds && here >= handshake_us * HANDSHAKE_PART_MIN, told)
    };
    let ((by_cpu, cpu), (by_clock, clock)) = (judged("tick_cpu_p99_us"), judged("tick_p99_us"));
    let enough = processors as u64 > workers + 1;
    let shown = format!(
        "one handshake {handshake_us:.0} us of CPU; CPU of a turn p99 {cpu}; by the clock {clock}, \
         {} on {processors} processors for the loop, {workers} workers and a client",
        if enough { "judged" } else { "not judged" },
    );
    check("B5", claim, Some(by_cpu && (by_clock || !enough)), shown)
}

/// B6: what it takes to have a notice noticed, calls beside calls.
fn wakeups(rows: &[StrategyRow]) -> StrategyCheck {
    let claim = "the ring makes at most one call per batch to wake its reader, and under load at \
                 most one for two events, and fewer than the queue";
    let whole = |strategy: Strategy| {
        let rows = rows.iter().filter(move |row| row.strategy == word(&strategy));
        rows.filter(|row| row.failure.is_none())
    };
    let most = |rows: &mut dyn Iterator<Item = &StrategyRow>, name: &str| {
        let values = rows.flat_map(|row| row.values(name));
        values.copied().max_by(f64::total_cmp)
    };
    let Some(per_batch) = most(&mut whole(Strategy::Ring), "calls_per_batch") else {
        return check("B6", claim, None, "it takes ring");
    };
    let loaded = |row: &&StrategyRow| {
        row.variant["traffic"] == Traffic::KEEP_ALIVE && concurrency(row) >= LOADED_CONCURRENCY_MIN
    };
    let pairs: Vec<[f64; 3]> = whole(Strategy::Ring)
        .filter(loaded)
        .filter_map(|ring| {
            let queue = whole(Strategy::Queue).find(|queue| queue.variant == ring.variant)?;
            let ratio = Spread::of_ratios(ring.values(CALLS), queue.values(CALLS))?.median;
            Some([queue.median(CALLS)?, ring.median(CALLS)?, ratio])
        })
        .collect();
    let per_event = most(&mut whole(Strategy::Ring).filter(loaded), CALLS);
    let mut shown = format!("at most {per_batch:.3} calls per batch");
    let Some(per_event) = per_event else {
        shown += &format!("; a load is {LOADED_CONCURRENCY_MIN} requests at a time");
        return check("B6", claim, (per_batch > 1.0).then_some(false), shown);
    };
    shown += &format!(", {per_event:.3} per event under load");
    for [queue, ring, _] in &pairs {
        shown += &format!("; queue {queue:.2}, ring {ring:.2}");
    }
    let fewer = pairs.iter().all(|[.., ratio]| *ratio < 1.0);
    let within = per_batch <= 1.0 && per_event <= CALLS_PER_EVENT_MAX;
    match pairs.is_empty() && within {
        true => check("B6", claim, None, format!("{shown}; it takes queue")),
        false => check("B6", claim, Some(within && fewer), shown),
    }
}

/// B7: the whole table is there, and nothing in it failed.
fn table(rows: &[StrategyRow]) -> StrategyCheck {
    let claim = "both bodies, three ways, from 4 to 184 requests at a time, with p50, p99 and max";
    let (mut failed, mut unasked, mut whole) = (Vec::new(), Vec::new(), 0);
    for strategy in [Strategy::Inline, Strategy::Queue, Strategy::Ring] {
        for body in ["3069", "100000"] {
            for concurrency in ["4", "184"] {
                let name = format!("{} {body} x{concurrency}", word(&strategy));
                let row = rows.iter().find(|row| {
                    row.strategy == word(&strategy)
                        && row.variant["traffic"] == Traffic::KEEP_ALIVE
                        && row.variant["body"] == body
                        && row.variant["concurrency"] == concurrency
                });
                let has = |row: &StrategyRow| {
                    ["p50_us", "p99_us", "max_us"].iter().all(|name| !row.values(name).is_empty())
                };
                match row {
                    None => unasked.push(name),
                    Some(row) if has(row) => whole += 1,
                    Some(_) => failed.push(name),
                }
            }
        }
    }
    match (failed.is_empty(), unasked.is_empty()) {
        (false, _) => check("B7", claim, Some(false), format!("no times: {}", failed.join(", "))),
        (true, false) => check("B7", claim, None, format!("not asked for: {}", unasked.join(", "))),
        (true, true) => check("B7", claim, Some(true), format!("{whole} rows")),
    }
}

/// B8: what TLSnappy published of its ring, at the most requests at a time. It had 16 processors:
/// with fewer it is told, and decided neither way.
fn published(rows: &[StrategyRow], processors: usize) -> StrategyCheck {
    let claim = "with bodies of 100,000 bytes the ring answers 9% more than the queue, and its \
                 longest answer takes a tenth of the time";
    let most = |strategy: Strategy| {
        let large = rows.iter().filter(|row| {
            row.strategy == word(&strategy)
                && row.failure.is_none()
                && row.variant["traffic"] == Traffic::KEEP_ALIVE
                && row.variant["body"] == "100000"
        });
        large.max_by_key(|row| concurrency(row))
    };
    let (Some(queue), Some(ring)) = (most(Strategy::Queue), most(Strategy::Ring)) else {
        return check("B8", claim, None, "it takes queue and ring with --body=100000");
    };
    let ratio = |of: &StrategyRow, to: &StrategyRow, name: &str| {
        Spread::of_ratios(of.values(name), to.values(name))
    };
    let (Some(rate), Some(longest)) = (ratio(ring, queue, "rate"), ratio(queue, ring, "max_us"))
    else {
        return check("B8", claim, None, "there are no rounds of both");
    };
    let rounds = queue.values("rate").len().min(ring.values("rate").len());
    let told = |Spread { median, min, max }| format!("x{median:.2} [{min:.2}-{max:.2}]");
    let shown = format!(
        "rate {}, longest answer {} shorter, at {} requests; published x1.09 and x10.2",
        told(rate),
        told(longest),
        concurrency(ring),
    );
    if processors < PUBLISHED_PROCESSORS {
        let text = format!("{processors} processors of {PUBLISHED_PROCESSORS}: {shown}");
        return check("B8", claim, None, text);
    }
    if rounds < ROUNDS_MIN {
        return check("B8", claim, None, format!("{rounds} rounds are too few: {shown}"));
    }
    let shows = rate.min >= RATE_GAIN_MIN && longest.min >= LONGEST_GAIN_MIN;
    check("B8", claim, Some(shows), shown)
}

/// The row of a strategy under some traffic, if it has figures.
fn row<'a>(rows: &'a [StrategyRow], strategy: Strategy, traffic: &str) -> Option<&'a StrategyRow> {
    let mut rows = rows.iter().filter(|row| row.variant["traffic"] == traffic);
    rows.find(|row| row.strategy == word(&strategy) && row.failure.is_none())
}

fn concurrency(row: &StrategyRow) -> u64 {
    row.variant["concurrency"].parse().unwrap_or(0)
}

fn of<'a>(rows: &'a [StrategyRow], traffic: &'a str) -> impl Iterator<Item = &'a StrategyRow> {
    rows.iter().filter(move |row| row.variant["traffic"] == traffic)
}

const STALL_RATIO_MIN: f64 = 5.0;
const TICK_US_MAX: f64 = 2_000.0;
const LOADED_CONCURRENCY_MIN: u64 = 64;
const CALLS: &str = "calls_per_event";
const CALLS_PER_EVENT_MAX: f64 = 0.5;
/// Eight handshakes one after the other tell the time of one: some part of the last digit is noise.
const HANDSHAKE_PART_MIN: f64 = 0.9;
const RATE_GAIN_MIN: f64 = 1.09;
const LONGEST_GAIN_MIN: f64 = 10.0;
/// Those of the machine that the figures were published of.
const PUBLISHED_PROCESSORS: usize = 16;

#[cfg(test)]
mod tests {
    use sealane_lab_harness::strategies::named;

    use super::*;

    /// Rounds that are all alike.
    fn row(
        strategy: &str,
        traffic: &str,
        [body, at]: [&str; 2],
        figures: &[(&str, f64)],
    ) -> StrategyRow {
        let variant = [("traffic", traffic), ("body", body), ("concurrency", at)];
        StrategyRow {
            strategy: strategy.into(),
            variant: named(variant.map(|(name, value)| (name, value.to_owned()))),
            figures: named(figures.iter().map(|(name, value)| (*name, vec![*value; ROUNDS_MIN]))),
            ..StrategyRow::default()
        }
    }

    fn holds(rows: Vec<StrategyRow>, processors: usize, id: &str) -> Option<bool> {
        let mut strategies = Strategies { rows, ..Strategies::default() };
        judge(&mut strategies, 2, processors);
        strategies.checks.iter().find(|check| check.id == id).unwrap().holds
    }

    #[test]
    fn a_loop_that_is_kept_and_one_that_is_not_are_told_by_cpu_time_on_two_processors() {
        let beside = |strategy: &str, cpu: f64, clock: f64| {
            let figures =
                [("handshake_us", 6_000.0), ("tick_cpu_p99_us", cpu), ("tick_p99_us", clock)];
            row(strategy, Traffic::BESIDE_HANDSHAKES, ["3069", "16"], &figures)
        };
        let judged = |inline: f64, ring: f64, clock: f64, processors| {
            let rows = vec![beside("inline", inline, 9_000.0), beside("ring", ring, clock)];
            holds(rows, processors, "B5")
        };
        assert_eq!(judged(6_100.0, 200.0, 9_000.0, 2), Some(true), "the clock is others'");
        assert_eq!(judged(6_100.0, 200.0, 9_000.0, 4), Some(false));
        assert_eq!(judged(6_100.0, 200.0, 300.0, 4), Some(true));
        assert_eq!(judged(6_100.0, 6_100.0, 300.0, 2), Some(false), "TLS in the loop after all");
        assert_eq!(judged(200.0, 30.0, 300.0, 2), Some(false), "inline does it elsewhere");
    }

    #[test]
    fn a_ring_that_wakes_as_often_as_a_queue_and_a_row_without_times_are_found() {
        let loaded = |strategy: &str, calls: f64| {
            let figures = [(CALLS, calls), ("calls_per_batch", 1.0)];
            row(strategy, Traffic::KEEP_ALIVE, ["3069", "70"], &figures)
        };
        let judged = |queue: f64, ring: f64| {
            holds(vec![loaded("queue", queue), loaded("ring", ring)], 2, "B6")
        };
        let judgements = [judged(0.8, 0.1), judged(0.1, 0.1), judged(0.8, 0.6)];
        assert_eq!(judgements, [Some(true), Some(false), Some(false)]);
        // By its median a ring that is as dear in each round would look cheaper.
        let of = |strategy: &str, calls: [f64; 3]| StrategyRow {
            figures: named([(CALLS, calls.to_vec()), ("calls_per_batch", vec![1.0; 3])]),
            ..loaded(strategy, 0.0)
        };
        let rows = vec![of("queue", [0.1, 0.4, 0.3]), of("ring", [0.11, 0.2, 0.31])];
        assert_eq!(holds(rows, 2, "B6"), Some(false));
        assert_eq!(holds(vec![loaded("ring", 0.1)], 2, "B6"), None);

        let times = [("p50_us", 1.0), ("p99_us", 2.0), ("max_us", 3.0)];
        let mut all = Vec::new();
        for strategy in ["inline", "queue", "ring"] {
            for place in [["3069", "4"], ["3069", "184"], ["100000", "4"], ["100000", "184"]] {
                all.push(row(strategy, Traffic::KEEP_ALIVE, place, &times));
            }
        }
        assert_eq!(holds(all.clone(), 2, "B7"), Some(true));
        assert_eq!(holds(all[1..].to_vec(), 2, "B7"), None);
        all[5].figures.clear();
        assert_eq!(holds(all, 2, "B7"), Some(false));
    }

    #[test]
    fn a_published_gain_is_decided_on_as_many_processors_alone() {
        let judged = |[rate, longest]: [f64; 2], processors| {
            let large = |strategy: &str, rate, longest| {
                let figures = [("rate", rate), ("max_us", longest)];
                row(strategy, Traffic::KEEP_ALIVE, ["100000", "184"], &figures)
            };
            let rows = vec![large("queue", 100.0, 190.0), large("ring", rate, longest)];
            holds(rows, processors, "B8")
        };
        assert_eq!((judged([110.0, 19.0], 2), judged([110.0, 19.0], 16)), (None, Some(true)));
        for weaker in [[108.0, 19.0], [110.0, 20.0]] {
            assert_eq!((judged(weaker, 2), judged(weaker, 16)), (None, Some(false)));
        }
    }
}
