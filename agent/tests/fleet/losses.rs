//! What a fleet does not lose: to older certificates, to copies of a store, and to strangers who
//! can write to its cluster.

use std::fs;
use std::time::Duration;

use sealane_operator::create_key_file;
use sealane_store::{Store, StoreError};

use super::harness::agent::Home;
use super::harness::wait_for;
use super::machines::{Machines, pem, pem_from};

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
    // What nobody serves any more leaves the cluster, too.
    wait_for("the newest one alone", || {
        (machines.cluster.keys("certificate/").len() == 1).then_some(())
    });
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
    second.wait_until_held("b.test");
    assert!(first.held("b.test").is_some());
    assert_eq!(machines.cluster.keys("removed/"), [""; 0]);
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
    let place = cluster.keys("certificate/").pop().unwrap();
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
    // What nobody proves keeps nobody from ordering.
    cluster.ruin(&place);
    first.remove(&["own.test"]);
    let agent = first.start();
    first.wait_until_held("own.test");
    assert!(agent.stop().success());
    assert_eq!(machines.authority.issued(), 2);
}

/// Junk at a place, also under the name of a sealing key that nobody has.
#[test]
fn junk_keeps_nothing_new_from_the_fleet() {
    let Some(machines) = Machines::new(2, &[]) else { return };
    let [first, second] = &machines.homes[..] else { panic!() };
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    first.import(&["a.test"], &pem_from(&["a.test"], 2021));
    second.wait_until_held("a.test");
    let place = machines.cluster.keys("certificate/").pop().unwrap();
    for (round, junk) in [&b"junk"[..], &[7; 4_000]].into_iter().enumerate() {
        machines.cluster.put(&place, junk);
        wait_for("it to be refused", || {
            (second.said().matches("not taken").count() > round).then_some(())
        });
        let year = 2022 + i32::try_from(round).unwrap();
        first.import(&["a.test"], &pem_from(&["a.test"], year));
        let new = begin(first, "a.test");
        wait_for("what is new", || (begin(second, "a.test") == new).then_some(()));
    }
    for agent in agents {
        assert!(agent.stop().success());
    }
}

#[test]
fn a_long_key_that_is_deleted_disturbs_nobody() {
    let Some(machines) = Machines::new(1, &[]) else { return };
    let home = &machines.homes[0];
    let agent = home.start();
    agent.wait_until_said("fleet: etcd answers");
    let key = format!("/sealane/test/entry/challenge/http-01/{}", "a".repeat(600));
    machines.cluster.put(&key, b"junk");
    machines.cluster.control(&["del", &key]);
    home.import(&["a.test"], &pem("a.test"));
    wait_for("what comes after it", || {
        (machines.cluster.keys("certificate/").len() == 1).then_some(())
    });
    assert!(!home.said().contains("what is served is served on"), "{}", home.said());
    assert!(agent.stop().success());
}

/// A sealing key is replaced as docs/fleet.md has it: both keys, `reseal`, the new one alone.
#[test]
fn what_an_old_sealing_key_sealed_in_the_cluster_goes_over_to_the_new_one() {
    let Some(machines) = Machines::new(2, &["a.test"]) else { return };
    let [first, second] = &machines.homes[..] else { panic!() };
    let agent = first.start();
    first.wait_until_held("a.test");
    first.import(&["b.test", "c.test"], &pem_from(&["b.test", "c.test"], 2021));
    first.remove(&["c.test"]);
    wait_for("both in the cluster", || {
        (machines.cluster.keys("certificate/").len() == 2).then_some(())
    });
    wait_for("the word", || (machines.cluster.keys("removed/").len() == 1).then_some(()));
    assert!(agent.stop().success());
    let (key, new) = (first.path("key"), first.path("new-key"));
    create_key_file(&new).unwrap();
    let (old, new) = (fs::read_to_string(&key).unwrap(), fs::read_to_string(&new).unwrap());
    fs::write(&key, format!("{new}{old}")).unwrap();
    let all = || -> Vec<Vec<u8>> {
        let keys = ["certificate/", "removed/"].map(|below| machines.cluster.keys(below));
        keys.iter().flatten().map(|key| machines.cluster.value(key)).collect()
    };
    let before = all();
    let agent = first.start();
    wait_for("all to be sealed anew", || {
        let now = all();
        (now.len() == 3 && now.iter().all(|value| !before.contains(value))).then_some(())
    });
    {
        let store = first.store().unwrap();
        let mut after = None;
        while let Some(last) = store.reseal(after, 100).unwrap().last {
            after = Some(last);
        }
    }
    assert!(agent.stop().success());
    for home in [first, second] {
        fs::write(home.path("key"), &new).unwrap();
    }
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    for name in ["a.test", "b.test"] {
        second.wait_until_held(name);
    }
    assert!(second.held("c.test").is_none());
    for agent in agents {
        assert!(agent.stop().success());
    }
}
