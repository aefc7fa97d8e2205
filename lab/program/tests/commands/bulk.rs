//! `sealane-lab bulk` as people run it: every byte arrives, and what goes wrong leaves no figure.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::journal;
use sealane_lab_model::{
    document::{BulkSeries, Run},
    scenario::Version,
};

/// Every runtime with each kind of loop that it has, and a stack that it drives.
const DRIVERS: [[&str; 3]; 3] = [
    ["lanes", "per-lane", "sealane"],
    ["asio", "shared", "openssl"],
    ["asio", "per-lane", "openssl"],
];

/// Asio's driver is compiled into a cache of the tests, by the first that needs it.
static CACHE: LazyLock<PathBuf> = LazyLock::new(|| {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bulk-cache");
    let output = lab(&cache)
        .args(["--runtime", "asio", "--stack", "openssl", "--rounds", "1"])
        .args(["--connections", "1", "--messages", "1", "--size", "1K"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "needs g++, libasio-dev and libssl-dev: {said}");
    cache
});

fn lab(cache: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.arg("bulk").env("XDG_CACHE_HOME", cache).stdin(Stdio::null());
    command
}

/// One runtime over sockets, 2 threads, 4 connections.
fn driven([runtime, loops, stack]: [&str; 3]) -> Command {
    let mut command = lab(&CACHE);
    command.args(["--runtime", runtime, "--strategy", loops, "--stack", stack]);
    command.args(["--threads", "2", "--connections", "4", "--rounds", "1"]);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs it and reads the document that it writes.
fn document(mut command: Command) -> (Output, Run) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let output = command.arg("--json").arg(&path).output().unwrap();
    (output, journal::read(&path).unwrap())
}

fn only(run: &Run) -> &BulkSeries {
    assert_eq!(run.bulk.len(), 1);
    &run.bulk[0]
}

#[test]
fn every_byte_arrives_through_every_runtime() {
    for driver in DRIVERS {
        let mut command = driven(driver);
        command.args(["--messages", "25", "--size", "1048576", "--verify", "sha256"]);
        let (output, run) = document(command);
        assert!(output.status.success(), "{driver:?}: {}", text(&output));
        let series = only(&run);
        assert_eq!([series.runtime.as_str(), series.loops.as_deref().unwrap()], driver[..2]);
        let [round] = &series.rounds[..] else { panic!("{driver:?}: not one round") };
        assert_eq!(round.bytes, 104_857_600, "{driver:?}");
        assert!(round.wall_ns > 0 && round.cpu_ns > 0 && round.check_ns > 0, "{round:?}");
        assert_eq!(round.lock_calls, 0);
        let negotiated = series.negotiated.as_ref().unwrap();
        assert_eq!(negotiated.suite, "TLS_AES_128_GCM_SHA256");
        if driver[1] == "per-lane" {
            assert_eq!((round.migrated, round.threads), (0, 2), "{driver:?}");
        }
        assert_eq!(run.stacks.len(), 1);
        assert!(run.complete);
    }
}

#[test]
fn a_broken_connection_or_byte_leaves_no_figure() {
    for driver in DRIVERS {
        for [fault, verify] in [
            ["reset", "sha256"],
            ["corrupt", "sha256"],
            ["corrupt-plaintext", "sha256"],
            ["corrupt-plaintext", "compare"],
        ] {
            let mut command = driven(driver);
            command.args(["--messages", "4", "--size", "256K", "--verify", verify]);
            command.args(["--fault", fault, "--fault-connection", "1"]);
            command.args(["--fault-after", "600000", "--compat", "asio"]);
            let output = command.output().unwrap();
            let what = format!("{driver:?} {fault} {verify}");
            assert_eq!(output.status.code(), Some(1), "{what}");
            assert_eq!(text(&output), "", "{what}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("connection 1"), "{what}: {said}");
        }
    }
}

#[test]
fn a_failed_cell_has_its_reason_and_no_rounds() {
    let mut command = driven(["asio", "shared", "openssl"]);
    command.args(["--messages", "2", "--size", "64K", "--fault", "corrupt"]);
    let (output, run) = document(command);
    assert_eq!(output.status.code(), Some(1));
    let series = only(&run);
    assert!(series.rounds.is_empty());
    let why = series.failure.as_ref().unwrap();
    assert!(why.contains("bad record") && text(&output).contains(why), "{why}");
}

#[test]
fn the_write_ups_line_is_true() {
    let mut command = driven(["asio", "shared", "openssl"]);
    let line = text(&command.args(["--messages", "25", "--compat", "asio"]).output().unwrap());
    let words: Vec<&str> = line.split_whitespace().collect();
    let [mebibytes, "megabytes", "sent", "and", "received", "in", seconds, "seconds.", rate, unit] =
        words[..]
    else {
        panic!("{line}")
    };
    assert_eq!((mebibytes, unit), ("100", "MB/s)"));
    let seconds: f64 = seconds.parse().unwrap();
    let rate: f64 = rate.trim_start_matches('(').parse().unwrap();
    assert!((seconds * rate - 100.0).abs() < 1.0, "{line}");
}

#[test]
fn the_emulated_lock_is_taken_and_only_where_it_is_asked_for() {
    let mut command = driven(["asio", "shared", "openssl"]);
    command.args(["--messages", "4", "--size", "64K", "--emulate", "none,error-lock"]);
    let (output, run) = document(command);
    assert!(output.status.success(), "{}", text(&output));
    let calls = |series: &BulkSeries| series.rounds[0].lock_calls;
    let [without, with] = &run.bulk[..] else { panic!("{:?}", run.bulk) };
    assert_eq!((calls(without), with.emulate.as_deref()), (0, Some("error-lock")));
    // As many as OpenSSL 1.0.2 takes, and 4 connections carry 4 messages of 64 KiB: one MiB.
    assert!((1_300..1_700).contains(&calls(with)), "{}", calls(with));
    assert_eq!(with.rounds[0].locks["emulated"], calls(with));
}

#[test]
#[ignore = "half a minute and more, with what a shorter one has too"]
fn every_runtime_speaks_both_versions_with_every_key() {
    for (tls, version) in [("1.2", Version::Tls12), ("1.3", Version::Tls13)] {
        for key in ["ed25519", "p256", "p384", "rsa2048"] {
            let of = |place: &[&str]| {
                let mut command = lab(&CACHE);
                command.args(["--stack", "openssl,sealane", "--threads", "1"]);
                command.args(["--size", "1K", "--rounds", "1", "--tls", tls, "--key", key]);
                command.args(place);
                let (output, run) = document(command);
                assert!(output.status.success(), "{tls} {key}: {}", text(&output));
                run.bulk
            };
            let speaks = |found: Option<&BulkSeries>| {
                let negotiated = found.unwrap().negotiated.as_ref().unwrap();
                assert_eq!(negotiated.version, version, "{found:?}");
            };
            let sockets = of(&["--runtime=lanes,asio", "--connections=1", "--messages=1"]);
            for driver in DRIVERS {
                speaks(sockets.iter().find(|series| {
                    [&series.runtime, series.loops.as_ref().unwrap(), &series.stack] == driver
                }));
            }
        }
    }
}

#[test]
fn every_number_of_threads_meets_every_number_of_connections() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("matrix.csv");
    let output = lab(&CACHE)
        .args(["--runtime", "asio", "--stack", "openssl"])
        .args(["--connections", "1,3", "--threads", "1,2", "--messages", "2", "--size", "16K"])
        .args(["--rounds", "2", "--csv"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let csv = fs::read_to_string(&path).unwrap();
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().starts_with("stack,runtime,loops,"));
    let mut cells: Vec<String> = lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            assert!(fields[10].parse::<f64>().unwrap() > 0.0, "{line}");
            fields[2..6].join(",")
        })
        .collect();
    cells.sort();
    let wanted = ["per-lane,,1,1", "per-lane,,1,3", "per-lane,,2,1", "per-lane,,2,3"];
    let shared = wanted.map(|cell| cell.replace("per-lane", "shared"));
    assert_eq!(cells[..4], wanted);
    assert_eq!(cells[4..], shared);
}

#[test]
fn what_does_not_go_together_is_told() {
    for (arguments, wanted) in [
        (&["--runtime", "lanes", "--stack", "openssl"][..], "lanes drive"),
        (&["--connections", "5000"], "connections"),
        (&["--size", "65M"], "bytes per message"),
        (&["--stack", "sealane", "--emulate", "error-lock"], "alone emulates"),
        (&["--stack", "openssl", "--emulate", "fair-locks"], "alone emulates"),
        (&["--stack", "no-such-stack", "--rounds", "1"], "no stack is called"),
    ] {
        let output = lab(&CACHE).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = text(&output) + &String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn a_machine_without_a_compiler_is_told_what_to_install() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = lab(empty.path());
    command.args(["--runtime", "asio", "--stack", "openssl", "--rounds", "1"]);
    let output = command.env("PATH", empty.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("apt-get install g++"), "{}", text(&output));
}

#[test]
fn ctrl_c_keeps_whole_rounds_and_the_rest_follows_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let mut begin = lab(folder.path());
    begin
        .args(ONE_CELL)
        .args(["--rounds", "8", "--json"])
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = begin.spawn().unwrap();
    wait_for(&mut child, || path.exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let stopped = journal::read(&path).unwrap();
    let kept = only(&stopped).rounds.len();
    assert!(!stopped.complete && (1..8).contains(&kept), "{kept}");

    let mut other = stopped.clone();
    other.stacks[0].sha256.replace_range(..1, "x");
    journal::write(&path, &other).unwrap();
    let resume = || {
        let mut command = lab(folder.path());
        command.arg("--resume").arg(&path);
        command
    };
    let refused = resume().output().unwrap();
    assert!(!refused.status.success(), "the rest would be another library's");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("sealane has become another file"), "{said}");
    journal::write(&path, &stopped).unwrap();

    let resumed = resume().output().unwrap();
    assert!(resumed.status.success());
    let said = String::from_utf8_lossy(&resumed.stderr);
    assert!(said.contains(" bulk --stack sealane --threads 1 --runtime lanes "), "{said}");
    let whole = journal::read(&path).unwrap();
    assert!(whole.complete);
    assert_eq!(only(&whole).rounds.len(), 8);
    assert_eq!(only(&whole).rounds[..kept], only(&stopped).rounds[..]);
}

/// A hang-up that is ignored, as behind `nohup`.
#[test]
fn a_closed_terminal_does_not_stop_what_ignores_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_sealane-lab")]);
    command.arg("bulk").args(ONE_CELL).args(["--rounds", "4", "--json"]).arg(&path);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    wait_for(&mut child, || path.exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    assert!(child.wait().unwrap().success());
    let run = journal::read(&path).unwrap();
    assert!(run.complete && only(&run).rounds.len() == 4);
}

fn wait_for(child: &mut Child, happens: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !happens() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(5));
    }
}

/// One cell, whose rounds take long enough to be interrupted.
const ONE_CELL: [&str; 12] = [
    "--stack",
    "sealane",
    "--threads",
    "1",
    "--runtime",
    "lanes",
    "--strategy",
    "per-lane",
    "--connections",
    "1",
    "--messages",
    "50",
];
