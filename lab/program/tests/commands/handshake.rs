//! The command `handshake` as people run it. Figures are not looked at, but whatever is wrong with
//! a stack or a trial must leave none.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sealane_lab_harness::{credentials::Credentials, trial::Reply};
use sealane_lab_model::{
    document::{HandshakeRound, Invalid, Run},
    histogram::Times,
    scenario::{Key, Kind},
};

#[test]
fn every_thread_and_every_nanosecond_is_accounted_for() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let output = handshake(&[
        "--stack=sealane,rustls-ring",
        "--kind=full,session-id,ticket",
        "--tls=1.2,1.3",
        "--threads=2,1",
        "--rounds=1",
        "--window-ms=100",
        "--json",
        json.to_str().unwrap(),
    ]);
    let (text, errors) = texts(&output);
    assert!(output.status.success(), "{text}\n{errors}");
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(run.complete);
    assert_eq!(run.stacks.len(), 2);
    // Five scenarios: session ids do not exist in TLS 1.3.
    assert_eq!(run.handshakes.len(), 10);
    let mut orders = Vec::new();
    for series in &run.handshakes {
        if series.stack == "sealane" && series.scenario.kind == Kind::SessionId {
            let failure = series.failure.as_deref().unwrap_or_default();
            assert!(failure.starts_with("not supported: "), "{failure}");
            assert!(errors.contains(failure), "{errors}");
            continue;
        }
        assert_eq!(series.failure, None);
        let negotiated = series.negotiated.as_ref().unwrap();
        assert_eq!(negotiated.resumed, series.scenario.kind != Kind::Full, "{series:?}");
        assert_eq!(series.points.iter().map(|point| point.threads).collect::<Vec<_>>(), [1, 2]);
        for point in &series.points {
            let [round] = &point.rounds[..] else { panic!("{point:?}") };
            adds_up(round, point.threads, 100_000_000);
            let first_handshakes =
                if series.scenario.kind == Kind::Full { 0 } else { point.threads as u64 };
            assert_eq!(round.discarded, first_handshakes, "{series:?}");
            orders.push(round.order);
        }
        // Disturbed rounds have no histogram.
        let last = &series.points[1].rounds[0];
        assert_eq!(series.times.is_some(), last.invalid.is_none());
        if let Some(times) = &series.times {
            let count: u64 = last.per_thread.iter().sum();
            assert_eq!(Times::read(&times.server).unwrap().count(), count);
            assert_eq!(times.client.count, count);
        }
    }
    orders.sort_unstable();
    orders.dedup();
    assert_eq!(orders.len(), 18, "each trial has its own place in the order");
    assert_eq!(text.lines().filter(|line| line.starts_with("sealane ")).count(), 8, "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("rustls-ring ")).count(), 10, "{text}");
}

fn adds_up(round: &HandshakeRound, threads: usize, window_ns: u64) {
    let parts = [
        round.server_ns,
        round.client_ns,
        round.server_setup_ns,
        round.client_setup_ns,
        round.other_ns,
    ];
    let all = threads as u64 * window_ns;
    assert!(parts.iter().sum::<u64>().abs_diff(all) <= all / 50, "{round:?}");
    assert!(parts.iter().all(|part| *part > 0), "{round:?}");
    for (place, sum) in parts[..4].iter().enumerate() {
        assert_eq!(round.per_thread_ns.iter().map(|thread| thread[place]).sum::<u64>(), *sum);
    }
    assert_eq!(round.per_thread.len(), threads);
    assert_ne!(round.invalid, Some(Invalid::Accounting));
}

/// Nobody waits for a session of its own: one full handshake is enough for all threads, and a
/// store of many sessions is never empty with two.
#[test]
fn threads_that_share_a_session_resume_it() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let output = handshake(&[
        "--stack=openssl,rustls-ring",
        "--kind=ticket",
        "--tls=1.2,1.3",
        "--share=session",
        "--threads=2",
        "--rounds=1",
        "--window-ms=100",
        "--json",
        json.to_str().unwrap(),
    ]);
    let (text, errors) = texts(&output);
    assert!(output.status.success(), "{text}\n{errors}");
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(run.handshakes.len(), 4);
    for series in &run.handshakes {
        assert!(series.negotiated.as_ref().unwrap().resumed, "{series:?}");
        let round = &series.points[0].rounds[0];
        assert!((1..=2).contains(&round.discarded), "{series:?}");
        assert!(round.per_thread.iter().all(|count| *count > 0), "{series:?}");
    }
}

#[test]
fn a_stack_that_lies_or_breaks_gets_no_number() {
    for (fault, reason) in [
        ("full", "resumed false, wanted true"),
        ("flipped-bit", "decrypt"),
        ("reset", "the handshake ended before the client was done"),
        ("wrong-group", "negotiated group"),
        ("early-end", "thread 1 stopped"),
        ("crash", "was ended by signal 6"),
        ("garbage", "something else than a result"),
        ("unaccounted-time", " accounting"),
        ("missing-thread", "1 of 2 threads began"),
    ] {
        let output = handshake(&[
            "--stack=rustls-ring",
            "--kind=ticket",
            "--threads=2",
            "--rounds=2",
            "--window-ms=100",
            "--fault",
            fault,
        ]);
        let (text, errors) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{fault}: {text}\n{errors}");
        assert_eq!(text, "", "{fault}");
        assert!(errors.contains("rustls-ring: NO FIGURES: "), "{fault}: {errors}");
        assert!(errors.contains(reason), "{fault}: {errors}");
    }
}

#[test]
fn other_stacks_go_on_beside_one_that_crashes_and_one_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let output = handshake(&[
        "--stack=rustls-ring,/no/such/libssl.so,rustls-graviola",
        "--threads=1",
        "--rounds=2",
        "--window-ms=50",
        "--fault=crash",
        "--fault-of=rustls-ring",
        "--json",
        json.to_str().unwrap(),
    ]);
    let (text, errors) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{text}\n{errors}");
    assert!(errors.contains("rustls-ring: NO FIGURES: "), "{errors}");
    assert!(errors.contains("/no/such/libssl.so: NO FIGURES: "), "{errors}");
    assert!(text.contains("\nrustls-graviola "), "{text}");
    assert!(!text.contains("rustls-ring") && !text.contains("no/such"), "{text}");
    let run: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(run.complete, "a failure is a result");
    assert!(run.handshakes[..2].iter().all(|one| one.points.is_empty() && one.failure.is_some()));
    assert_eq!(run.handshakes[2].points[0].rounds.len(), 2);
}

#[test]
fn a_stack_without_a_name_or_alone_in_what_it_cannot_do_is_a_failure() {
    let output = handshake(&["--stack=no-such-stack", "--threads=1", "--window-ms=50"]);
    let (text, errors) = texts(&output);
    assert_eq!((output.status.code(), &*text), (Some(1), ""), "{errors}");
    assert!(errors.contains("rustls-ring"), "it names those that there are: {errors}");
    let alone = ["--stack=sealane", "--kind=session-id", "--tls=1.2", "--threads=1"];
    let output = handshake(&alone);
    let (text, errors) = texts(&output);
    assert_eq!((output.status.code(), &*text), (Some(1), ""), "{errors}");
    let impossible = handshake(&["--stack=rustls-ring", "--kind=session-id"]);
    let (text, errors) = texts(&impossible);
    assert_eq!((impossible.status.code(), &*text), (Some(1), ""));
    assert!(errors.contains("session ids resume in TLS 1.2 only"), "{errors}");
}

#[test]
fn ctrl_c_keeps_finished_rounds_and_the_run_can_be_resumed() {
    const ROUNDS: usize = 6;
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let mut lab = command(&[
        "handshake",
        "--stack=rustls-ring,rustls-graviola",
        "--threads=1,2",
        "--window-ms=50",
        &format!("--rounds={ROUNDS}"),
        "--json",
        json.to_str().unwrap(),
    ])
    .spawn()
    .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !json.exists() {
        assert!(Instant::now() < deadline, "no round was kept");
        thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&lab), Signal::INT).unwrap();
    assert_eq!(lab.wait().unwrap().code(), Some(130));
    let stopped = read(&json);
    assert!(!stopped.complete);
    let kept = stopped.handshakes[0].points[0].rounds.len();
    assert!((1..ROUNDS).contains(&kept), "{kept} rounds");
    let points = |run: &Run| -> Vec<Vec<HandshakeRound>> {
        let series = run.handshakes.iter().flat_map(|series| series.points.clone());
        series.map(|point| point.rounds).collect()
    };
    assert!(points(&stopped).iter().all(|rounds| rounds.len() == kept), "whole rounds only");

    let output = handshake(&["--resume", json.to_str().unwrap()]);
    let (text, errors) = texts(&output);
    assert!(output.status.success(), "{text}\n{errors}");
    let whole = read(&json);
    assert!(whole.complete);
    assert_eq!(whole.command, stopped.command);
    let mut orders = Vec::new();
    for (before, after) in points(&stopped).iter().zip(points(&whole)) {
        assert_eq!(after.len(), ROUNDS);
        assert_eq!(after[..kept], before[..]);
        orders.extend(after.iter().map(|round| round.order));
    }
    orders.sort_unstable();
    assert!(orders.iter().copied().eq(0..24), "every place once: {orders:?}");
    let again = handshake(&["--resume", json.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(1), "what is complete does not go on");
}

#[test]
fn the_lines_of_other_tools_have_their_fields() {
    for (tool, threads, fields) in
        [("openssl-bench", 1, 6), ("openssl-bench", 2, 13), ("rustls-bench", 2, 16)]
    {
        let output = handshake(&[
            "--stack=rustls-ring",
            "--key=rsa2048",
            "--tls=1.2",
            "--rounds=1",
            "--window-ms=100",
            "--threads",
            &threads.to_string(),
            "--compat",
            tool,
        ]);
        let (text, errors) = texts(&output);
        assert!(output.status.success(), "{tool}: {text}\n{errors}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        for line in lines {
            let found: Vec<&str> = line.split('\t').collect();
            assert_eq!(found.len(), fields, "{line}");
            assert_eq!((found[0], found[fields - 1]), ("handshakes", "handshakes/s"));
            let rate: f64 = found[fields - 2].parse().unwrap();
            assert!(rate > 0.0, "{line}");
        }
    }
    let two = handshake(&["--stack=rustls-ring,sealane", "--compat=rustls-bench"]);
    assert_eq!(two.status.code(), Some(1), "whose lines would they be?");
}

#[test]
fn instruments_get_an_exact_number_of_handshakes() {
    let folder = tempfile::tempdir().unwrap();
    Credentials::make(folder.path(), Key::P256).unwrap();
    let fixed = |kind: &str, warm_up: u64| {
        let task = serde_json::json!({
            "task": "handshakes",
            "stack": "sealane",
            "scenario": {
                "kind": kind, "version": "1.3", "cipher": "aes128-gcm", "group": "x25519",
                "key": "p256", "client_certificate": false, "tickets": 2, "share": "thread",
            },
            "credentials": folder.path(),
            "threads": 2,
            "fixed": { "warm_up": warm_up, "count": 3 },
        });
        let output = command(&["trial", &task.to_string()]).output().unwrap();
        let lines: Vec<Reply> =
            texts(&output).0.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (output.status.success(), lines)
    };
    for kind in ["full", "ticket"] {
        let (success, lines) = fixed(kind, 2);
        assert!(success, "{lines:?}");
        let [Reply::Started { marks }, Reply::Fixed { operations, warm_up, negotiated, .. }] =
            &lines[..]
        else {
            panic!("{lines:?}")
        };
        assert!(*marks > 0);
        assert_eq!((*operations, *warm_up, negotiated.resumed), (6, 4, kind == "ticket"));
    }
    let (success, lines) = fixed("ticket", 0);
    assert!(!success && matches!(lines.last(), Some(Reply::Failed { .. })), "{lines:?}");
}

fn handshake(arguments: &[&str]) -> Output {
    let mut all = vec!["handshake"];
    all.extend(arguments);
    command(&all).output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn read(path: &Path) -> Run {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
