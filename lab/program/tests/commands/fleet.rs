//! The command `fleet` as people run it, made small.

use std::{fs, process::Command};

use sealane_lab_model::document::Run;

#[test]
fn a_small_fleet_keeps_what_is_checked_and_its_page_tells_it() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("fleet.json");
    let lab = || Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    let mut command = lab();
    command.args(["fleet", "--machines=10", "--names=400", "--days=90", "--seed=7"]);
    command.args(["--away-days=3", "--orders=300"]);
    let output = command.arg("--json").arg(&json).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let fleet = run.fleet.unwrap();
    assert_eq!((fleet.machines, fleet.names, fleet.days, fleet.seed), (10, 400, 90, 7));
    let holds: Vec<_> = fleet.checks.iter().map(|check| (check.id.as_str(), check.holds)).collect();
    assert_eq!(holds, ["L1", "L2", "L3", "L4", "L5", "L6"].map(|id| (id, Some(true))), "{text}");
    // What is told last is what the machines and their clocks were.
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("of 90"), "{told}");

    let [page, picture] = ["fleet.html", "fleet.svg"].map(|name| folder.path().join(name));
    let mut report = lab();
    report.args(["report", "--of", "fleet", "--picture"]).arg(&picture);
    let output = report.arg("-o").arg(&page).arg(&json).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("10 machines renew 400 certificates for 90 days: 6 of 6 checks hold."));
    let picture = fs::read_to_string(picture).unwrap();
    for moment in ["names imported", "store away", "authority away", "revocation"] {
        assert!(page.contains(moment) && picture.contains(moment), "{moment}");
    }
}
