//! The command `ring` as people run it, small: every byte is compared and every check is made.

use std::{fs, process::Command};

use sealane_lab_model::document::Run;

#[test]
fn every_ring_carries_every_byte_and_bytering_keeps_its_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let output = Command::new(env!("CARGO_BIN_EXE_sealane-lab"))
        .args([
            "writeups",
            "ring",
            "--chunk=1024,16384",
            "--bytes=2000000",
            "--handovers=200",
            "--rounds=1",
        ])
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let [strategies] = &run.strategies[..] else { panic!("{text}") };
    let rows: Vec<_> = strategies.rows.iter().map(|row| &*row.strategy).collect();
    assert_eq!(rows[..4], ["mutex", "paged", "rtrb", "bytering"]);
    assert_eq!(rows[..4], rows[4..]);
    for row in &strategies.rows {
        assert_eq!(row.times["handover"].count, 200, "{}", row.strategy);
    }
    let held: Vec<_> = strategies.checks.iter().map(|check| (&*check.id, check.holds)).collect();
    let expected = [("B1", Some(true)), ("B3", Some(true)), ("B6", Some(true))];
    assert_eq!(held, expected, "{text}");
}

#[test]
fn a_chunk_that_is_no_whole_words_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_sealane-lab"))
        .args(["writeups", "ring", "--chunk=1023"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("give multiples of 8"));
}
