//! The command `count --kernel` on servers of Debian's, and what is committed of it.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use sealane_lab_model::document::{KernelLedger, KernelRow, Run};

/// Two threads with one table, and two processes with a table each, three times.
#[test]
fn who_shares_a_file_table_is_told_by_the_kernel_and_its_writes_are_the_same_thrice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let words = ["--only", "haproxy,hitch", "--connections", "4", "--repeats", "3", "--json"];
    let output = count(&words, &[file.to_str().unwrap()], None);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let run: Run = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let [haproxy, hitch] = &run.kernel_ledgers[..] else { panic!("{text}") };
    let threads = table(haproxy);
    assert!(threads.exact && haproxy.repeats == 3, "{text}");
    assert_eq!((threads.shared, threads.threads, threads.apart), (1, 2, 0), "{text}");
    let calls: Vec<_> =
        threads.calls.iter().map(|it| (it.call.as_str(), it.per_connection)).collect();
    // The number is taken before the queue is looked at.
    let each = [("close", 2), ("accept4", 1), ("accept4 of nobody", 1), ("socket", 1)];
    assert_eq!(calls[..4], each, "{text}");
    assert_eq!(threads.per_connection, 5, "{text}");
    assert!(haproxy.growth.as_ref().unwrap().shared > 0, "{text}");
    let processes = table(hitch);
    assert!(processes.exact, "{text}");
    assert_eq!((processes.shared, processes.per_connection, processes.apart), (0, 0, 4), "{text}");
    let growth = hitch.growth.as_ref().unwrap();
    assert!(growth.shared == 0 && growth.apart > 0, "{text}");
    assert!(text.contains("2 threads"), "{text}");
}

#[test]
fn what_is_missing_is_told_with_the_package_that_brings_it() {
    let output = count(&["--only", "hitch"], &[], Some("/nonexistent"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("strace is missing"), "{text}");
    assert!(text.contains("apt-get install strace"), "{text}");
}

/// What is committed to be read on the web is what this program says of the committed document.
#[test]
fn the_committed_text_is_that_of_the_committed_document() {
    let home = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folder = tempfile::tempdir().unwrap();
    let says = folder.path().join("KERNEL.md");
    let document = home.join("results/kernel.json");
    let words = ["--from", document.to_str().unwrap(), "--text", says.to_str().unwrap()];
    let output = count(&words, &[], None);
    assert!(output.status.success(), "{output:?}");
    assert!(
        fs::read_to_string(&says).unwrap() == fs::read_to_string(home.join("KERNEL.md")).unwrap(),
        "lab/KERNEL.md is old; make it with: sealane-lab count --kernel \
         --from lab/results/kernel.json --text lab/KERNEL.md"
    );
}

fn table(ledger: &KernelLedger) -> &KernelRow {
    let table = ledger.rows.iter().find(|row| row.object == "file table");
    table.unwrap_or_else(|| panic!("{ledger:?}"))
}

fn count(words: &[&str], more: &[&str], path: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.args(["count", "--kernel"]).args(words).args(more);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().unwrap()
}
