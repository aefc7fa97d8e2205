//! The command `certificates` as people run it. Times are not looked at; what was counted is, and
//! whatever a strategy does wrong must fail a check.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Output},
};

use sealane_lab_model::document::{Run, Strategies, StrategyRow};

#[test]
fn each_strategy_does_exactly_the_work_that_it_stands_for() {
    let (output, found) = certificates(&[
        "--certs=20",
        "--conns=60",
        "--live=12,1200",
        "--owner-cost-ms=10",
        "--threads=3",
        "--rounds=2",
    ]);
    let checks: BTreeMap<_, _> =
        found.checks.iter().map(|check| (&*check.id, check.holds)).collect();
    assert_eq!(checks.keys().copied().collect::<Vec<_>>(), IDS, "{output:?}");
    let of_d5 = found.checks.iter().filter(|check| check.id == "D5");
    assert!(of_d5.clone().count() == 2 && of_d5.clone().all(|it| it.holds.is_none()), "2 rounds");
    for (id, holds) in checks {
        // D5 is the one that compares times.
        assert!(holds == Some(true) || id == "D5", "{id}: {output:?}");
    }
    assert_eq!(found.rows.len(), 13);
    for row in &found.rows {
        assert_eq!(row.failure, None);
        let what = format!("{} {:?}", row.strategy, row.variant);
        assert_eq!((all(row, "verified"), all(row, "failed")), (60.0, 0.0), "{what}");
        assert_eq!(row.times["round_trip"].count, 2 * 60, "{what}");
        let held: f64 = match row.variant.get("live").map(String::as_str) {
            Some("12") => 4.0,
            Some("1200") => 400.0,
            _ => {
                // Without TLS there is no handshake, and no certificate.
                assert_eq!((all(row, "handshakes"), all(row, "decoded")), (0.0, 0.0), "{what}");
                continue;
            }
        };
        // The replaced names are asked for once more.
        let replaced = if row.variant.contains_key("replaced") { 2.0 } else { 0.0 };
        let handshakes = 60.0 + held + replaced;
        assert_eq!(all(row, "handshakes"), handshakes, "{what}");
        assert_eq!(all(row, "held_answered"), held, "{what}");
        let central = row.strategy == "central";
        assert_eq!(all(row, "messages"), if central { 2.0 } else { 0.0 }, "{what}");
        assert_eq!(all(row, "visited") >= 3.0 * held, central, "{what}");
        if row.strategy == "lane" {
            assert_eq!(all(row, "indexed"), 22.0, "{what}");
            // Three lanes, and of two names a second certificate.
            let most = row.figures["decoded"].iter().copied().fold(0.0, f64::max);
            assert!(most <= 3.0 * (20.0 + replaced), "{what}: {most}");
        } else {
            assert_eq!(all(row, "decoded"), 3.0 * handshakes, "{what}");
        }
    }
}

#[test]
fn what_a_strategy_does_wrong_fails_a_check() {
    for (fault, failed) in [
        ("leaked-reference", &["D2", "D6"][..]),
        ("mixed-pair", &["D1", "D6", "D7"]),
        ("neighbour", &["D1", "D6", "D7"]),
    ] {
        let (output, found) = certificates(&[
            "--certs=4",
            "--conns=20",
            "--live=3,300",
            "--owner-cost-ms=0",
            "--threads=2",
            "--rounds=1",
            "--fault",
            fault,
        ]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        for id in failed {
            let check = found.checks.iter().find(|check| check.id == *id).unwrap();
            assert_eq!(check.holds, Some(false), "{fault}: {check:?}");
        }
        for row in found.rows.iter().filter(|row| row.strategy != "no certificates") {
            // Of connections that were not what they had to be, no speed is told.
            let right = row.figures["verified"] == [20.0];
            assert_eq!(right, fault == "leaked-reference", "{fault}: {row:?}");
            assert_eq!(row.figures.contains_key("cpu_us"), right, "{fault}: {row:?}");
            assert_eq!(row.times.contains_key("round_trip"), right, "{fault}: {row:?}");
        }
    }
}

/// What every round says.
fn all(row: &StrategyRow, figure: &str) -> f64 {
    let values = &row.figures[figure];
    if figure == "visited" {
        return values.iter().copied().fold(f64::INFINITY, f64::min);
    }
    assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{figure}: {values:?}");
    values[0]
}

fn certificates(arguments: &[&str]) -> (Output, Strategies) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let output = Command::new(env!("CARGO_BIN_EXE_sealane-lab"))
        .arg("certificates")
        .args(arguments)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let text = fs::read(&json).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let run: Run = serde_json::from_slice(&text).unwrap();
    assert!(run.complete);
    (output, run.strategies.into_iter().next().unwrap())
}

const IDS: [&str; 7] = ["D1", "D2", "D3", "D4", "D5", "D6", "D7"];
