//! `count --record` as people run it: work with a known answer gives the right line, class, lock
//! and call path, and a trace that went wrong gives an error and no file.

use std::{
    env,
    path::Path,
    process::{Command, Output},
    thread,
};

use sealane_lab_model::recording::{ByPart, Event, LockClass, RecordedLine, Recording};

fn record(stack: &str, file: &Path) -> Command {
    let mut command = crate::with_valgrind();
    command.args(["count", &format!("--stack={stack}"), "--record"]).arg(file);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// What is to be found of one shape: per operation, at the server and at the client.
struct Known {
    shape: &'static str,
    class: &'static str,
    symbol: &'static str,
    updates: [f64; 2],
    stores: [f64; 2],
    lock: Option<LockClass>,
    /// Events on the lock, each as often as there are touches.
    events: &'static [Event],
}

const KNOWN: [Known; 5] = [
    Known {
        shape: "counter",
        class: "global",
        symbol: "synthetic::COUNTER",
        updates: [8.0, 4.0],
        stores: [0.0, 0.0],
        lock: None,
        events: &[],
    },
    Known {
        shape: "false-sharing",
        class: "false-sharing",
        symbol: "synthetic::BESIDE",
        updates: [0.0, 0.0],
        stores: [8.0, 4.0],
        lock: None,
        events: &[],
    },
    Known {
        shape: "mutex",
        class: "lock",
        symbol: "synthetic::MUTEX",
        updates: [4.0, 2.0],
        stores: [2.0, 1.0],
        lock: Some(LockClass::FutexMutex),
        events: &[Event::MutexLock, Event::MutexUnlock],
    },
    Known {
        shape: "reference-count",
        class: "reference-count",
        symbol: "clone",
        updates: [8.0, 4.0],
        stores: [0.0, 0.0],
        lock: None,
        events: &[],
    },
    Known {
        shape: "rwlock",
        class: "lock",
        symbol: "synthetic::RWLOCK",
        updates: [8.0, 4.0],
        stores: [0.0, 0.0],
        lock: Some(LockClass::FutexRwLock),
        events: &[Event::ReadLock, Event::ReadUnlock],
    },
];

#[test]
fn work_with_a_known_answer_is_recorded_exactly() {
    thread::scope(|scope| {
        for known in &KNOWN {
            scope.spawn(move || {
                let recording = recorded(known.shape);
                let [line] = &recording.lines[..] else { panic!("{:#?}", recording.lines) };
                is_the_line(known, line);
                has_its_lock(known, &recording);
                has_its_path(known.shape, &recording);
                is_whole(&recording);
            });
        }
        scope.spawn(|| {
            let recording = recorded("none");
            assert_eq!(recording.lines, []);
            is_whole(&recording);
        });
    });
}

fn recorded(shape: &str) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.json.gz");
    let output = record(&format!("synthetic:{shape}"), &file).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    Recording::read(&file).unwrap()
}

fn is_the_line(known: &Known, line: &RecordedLine) {
    let sides = |of: &ByPart<f64>| [of.server, of.client];
    assert_eq!(line.class, known.class, "{line:?}");
    assert!(line.symbol.contains(known.symbol), "{line:?}");
    assert_eq!(sides(&line.updates), known.updates, "{line:?}");
    assert_eq!(sides(&line.stores), known.stores, "{line:?}");
    let elsewhere = |of: &ByPart<f64>| of.outside + of.server_setup + of.client_setup;
    assert_eq!(elsewhere(&line.updates) + elsewhere(&line.stores), 0.0, "{line:?}");
}

fn has_its_lock(known: &Known, recording: &Recording) {
    let classes: Vec<LockClass> = recording.locks.iter().map(|lock| lock.class).collect();
    assert_eq!(classes, Vec::from_iter(known.lock));
    let is_plain =
        |event| matches!(event, Event::Enter | Event::Load | Event::Store | Event::Update);
    let events = recording.steps.iter().map(|step| step.event).filter(|event| !is_plain(*event));
    // Taken and given back in turn; a lock is two updates.
    let events: Vec<Event> = events.collect();
    let in_turn: Vec<Event> = known.events.iter().copied().cycle().take(events.len()).collect();
    assert_eq!(events, in_turn);
    let updates = if known.lock.is_some() { known.updates[0] + known.updates[1] } else { 0.0 };
    assert_eq!(events.len() as f64, updates);
}

/// From the instruction out to the side's own function, the harness around it cut off.
fn has_its_path(shape: &str, recording: &Recording) {
    for step in recording.steps.iter().filter(|step| step.event != Event::Enter) {
        let names: Vec<_> =
            recording.callers(step.path).map(|node| node.function.as_str()).collect();
        let has = |part: &str| names.iter().any(|name| name.contains(part));
        assert!(has("synthetic::Touched::operation"), "{shape}: {names:?}");
        assert!(!has("trial::") && !has("phase::"), "{shape}: {names:?}");
    }
}

/// Every part has instructions and a native time, and the steps account for the instructions.
fn is_whole(recording: &Recording) {
    let native = recording.native_ns.expect("measured");
    for part in sealane_lab_model::recording::Part::ALL {
        assert!(*recording.instructions.of(part) > 0.0, "{part:?} {recording:?}");
        assert!(*native.of(part) > 0.0, "{part:?} {native:?}");
    }
    assert_eq!(recording.operations, 1);
    assert!(recording.stack.name.starts_with("synthetic:"), "{:?}", recording.stack);
    assert!(!recording.started.is_empty() && !recording.processor.is_empty());
    assert_eq!(recording.steps.last().map(|step| step.event), Some(Event::Enter));
}

/// Records with this script in the place of valgrind; the error, after which there is no file.
fn recorded_by(script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let valgrind = folder.path().join("valgrind");
    crate::write_program(&valgrind, script);
    let file = folder.path().join("recording.json.gz");
    let paths = env::split_paths(&env::var_os("PATH").unwrap()).collect::<Vec<_>>();
    let first = [folder.path().to_owned()].into_iter();
    let output = record("synthetic:none", &file)
        .env("PATH", env::join_paths(first.chain(paths)).unwrap())
        .output()
        .unwrap();
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    assert!(!file.exists(), "a recording all the same: {text}");
    text
}

#[test]
fn a_crash_of_valgrind_is_told_with_its_words() {
    let text = recorded_by("echo \"valgrind: the 'impossible' happened\" >&2; kill -SEGV $$");
    assert!(text.contains("the 'impossible' happened") && text.contains("signal: 11"), "{text}");
}

#[test]
fn a_trace_without_a_result_or_cut_short_is_none() {
    let text = recorded_by("printf 'I  00401000,3\\n S 1fff' >&2");
    assert!(text.contains("without its result"), "{text}");
    // The program does its work, but not under valgrind.
    let natively = "while [ \"${1#--}\" != \"$1\" ]; do shift; done; \"$@\"";
    let text = recorded_by(&format!("{natively}; printf 'I  00401000,3' >&2"));
    assert!(text.contains("ended in the middle of a line"), "{text}");
    let text = recorded_by(natively);
    assert!(text.contains("never entered the server's phase"), "{text}");
}

#[test]
fn missing_valgrind_a_missing_folder_and_two_stacks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.json.gz");
    let output = record("openssl", &file).env("PATH", "").output().unwrap();
    let missing = text(&output);
    assert!(missing.contains("apt-get install valgrind"), "{missing}");
    let output = record("openssl,boringssl", &file).output().unwrap();
    let two = text(&output);
    assert!(!output.status.success() && two.contains("one stack"), "{two}");
    let nowhere = folder.path().join("nowhere/recording.json.gz");
    let output = record("synthetic:none", &nowhere).env("PATH", "").output().unwrap();
    let text = text(&output);
    assert!(!output.status.success() && text.contains("there is no folder"), "{text}");
    assert!(!file.exists());
}
