//! The real binary says everything that is wrong with a configuration, and how it ends.

use std::path::Path;
use std::process::{Command, Output};

/// A dozen mistakes of the kinds that people make.
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
fn a_dozen_mistakes_are_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("bad.toml"), BAD).unwrap();
    let serve = sealane(directory.path(), &["serve", "--config", "bad.toml"]);
    assert_eq!(serve.status.code(), Some(3));
    for line in SAID.lines() {
        assert!(text(&serve.stderr).contains(line), "{line}\nis not in\n{}", text(&serve.stderr));
    }
    let check = sealane(directory.path(), &["check", "--config", "bad.toml"]);
    assert_eq!(check.status.code(), Some(3));
    let told: String = text(&check.stdout)
        .lines()
        .filter_map(|line| line.strip_prefix("  error: "))
        .filter(|line| line.starts_with("bad.toml"))
        .flat_map(|line| [line, "\n"])
        .collect();
    assert_eq!(told, SAID, "{told}");
}

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
    let config = "[[listener]]\naddress = \"127.0.0.1:1\"\ncertificates = [\"a.pem\"]\n\
                  backends = [\"localhost:1\"]\n";
    std::fs::write(directory.path().join("good.toml"), config).unwrap();
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
        (&["serve"], 2, "--listen <ADDR:PORT>"),
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
