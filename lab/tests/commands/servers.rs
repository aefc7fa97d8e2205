//! The command `servers` as people run it, on real servers; their figures are not looked at.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use sealane_lab::document::{Run, Server};

#[test]
fn a_quick_round_passes_every_check_of_every_server() {
    let (output, run) = quick(&sealane(), &[]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let servers = run.unwrap().servers.unwrap();
    let sealane = servers.servers.iter().find(|server| server.name == "sealane").unwrap();
    for case in &servers.cases {
        let figure = sealane.cases[&case.name].figure[0];
        assert!(figure.is_finite(), "{}: {text}", case.name);
    }
    let whole = |server: &&Server| server.failure.is_none();
    for server in servers.servers.iter().filter(whole) {
        let has_cases = server.cases.values().all(|result| {
            // A figure, or the reason why there is none.
            result.figure.len() == 1 || result.not_offered.is_some()
        });
        assert!(has_cases && !server.cases.is_empty(), "{server:?}");
    }
    for case in ["full", "full-rsa", "resumed", "keep-alive-3k", "down", "up"] {
        let floor = &servers.floor[case];
        assert!(floor.primitives[0] > 0.0 && floor.tcp[0] > 0.0, "{case}: {floor:?}");
        assert!(floor.proxy.starts_with("plain-"), "{floor:?}");
    }
    let open = &sealane.cases["open-50%"];
    let (intended, service) = (open.latency.as_ref().unwrap(), open.service.as_ref().unwrap());
    assert_eq!(intended.count, service.count);
    assert!(text.contains("| sealane |"), "{text}");
}

/// A program that lets itself be started but does no TLS has no row, and the exit code says so.
#[test]
fn a_server_that_fails_has_no_figures() {
    let (output, run) = quick(Path::new("/bin/false"), &["--only", "sealane", "--cases", "full"]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("sealane: NO FIGURES: "), "{text}");
    assert!(!text.contains("| sealane |"), "{text}");
    let servers = run.unwrap().servers.unwrap();
    assert!(servers.servers[0].cases.is_empty() && servers.servers[0].failure.is_some());
}

#[test]
fn any_server_can_be_named_by_its_command_line() {
    let arguments = ["--only", "mine", "--cases", "full,resumed,keep-alive-3k,full-rsa,names"];
    let peer = "mine=exec hitch --user=nobody --workers={workers} --frontend=[127.0.0.1]:{port} \
                --backend=[127.0.0.1]:$(echo {backend} | cut -d: -f2) --ocsp-dir= {cert}";
    let (output, run) = quick(&sealane(), &[&arguments[..], &["--peer", peer]].concat());
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let servers = run.unwrap().servers.unwrap();
    let mine = &servers.servers[0];
    assert_eq!((mine.name.as_str(), servers.servers.len()), ("mine", 1));
    assert!(mine.cases["resumed"].figure[0] > 0.0, "{text}");
    let not_offered = mine.cases["names-start"].not_offered.as_ref().unwrap();
    assert!(not_offered.contains("folder of certificates"), "{not_offered}");
}

#[test]
fn a_server_that_does_full_handshakes_instead_of_resumed_ones_is_refused() {
    let line = format!(
        "bad=printf '[tickets]\\ncount = 0\\n[[listener]]\\naddresses = [\"127.0.0.1:%s\"]\\n\
         backends = [\"%s\"]\\ncertificates = [\"%s\"]\\n' {{port}} {{backend}} {{cert}} \
         > {{folder}}/no-tickets.toml; exec {} serve --config {{folder}}/no-tickets.toml",
        sealane().display()
    );
    let error = refused(&line, "full,resumed");
    assert!(error.contains("did a full handshake"), "{error}");
}

#[test]
fn a_server_with_another_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = folder.path().join("other.pem");
    fs::write(&other, signed.cert.pem() + &signed.signing_key.serialize_pem()).unwrap();
    let other = other.display();
    let line = format!(
        "bad=exec openssl s_server -www -cert {other} -key {other} -accept 127.0.0.1:{{port}}"
    );
    let error = refused(&line, "full");
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn a_server_of_another_group_or_version_is_refused() {
    let error = refusal("exec openssl s_server -www -groups P-384", "full");
    assert!(error.contains("HandshakeFailure"), "{error}");
    let error = refusal("exec openssl s_server -www -tls1_2", "full");
    assert!(error.contains("alert"), "{error}");
}

/// It answers, but not with what the backend sent.
#[test]
fn a_server_that_changes_the_answer_is_refused() {
    let error = refusal("exec openssl s_server -www", "full");
    assert!(error.contains("answer"), "{error}");
}

#[test]
fn a_stopped_run_goes_on_with_the_rounds_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let sealane = sealane();
    let arguments = |rounds: &str| {
        let mut command = lab();
        command.args(["servers", "--quick", "--only", "sealane", "--cases", "idle"]);
        command.args(["--rounds", rounds]);
        command.arg("--sealane").arg(&sealane).arg("--json").arg(&json);
        command
    };
    // So many that it does not end before it is stopped.
    let mut running = arguments("100").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let rounds = json.with_extension("rounds");
    while fs::read_to_string(&rounds).map_or(0, |text| text.lines().count()) < 1 {
        assert!(running.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130));
    let stopped: Run = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let kept = stopped.servers.unwrap().servers[0].cases["idle"].figure.clone();
    assert!(!stopped.complete && !kept.is_empty());
    let other = arguments("7").arg("--resume").output().unwrap();
    assert!(text(&other).contains("was begun with other arguments"), "{}", text(&other));
}

/// Why a server by this command line, with port and certificate added, has no figure.
fn refusal(line: &str, case: &str) -> String {
    let line = format!("bad={line} -cert {{cert}} -key {{cert}} -accept 127.0.0.1:{{port}}");
    refused(&line, case)
}

/// Why the server `bad` has no figure, be it for one case of several.
fn refused(line: &str, cases: &str) -> String {
    let arguments = ["--only", "bad", "--cases", cases, "--peer", line];
    let (output, run) = quick(Path::new("/nonexistent"), &arguments);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let servers = run.unwrap().servers.unwrap();
    assert!(servers.servers[0].cases.is_empty(), "{servers:?}");
    servers.servers[0].failure.clone().unwrap()
}

/// One tiny round, and the document that it writes.
fn quick(sealane: &Path, arguments: &[&str]) -> (Output, Option<Run>) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let mut command = lab();
    command.args(["servers", "--quick", "--sealane"]).arg(sealane).arg("--json").arg(&json);
    let output = command.args(arguments).output().unwrap();
    let run = fs::read(&json).ok().map(|bytes| serde_json::from_slice(&bytes).unwrap());
    (output, run)
}

fn lab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The terminator's binary beside the lab's. The lab does not link it, so that it is built here,
/// with the features that the workspace has in common: of its own it would build all again.
pub(crate) fn sealane() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--workspace", "--bin", "sealane"])
        // Of `./check`, for the times of tests: build scripts that see it would run again.
        .env_remove("RUSTC_BOOTSTRAP")
        .status()
        .unwrap();
    assert!(built.success(), "sealane does not build");
    Path::new(env!("CARGO_BIN_EXE_sealane-lab")).with_file_name("sealane")
}
