//! Every stack that was built on this machine in every scenario: it does what is asked, or says
//! that it cannot. By hand, because a machine has few of them: `stacks build all` first.
//! `STACKS=a,b` in the environment picks some.

use std::{collections::BTreeMap, path::Path, process::Command};

use sealane_lab_harness::{
    credentials::Credentials,
    journal,
    trial::{Fixed, Reply, Task},
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
                Reply::Fixed { operations: 6, .. } => done += 1,
                Reply::Failed { unsupported: true, reason } => {
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

/// What the Asio write-up ran, and what it put in its place: the old library's locks are its own,
/// as many as were counted of it, and most of them where the write-up's profile says.
#[test]
#[ignore = "what it needs takes an hour to build, or sources that no package carries"]
fn every_libssl_carries_bytes_under_asio_and_the_old_one_takes_its_locks() {
    let others = |name: &String| name.starts_with("rustls");
    let mut names = stacks::known();
    names.retain(|name| !others(name) && !name.starts_with("sealane"));
    names.push("openssl@1.0.2".to_owned());
    for name in names {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("run.json");
        let output = Command::new(env!("CARGO_BIN_EXE_sealane-lab"))
            .args(["bulk", "--runtime=asio", "--tls=1.2", "--group=p256"])
            .args(["--threads=2", "--connections=4", "--messages=4", "--size=1M", "--rounds=1"])
            .args(["--strategy=shared", "--stack", &name, "--json"])
            .arg(&json)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        if told.contains("openssl@1.0.2 is missing") {
            println!("skipped: sealane-lab stacks build openssl@1.0.2 was not run here");
            continue;
        }
        assert!(output.status.success(), "{name}: {told}");
        let run = journal::read(&json).unwrap();
        let round = &run.bulk[0].rounds[0];
        println!("{name}: {:?}", round.locks);
        if name == "openssl@1.0.2" {
            let per_mib = round.lock_calls as f64 / 16.0;
            assert!((1_300.0..1_700.0).contains(&per_mib), "{round:?}");
            assert!(round.locks["err"] * 10 > round.lock_calls * 8, "{round:?}");
        } else {
            assert_eq!(round.lock_calls, 0, "{name}");
        }
    }
}

fn trial(stack: &str, scenario: &Scenario, credentials: &Path) -> Reply {
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
