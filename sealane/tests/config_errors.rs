//! The real binary says everything that is wrong with a configuration, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::{Command, Output};

/// A dozen mistakes of the kinds that people make.
const BAD: &str = r#"lanes = "four"
pinlanes = true
crypto = "openssl"
[admin]
address = "0.0.0.0:9180"
[limits]
connections = 0
handshake_timeout = 10
hello_bytes = "16kb"
idle_timeout "5m"
[[listener]]
name = "web"
address = ":443"
certificates = "certs"
versions = ["1.1", "1.3"]
backends = ["http://127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1:8080"]
[[listener]]
name = "web"
address = "127.0.0.1:9443"
unknown_names = "refuse"
default_certificate = "www.example.com"
certificates = [{ chain = "www.crt", kye = "www.key" }]
backend = ["127.0.0.1:8080"]
balance = "roundrobin"
name = "again"
"#;

/// What is said about each, word for word: people work from it.
const SAID: &str = r#"bad.toml:1:9: lanes: expected a whole number, found a string; write digits only, without quotes
bad.toml:2:1: pinlanes: is not a known key; did you mean "pin_lanes"?
bad.toml:3:10: crypto: "openssl" is not a choice; choose "auto" or "aws-lc" or "graviola"
bad.toml:5:11: admin.address: 0.0.0.0:9180 is reachable from the network, and whoever reaches it sees everything; use 127.0.0.1, [::1] or unix:PATH, or say allow_remote = true
bad.toml:7:15: limits.connections: 0 is out of range; choose 1 to 10000000
bad.toml:8:21: limits.handshake_timeout: expected a string, found a number; write it in quotes with a unit, such as "10s"
bad.toml:9:15: limits.hello_bytes: "16kb" is not a size; write a whole number and B, KiB, MiB or GiB, such as "16KiB"
bad.toml:10:14: key with no value, expected `=`; write KEY = VALUE, text in "quotes", lists in [brackets], tables as [NAME]
bad.toml:13:11: listener[0].address: ":443" is not an address and port; write "0.0.0.0:443" for every IPv4 address, "[::]:443" for IPv6
bad.toml:14:16: listener[0].certificates: expected a list, found a string; write it in brackets: [...]
bad.toml:15:13: listener[0].versions[0]: "1.1" is not a choice; choose "1.2" or "1.3"
bad.toml:16:13: listener[0].backends[0]: "http://127.0.0.1:8080" is a URL; write HOST:PORT: Sealane speaks plain TCP to a backend
bad.toml:16:56: listener[0].backends[2]: "127.0.0.1:8080" is written twice; remove one of the two
bad.toml:18:8: listener[1].name: line 12 has a listener of the name "web" already; choose another name
bad.toml:21:23: listener[1].default_certificate: a default certificate is never served where unknown names are refused; remove it, or say unknown_names = "default"
bad.toml:22:38: listener[1].certificates[0].kye: is not a known key; did you mean "key"?
bad.toml:23:1: listener[1].backend: is not a known key; did you mean "backends"?
bad.toml:24:11: listener[1].balance: "roundrobin" is not a choice; choose "least-connections" or "round-robin"
bad.toml:25:1: duplicate key; keep one of the two
"#;

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
