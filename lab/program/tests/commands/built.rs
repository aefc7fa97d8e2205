//! Every stack that was built on this machine in every scenario: it does what is asked, or says
//! that it cannot. By hand, because a machine has few of them: `stacks build all` first.
//! `STACKS=a,b` in the environment picks some.

use std::{collections::BTreeMap, path::Path, process::Command};

use sealane_lab_harness::{
    credentials::Credentials,
    trial::{Fixed, Line, Task},
};
use sealane_lab_model::scenario::{Cipher, Group, Key, Kind, Scenario, Share, Version};
use sealane_lab_stacks::{handshake::Handshakes, stacks};

#[test]
#[ignore = "what it needs takes an hour to build"]
fn every_c_stack_does_what_each_scenario_asks_or_says_that_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    let mut credentials = BTreeMap::new();
    for key in [Key::Rsa2048, Key::P256, Key::P384, Key::Ed25519] {
        let path = folder.path().join(format!("{key:?}"));
        Credentials::make(&path, key).unwrap();
        credentials.insert(key, path);
    }
    let only = std::env::var("STACKS").unwrap_or_default();
    let mut names = stacks::known();
    names.retain(|name| only.is_empty() || only.split(',').any(|wanted| wanted == name));
    let linked =
        |name: &str| !name.contains('@') && (name.starts_with("rustls-") || name == "sealane");
    for name in names.iter().filter(|name| !linked(name)) {
        let (mut done, mut unsupported) = (0, BTreeMap::<String, u32>::new());
        for scenario in scenarios() {
            match trial(name, &scenario, &credentials[&scenario.key]) {
                Line::Fixed { operations: 6, .. } => done += 1,
                Line::Failed { unsupported: true, reason } => {
                    *unsupported.entry(reason).or_default() += 1;
                }
                other => wrong.push(format!("{name} {scenario:?}: {other:?}")),
            }
        }
        println!("{name}: {done} scenarios done");
        unsupported.iter().for_each(|(reason, count)| println!("  {count} not: {reason}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn trial(stack: &str, scenario: &Scenario, credentials: &Path) -> Line {
    let task = Task::new(&Handshakes {
        stack: stack.to_owned(),
        scenario: scenario.clone(),
        credentials: credentials.to_owned(),
        threads: 2,
        pin: Vec::new(),
        window_ms: 0,
        fixed: Some(Fixed { warm_up: 1, count: 3 }),
        bulk: false,
        fault: None,
        time_holds: false,
    })
    .unwrap();
    let task = serde_json::to_string(&task).unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_sealane-lab")).args(["trial", &task]).output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout);
    let last = lines.lines().last().unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{stack} {scenario:?}: {last} {errors}"))
}

/// Each kind, version, key, cipher and group, though not all with all.
fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for version in [Version::Tls12, Version::Tls13] {
        let plain = Scenario { version, ..Scenario::default() };
        for key in [Key::Rsa2048, Key::P256, Key::P384, Key::Ed25519] {
            for kind in [Kind::Full, Kind::SessionId, Kind::Ticket] {
                for share in [Share::Context, Share::Session, Share::Thread] {
                    scenarios.push(Scenario { key, kind, share, ..plain.clone() });
                }
            }
            scenarios.push(Scenario { key, client_certificate: true, ..plain.clone() });
        }
        for cipher in [Cipher::Aes256Gcm, Cipher::Chacha20Poly1305] {
            for group in [Group::X25519, Group::P256, Group::P384, Group::X25519MlKem768] {
                scenarios.push(Scenario { cipher, group, ..plain.clone() });
            }
        }
        for group in [Group::P256, Group::P384, Group::X25519MlKem768] {
            scenarios.push(Scenario { group, ..plain.clone() });
            scenarios.push(Scenario { group, kind: Kind::Ticket, ..plain.clone() });
        }
        for tickets in [0, 1, 4] {
            scenarios.push(Scenario { tickets, ..plain.clone() });
        }
    }
    scenarios
}
