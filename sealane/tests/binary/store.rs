//! Certificates in a store, changed by the command while Sealane serves from it.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::certificates::KeyKind;
use crate::harness::client::Connector;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane};
use crate::harness::site::{Site, error_text};
use crate::harness::tools;
use crate::harness::wait_for;

#[test]
fn what_is_imported_or_removed_is_served_from_the_next_hello_on() {
    let site = Site::start();
    assert!(site.served("new.test").unwrap_err().to_string().contains("UnrecognisedName"));
    let first = site.import(&["new.test", "*.new.test"], &[]);
    assert_eq!(site.served("new.test").unwrap(), first);
    assert_eq!(site.served("a.new.test").unwrap(), first);
    let second = site.import(&["new.test"], &[]);
    assert_eq!(site.served("new.test").unwrap(), second);
    assert_eq!(site.served("a.new.test").unwrap(), first);
    site.run(&["remove", "new.test"]);
    assert!(site.served("new.test").is_err());
    assert_eq!(site.served("a.new.test").unwrap(), first);
    site.served("kept.test").unwrap();
    // All of that without a reload.
    let metrics = site.sealane().metrics();
    assert_eq!(metrics.sum("sealane_generation", &[]), 1);
    assert_eq!(metrics.sum("sealane_store_certificates", &[("listener", "site")]), 2);
    assert_eq!(metrics.sum("sealane_store_names", &[("listener", "site")]), 2);
    assert!(metrics.sum("sealane_keys_opened_total", &[]) >= 3);
    assert_eq!(metrics.sum("sealane_store_failures_total", &[]), 0);
    let expiries = metrics.0.lines().filter(|line| {
        line.starts_with("sealane_certificate_not_after_seconds{") && line.contains(".test")
    });
    assert_eq!(expiries.count(), 2);
}

/// An import keeps the certificate that ends last. The list shows an expired one, and `check` warns
/// of it.
#[test]
fn dates_decide_what_an_import_keeps() {
    let site = Site::start();
    // The certificate begins 1,000 hours ago.
    let write = |file: &str, names: &[&str], hours: u64| {
        let hour = |count| Duration::from_secs(3_600 * count);
        let begin = SystemTime::now() - hour(1_000);
        let text = site.authority.leaf_with(KeyKind::P256, names, |params| {
            params.not_before = begin.into();
            params.not_after = (begin + hour(hours)).into();
        });
        let path = site.path().join(file);
        std::fs::write(&path, &text).unwrap();
        (path, CertificateDer::from_pem_slice(text.as_bytes()).unwrap())
    };
    let (long, kept) = write("a.pem", &["one.test"], 3_000);
    let (short, other) = write("b.pem", &["one.test", "two.test"], 2_000);
    site.run(&["import", short.to_str().unwrap(), long.to_str().unwrap()]);
    assert_eq!(site.served("one.test").unwrap(), kept);
    assert_eq!(site.served("two.test").unwrap(), other);
    let (expired, _) = write("c.pem", &["three.test"], 1_000 - 36);
    site.run(&["import", expired.to_str().unwrap()]);
    assert!(site.run(&["list"]).contains("expired 1 day ago"), "{}", site.run(&["list"]));
    let mut check = Command::new(BINARY);
    check.args(["check", "--config"]).arg(site.path().join("sealane.toml"));
    let checked = tools::output(&mut check);
    assert!(checked.contains("three.test: expired 1 day ago; renew it"), "{checked}");
}

#[test]
fn openssl_gets_it_too() {
    if tools::required("openssl").is_none() {
        return;
    }
    let site = Site::start();
    let ca = site.authority.write(site.path());
    site.import(&["openssl.test"], &[]);
    let mut openssl = Command::new("openssl");
    openssl
        .args(["s_client", "-servername", "openssl.test", "-verify_hostname", "openssl.test"])
        .args(["-verify_return_error", "-CAfile"])
        .arg(ca)
        .args(["-connect", &site.address().to_string()]);
    let printed = tools::output(&mut openssl);
    assert!(printed.contains("Verification: OK"), "{printed}");
}

/// Ends the clients, also if the test has failed.
struct Ends<'o>(&'o AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const CLIENTS: usize = 4;
const REPLACEMENTS: usize = 25;
/// So many handshakes of clients come to each replacement at least, however slow the machine is.
const HANDSHAKES_BETWEEN: usize = 10;

/// Each client verifies chain and signature, so a chain with another certificate's key would fail.
#[test]
fn a_certificate_is_replaced_under_load_without_a_failure_or_a_mixed_pair() {
    let site = Site::start();
    let started = Instant::now();
    let (over, made, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut imported: HashSet<Vec<u8>> = HashSet::new();
    imported.insert(site.served("kept.test").unwrap().to_vec());
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    std::thread::scope(|scope| {
        let ends = Ends(&over);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let version = if index.is_multiple_of(2) { &TLS13 } else { &TLS12 };
                let connector = Connector::new(site.authority.der(), version)
                    .with_name("kept.test")
                    .without_tickets();
                let (over, made, failed, address) = (&over, &made, &failed, site.address());
                scope.spawn(move || {
                    let mut seen: HashSet<Vec<u8>> = HashSet::new();
                    while !over.load(Ordering::Relaxed) {
                        match connector.connect(address) {
                            Ok(client) => {
                                let leaf = &client.tls.peer_certificates().unwrap()[0];
                                seen.insert(leaf.to_vec());
                            }
                            Err(error) => {
                                println!("client {index}: {error:?}");
                                failed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                    seen
                })
            })
            .collect();
        for replacement in 1..=REPLACEMENTS {
            wait_for("handshakes between two replacements", || {
                let enough = made.load(Ordering::Relaxed) >= replacement * HANDSHAKES_BETWEEN;
                enough.then_some(())
            });
            let leaf = site.import(&["kept.test"], &[]);
            // What was committed is what the next hello gets.
            assert_eq!(site.served("kept.test").unwrap(), leaf);
            imported.insert(leaf.to_vec());
        }
        drop(ends);
        seen.extend(clients.into_iter().flat_map(|client| client.join().unwrap()));
    });
    let (made, failed) = (made.into_inner(), failed.into_inner());
    println!(
        "{made} handshakes in {:?} over {REPLACEMENTS} replacements; {failed} failed",
        started.elapsed()
    );
    assert_eq!(failed, 0);
    assert!(seen.is_subset(&imported) && seen.len() > 2, "{} certificates seen", seen.len());
    let metrics = site.sealane().metrics();
    assert_eq!(metrics.sum("sealane_store_failures_total", &[]), 0);
    assert_eq!(metrics.sum("sealane_store_certificates", &[]), 1);
    site.run(&["verify"]);
}

#[test]
fn the_sealing_key_changes_while_sealane_serves() {
    let mut site = Site::start();
    let old = std::fs::read_to_string(site.key_file()).unwrap();
    let new = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n";
    // A key that opens nothing: the keys that were read last open the store.
    std::fs::write(site.key_file(), new).unwrap();
    let sealane = site.sealane.as_mut().unwrap();
    sealane.wait_until_said("1 private keys are sealed with the sealing key");
    let said = sealane.said().join("\n");
    assert!(said.contains("1 private keys are sealed with the sealing key"), "{said}");
    assert!(!said.contains(old.trim()) && !said.contains(new.trim()));
    site.served("kept.test").unwrap();

    std::fs::write(site.key_file(), format!("{new}{old}")).unwrap();
    site.sealane.as_mut().unwrap().wait_until_said("/store: fault resolved");
    let printed = site.run(&["reseal"]);
    assert!(printed.contains("1 private key sealed anew"), "{printed}");
    assert!(site.run(&["reseal"]).contains("0 private keys sealed anew"));
    let generation = site.sealane().metrics().sum("sealane_generation", &[]);
    std::fs::write(site.key_file(), new).unwrap();
    let next = format!("reloaded: generation {}", generation + 1);
    site.sealane.as_mut().unwrap().wait_until_said(&next);
    site.served("kept.test").unwrap();
    let leaf = site.import(&["cold.test"], &[]);
    assert_eq!(site.served("cold.test").unwrap(), leaf);
    assert_eq!(site.sealane().metrics().sum("sealane_store_failures_total", &[]), 0);
}

#[test]
fn check_reports_wrong_key_and_missing_store() {
    let site = Site::new();
    site.settings.write(site.path());
    let config = site.path().join("sealane.toml");
    let check = || {
        let output = tools::run(Command::new(BINARY).arg("check").arg("--config").arg(&config));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), printed + &error_text(&output))
    };
    let (code, printed) = check();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("  store               "), "{printed}");
    let good = std::fs::read_to_string(site.key_file()).unwrap();
    std::fs::write(site.key_file(), "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=").unwrap();
    let (code, printed) = check();
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("private keys are sealed with the sealing key"), "{printed}");
    let verified = tools::run(&mut site.command(&["verify"]));
    assert_eq!(verified.status.code(), Some(3), "{}", error_text(&verified));
    std::fs::write(site.key_file(), good).unwrap();
    std::fs::remove_dir_all(site.path().join("store")).unwrap();
    let (code, printed) = check();
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("no certificate store; make one with"), "{printed}");
}

#[test]
fn the_commands_say_what_is_there_and_change_nothing_on_a_mistake() {
    let site = Site::new();
    site.import(&["b.test", "*.b.test"], &[]);
    let listed = site.run(&["list"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.contains("ECDSA P-256   b.test *.b.test"), "{listed}");
    assert_eq!(site.run(&["list", "--expiring", "30"]), "");
    assert_eq!(site.run(&["list", "--expiring", "365"]).lines().count(), 2);
    let shown = site.run(&["show", "www.B.test"]);
    assert!(shown.contains("names         b.test *.b.test"), "{shown}");
    let json: Value = serde_json::from_str(&site.run(&["show", "b.test", "--json"])).unwrap();
    assert_eq!(json["names"][0], "b.test");
    let json: Value = serde_json::from_str(&site.run(&["verify", "--json"])).unwrap();
    assert_eq!(json["store"]["certificates"], 2);
    assert_eq!(json["problems"].as_array().unwrap().len(), 0);

    // A chain with the key of another beside a good one: neither is imported.
    let (a, b) = (
        site.authority.leaf(KeyKind::P256, &["x.test"]),
        site.authority.leaf(KeyKind::P256, &["y.test"]),
    );
    let key = |text: &str| text[text.find("-----BEGIN PRIVATE").unwrap()..].to_owned();
    let chain = |text: &str| text[..text.find("-----BEGIN PRIVATE").unwrap()].to_owned();
    let folder = site.path().join("mixed");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("bad.pem"), chain(&a) + &key(&b)).unwrap();
    std::fs::write(folder.join("good.pem"), &b).unwrap();
    let refused = tools::run(&mut site.command(&["import", folder.to_str().unwrap()]));
    assert_eq!(refused.status.code(), Some(3));
    assert!(error_text(&refused).contains("nothing was imported"), "{}", error_text(&refused));
    assert!(error_text(&refused).contains("bad.pem: this private key does not belong"));
    assert_eq!(site.run(&["list"]).lines().count(), 2);
    // Two files are a pair.
    std::fs::write(folder.join("y.crt"), chain(&b)).unwrap();
    std::fs::write(folder.join("y.key"), key(&b)).unwrap();
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let printed = site.run(&["import", "--pair", &file("y.crt"), &file("y.key"), "--json"]);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&json["added"], &json["store"]["names"]), (&1.into(), &4.into()));

    let absent = tools::run(&mut site.command(&["remove", "absent.test"]));
    assert_eq!(absent.status.code(), Some(1));
    assert!(error_text(&absent).contains("not in it: absent.test"));
    let printed = site.run(&["remove", "b.test", "*.b.test"]);
    assert_eq!(printed, "2 names no longer served; 1 certificate removed\n");
    assert_eq!(tools::run(&mut site.command(&["show", "b.test"])).status.code(), Some(3));
}

#[test]
fn of_two_certificates_for_one_name_only_the_first_is_ever_there() {
    let site = Site::new();
    let folder = site.path().join("renewed");
    std::fs::create_dir(&folder).unwrap();
    for name in ["1.pem", "2.pem"] {
        let text = site.authority.leaf(KeyKind::P256, &["renewed.test"]);
        std::fs::write(folder.join(name), text).unwrap();
    }
    for expected in ["1 certificate added, 0 replaced, 0", "0 certificates added, 0 replaced, 1"] {
        let printed = site.run(&["import", folder.to_str().unwrap()]);
        assert!(printed.starts_with(expected), "{printed}");
    }
    assert!(site.run(&["show", "renewed.test"]).contains("1.pem"));
}

#[test]
fn a_command_for_the_sealing_keys_runs_once_for_all_listeners() {
    let mut site = Site::new();
    let (runs, key) = (site.path().join("runs"), site.key_file());
    let script = format!("echo >> {}; cat {}", runs.display(), key.display());
    site.settings.more = format!("store_key = {{ command = [\"sh\", \"-c\", {script:?}] }}");
    let store = PathBuf::from(format!("store:{}", site.path().join("store").display()));
    let backend = Backend::echo();
    site.settings.listeners.push(ListenerSettings::new("second", &store, &backend.address));
    site.settings.write(site.path());
    let config = site.path().join("sealane.toml");
    tools::output(Command::new(BINARY).arg("check").arg("--config").arg(config));
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "\n");
}

/// By hand with 100,000 names: `SEALANE_STORE_NAMES=100000 cargo test -p sealane --test binary
/// store -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes with 100,000 names"]
fn many_names_are_ready_at_once_in_little_memory() {
    let names: usize =
        std::env::var("SEALANE_STORE_NAMES").map_or(10_000, |names| names.parse().unwrap());
    let mut site = Site::new();
    let started = Instant::now();
    let mut import = site.command(&["import", "-"]);
    let mut import = import.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stream = import.stdin.take().unwrap();
    for number in 0..names {
        let text = site.authority.leaf(KeyKind::P256, &[&format!("n{number}.test")]);
        stream.write_all(text.as_bytes()).unwrap();
    }
    drop(stream);
    assert!(import.wait().unwrap().success());
    println!("made and imported in {:?}", started.elapsed());
    let file = std::fs::metadata(site.path().join("store/data.mdb")).unwrap().len();

    let started = Instant::now();
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    let ready = started.elapsed();
    let memory = || site.sealane().process.memory_mib();
    let at_start = memory();
    let rounds = names.min(4_000);
    let step = names / rounds;
    let handshake = |name: &str| {
        let connector = site.connector(name);
        let started = Instant::now();
        connector.connect(site.address()).unwrap();
        started.elapsed()
    };
    // In turns, so that whatever else the machine does slows both.
    let (mut cold, mut warm): (Vec<Duration>, Vec<Duration>) = (0..rounds)
        .map(|round| (handshake(&format!("n{}.test", round * step)), handshake("kept.test")))
        .unzip();
    for (what, times) in [("cold", &mut cold), ("warm", &mut warm)] {
        times.sort();
        let at = |share: usize| times[(times.len() - 1) * share / 1000];
        println!("{what}: p50 {:?}, p99 {:?}, p99.9 {:?}", at(500), at(990), at(999));
    }
    let after_cold = memory();
    let metrics = site.sealane().metrics();
    println!(
        "{names} names in a file of {} MiB: ready in {ready:?}; PSS and private MiB at start \
         {:?}, after {rounds} cold handshakes {:?}; keys opened {}",
        file >> 20,
        at_start,
        after_cold,
        metrics.sum("sealane_keys_opened_total", &[])
    );
    assert!(at_start.0 < 100 && after_cold.1 < 100, "{at_start:?} {after_cold:?}");
    assert_eq!(metrics.sum("sealane_store_failures_total", &[]), 0);
    let copy = site.path().join("copy");
    for words in [["backup"], ["restore"]] {
        let started = Instant::now();
        site.run(&[&words[..], &[copy.to_str().unwrap()]].concat());
        println!("{} in {:?}, while it is served", words[0], started.elapsed());
    }
    site.served(&format!("n{}.test", names / 2)).unwrap();
    println!("PSS and private MiB then: {:?}", memory());
    assert!(memory().1 < 100);
}
