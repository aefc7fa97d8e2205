//! The command `tables` as people run it, made small. Counts are looked at, times never.

use std::{fs, process::Command};

use sealane_lab_model::document::Run;

#[test]
fn whose_the_table_is_and_who_waits_when_it_grows_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.args(["writeups", "tables", "--threads=2", "--rounds=2", "--window-ms=50", "--json"]);
    let output = command.arg(&json).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let [tables] = &run.strategies[..] else { panic!("{text}") };
    let names: Vec<_> = tables.rows.iter().map(|row| row.strategy.as_str()).collect();
    assert_eq!(names, ["thread-table", "own-table", "process"].repeat(2), "{text}");
    for row in &tables.rows {
        let is_shared = row.strategy == "thread-table";
        let sharers = if is_shared { 2.0 } else { 1.0 };
        assert_eq!(row.figures["sharers"], [sharers; 2], "{row:?}");
        for growths in &row.figures["shared_growths"] {
            assert_eq!(*growths > 0.0, is_shared, "{row:?}");
        }
        assert!(row.figures["operations_per_s"].iter().all(|rate| *rate > 0.0), "{row:?}");
    }
    let held: Vec<_> = tables.checks.iter().map(|check| (check.id.as_str(), check.holds)).collect();
    assert_eq!(held[..2], [("K1", Some(true)), ("K2", Some(true))], "{text}");
}
