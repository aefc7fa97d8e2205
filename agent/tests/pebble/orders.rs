//! Orders that come to a certificate, and those that do not.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sealane_engine::certificates::{CertificateStore as _, OpenedCertificate};

use super::harness::agent::{Home, run};
use super::harness::authority::{Authority, Behaviour};
use super::harness::wait_for;

#[test]
fn a_wildcard_is_obtained_by_dns_and_kept_sealed() {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    let tables = [home.authority(authority.address, ""), home.by_dns(&["a.test", "*.a.test"])];
    home.configure(&tables);
    let agent = home.start();
    let held = home.wait_until_held("any.a.test");
    assert_eq!(held.names, ["a.test", "*.a.test"]);
    assert_eq!(held.label, format!("https://{}/dir", authority.address));
    agent.wait_until_said("a.test, *.a.test: issued by");
    assert!(agent.stop().success());
    // Nothing of the order is left: no entry, no record.
    assert_eq!(home.entries("acme/order/"), Vec::<String>::new());
    assert_eq!(home.entries("challenge/"), Vec::<String>::new());
    assert_eq!(home.entries("acme/account/").len(), 1);
    let calls = authority.hook_calls();
    let count = |what: &str| calls.iter().filter(|call| call.starts_with(what)).count();
    let (made, taken) = ("present _acme-challenge.a.test ", "cleanup _acme-challenge.a.test ");
    assert_eq!((count(made), count(taken), calls.len()), (2, 2, 4), "{calls:?}");
    // One that starts later has what it needs, and the account it had.
    let agent = home.start();
    agent.wait_until_said("looks after 1 certificates");
    assert!(agent.stop().success());
    assert_eq!(authority.issued(), 1);
}

/// Half of all good numbers are refused, no authorization is used twice, and each is looked at
/// after as long as the authority likes.
#[test]
fn an_authority_that_refuses_half_and_takes_its_time_is_borne() {
    let behaviour = Behaviour { nonces_refused: 50, is_slow: true, ..Behaviour::default() };
    let Some(authority) = Authority::start(behaviour) else { return };
    let home = Home::new(&authority);
    home.configure(&[
        home.authority(authority.address, "key = \"p384\"\nprofile = \"shortlived\""),
        home.by_dns(&["a.test", "b.test"]),
        home.by_dns(&["c.test"]),
    ]);
    let agent = home.start();
    for name in ["a.test", "c.test"] {
        let held = home.wait_until_held(name);
        assert_eq!(format!("{:?}", held.key_type), "EcdsaP384");
        assert_eq!(held.not_after_s - held.not_before_s, 518_400 - 1, "the profile's days");
    }
    assert!(agent.stop().success());
    assert_eq!(authority.issued(), 2);
}

/// A certificate that lives for seconds is renewed when half of them are over, by an order that
/// says which one it takes the place of, and with another key.
#[test]
fn what_runs_out_is_renewed_with_another_key() {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    home.configure(&[
        home.authority(authority.address, "profile = \"moments\""),
        home.by_dns(&["a.test"]),
    ]);
    let agent = home.start();
    let first = home.wait_until_held("a.test");
    let first_key = public_key(&home, "a.test");
    let second = wait_for("the next certificate", || {
        home.held("a.test").filter(|held| held.digest != first.digest)
    });
    assert!(second.not_after_s > first.not_after_s);
    assert_ne!(public_key(&home, "a.test"), first_key);
    assert!(agent.stop().success());
    // Pebble does not find every certificate that it has issued by its serial number.
    let said = ["is a replacement of", "could not find order resulting in the given certificate"];
    assert!(said.iter().any(|words| authority.count_said(words) >= 1));
}

/// An authority is asked when it would like a certificate renewed, and answers that it would have
/// liked to see it done: it is, at once, by an order that says which one it takes the place of. The
/// first question comes within six hours, which pass in a minute by the agent's clock.
#[test]
#[ignore = "a minute; ./check --all runs it"]
fn what_an_authority_would_like_renewed_is_renewed() {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    home.configure(&[home.authority(authority.address, ""), home.by_dns(&["a.test"])]);
    let agent = home.start();
    let first = home.wait_until_held("a.test");
    assert!(agent.stop().success());
    let window =
        r#"{"suggestedWindow":{"start":"2020-01-01T00:00:00Z","end":"2020-01-02T00:00:00Z"}}"#;
    let chain = opened(&home, "a.test").chain;
    let pem = sealane_store::pem_text(chain.iter().take(1).map(|der| &**der), None);
    let told = serde_json::json!({
        "Certificate": str::from_utf8(&pem).unwrap(),
        "ARIResponse": window,
    });
    let url = format!("https://{}/set-renewal-info/", authority.managed);
    let mut curl = Command::new("curl");
    curl.args(["-sSf", "--cacert"]).arg(authority.path("ca.pem"));
    assert!(curl.arg("-d").arg(told.to_string()).arg(url).status().unwrap().success());

    let library = home.path("fast_clock.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../sealane/tests/binary/resumption_fleet/fast_clock.c");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    assert!(cc.status().unwrap().success());
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let agent = home.start_with(&[
        ("LD_PRELOAD", library.to_str().unwrap().to_owned()),
        ("FAST_CLOCK_RATE", "400".to_owned()),
        ("FAST_CLOCK_FROM", now_s.to_string()),
    ]);
    wait_for("the next certificate", || {
        home.held("a.test").filter(|held| held.digest != first.digest)
    });
    assert!(agent.stop().success());
    assert_eq!(authority.count_said("is a replacement of"), 1);
    assert_eq!(authority.issued(), 2);
}

/// A key has leaked: an operator has its certificate renewed, months before its end.
#[test]
fn renew_orders_now_with_another_key() {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    let tables = [home.authority(authority.address, ""), home.by_dns(&["a.test", "b.test"])];
    home.configure(&tables);
    let renew = |name: &str| run(&["renew", name, "--config", "agent.toml"], &home);
    let (said, code) = renew("a.test");
    assert!(code == Some(1) && said.contains("start it (systemctl start"), "{said}");
    assert_eq!(home.entries("acme/renew/"), [""; 0], "it is not done at the next start");
    let agent = home.start();
    let first = home.wait_until_held("a.test");
    let first_key = public_key(&home, "a.test");
    let (said, code) = renew("B.test");
    assert!(code == Some(0) && said.contains("a.test, b.test: renewed, good for 89"), "{said}");
    assert_ne!(home.held("a.test").unwrap().digest, first.digest);
    assert_ne!(public_key(&home, "a.test"), first_key);
    assert_eq!(authority.issued(), 2);
    let (said, code) = renew("c.test");
    assert!(code == Some(1) && said.contains("no [[certificate]] of agent.toml"), "{said}");
    home.configure(&[tables.concat(), home.by_dns(&["c.test"])]);
    let (said, code) = renew("c.test");
    assert!(code == Some(1) && said.contains("reload the agent"), "{said}");
    fs::write(authority.path("hook-fails"), "").unwrap();
    let (said, code) = renew("a.test");
    assert!(code == Some(1) && said.contains("dns_command"), "{said}");
    assert!(said.contains("the agent tries again"), "{said}");
    fs::remove_file(authority.path("hook-fails")).unwrap();
    let (said, code) = renew("a.test");
    assert_eq!(code, Some(0), "{said}");
    // A removed certificate that is still configured is ordered again, without a reload.
    home.remove(&["a.test", "b.test"]);
    home.wait_until_held("a.test");
    assert!(agent.stop().success());
    assert_eq!(authority.issued(), 4);
    assert_eq!(home.entries("acme/renew/"), [""; 0]);
}

fn public_key(home: &Home, name: &str) -> Vec<u8> {
    use x509_parser::prelude::{FromDer as _, X509Certificate};

    let opened = opened(home, name);
    let (_, leaf) = X509Certificate::from_der(&opened.chain[0]).unwrap();
    leaf.public_key().raw.to_vec()
}

fn opened(home: &Home, name: &str) -> OpenedCertificate {
    let store = home.store().unwrap();
    let held = store.store().find(name).unwrap().pop().unwrap();
    store.view().unwrap().open(held.digest).unwrap()
}

#[test]
#[ignore = "half a minute; ./check --all runs it"]
fn a_thousand_names_are_obtained_in_ten_certificates() {
    obtain(100);
}

#[test]
#[ignore = "minutes; ./check --all runs it"]
fn a_thousand_names_are_obtained_in_a_thousand_certificates() {
    obtain(1);
}

/// Obtains 1,000 names, so many in each certificate.
fn obtain(in_each: usize) {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    let names: Vec<String> = (0..1_000).map(|number| format!("n{number}.test")).collect();
    let mut tables = vec![home.authority(authority.address, "")];
    for each in names.chunks(in_each) {
        tables.push(home.by_dns(&each.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    home.configure(&tables);
    let agent = home.start();
    // Five at a time, each of which the authority takes seconds for: nobody knows which comes last.
    let (mut issued, count, started) = (0, names.len().div_ceil(in_each), Instant::now());
    while issued < count {
        issued = wait_for("one certificate more", || {
            Some(authority.issued()).filter(|now| *now > issued)
        });
    }
    for name in &names {
        home.wait_until_held(name);
    }
    println!("1,000 names in {count} certificates: {:?}", started.elapsed());
    assert!(agent.stop().success());
    assert_eq!(authority.issued(), count);
    assert_eq!(home.entries("acme/order/"), Vec::<String>::new());
}
