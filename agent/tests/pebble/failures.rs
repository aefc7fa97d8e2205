//! Orders that come to nothing: what the operator is told, and what is tried next.

use std::fs;

use super::harness::agent::{Home, run};
use super::harness::authority::{Authority, Behaviour};
use super::harness::wait_for;

#[test]
fn what_an_authority_looked_for_and_found_is_told_with_a_remedy() {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    let by = |name: &str, challenge: &str| {
        format!("[[certificate]]\nnames = [\"{name}\"]\nchallenge = {challenge}\n")
    };
    home.configure(&[
        home.authority(authority.address, ""),
        by("http.test", "\"http-01\""),
        by("tls.test", "\"tls-alpn-01\""),
        by("dns.test", "\"dns-01\"\ndns_command = [\"true\"]"),
        by("hook.test", "\"dns-01\"\ndns_command = [\"sh\", \"-c\", \"echo none >&2; exit 3\"]"),
        by("blocked.test", "\"http-01\""),
    ]);
    let agent = home.start();
    for words in [
        "http.test: the CA looked at http://http.test/.well-known/acme-challenge/",
        "does the name point here, and is a listener on port 80",
        "tls.test: the CA connected to tls.test:443 with acme-tls/1 and got",
        "dns.test: the CA looked for a TXT record at _acme-challenge.dns.test and got",
        "_acme-challenge.hook.test: dns_command sh present failed: exit status: 3; ",
        "blocked.test: a new order: the CA says",
        "(rejectedIdentifier); take the name out of [[certificate]], or ask another CA",
        ":   tried again in ",
    ] {
        agent.wait_until_said(words);
    }
    assert!(agent.stop().success());
    // What came to nothing is forgotten with its answers; what failed on this machine goes on.
    assert_eq!(home.entries("acme/order/").len(), 1, "of the hook alone");
    assert_eq!(home.entries("challenge/"), Vec::<String>::new());
    assert_eq!(authority.issued(), 0);
}

#[test]
fn reports_remedy_for_wrong_directory_or_roots() {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    let right = home.authority(authority.address, "");
    home.configure(&[right.replace("/dir\"", "/nowhere\""), home.by_dns(&["a.test"])]);
    let agent = home.start();
    agent.wait_until_said("/nowhere: is no ACME directory (");
    let other = rcgen::generate_simple_self_signed(["ca.test".to_owned()]).unwrap();
    fs::write(home.path("other.pem"), other.cert.pem()).unwrap();
    let roots = format!("{:?}", authority.path("ca.pem"));
    home.configure(&[right.replace(&roots, "\"other.pem\""), home.by_dns(&["a.test"])]);
    agent.reload();
    agent.wait_until_said("is not trusted here: name the CA's root in roots of [[authority]]");
    // Another root in the same file is read at once, and ends the wait.
    fs::copy(authority.path("ca.pem"), home.path("other.pem")).unwrap();
    home.wait_until_held("a.test");
    assert!(agent.stop().success());
}

/// A process that is started again and again asks an authority no more often than one that runs.
#[test]
fn a_wait_goes_on_over_a_restart() {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    let table = "[[certificate]]\nnames = [\"a.test\"]\nchallenge = \"http-01\"\n";
    home.configure(&[home.authority(authority.address, ""), table.into()]);
    let agent = home.start();
    agent.wait_until_said(":   tried again in ");
    wait_for("what is remembered", || (home.entries("acme/wait/names/").len() == 1).then_some(()));
    agent.kill();
    let orders = authority.count_said("orders in the db");
    assert!(orders > 0);
    let agent = home.start();
    agent.wait_until_said("looks after 1 certificates");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(agent.stop().success());
    assert_eq!(authority.count_said("orders in the db"), orders);
}

#[test]
fn what_one_authority_refuses_is_ordered_of_the_next() {
    let Some(first) = Authority::start(Behaviour::default()) else { return };
    let second = Authority::start(Behaviour { blocks: false, ..Behaviour::default() });
    let second = second.unwrap();
    let home = Home::new(&second);
    home.configure(&[
        home.authority(first.address, "").replace(
            &format!("{:?}", second.path("ca.pem")),
            &format!("{:?}", first.path("ca.pem")),
        ),
        home.authority(second.address, ""),
        home.by_dns(&["blocked.test"]),
    ]);
    let agent = home.start();
    let held = home.wait_until_held("blocked.test");
    assert_eq!(held.label, format!("https://{}/dir", second.address));
    assert!(agent.stop().success());
    assert_eq!((first.issued(), second.issued()), (0, 1));
}

#[test]
fn an_account_is_bound_to_one_that_the_authority_knows() {
    let behaviour = Behaviour { binds_accounts: true, ..Behaviour::default() };
    let Some(authority) = Authority::start(behaviour) else { return };
    let home = Home::new(&authority);
    home.configure(&[home.authority(authority.address, ""), home.by_dns(&["a.test"])]);
    let agent = home.start();
    agent.wait_until_said("add [authority.external_account] with the kid and key that the CA gave");
    assert!(agent.stop().success());
    let bound = "external_account = { kid = \"kid-1\", key_file = \"eab.key\" }";
    home.configure(&[home.authority(authority.address, bound), home.by_dns(&["a.test"])]);
    let key_file = home.path("eab.key");
    fs::write(&key_file, "d3Jvbmc").unwrap();
    super::harness::close(&key_file);
    let agent = home.start();
    agent.wait_until_said(":   tried again in ");
    // The right key is used at once.
    fs::write(&key_file, super::harness::authority::EXTERNAL_KEY).unwrap();
    home.wait_until_held("a.test");
    assert!(agent.stop().success());
    let account = || {
        let store = home.store().unwrap();
        let mut found = store.kept_under("acme/account/", None, 10).unwrap();
        assert_eq!(found.len(), 1);
        serde_json::from_slice::<serde_json::Value>(&found.pop().unwrap().1).unwrap()
    };
    let first = account();
    assert_eq!(first["kid"], "kid-1");
    // Bound to another one it is another account.
    let bound = bound.replace("kid-1", "kid-2");
    home.configure(&[home.authority(authority.address, &bound), home.by_dns(&["b.test"])]);
    let agent = home.start();
    home.wait_until_held("b.test");
    assert!(agent.stop().success());
    let second = account();
    assert_eq!(second["kid"], "kid-2");
    assert!(second["url"] != first["url"] && second["key"] != first["key"]);
}

#[test]
fn settings_are_checked_and_a_bad_reload_changes_nothing() {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    let tables = [home.authority(authority.address, ""), home.by_dns(&["a.test"])];
    home.configure(&tables);
    let agent = home.start();
    home.wait_until_held("a.test");
    home.configure(&[tables.concat(), "[[certificate]]\nnames = [\"*.b.test\"]\n".into()]);
    agent.reload();
    let said = agent.wait_until_said("not reloaded; what runs goes on:");
    assert!(said.contains("agent.toml:14:1: certificate[1].challenge: is missing"), "{said}");
    let (said, code) = run(&["check", "--config", "agent.toml"], &home);
    assert_eq!(code, Some(3), "{said}");
    // Files that are opened when they are needed are looked at, too, all of them at once.
    let bound = "external_account = { kid = \"kid-1\", key_file = \"absent.key\" }";
    let broken = home.authority(authority.address, bound).replace("ca.pem", "absent.pem");
    let by_nothing = home.by_dns(&["a.test"]).replace("/hook", "/absent-hook");
    home.configure(&[broken, by_nothing]);
    let (said, code) = run(&["check", "--config", "agent.toml"], &home);
    assert!(
        code == Some(3) && said.contains("authority[0].") && said.contains("absent.pem"),
        "{said}"
    );
    assert!(
        said.contains("authority[0].external_account.key_file: ") && said.contains("absent.key")
    );
    assert!(said.contains("absent-hook is no program that this user can run"), "{said}");
    home.configure(&[tables.concat(), home.by_dns(&["b.test"])]);
    agent.reload();
    agent.wait_until_said("reloaded: looks after 2 certificates");
    home.wait_until_held("b.test");
    wait_for("all orders", || home.entries("acme/order/").is_empty().then_some(()));
    assert!(agent.stop().success());
    assert_eq!(authority.issued(), 2);
}
