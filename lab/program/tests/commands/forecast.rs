//! The commands `forecast` and `validate` as people run them: what they say, write and refuse. What
//! a forecast comes to is tested beside it, in `src/forecast/tests.rs`; published curves are met in
//! `./check --only forecast`.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use sealane_lab_model::{
    document::{Knee, Run, VerdictKind},
    library::Identity,
    recording::{ByPart, Event, Part, RecordedLine, Recording, SCHEMA, Step},
};

fn lab(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.args(arguments).current_dir(folder).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A server that adds to one counter in each `server_ns` of work.
fn write_recording(file: &Path, stack: &str, server_ns: u32) {
    let enter = |part: Part, gap| Step { gap, place: part as u32, ..Step::default() };
    let ns = ByPart { server: f64::from(server_ns), ..ByPart::default() };
    let half = server_ns / 2;
    let update = Step { gap: half, event: Event::Update, ..Step::default() };
    let recording = Recording {
        schema: SCHEMA.into(),
        stack: Identity { name: stack.into(), version: "1".into(), ..Identity::default() },
        operations: 1,
        instructions: ns,
        native_ns: Some(ns),
        lines: vec![RecordedLine {
            class: "global".into(),
            symbol: "COUNTER".into(),
            owner: "x".into(),
            updates: ByPart { server: 1.0, ..ByPart::default() },
            ..RecordedLine::default()
        }],
        steps: vec![enter(Part::Server, 0), update, enter(Part::Outside, half)],
        ..Recording::default()
    };
    recording.write(file).unwrap();
}

#[test]
fn two_recordings_have_two_forecasts_and_one_comparison() {
    let folder = tempfile::tempdir().unwrap();
    write_recording(&folder.path().join("busy.json.gz"), "busy", 1_000);
    write_recording(&folder.path().join("calm.json.gz"), "calm", 1_000_000);
    let arguments = ["forecast", "busy.json.gz", "calm.json.gz", "--profile=altra"];
    let output =
        lab(&[&arguments[..], &["--cores=80,16", "--json=f.json"]].concat(), folder.path());
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("FORECAST (not measured): keeps about"), "{said}");
    assert!(said.contains("few cores are enough to stop it; without COUNTER it keeps"), "{said}");
    assert!(said.contains("FORECAST (not measured): no knee found below 80 threads"), "{said}");
    let run: Run =
        serde_json::from_slice(&fs::read(folder.path().join("f.json")).unwrap()).unwrap();
    assert!(run.complete && run.forecasts.len() == 2, "{run:?}");
    let [busy, calm] = &run.forecasts[..] else { panic!("{run:?}") };
    let threads: Vec<u32> = busy.server.points.iter().map(|point| point.threads).collect();
    assert_eq!(threads, [16, 80], "ascending, whatever the order asked for");
    assert_eq!(busy.server.knee, Knee::FewCores);
    assert_eq!(calm.server.knee, Knee::NoneBelow { threads: 80 });
    assert_eq!(run.forecast_comparisons[0].verdict.kind, VerdictKind::Differs);
    let again = lab(&arguments, folder.path());
    let same = lab(&arguments, folder.path());
    assert_eq!(again.stdout, same.stdout, "the same seed, the same forecast");
}

/// Tries of a measurement that other work may spoil.
const TRIES_MAX: usize = 3;

#[test]
fn a_server_s_file_table_is_forecast_with_one_table_and_with_a_table_for_each_thread() {
    let folder = tempfile::tempdir().unwrap();
    write_recording(&folder.path().join("x.json.gz"), "x", 100_000);
    let ledger = format!("{}/../results/kernel.json", env!("CARGO_MANIFEST_DIR"));
    let arguments = ["forecast", "x.json.gz", "--profile=altra", "--kernel", &ledger];
    let arguments = [&arguments[..], &["--cores=16", "--json=f.json"]].concat();
    let mut output = lab(&arguments, folder.path());
    for _ in 1..TRIES_MAX {
        // It measures, and other work beside it may hide what one table costs.
        if !text(&output).contains("were not slower") {
            break;
        }
        output = lab(&arguments, folder.path());
    }
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("MEASURED: a system call holds a file table's lock for"), "{said}");
    assert!(said.contains("one contributor's figures, in a pull request that was open"), "{said}");
    assert!(said.contains("s = 145.0 ns to move a line: Ampere Altra"), "{said}");
    let run: Run =
        serde_json::from_slice(&fs::read(folder.path().join("f.json")).unwrap()).unwrap();
    let [forecast] = &run.kernel_forecasts[..] else { panic!("{run:?}") };
    assert!(run.complete && forecast.base.server_ns == 100_000.0, "{run:?}");
    let haproxy = forecast.paths.iter().find(|path| path.servers.contains(&"haproxy".into()));
    let haproxy = haproxy.unwrap();
    assert_eq!(haproxy.holds, 6, "close 2, accept4 1, socket 1, and accept4 of nobody, twice");
    let threads: Vec<u32> = haproxy.one_table.points.iter().map(|point| point.threads).collect();
    assert_eq!(threads, [16, 128], "what was asked for, and what was published");
    assert!(haproxy.own_tables.points.iter().all(|point| point.efficiency == 1.0), "{haproxy:?}");
    assert_eq!(haproxy.beside.len(), 5, "{haproxy:?}");
}

#[test]
fn mistakes_are_told_with_their_remedy() {
    let folder = tempfile::tempdir().unwrap();
    write_recording(&folder.path().join("x.json.gz"), "x", 1_000);
    fs::write(folder.path().join("broken.json.gz"), "no gzip").unwrap();
    for (arguments, wanted) in [
        (&["forecast", "none.json.gz", "--profile=altra"][..], "none.json.gz"),
        (&["forecast", "broken.json.gz", "--profile=altra"], "is no recording"),
        (&["forecast", "x.json.gz", "--profile=unheard-of"], "altra"),
        (&["forecast"], "required"),
        (&["forecast", "x.json.gz", "--profile=altra", "--kernel=none.json"], "none.json"),
        (&["forecast", "x.json.gz", "--cores=1"], "--cores"),
        (&["validate"], "root of Sealane's repository"),
    ] {
        let output = lab(arguments, folder.path());
        let said = text(&output);
        assert!(!output.status.success(), "{arguments:?}: {said}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn every_recording_has_a_command_that_makes_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = lab(&["validate", "--commands", "--recordings=there"], folder.path());
    let said = text(&output);
    assert!(output.status.success() && said.lines().count() == 21, "{said}");
    let first = "sealane-lab count --stack openssl@3.0 --kind full --tls 1.3 --share context";
    assert!(said.starts_with(first), "{said}");
    assert!(said.contains("--record there/rustls-0.23.17-ticket-1.2.json.gz"), "{said}");
}
