//! Made-up results of the commands that show a fault beside its remedy.

use std::collections::BTreeMap;

use sealane_lab_model::document::{Figure, Strategies, StrategyCheck, StrategyRow};

use super::sample::{Chance, histogram};

/// One per command.
pub(crate) fn all(chance: &mut Chance) -> Vec<Strategies> {
    vec![
        offload(chance),
        strategies(
            "ring",
            &[column("mb_per_s", "throughput", "MB/s", false, "more")],
            ["mutex", "paged", "rtrb", "bytering"]
                .iter()
                .zip([420.0, 900.0, 3_900.0, 4_100.0])
                .map(|(name, rate)| row(name, ("chunk", "4096"), &[("mb_per_s", rate)], chance))
                .collect(),
        ),
        certificates(chance),
        strategies(
            "contexts",
            &[
                column("contexts_built", "contexts built", "", true, "less"),
                column("total_cpu_ms", "CPU in all", "ms", false, "less"),
            ],
            [("per-socket", 200.0, 9_600.0), ("per-pool", 1.0, 260.0), ("digest", 1.0, 250.0)]
                .iter()
                .map(|(name, built, cpu)| {
                    let figures = [("contexts_built", *built), ("total_cpu_ms", *cpu)];
                    row(name, ("stack", "openssl"), &figures, chance)
                })
                .collect(),
        ),
        tickets(chance),
        tables(chance),
    ]
}

fn tables(chance: &mut Chance) -> Strategies {
    let figures = [
        column("operations_per_s", "operations per thread", "per second", false, "more"),
        column("sharers", "threads of one table", "", true, "less"),
        column("shared_growths", "growths that all wait for", "", true, "less"),
    ];
    let rows = [("thread-table", 2.0, 4.0), ("own-table", 1.0, 0.0), ("process", 1.0, 0.0)];
    let rows = rows.iter().map(|(name, sharers, growths)| {
        let rate = 600_000.0 / sharers;
        let figures =
            [("operations_per_s", rate), ("sharers", *sharers), ("shared_growths", *growths)];
        row(name, ("threads", "2"), &figures, chance)
    });
    let rows = rows.collect();
    strategies("tables", &figures, rows)
}

/// The one that the sample of `report` has.
pub(crate) fn tickets(chance: &mut Chance) -> Strategies {
    let figures = [
        column("tickets_per_s", "tickets per thread", "per second", false, "more"),
        column("lock_acquisitions", "locks per ticket", "", true, "less"),
    ];
    let mut rows = Vec::new();
    for threads in ["1", "2"] {
        for (name, rate, locks) in
            [("mutex", 300_000.0, 1.0), ("rwlock", 480_000.0, 1.0), ("lane", 510_000.0, 0.0)]
        {
            let figures = [("tickets_per_s", rate), ("lock_acquisitions", locks)];
            let mut row = row(name, ("threads", threads), &figures, chance);
            if threads == "2" && name == "lane" {
                row.times.insert("ticket".into(), histogram(2.0, 0.2, chance));
            }
            rows.push(row);
        }
    }
    rows.push(StrategyRow {
        strategy: "lane".into(),
        variant: [("threads".to_owned(), "64".to_owned())].into(),
        failure: Some("64 threads are more than this machine takes".into()),
        ..StrategyRow::default()
    });
    strategies("tickets", &figures, rows)
}

fn offload(chance: &mut Chance) -> Strategies {
    let figures = [
        column("calls_per_event", "calls to wake, per event", "", true, "less"),
        column("cpu_us", "server CPU per request", "us", false, "less"),
    ];
    let modes = [("inline", 0.0, 40.0), ("queue", 1.9, 71.0), ("ring", 0.2, 52.0)];
    let rows = modes.iter().map(|(name, wakeups, cpu)| {
        let figures = [("calls_per_event", *wakeups), ("cpu_us", *cpu)];
        let mut row = row(name, ("concurrency", "184"), &figures, chance);
        row.times.insert("response".into(), histogram(900.0, 0.3, chance));
        row
    });
    strategies("offload", &figures, rows.collect())
}

/// Of `node`, with a row that failed.
pub(crate) fn node(chance: &mut Chance) -> Strategies {
    let neither = |name: &str, title: &str| Figure {
        better: None,
        ..column(name, title, "us", false, "less")
    };
    let figures = [
        column("rate", "answers", "per second", false, "more"),
        column("cpu_us", "server CPU per answer", "us", false, "less"),
        column("main_us", "of main threads", "us", false, "less"),
        neither("lanes_us", "of lanes"),
        neither("other_us", "of other threads"),
        column("handshake_p95_ms", "handshake p95", "ms", false, "less"),
        column("memory_kb", "memory of a connection", "kB", false, "less"),
    ];
    let modes = [("https", 444.5, 0.0), ("cluster", 651.5, 0.0), ("sealane", 20.5, 118.5)];
    let mut rows = Vec::new();
    for (case, body, share) in [("full", "11", 1.0), ("keep-alive", "100000", 0.25)] {
        for (mode, main, lanes) in modes {
            let main = main * share;
            let figures = [
                ("rate", 1e6 / main),
                ("cpu_us", main + lanes + 9.5),
                ("main_us", main),
                ("lanes_us", lanes),
                ("other_us", 9.5),
            ];
            rows.push(varied(row(mode, ("case", case), &figures, chance), body, "32"));
        }
    }
    for case in ["sweep", "keep-alive-sweep"] {
        for concurrency in ["4", "32", "188"] {
            for (mode, main, _) in modes {
                let figures = [("rate", 2e6 / main)];
                rows.push(varied(row(mode, ("case", case), &figures, chance), "3069", concurrency));
            }
        }
    }
    for (mode, kb, ms) in [("https", 53.25, 47.6), ("sealane", 18.5, 4.5)] {
        rows.push(varied(row(mode, ("case", "idle"), &[("memory_kb", kb)], chance), "11", "2000"));
        let mut blocked = row(mode, ("case", "blocked"), &[("handshake_p95_ms", ms)], chance);
        blocked.times.insert("handshake".into(), histogram(ms * 1e3, 0.5, chance));
        rows.push(varied(blocked, "11", "197"));
    }
    let failed = StrategyRow {
        strategy: "nginx".into(),
        failure: Some("check failed: an answer differs".into()),
        ..StrategyRow::default()
    };
    rows.push(varied(failed, "11", "32"));
    strategies("node", &figures, rows)
}

fn varied(mut row: StrategyRow, body: &str, concurrency: &str) -> StrategyRow {
    for (name, value) in [("body", body), ("concurrency", concurrency)] {
        row.variant.insert(name.into(), value.into());
    }
    row
}

fn certificates(chance: &mut Chance) -> Strategies {
    let figures = [
        column("decoded", "certificates decoded", "", true, "less"),
        column("visited", "entries visited per close", "", true, "less"),
    ];
    let made = [
        ("central", 6_000.0, 3_000.0, 24_000.0),
        ("per-connection", 6_000.0, 0.0, 4_000.0),
        ("lane", 1_002.0, 0.0, 3_500.0),
    ];
    let rows = made.iter().map(|(name, decoded, visited, us)| {
        let figures = [("decoded", *decoded), ("visited", *visited)];
        let mut row = row(name, ("live", "10000"), &figures, chance);
        row.times.insert("round_trip".into(), histogram(*us, 0.3, chance));
        row
    });
    strategies("certificates", &figures, rows.collect())
}

fn strategies(command: &str, figures: &[Figure], rows: Vec<StrategyRow>) -> Strategies {
    let check = |id: &str, claim: &str, holds, shown: &str| {
        let [id, claim, shown] = [id, claim, shown].map(Into::into);
        StrategyCheck { id, claim, holds, shown }
    };
    Strategies {
        command: command.into(),
        settings: [("rounds".to_owned(), "5".to_owned())].into(),
        figures: figures.to_vec(),
        rows,
        checks: vec![
            check("X1", "a made-up check that holds", Some(true), "0 of 1,000 differ"),
            check("X2", "a made-up check that fails", Some(false), "3 of 1,000 differ"),
            check("X3", "a made-up check for 16 cores", None, "8 processors cannot show it"),
        ],
    }
}

fn column(name: &str, title: &str, unit: &str, counted: bool, better: &str) -> Figure {
    let [name, title, unit, better] = [name, title, unit, better].map(String::from);
    Figure { name, title, unit, counted, better: Some(better) }
}

fn row(
    strategy: &str,
    (name, value): (&str, &str),
    figures: &[(&str, f64)],
    chance: &mut Chance,
) -> StrategyRow {
    let mut rounds = |value: f64| {
        let counted = value.fract() == 0.0 && value < 10_000.0;
        let spread = if counted { 0.0 } else { 0.05 };
        (0..5).map(|_| value * chance.around(spread)).collect()
    };
    let figures: BTreeMap<String, Vec<f64>> =
        figures.iter().map(|(name, value)| ((*name).to_owned(), rounds(*value))).collect();
    StrategyRow {
        strategy: strategy.into(),
        variant: [(name.to_owned(), value.to_owned())].into(),
        figures,
        ..StrategyRow::default()
    }
}
