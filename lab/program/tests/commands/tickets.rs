//! The command `tickets` as people run it, made small. Counts are looked at, times never.

use std::{
    fs,
    process::{Command, Output},
};

use sealane_lab_model::{
    document::{Run, Strategies, StrategyRow},
    histogram::Times,
};

const RUNS_MAX: usize = 5;

#[test]
fn locks_are_taken_and_waited_for_where_there_are_locks() {
    // On a busy machine the threads of one run may never have met, and it says so.
    let met = |(_, strategies): &(Output, Strategies)| {
        strategies.rows[3].figures["lock_waits"].iter().any(|waits| *waits > 0.0)
    };
    let mut runs = (0..RUNS_MAX).map(|_| measured());
    let (output, strategies) = runs.find(met).expect("two threads wait for one lock");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let names: Vec<_> = strategies.rows.iter().map(|row| row.strategy.as_str()).collect();
    assert_eq!(names, ["mutex", "rwlock", "lane"].repeat(3));
    let (windows, rotations) = strategies.rows.split_at(6);
    for row in windows {
        // A lane's locks are not counted by what could count none.
        let locks = (row.strategy != "lane").then(|| vec![1.0; 2]);
        assert_eq!(row.figures.get("lock_acquisitions"), locks.as_ref(), "{row:?}");
        assert_eq!(row.figures["keys_generated"], [0.0; 2], "{row:?}");
        // Both rounds' tickets, issued and resumed.
        let times = Times::read(&row.times["ticket"]).unwrap();
        assert!(times.count() > 0 && times.count().is_multiple_of(2), "{row:?}");
        if row.strategy != "lane" && row.variant["threads"] == "1" {
            assert_eq!(row.figures["lock_waits"], [0.0; 2], "{row:?}");
        }
    }
    for row in rotations {
        assert_eq!(row.variant["threads"], "2");
        assert_eq!(one(row, "keys_generated_locked"), 0.0, "{row:?}");
        assert_eq!(one(row, "keys_generated") > 0.0, row.strategy != "lane", "{row:?}");
    }
    let lane = &rotations[2];
    assert!(one(lane, "young_opened") > 0.0 && one(lane, "old_refused") > 0.0, "{lane:?}");
    assert_eq!([one(lane, "young_refused"), one(lane, "old_opened")], [0.0; 2], "{lane:?}");
    let held: Vec<_> =
        strategies.checks.iter().map(|check| (check.id.as_str(), check.holds)).collect();
    // Shared writes were not asked for, and 16 processors cannot be counted on.
    assert_eq!((held[0], held[1]), (("C5", Some(true)), ("C5", None)), "{text}");
    assert_eq!(held[3..], [("C6", Some(true)); 2], "{text}");
}

/// A small run.
fn measured() -> (Output, Strategies) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let output = tickets(&[
        "--threads=1,2",
        "--rounds=2",
        "--window-ms=100",
        "--lifetimes=5",
        "--lifetime-ms=100",
        "--json",
        json.to_str().unwrap(),
    ]);
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(run.complete);
    let [strategies] = <[Strategies; 1]>::try_from(run.strategies).unwrap();
    (output, strategies)
}

#[test]
fn what_cannot_be_counted_here_is_told_before_anything_is_measured() {
    let output = Command::new(env!("CARGO_BIN_EXE_sealane-lab"))
        .args(["writeups", "tickets", "--shared-writes"])
        .env("PATH", "")
        .output()
        .unwrap();
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("valgrind is missing; run: apt-get install valgrind"), "{text}");
    assert!(!text.contains("round 1"), "{text}");
}

/// A figure that one trial told.
fn one(row: &StrategyRow, name: &str) -> f64 {
    let [value] = row.figures[name][..] else { panic!("{row:?}") };
    value
}

fn tickets(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.args(["writeups", "tickets"]).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}
