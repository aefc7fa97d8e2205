//! The command `references` as people run it, made small. Counts are looked at, times never.

use std::fs;

use sealane_lab_model::document::Run;

use crate::with_valgrind;

#[test]
fn a_lane_s_own_count_is_written_by_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let mut command = with_valgrind();
    command.args(["writeups", "references", "--shared-writes", "--threads=1,2", "--rounds=2"]);
    let output = command.args(["--window-ms=20", "--json"]).arg(&json).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let [found] = &run.strategies[..] else { panic!("{text}") };
    let names: Vec<_> = found.rows.iter().map(|row| row.strategy.as_str()).collect();
    assert_eq!(names, ["lock", "atomic", "lane"].repeat(2), "{text}");
    let writes: Vec<_> = found.rows[3..].iter().map(|row| row.values("shared_writes")).collect();
    // To take a reference and to give it back; behind a lock, locking and unlocking for each.
    assert!(writes[0][0] >= 4.0, "{text}");
    assert_eq!(writes[1..], [&[2.0][..], &[0.0]], "{text}");
    assert!(found.rows.iter().all(|row| row.values("references_per_s")[0] > 0.0), "{text}");
    assert_eq!((&*found.checks[0].id, found.checks[0].holds), ("R1", Some(true)), "{text}");
    assert_eq!((&*found.checks[3].id, found.checks[3].holds), ("R4", None), "{text}");
}
