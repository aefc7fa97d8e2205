//! The real binary says everything that is wrong with a configuration, and how it ends.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Dozens of mistakes of the kinds that people make.
const BAD: &str = include_str!("config_errors/bad.toml");

/// What is said about each, word for word: people work from it.
const SAID: &str = include_str!("config_errors/said.txt");

fn sealane(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealane"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn dozens_of_mistakes_are_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("bad.toml"), BAD).unwrap();
    let serve = sealane(directory.path(), &["serve", "--config", "bad.toml"]);
    assert_eq!(serve.status.code(), Some(3));
    for line in SAID.lines() {
        assert!(text(&serve.stderr).contains(line), "{line}\nis not in\n{}", text(&serve.stderr));
    }
    let check = sealane(directory.path(), &["check", "--config", "bad.toml"]);
    assert_eq!(check.status.code(), Some(3));
    let told: String = checked(directory.path(), "bad.toml", "errors")
        .into_iter()
        .filter(|message| message.starts_with("bad.toml"))
        .map(|message| message + "\n")
        .collect();
    assert_eq!(told, SAID, "{told}");
}

/// What a check says of listeners under `kind`.
fn checked(directory: &Path, file: &str, kind: &str) -> Vec<String> {
    let check = sealane(directory, &["check", "--json", "--config", file]);
    let report: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    let messages = report[kind].as_array().unwrap().iter().map(|each| &each["message"]);
    let messages = messages.map(|message| message.as_str().unwrap().to_owned());
    // Who runs the tests may not lock memory; that is none of the listeners' business.
    messages.filter(|message| !message.starts_with("memory with keys")).collect()
}

#[test]
fn check_and_serve_report_faults_in_the_same_words() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("bad.toml"), LACKING).unwrap();
    let errors = checked(at, "bad.toml", "errors");
    for material in MISSING {
        assert!(errors.iter().any(|error| error.contains(material)), "{material}: {errors:?}");
    }
    let said = said_until_ready(at, "bad.toml");
    for error in &errors {
        let is_said = said.iter().any(|line| line.contains(&format!("{error}; meanwhile ")));
        assert!(is_said, "{error} in {said:#?}");
    }

    let expired = rcgen::date_time_ymd(2020, 1, 1);
    let mut params = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (expired, expired);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
    std::fs::write(at.join("a.pem"), pem).unwrap();
    std::fs::set_permissions(at.join("a.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(at.join("odd.toml"), ODD).unwrap();
    let warnings = checked(at, "odd.toml", "warnings");
    assert_eq!(warnings.len(), 6, "{warnings:?}");
    let said = said_until_ready(at, "odd.toml");
    let warned = said.iter().filter_map(|line| line.split_once(" WARN  "));
    let said = warned.filter_map(|(_, line)| Some(line.split_once(": ")?.1));
    assert_eq!(said.collect::<Vec<_>>(), warnings);
}

/// The lines that a start prints before it is ready.
fn said_until_ready(folder: &Path, file: &str) -> Vec<String> {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_sealane"))
        .args(["serve", "--config", file])
        .current_dir(folder)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(serve.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = said.take_while(|line| !line.ends_with("serve: ready")).collect();
    serve.kill().unwrap();
    serve.wait().unwrap();
    said
}

/// What is said of each material of a listener.
const MISSING: [&str; 6] = [
    "a.pem: ",
    "acme_responder: bad.toml: is no folder; name one",
    "backend_tls: ",
    "clients: ",
    "default certificate",
    "store",
];

/// Each material of a listener, and none of them there.
const LACKING: &str = r#"
store_key.file = "store.key"
[[listener]]
name = "files"
address = "127.0.0.1:0"
certificates = ["a.pem"]
default_certificate = "b.test"
backends = ["tls://nowhere.invalid:1"]
backend_tls.roots = ["roots.pem"]
backend_tls.client_certificate = "client.pem"
clients = { certificates = "required", roots = ["clients.pem"], crls = ["crls"] }
[[listener]]
name = "store"
address = "127.0.0.2:0"
certificates = ["store:names"]
backends = ["nowhere.invalid:2"]
[[listener]]
name = "redirect"
address = "127.0.0.3:0"
plain = "redirect"
acme_responder = "bad.toml"
"#;

/// What can be served, and is probably not meant.
const ODD: &str = r#"
limits.connections = 10
[[listener]]
name = "odd"
address = "127.0.0.1:0"
certificates = ["a.pem"]
backends = ["tls://unix:/absent.sock", "tls://nowhere.invalid:1"]
backend_tls.server_name = "a.test"
backend_tls.insecure_accept_any_certificate = true
[[listener]]
name = "redirect"
address = "127.0.0.2:0"
plain = "redirect"
acme_responder = "challenges"
"#;

#[test]
fn check_speaks_json() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("bad.toml"), BAD).unwrap();
    let check = sealane(directory.path(), &["check", "--json", "--config", "bad.toml"]);
    assert_eq!(check.status.code(), Some(3));
    let report: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    let first = &report["errors"][0];
    assert_eq!(first["file"], "bad.toml");
    assert_eq!((first["line"].as_u64(), first["column"].as_u64()), (Some(1), Some(9)));
    assert_eq!(first["field"], "lanes");
    assert_eq!(first["remedy"], "write digits only, without quotes");
    assert_eq!(first["message"], SAID.lines().next().unwrap());
}

#[test]
fn a_configuration_in_order_ends_with_zero() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    std::fs::write(directory.path().join("a.pem"), pem).unwrap();
    // Relative paths are those of the current folder where the file is named without one.
    let config = "[access_log]\npath = \"log.jsonl\"\n\
                  [[listener]]\naddress = \"127.0.0.1:1\"\ncertificates = [\"a.pem\"]\n\
                  backends = [\"localhost:1\"]\n";
    std::fs::write(directory.path().join("good.toml"), config).unwrap();
    let absent = config.replace("a.pem", "absent.pem");
    std::fs::write(directory.path().join("absent.toml"), absent).unwrap();
    for (files, code) in [(&["--no-files", "--strict"][..], 0), (&[], 3)] {
        let arguments = [&["check", "--config", "absent.toml"], files].concat();
        assert_eq!(sealane(directory.path(), &arguments).status.code(), Some(code));
    }
    let warned = config.replace("localhost:1", "unix:/absent.sock");
    std::fs::write(directory.path().join("warned.toml"), warned).unwrap();
    for (strict, code) in [(&["--strict"][..], 6), (&[], 0)] {
        let arguments = [&["check", "--config", "warned.toml"], strict].concat();
        assert_eq!(sealane(directory.path(), &arguments).status.code(), Some(code));
    }
    let check = sealane(directory.path(), &["check", "--config", "good.toml"]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stdout));
    assert!(text(&check.stdout).starts_with("good.toml: in order"), "{}", text(&check.stdout));
    let json = sealane(directory.path(), &["check", "--json", "--config", "good.toml"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["errors"], serde_json::json!([]));
    assert_eq!(report["listeners"][0]["key_types"][0]["key_type"], "ECDSA P-256");
}

#[test]
fn other_commands_and_their_codes() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = sealane(directory.path(), arguments);
        let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
        (output.status.code(), all)
    };
    for (arguments, code, expected) in [
        (&["--version"][..], 0, "sealane "),
        (&["serve", "--help"], 0, "Exit codes:"),
        (&["man"], 0, ".TH sealane 1"),
        (&["man", "serve"], 0, ".TH sealane-serve 1"),
        (&["man", "sevre"], 2, "no command \"sevre\""),
        (&["completions", "bash"], 0, "complete -F _sealane"),
        (&["completions", "csh"], 2, "possible values: bash"),
        (&["serve"], 2, "--listen <ADDR:PORT|unix:PATH>"),
        (&["serve", "--config", "a", "--listen", "127.0.0.1:1"], 2, "cannot be used with"),
        (&["serve", "--config", "absent.toml"], 3, "absent.toml: cannot be read"),
        (&["check", "--config", "absent.toml"], 3, "absent.toml: cannot be read"),
        (&[], 2, "Usage: sealane <COMMAND>"),
    ] {
        let (ended, all) = run(arguments);
        assert_eq!(ended, Some(code), "{arguments:?}: {all}");
        assert!(all.contains(expected), "{arguments:?}: {all}");
    }
}
