//! What a fleet does not lose: to older certificates, to copies of a store, and to strangers who
//! can write to its cluster.

use std::fs;
use std::time::Duration;

use sealane_store::{Store, StoreError};

use super::harness::agent::Home;
use super::harness::wait_for;
use super::machines::{Machines, pem, pem_from};

/// What is removed for all machines, in number.
fn removals(machines: &Machines) -> usize {
    let all = ["get", "--prefix", "--print-value-only", "/sealane/test/certificate/"];
    machines.cluster.control(&all).matches("sealane-removed ").count()
}

/// When the certificate begins that is served for a name.
fn begin(home: &Home, name: &str) -> Option<i64> {
    home.held(name).map(|held| held.not_before_s)
}

#[test]
fn a_newer_certificate_stays_wherever_an_older_one_comes_from() {
    let Some(machines) = Machines::new(3, &[]) else { return };
    let [first, second, late] = &machines.homes[..] else { panic!() };
    // One that joins with an older certificate, which has a name more.
    let agent = late.start();
    agent.wait_until_said("looks after");
    assert!(agent.stop().success());
    late.import(&["a.test", "b.test"], &pem_from(&["a.test", "b.test"], 2021));
    let old = begin(late, "a.test").unwrap();
    let mut agents = vec![first.start(), second.start()];
    first.import(&["a.test"], &pem_from(&["a.test"], 2022));
    let new = second.wait_until_held("a.test").not_before_s;
    agents.push(late.start());
    for home in &machines.homes {
        wait_for("the newer one", || (begin(home, "a.test") == Some(new)).then_some(()));
        wait_for("the older one, alone", || (begin(home, "b.test") == Some(old)).then_some(()));
    }
    // One that takes the place of both: nothing is removed for anybody.
    second
        .import(&["a.test", "b.test", "c.test"], &pem_from(&["a.test", "b.test", "c.test"], 2023));
    let newest = begin(second, "c.test");
    for home in &machines.homes {
        for name in ["a.test", "b.test", "c.test"] {
            wait_for("the newest one", || (begin(home, name) == newest).then_some(()));
        }
    }
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(removals(&machines), 0);
    for (home, agent) in machines.homes.iter().zip(agents) {
        assert_eq!(begin(home, "a.test"), newest);
        assert!(agent.stop().success());
    }
}

#[test]
fn a_store_that_is_put_back_takes_nothing_from_the_others() {
    let Some(machines) = Machines::new(2, &[]) else { return };
    let [first, second] = &machines.homes[..] else { panic!() };
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    first.import(&["a.test"], &pem("a.test"));
    second.wait_until_held("a.test");
    let copy = second.path("copy");
    fs::create_dir(&copy).unwrap();
    second.store().unwrap().store().back_up(&copy.join("data.mdb")).unwrap();
    first.import(&["b.test"], &pem("b.test"));
    second.wait_until_held("b.test");
    {
        // A process has a store open once.
        let (copy, store) = (Store::open(&copy).unwrap(), second.store().unwrap());
        assert!(store.store().replace(&copy, || Ok::<_, StoreError>(())).unwrap());
    }
    assert!(second.held("b.test").is_none(), "as of the copy");
    agents[1].wait_until_said("the store was put back from a copy");
    second.wait_until_held("b.test");
    assert!(first.held("b.test").is_some());
    assert_eq!(removals(&machines), 0);
    for agent in agents {
        assert!(agent.stop().success());
    }
}

/// Who can write to the cluster, and has no sealing key.
#[test]
fn what_a_stranger_ruins_or_deletes_is_put_back_or_stays() {
    let Some(machines) = Machines::new(2, &["own.test"]) else { return };
    let (cluster, first) = (&machines.cluster, &machines.homes[0]);
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    for home in &machines.homes {
        home.wait_until_held("own.test");
    }
    // The line in clear stays, and what is sealed is ruined.
    let place = cluster.keys("certificate/").pop().unwrap();
    assert!(cluster.value(&place).starts_with(b"sealane-certificate 1 "));
    let ruined = cluster.ruin(&place);
    wait_for("the good one", || (cluster.value(&place) != ruined).then_some(()));
    let account = || first.entries("acme/account/").len();
    assert_eq!(account(), 1);
    cluster.control(&["del", "--prefix", "/sealane/test/entry/"]);
    cluster.control(&["del", &place]);
    wait_for("what was deleted", || (cluster.keys("certificate/").len() == 1).then_some(()));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(account(), 1, "an account is nothing that is made anew");
    for (home, agent) in machines.homes.iter().zip(agents) {
        assert!(home.held("own.test").is_some());
        assert!(agent.stop().success());
    }
    // A word that nobody proves keeps nobody from ordering.
    let forged =
        format!("sealane-certificate 1 {} 9999999999 9999999999\nnothing", "ab".repeat(32));
    cluster.control(&["put", &place, &forged]);
    first.store().unwrap().store().remove(&["own.test".to_owned()]).unwrap();
    let agent = first.start();
    first.wait_until_held("own.test");
    assert!(agent.stop().success());
    assert_eq!(machines.authority.issued(), 2);
}

#[test]
fn a_name_that_was_removed_is_ordered_again() {
    let Some(machines) = Machines::new(1, &["a.test"]) else { return };
    let home = &machines.homes[0];
    let agent = home.start();
    home.wait_until_held("a.test");
    wait_for("it in the cluster", || {
        (machines.cluster.keys("certificate/").len() == 1).then_some(())
    });
    std::thread::sleep(Duration::from_secs(2));
    home.store().unwrap().store().remove(&["a.test".to_owned()]).unwrap();
    wait_for("the word that it is removed", || (removals(&machines) == 1).then_some(()));
    assert!(agent.stop().success());
    let agent = home.start();
    home.wait_until_held("a.test");
    assert!(agent.stop().success());
    assert_eq!(machines.authority.issued(), 2);
}
