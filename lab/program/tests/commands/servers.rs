//! The command `servers` as people run it, on real servers; their figures are not looked at.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use sealane_lab_model::document::{Run, Server, Servers};

#[test]
fn a_quick_round_passes_every_check_of_every_server() {
    let (output, run) = quick(&sealane(), &[]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let servers = run.unwrap().servers.unwrap();
    let sealane = servers.servers.iter().find(|server| server.name == "sealane").unwrap();
    for case in &servers.cases {
        let result = &sealane.cases[&case.name];
        // Its schedule is not kept where others keep the processor: the figure is none then.
        let is_open = case.load.as_deref() == Some("half");
        let refused = result.refused.is_some() && is_open;
        let figure = result.figure.first().is_some_and(|figure| figure.is_finite());
        assert!(figure || refused, "{}: {text}", case.name);
    }
    let whole = |server: &&Server| server.failure.is_none();
    for server in servers.servers.iter().filter(whole) {
        let has_cases = server.cases.values().all(|result| {
            // A figure, or the reason why there is none.
            let has_reason = result.not_offered.is_some() || result.refused.is_some();
            (result.figure.len() == 1) != has_reason
        });
        assert!(has_cases && !server.cases.is_empty(), "{server:?}");
    }
    for case in ["full", "full-rsa", "resumed", "keep-alive-3k", "down", "up"] {
        let floor = &servers.floor[case];
        assert!(floor.primitives[0] > 0.0 && floor.tcp[0] > 0.0, "{case}: {floor:?}");
        assert!(floor.proxy.starts_with("plain-"), "{floor:?}");
    }
    assert!(text.contains("| sealane |"), "{text}");
    every_figure_states_its_load(&servers);
    half_is_half_of_what_the_same_server_did(sealane);
    what_transfers_are_tuned_by_is_told(&servers);
}

fn every_figure_states_its_load(servers: &Servers) {
    for case in &servers.cases {
        let load = case.load.as_deref();
        let has_none = ["idle"].contains(&&*case.name) || case.name.starts_with("names-");
        assert_eq!(load.is_none(), has_none, "{case:?}");
        let told = load.is_none_or(|load| case.title.ends_with(&format!(", {load} load")));
        assert!(told, "{case:?}");
    }
    let loads = |name: &str| {
        let is = |load: &str| servers.cases.iter().any(|case| case.name == format!("{name}{load}"));
        [is(""), is("-half"), is("-half-p99")]
    };
    for name in ["full", "full-rsa", "full-mlkem", "full-tls12", "resumed"] {
        assert_eq!(loads(name), [true; 3], "{name}");
    }
    assert_eq!((loads("keep-alive-3k"), loads("keep-alive-100k")), ([true; 3], [true; 3]));
    assert_eq!((loads("down"), loads("idle")), ([true, false, false], [true, false, false]));
}

/// By the schedule, whatever became of it: in the closed loop of the same round.
fn half_is_half_of_what_the_same_server_did(server: &Server) {
    for name in ["full", "resumed", "keep-alive-3k", "keep-alive-100k"] {
        let (full, half) = (&server.cases[name], &server.cases[&format!("{name}-half")]);
        let due = format!("{:.0} per second were due", full.rate[0] * 0.5);
        assert_eq!(half.note.as_ref(), Some(&due), "{name}");
        let (intended, service) = (half.latency.as_ref().unwrap(), half.service.as_ref().unwrap());
        assert_eq!(intended.count, service.count, "{name}");
        assert!(full.service.is_none() && half.server_busy[0] > 0.0, "{name}: {half:?}");
    }
}

fn what_transfers_are_tuned_by_is_told(servers: &Servers) {
    let all = || servers.servers.iter().chain(&servers.plain);
    let settings = |name: &str| &all().find(|server| server.name == name).unwrap().settings;
    let has = |name: &str, setting: &str| settings(name).iter().any(|told| told == setting);
    assert!(has("haproxy", "tune.bufsize 16384") && has("haproxy-64k", "tune.bufsize 65536"));
    assert!(has("plain-haproxy-64k", "tune.bufsize 65536"));
    assert!(has("plain-haproxy-splice", "option splice-response"));
    assert!(has("nginx-http-64k", "proxy_buffers 16 65536"));
    let cases = |name: &str| all().find(|server| server.name == name).unwrap().cases.len();
    // 100 KB at two loads, one of them with a latency, and bulk each way.
    assert_eq!((cases("haproxy-64k"), cases("plain-haproxy-splice")), (5, 5));
}

/// The same for every server, and no share of anything; the closed loop, if it is asked for.
#[test]
#[ignore = "half a minute and more, with what a shorter one has too"]
fn a_rate_takes_the_place_of_a_share() {
    let arguments = ["--only", "sealane", "--cases", "resumed", "--rate", "20,40"];
    let (output, run) = quick(&sealane(), &[&arguments[..], &["--load", "half"]].concat());
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let servers = run.unwrap().servers.unwrap();
    let names: Vec<&str> = servers.cases.iter().map(|case| case.name.as_str()).collect();
    let expected = ["resumed-20/s", "resumed-20/s-p99", "resumed-40/s", "resumed-40/s-p99"];
    assert_eq!(names, expected);
    let twenty = &servers.servers[0].cases["resumed-20/s"];
    assert_eq!(twenty.note.as_deref(), Some("20 per second were due"));
    // In the 200 ms of a quick run: at 0, 50, 100 and 150.
    assert_eq!(twenty.latency.as_ref().unwrap().count, 4, "{text}");
}

/// What lab/SERVERS.md has, from a document alone.
#[test]
#[ignore = "half a minute and more, with what a shorter one has too"]
fn a_document_is_printed_with_its_loads_and_settings() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let mut command = lab();
    command.args(["servers", "--quick", "--only", "sealane,haproxy,haproxy-64k"]);
    command.args(["--cases", "full,keep-alive-3k,down,idle", "--json"]).arg(&json);
    let output = command.arg("--sealane").arg(sealane()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let output = lab().args(["servers", "--from"]).arg(&json).output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("| server |")).collect();
    let expected = [
        "| server | full handshake, full load, µs CPU |",
        "| server | full handshake, half load, µs CPU |",
        "| server | request, 3 KB, full load, µs CPU | bulk down, full load, s CPU/GB | \
         idle connection, KiB |",
        "| server | request, 3 KB, half load, µs CPU |",
    ];
    assert_eq!(heads, expected, "{text}");
    for row in ["sealane", "haproxy-64k", "plain-haproxy", "plain-haproxy-splice", "floor"] {
        assert!(text.contains(&format!("\n| {row} | ")), "{row}: {text}");
    }
    for ratio in ["sealane / best peer", "sealane / plain-haproxy"] {
        // An open loop may be refused where others keep the processor.
        assert!(text.matches(&format!("\n| {ratio} | ")).count() >= 2, "{ratio}: {text}");
    }
    assert!(text.contains("\n- haproxy-64k: HAProxy version "), "{text}");
    assert!(text.contains("; tune.bufsize 65536\n"), "{text}");
}

/// What is committed to be read is what this program says of the committed document,
/// docs/performance.md has its summary, and README the first columns of rows of that.
#[test]
fn the_committed_tables_are_those_of_the_committed_document() {
    let home = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let output =
        lab().args(["servers", "--from", "results/servers.json.gz"]).current_dir(home).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let says = String::from_utf8(output.stdout).unwrap();
    assert!(
        says == fs::read_to_string(home.join("SERVERS.md")).unwrap(),
        "lab/SERVERS.md is old; make it with: \
         sealane-lab servers --from lab/results/servers.json.gz > lab/SERVERS.md"
    );
    let page = fs::read_to_string(home.join("../docs/performance.md")).unwrap();
    let before_all = says.lines().take_while(|line| !line.starts_with("| server |"));
    let summary: Vec<&str> = before_all.filter(|line| line.starts_with('|')).collect();
    assert!(summary.len() > 10, "{says}");
    for row in &summary {
        assert!(page.contains(row), "docs/performance.md has not, as SERVERS.md does: {row}");
    }
    // A page breaks its lines elsewhere.
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let told: Vec<&str> = says.lines().filter(|line| line.starts_with("With TLS, ")).collect();
    assert_eq!(page.matches("\nWith TLS, ").count(), told.len(), "what no document decides");
    for told in told {
        assert!(flat(&page).contains(told), "docs/performance.md does not say: {told}");
    }
    let readme = fs::read_to_string(home.join("../README.md")).unwrap();
    let machine = says.lines().find_map(|line| line.strip_prefix("Machine: ")).unwrap();
    let (machine, _) = machine.split_once(" Median ").unwrap();
    for (name, text) in [("docs/performance.md", &page), ("README.md", &readme)] {
        assert!(flat(text).contains(machine), "{name} does not say: {machine}");
    }
    let table = readme
        .split_once("| the server's own | Sealane | best peer by its median |\n|---|---|---|\n");
    let rows = table.unwrap().1.lines().take_while(|line| line.starts_with('|'));
    let rows: Vec<&str> = rows.collect();
    assert!(rows.len() > 5, "{rows:?}");
    for row in rows {
        let stands = summary.iter().any(|whole| whole.starts_with(row));
        assert!(stands, "SERVERS.md has not, as README does: {row}");
    }
}

#[test]
fn storm_has_users_a_stream_and_a_recovery() {
    let arguments = ["--only", "sealane", "--cases", "storm-ecdsa"];
    let storm = ["--storm-rate", "2", "--storm-seconds", "1", "--storm-prefixes", "7"];
    let (output, run) = quick(&sealane(), &[&arguments[..], &storm].concat());
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let run = run.unwrap();
    no_server_is_the_best_of_a_storm(&run);
    let servers = run.servers.unwrap();
    let sealane = &servers.servers[0].cases;
    let figure = |name: &str| sealane[&format!("storm-ecdsa-{name}")].figure[0];
    assert!(figure("capacity") > 0.0 && figure("answered") > 0.0, "{text}");
    assert_eq!(figure("users") + figure("failed"), 15.0, "{text}");
    assert!(figure("calm-p99") > 0.0 && figure("stall") > 0.0, "{text}");
    assert!(sealane["storm-ecdsa-answered"].latency.as_ref().unwrap().count > 0, "{text}");
    assert!(servers.placement.starts_with("servers on processors [0]"), "{}", servers.placement);
}

/// In a storm the least figure can be the worst.
fn no_server_is_the_best_of_a_storm(run: &Run) {
    let folder = tempfile::tempdir().unwrap();
    let [json, page] = ["run.json", "page.html"].map(|name| folder.path().join(name));
    fs::write(&json, serde_json::to_string(run).unwrap()).unwrap();
    let output = lab().arg("report").arg(&json).arg("-o").arg(&page).output().unwrap();
    let drawn = fs::read_to_string(page).unwrap();
    assert!(drawn.contains("ECDSA storm: capacity"), "{}", text(&output));
    assert!(!(text(&output) + &drawn).contains("sealane takes"), "{}", text(&output));
    let output = lab().args(["servers", "--from"]).arg(&json).output().unwrap();
    assert!(text(&output).contains("ECDSA storm: capacity"), "{}", text(&output));
}

#[test]
fn storm_next_to_another_case_is_refused() {
    let (output, _) = quick(&sealane(), &["--cases", "storm,full"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("a storm has a processor for the server"), "{}", text(&output));
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
    let haproxy = ["--haproxy", "/usr/sbin/haproxy", "--peer", peer];
    let (output, run) = quick(&sealane(), &[&arguments[..], &haproxy].concat());
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

/// A server that answers, but not with what the backend sent.
#[test]
fn a_server_that_changes_the_answer_is_refused() {
    let error = refusal("exec openssl s_server -www", "full");
    assert!(error.contains("answer"), "{error}");
}

#[test]
#[ignore = "half a minute and more, with what a shorter one has too"]
fn a_stopped_run_goes_on_with_the_rounds_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let sealane = sealane();
    let mut first = lab();
    // So many rounds that it does not end before it is stopped.
    first.args(["servers", "--quick", "--only", "sealane", "--cases", "idle", "--rounds", "100"]);
    first.arg("--sealane").arg(&sealane).arg("--json").arg(&json);
    let (kept, run) = stopped(&mut first, &json, 1);
    let servers = run.servers.unwrap();
    assert!(!run.complete && !servers.servers[0].cases["idle"].figure.is_empty());
    let mut next = lab();
    next.args(["servers", "--resume"]).arg(&json);
    let (more, run_on) = stopped(&mut next, &json, kept.len() + 1);
    assert_eq!(more[..kept.len()], kept);
    assert_eq!(run_on.command, run.command);
}

/// The rounds and the document of `command`, stopped when it has kept so many rounds.
fn stopped(command: &mut Command, json: &Path, rounds: usize) -> (Vec<String>, Run) {
    let beside = json.with_extension("rounds");
    let kept = || -> Vec<String> {
        let text = fs::read_to_string(&beside).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while kept().len() < rounds {
        assert!(running.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130));
    (kept(), serde_json::from_slice(&fs::read(json).unwrap()).unwrap())
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

/// The terminator's binary beside the lab's. It is of another workspace, so that it is built here,
/// with the features that its workspace has in common: of its own it would build all again.
pub(crate) fn sealane() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--workspace", "--bin", "sealane"]);
    build.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")]);
    // Build scripts that see the test's environment run again, and with ring's all that needs ring.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_a_test(&name.to_string_lossy())) {
        build.env_remove(name);
    }
    assert!(build.status().unwrap().success(), "sealane does not build");
    Path::new(env!("CARGO_BIN_EXE_sealane-lab")).with_file_name("sealane")
}

/// Whether Cargo, or `./check` for the times of tests, sets a variable for tests alone.
fn is_of_a_test(name: &str) -> bool {
    name == "RUSTC_BOOTSTRAP"
        || name.starts_with("CARGO_PKG_")
        || name.starts_with("CARGO_MANIFEST_")
}
