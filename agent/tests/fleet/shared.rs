//! Machines that share certificates through real servers of etcd, with TLS and users.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use sealane_reserved_port::ReservedPort;

use super::harness::agent::{Home, run};
use super::harness::authority::{Authority, Behaviour};
use super::harness::etcd::Cluster;
use super::harness::wait_for;
use super::machines::{Machines, pem, status};
use super::serving::Serve;

#[test]
fn what_one_machine_has_all_have_and_each_name_is_ordered_once() {
    let names: Vec<String> = (0..10).map(|number| format!("n{number}.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(machines) = Machines::with_three_servers(3, &names) else { return };
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    for name in &names {
        let held: Vec<_> = machines.homes.iter().map(|home| home.wait_until_held(name)).collect();
        assert!(held.iter().all(|one| one.digest == held[0].digest), "{name}");
    }
    assert_eq!(machines.authority.issued(), names.len(), "each once in all");
    // What somebody pushes to one machine all have, too.
    machines.homes[2].import(&["pushed.test"], &pem("pushed.test"));
    let pushed = machines.homes[0].wait_until_held("pushed.test");
    assert_eq!(pushed.label, "push");
    machines.homes[1].wait_until_held("pushed.test");
    // Nothing in the cluster is in clear, and nothing of an order is left.
    let all = machines.cluster.control(&["get", "--prefix", "/sealane/test/", "-w", "json"]);
    assert!(!all.contains(&base64("PRIVATE KEY")[..12]) && !all.contains("BEGIN"), "{all}");
    assert_eq!(machines.cluster.keys("order/"), Vec::<String>::new());
    assert_eq!(machines.cluster.keys("entry/challenge/"), Vec::<String>::new());
    wait_for("claims to be given back", || {
        machines.cluster.keys("claim/").is_empty().then_some(())
    });
    assert_eq!(machines.cluster.keys("entry/acme/account/").len(), 1, "one account for all");
    let (said, table) = status(&machines.homes[0], &[]);
    assert!(table.lines().count() == 4, "{table}{said}");
    assert!(
        table.contains("m0") && table.contains("m2") && table.contains("FIRST ENDS"),
        "{table}"
    );
    let (said, json) = status(&machines.homes[0], &["--json"]);
    assert!(json.contains("\"machine\": \"m1\"") && json.contains("soonest_end_s"), "{json}{said}");
    for agent in agents {
        assert!(agent.stop().success());
    }
}

/// One machine orders, and the authority looks at the other one, by both challenges that a listener
/// answers.
#[test]
fn any_machine_answers_what_an_authority_asks() {
    let port = || ReservedPort::on_loopback().unwrap();
    let (http, tls) = (port(), port());
    let ports = (http.address().port(), tls.address().port());
    let behaviour = Behaviour { ports, ..Behaviour::default() };
    let Some(authority) = Authority::start(behaviour) else { return };
    let Some(cluster) = Cluster::start() else { return };
    let orders = Home::new(&authority);
    let answers = orders.beside(&authority);
    let by = |name: &str, challenge: &str| {
        format!("[[certificate]]\nnames = [\"{name}\"]\nchallenge = \"{challenge}\"\n")
    };
    let of_authority = orders.authority(authority.address, "");
    orders.configure(&[
        of_authority.clone(),
        by("http.test", "http-01"),
        by("tls.test", "tls-alpn-01"),
        cluster.table("orders"),
    ]);
    answers.configure(&[of_authority, answers.by_dns(&["blocked.test"]), cluster.table("answers")]);
    let answering = answers.start();
    let Some(_serve) = Serve::start_at(&answers, tls, &http) else { return };
    answering.wait_until_said("fleet: etcd answers");
    let ordering = orders.start();
    for name in ["http.test", "tls.test"] {
        let held = orders.wait_until_held(name);
        assert_eq!(answers.wait_until_held(name).digest, held.digest);
    }
    assert_eq!(authority.issued(), 2);
    for home in [&orders, &answers] {
        wait_for("answers to be taken back", || {
            home.entries("challenge/").is_empty().then_some(())
        });
    }
    for agent in [answering, ordering] {
        assert!(agent.stop().success());
    }
}

fn base64(text: &str) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    BASE64_STANDARD.encode(text)
}

/// One that sleeps for longer than its lease writes nothing when it wakes; another goes on with its
/// order, at the same authority and account.
#[test]
fn a_machine_that_sleeps_or_dies_within_an_order_is_stood_in_for_once() {
    for signal in [Signal::STOP, Signal::KILL] {
        let Some(machines) = Machines::new(2, &["a.test"]) else { return };
        let hook_waits = machines.authority.path("hook-waits");
        std::fs::write(&hook_waits, "").unwrap();
        let first = machines.homes[0].start();
        wait_for("its order to be under way", || {
            (machines.cluster.keys("order/").len() == 1
                && !machines.authority.hook_calls().is_empty())
            .then_some(())
        });
        first.process.signal(signal);
        std::fs::remove_file(&hook_waits).unwrap();
        let second = machines.homes[1].start();
        let held = machines.homes[1].wait_until_held("a.test");
        assert_eq!(machines.authority.issued(), 1);
        if signal == Signal::STOP {
            first.process.signal(Signal::CONT);
            first.wait_until_said("the order is another machine's by now");
            let its = machines.homes[0].wait_until_held("a.test");
            assert_eq!(its.digest, held.digest, "it takes what the other one obtained");
            wait_until_no_order(&machines.homes[0]);
            assert!(first.stop().success());
        }
        // It starts again after the other one has served for a while.
        let again = machines.homes[0].start();
        again.wait_until_said("fleet: etcd answers");
        assert_eq!(machines.homes[0].wait_until_held("a.test").digest, held.digest);
        wait_until_no_order(&machines.homes[0]);
        assert!(again.stop().success());
        assert_eq!(machines.authority.issued(), 1, "{signal:?}");
        assert_eq!(machines.authority.count_said("Added order "), 1, "{signal:?}");
        assert!(second.stop().success());
    }
}

/// Waits until a machine remembers no order.
fn wait_until_no_order(home: &Home) {
    wait_for("no order", || home.entries("acme/order/").is_empty().then_some(()));
}

/// The lease that is the default, and a machine that sleeps for half a minute longer.
#[test]
#[ignore = "two minutes"]
fn a_machine_that_sleeps_for_longer_than_the_default_lease_is_stood_in_for_once() {
    let Some(machines) = Machines::new(2, &["a.test"]) else { return };
    let [sleeps, other] = &machines.homes[..] else { panic!() };
    for (number, home) in machines.homes.iter().enumerate() {
        let table = machines.cluster.table(&format!("m{number}")).replace("lease = \"5s\"\n", "");
        let authority = home.authority(machines.authority.address, "");
        home.configure(&[authority, home.by_dns(&["a.test"]), table]);
    }
    let hook_waits = machines.authority.path("hook-waits");
    std::fs::write(&hook_waits, "").unwrap();
    let first = sleeps.start();
    wait_for("its order to be under way", || {
        (machines.cluster.keys("order/").len() == 1 && !machines.authority.hook_calls().is_empty())
            .then_some(())
    });
    first.process.signal(Signal::STOP);
    let slept = Instant::now();
    std::fs::remove_file(&hook_waits).unwrap();
    let second = other.start();
    std::thread::sleep(Duration::from_secs(30));
    assert!(other.held("a.test").is_none(), "the order is still the first one's");
    let held = other.wait_until_held("a.test");
    std::thread::sleep(Duration::from_secs(90).saturating_sub(slept.elapsed()));
    first.process.signal(Signal::CONT);
    first.wait_until_said("the order is another machine's by now");
    assert_eq!(sleeps.wait_until_held("a.test").digest, held.digest);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(machines.authority.issued(), 1);
    for agent in [first, second] {
        assert!(agent.stop().success());
    }
}

#[test]
fn without_the_cluster_nothing_is_ordered_and_it_goes_on_when_it_is_back() {
    let Some(machines) = Machines::with_three_servers(2, &["a.test"]) else { return };
    machines.cluster.kill_all();
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    agents[0].wait_until_said("what is served is served on; orders wait until it answers");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(machines.authority.issued(), 0);
    let word = || machines.homes[0].store()?.store().word();
    assert!(word().is_some());
    machines.cluster.start_again();
    for home in &machines.homes {
        home.wait_until_held("a.test");
    }
    assert_eq!(machines.authority.issued(), 1);
    wait_for("the word to be taken back", || word().is_none().then_some(()));
    // With its leader gone, two of three go on.
    machines.cluster.kill(machines.cluster.leader());
    machines.homes[0].import(&["b.test"], &pem("b.test"));
    machines.homes[1].wait_until_held("b.test");
    for agent in agents {
        assert!(agent.stop().success());
    }
}

/// A machine that was away while the cluster was compacted lists all; one whose cluster was set
/// back to a snapshot says so, and puts there what is lacking.
#[test]
fn what_is_missed_is_listed_and_what_is_lost_is_put_back() {
    let Some(machines) = Machines::with_three_servers(2, &[]) else { return };
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    machines.homes[0].import(&["a.test"], &pem("a.test"));
    machines.homes[1].wait_until_held("a.test");
    let snapshot = machines.cluster.folder.path().join("snapshot");
    machines.cluster.control_at(0, &["snapshot", "save", snapshot.to_str().unwrap()]);
    agents[1].process.signal(Signal::STOP);
    for number in 0..5 {
        let name = format!("b{number}.test");
        machines.homes[0].import(&[&name], &pem(&name));
        wait_for(&name, || {
            (machines.cluster.keys("certificate/").len() == number + 2).then_some(())
        });
    }
    let revision = machines.cluster.field(0, "Revision");
    machines.cluster.control(&["compact", &revision]);
    agents[1].process.signal(Signal::CONT);
    for number in 0..5 {
        machines.homes[1].wait_until_held(&format!("b{number}.test"));
    }
    machines.cluster.restore(&snapshot);
    // Who lists it first.
    wait_for("a machine that notices", || {
        let notices = |home: &Home| home.said().contains("set back, from revision");
        machines.homes.iter().any(notices).then_some(())
    });
    wait_for("what was lost", || (machines.cluster.keys("certificate/").len() == 6).then_some(()));
    for agent in agents {
        assert!(agent.stop().success());
    }
}

#[test]
fn what_is_wrong_with_a_cluster_is_told_with_whose_fault_it_is_and_what_to_do() {
    let Some(machines) = Machines::new(2, &[]) else { return };
    let (home, cluster) = (&machines.homes[0], &machines.cluster);
    // A password that is wrong.
    let password = cluster.folder.path().join("password");
    std::fs::write(&password, "another").unwrap();
    let agent = home.start();
    agent.wait_until_said("see that user and password are those that etcd has");
    // The files of etcd are read again once they have changed.
    std::fs::write(&password, "a password\n").unwrap();
    agent.wait_until_said("fleet: etcd answers");
    assert!(agent.stop().success());
    // A root that did not issue its certificate.
    let (root, kept) = (cluster.folder.path().join("ca.pem"), home.path("ca.pem"));
    std::fs::rename(&root, &kept).unwrap();
    let other = rcgen::generate_simple_self_signed(["ca.test".to_owned()]).unwrap();
    std::fs::write(&root, other.cert.pem()).unwrap();
    let agent = home.start();
    agent.wait_until_said("is not trusted here");
    agent.wait_until_said("name the authority of etcd in fleet.roots");
    std::fs::copy(&kept, &root).unwrap();
    agent.wait_until_said("fleet: etcd answers");
    assert!(agent.stop().success());
    // A role that does not reach so far.
    cluster.control(&["role", "revoke-permission", "sealane", "--prefix=true", "/sealane/test/"]);
    let agent = home.start();
    agent.wait_until_said("the user sealane needs a role with readwrite on this prefix");
    assert!(agent.stop().success());
    cluster.control(&[
        "role",
        "grant-permission",
        "sealane",
        "--prefix=true",
        "readwrite",
        "/sealane/test/",
    ]);
    // A machine without the sealing key takes nothing, says which it lacks, and destroys nothing.
    home.start().stop();
    home.import(&["a.test"], &pem("a.test"));
    let agent = home.start();
    wait_for("its certificate", || (cluster.keys("certificate/").len() == 1).then_some(()));
    let other = &machines.homes[1];
    sealane_operator::create_key_file(&other.path("key2")).unwrap();
    std::fs::copy(other.path("key2"), other.path("key")).unwrap();
    let stranger = other.start();
    stranger.wait_until_said("which is not among the sealing keys of this machine");
    assert!(other.held("a.test").is_none());
    assert!(stranger.stop().success());
    // What somebody without a key puts there is not taken, and is replaced by what is good.
    let place = cluster.keys("certificate/").pop().unwrap();
    cluster.control(&["put", &place, "nonsense"]);
    agent.wait_until_said("whoever wrote it there does not have the sealing key");
    wait_for("the good one", || {
        let text = cluster.control(&["get", "--print-value-only", "--hex", &place]);
        (!text.contains("nonsense") && text.len() > 1_000).then_some(())
    });
    assert!(home.held("a.test").is_some());
    assert!(agent.stop().success());
    let (said, code) = run(&["fleet", "status", "--config", "absent.toml"], home);
    assert!(code == Some(3) && said.contains("absent.toml"), "{said}");
}
