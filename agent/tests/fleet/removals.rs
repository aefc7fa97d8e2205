//! Names that somebody removes from the store of one machine, and what takes the place of others.

use std::fs;
use std::time::Duration;

use sealane_operator::{KeySource, sealing_keys};
use sealane_store::{Removal, Store, StoreError};
use sha2::{Digest as _, Sha256};

use super::harness::agent::{Agent, Home, unix_now_s};
use super::harness::wait_for;
use super::machines::{Machines, pem, pem_from};

/// Two machines, of which the second has what the first was given last.
struct Two {
    machines: Machines,
    agents: Vec<Agent>,
}

impl Two {
    fn start() -> Option<Self> {
        let machines = Machines::new(2, &[])?;
        let agents = machines.homes.iter().map(Home::start).collect();
        Some(Self { agents, machines })
    }

    fn homes(&self) -> [&Home; 2] {
        [&self.machines.homes[0], &self.machines.homes[1]]
    }

    /// Imports a certificate on the first machine, and waits until the second serves it.
    fn import(&self, names: &[&str], year: i32) {
        let [first, second] = self.homes();
        first.import(names, &pem_from(names, year));
        let last = names.last().unwrap();
        wait_for("the import", || (begin(second, last) == begin(first, last)).then_some(()));
    }

    fn wait_until_none_is_left(&self, name: &str) {
        for home in self.homes() {
            wait_for(&format!("{name} to leave"), || home.held(name).is_none().then_some(()));
        }
    }

    fn wait_until_there_are(&self, count: usize, below: &str) {
        wait_for(&format!("{count} below {below}"), || {
            (self.machines.cluster.keys(below).len() == count).then_some(())
        });
    }

    /// Starts the second machine's agent again, which lists all anew.
    fn start_the_second_again(&mut self) {
        assert!(self.agents.pop().unwrap().stop().success());
        let second = &self.machines.homes[1];
        let count = second.said().matches("fleet: etcd answers").count();
        self.agents.push(second.start());
        wait_for("the list", || {
            (second.said().matches("fleet: etcd answers").count() > count).then_some(())
        });
    }

    fn stop(self) {
        for agent in self.agents {
            assert!(agent.stop().success());
        }
    }
}

/// When the certificate begins that is served for a name.
fn begin(home: &Home, name: &str) -> Option<i64> {
    home.held(name).map(|held| held.not_before_s)
}

/// What somebody removes from one machine's store leaves all of them, however much it is, and
/// nothing else does.
#[test]
fn what_is_removed_leaves_all_machines() {
    let Some(two) = Two::start() else { return };
    let [first, second] = two.homes();
    let all: Vec<String> = (0..30).map(|number| pem(&format!("n{number}.test"))).collect();
    assert_eq!(first.import_all(&all), 30);
    two.wait_until_there_are(30, "certificate/");
    wait_for("all", || (0..30).all(|n| second.held(&format!("n{n}.test")).is_some()).then_some(()));
    second.remove(&["n0.test"]);
    two.wait_until_none_is_left("n0.test");
    two.wait_until_there_are(29, "certificate/");
    // Whoever has no sealing key removes nothing: it is put back.
    let key = two.machines.cluster.keys("certificate/").remove(0);
    two.machines.cluster.control(&["del", &key]);
    two.wait_until_there_are(29, "certificate/");
    // It may come again.
    first.import(&["n0.test"], &all[0]);
    second.wait_until_held("n0.test");
    let most: Vec<String> = (0..25).map(|number| format!("n{number}.test")).collect();
    second.remove(&most.iter().map(String::as_str).collect::<Vec<_>>());
    two.wait_until_none_is_left("n24.test");
    two.wait_until_there_are(5, "certificate/");
    two.wait_until_there_are(25, "removed/");
    for number in 25..30 {
        assert!(two.homes().iter().all(|home| home.held(&format!("n{number}.test")).is_some()));
    }
    two.stop();
}

#[test]
fn each_name_is_removed_by_itself() {
    let Some(mut two) = Two::start() else { return };
    two.import(&["a.test", "b.test"], 2021);
    two.import(&["a.test"], 2022);
    two.import(&["*.w.test"], 2021);
    two.import(&["c.w.test"], 2022);
    two.import(&["d.test", "e.test"], 2021);
    // The last name that a certificate is served for, one beside a wildcard, and one of two.
    two.homes()[1].remove(&["b.test", "c.w.test", "d.test"]);
    let is_gone = |home: &Home| {
        let wildcard = begin(home, "x.w.test");
        home.held("b.test").is_none()
            && home.held("d.test").is_none()
            && begin(home, "c.w.test") == wildcard
    };
    for round in 0..2 {
        for home in two.homes() {
            wait_for(&format!("all three to leave, {round}"), || is_gone(home).then_some(()));
            assert!(home.held("a.test").is_some() && home.held("e.test").is_some());
        }
        if round == 0 {
            two.start_the_second_again();
        }
    }
    two.stop();
}

#[test]
fn what_another_took_the_place_of_comes_back_by_no_removal() {
    let Some(mut two) = Two::start() else { return };
    two.import(&["a.test"], 2021);
    // Of many at once, none is taken for lost.
    let names: Vec<String> = (0..12).map(|number| format!("n{number}.test")).collect();
    let each: Vec<String> = names.iter().map(|name| pem_from(&[name], 2021)).collect();
    two.homes()[0].import_all(&each);
    two.homes()[1].wait_until_held("n11.test");
    let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
    all.insert(0, "a.test");
    two.import(&all, 2022);
    two.wait_until_there_are(1, "certificate/");
    two.homes()[1].remove(&all);
    two.wait_until_none_is_left("a.test");
    two.wait_until_there_are(0, "certificate/");
    two.start_the_second_again();
    assert!(all.iter().all(|name| two.homes().iter().all(|home| home.held(name).is_none())));
    for home in two.homes() {
        assert!(!home.said().contains("what is served is served on"), "{}", home.said());
    }
    two.stop();
}

#[test]
fn a_word_that_counts_no_more_leaves_stores_and_cluster() {
    let Some(two) = Two::start() else { return };
    two.import(&["a.test"], 2021);
    let now_s = unix_now_s();
    let word = Removal { name: "a.test".into(), at_s: now_s, until_s: now_s + 8 };
    two.homes()[0].store().unwrap().take_over(&[], &[word], &[]).unwrap();
    two.wait_until_none_is_left("a.test");
    two.wait_until_there_are(1, "removed/");
    // It is forgotten at the next look, for which something has to change.
    std::thread::sleep(Duration::from_secs(9));
    two.import(&["b.test"], 2021);
    two.wait_until_there_are(0, "removed/");
    for home in two.homes() {
        let words = || home.store().unwrap().store().removals(None, 1).unwrap();
        wait_for("no word", || words().is_empty().then_some(()));
    }
    wait_until_stores_rest(two.homes());
    for home in two.homes() {
        assert_eq!(home.store().unwrap().store().removals(None, 1).unwrap(), []);
    }
    two.stop();
}

/// A word from a machine whose clock is days ahead, and one that somebody wrote into a store.
#[test]
fn a_word_of_a_time_to_come_removes_nothing_elsewhere() {
    let Some(two) = Two::start() else { return };
    let [first, second] = two.homes();
    two.import(&["a.test"], 2021);
    two.import(&["b.test"], 2021);
    let at_s = unix_now_s() + 2 * 86_400;
    let until_s = at_s + 86_400;
    let keys = sealing_keys(&KeySource::File(first.path("key"))).unwrap();
    let hash = Sha256::digest("a.test");
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let place = format!("/sealane/test/removed/{hash}");
    let text = format!("1 {at_s} {until_s} a.test\n");
    two.machines.cluster.put(&place, &keys.seal_for(&place, text.as_bytes()).unwrap());
    let word = Removal { name: "b.test".into(), at_s, until_s };
    first.store().unwrap().take_over(&[], &[word], &[]).unwrap();
    two.agents[1].wait_until_said("more than a day ahead of this machine's clock");
    two.import(&["c.test"], 2021);
    wait_until_stores_rest(two.homes());
    assert!(first.held("a.test").is_some() && second.held("a.test").is_some());
    assert!(first.held("b.test").is_none() && second.held("b.test").is_some());
    assert_eq!(two.machines.cluster.keys("removed/"), [place]);
    two.stop();
}

/// Waits until no store is written to for 3 s: no two machines answer each other forever.
fn wait_until_stores_rest(homes: [&Home; 2]) {
    let generations = || homes.map(|home| home.store().unwrap().store().generation().unwrap());
    let mut before = generations();
    wait_for("stores without a change", || {
        std::thread::sleep(Duration::from_secs(3));
        let last = std::mem::replace(&mut before, generations());
        (last == before).then_some(())
    });
}

/// What is imported holds on all machines, also if it begins earlier.
#[test]
fn machines_agree_after_an_older_one_is_imported() {
    let Some(mut two) = Two::start() else { return };
    two.import(&["a.test"], 2022);
    let [first, second] = two.homes();
    second.import(&["a.test"], &pem_from(&["a.test"], 2021));
    let old = begin(second, "a.test");
    wait_for("the older one", || (begin(first, "a.test") == old).then_some(()));
    two.start_the_second_again();
    assert!(two.homes().iter().all(|home| begin(home, "a.test") == old));
    two.stop();
}

/// A copy that is put back takes nothing from others, not even what its own machine has put there
/// since; what was removed since goes again.
#[test]
fn a_copy_that_is_put_back_changes_nothing_elsewhere() {
    let Some(two) = Two::start() else { return };
    two.import(&["a.test"], 2021);
    two.import(&["gone.test"], 2021);
    let [first, second] = two.homes();
    let copy = second.path("copy");
    fs::create_dir(&copy).unwrap();
    second.store().unwrap().store().back_up(&copy.join("data.mdb")).unwrap();
    second.import(&["b.test"], &pem("b.test"));
    first.wait_until_held("b.test");
    first.remove(&["gone.test"]);
    two.wait_until_none_is_left("gone.test");
    two.import(&["a.test"], 2022);
    let new = begin(first, "a.test");
    {
        // A process has a store open once.
        let (copy, store) = (Store::open(&copy).unwrap(), second.store().unwrap());
        assert!(store.store().replace(&copy, || Ok::<_, StoreError>(())).unwrap());
    }
    assert!(second.held("gone.test").is_some() && second.held("b.test").is_none());
    second.wait_until_held("b.test");
    two.wait_until_none_is_left("gone.test");
    wait_for("the newer one", || (begin(second, "a.test") == new).then_some(()));
    assert!(first.held("b.test").is_some());
    assert_eq!(begin(first, "a.test"), new);
    two.stop();
}

/// On a machine whose agent is stopped, of what it serves already.
#[test]
fn what_is_imported_without_an_agent_is_put_after_what_was_removed_before() {
    let Some(mut two) = Two::start() else { return };
    let text = pem("a.test");
    two.homes()[1].import(&["a.test"], &text);
    two.homes()[0].wait_until_held("a.test");
    assert!(two.agents.pop().unwrap().stop().success());
    let [first, second] = two.homes();
    first.remove(&["a.test"]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(first.held("a.test").is_none() && second.held("a.test").is_some());
    second.import(&["a.test"], &text);
    two.agents.push(two.machines.homes[1].start());
    two.homes()[0].wait_until_held("a.test");
    assert!(two.homes()[1].held("a.test").is_some());
    two.stop();
}

/// Out of a copy, into a store that does not know yet what was removed since, and beside it what is
/// served by all already.
#[test]
fn what_is_imported_once_a_copy_was_put_back_is_back_whatever_was_removed_since() {
    let Some(mut two) = Two::start() else { return };
    let gone = pem("gone.test");
    let [first, second] = two.homes();
    second.import(&["gone.test"], &gone);
    first.wait_until_held("gone.test");
    let is_behind = |home: &Home| home.store().unwrap().store().is_behind().unwrap();
    wait_for("all to be there", || (!is_behind(second)).then_some(()));
    let copy = second.path("copy");
    fs::create_dir(&copy).unwrap();
    second.store().unwrap().store().back_up(&copy.join("data.mdb")).unwrap();
    let put_s = |home: &Home| home.held("gone.test").map(|held| held.imported_s);
    let before = put_s(first);
    std::thread::sleep(Duration::from_secs(2));
    second.import(&["gone.test"], &gone);
    assert_eq!(put_s(second), before, "it is what all machines have");
    first.remove(&["gone.test"]);
    two.wait_until_none_is_left("gone.test");
    assert!(two.agents.pop().unwrap().stop().success());
    let second = &two.machines.homes[1];
    {
        let (copy, store) = (Store::open(&copy).unwrap(), second.store().unwrap());
        assert!(store.store().replace(&copy, || Ok::<_, StoreError>(())).unwrap());
    }
    // Times are in seconds; of two in one, the removal holds.
    std::thread::sleep(Duration::from_secs(1));
    second.import(&["gone.test"], &gone);
    two.agents.push(second.start());
    two.homes()[0].wait_until_held("gone.test");
    let second = two.homes()[1];
    wait_for("all to be there", || (!is_behind(second)).then_some(()));
    assert!(second.held("gone.test").is_some());
    two.stop();
}

#[test]
fn a_snapshot_that_is_put_back_brings_nothing_back_that_was_removed() {
    let Some(two) = Two::start() else { return };
    let cluster = &two.machines.cluster;
    two.import(&["a.test"], 2021);
    let snapshot = cluster.folder.path().join("snapshot");
    cluster.control_at(0, &["snapshot", "save", snapshot.to_str().unwrap()]);
    std::thread::sleep(Duration::from_secs(2));
    two.homes()[1].remove(&["a.test"]);
    two.wait_until_none_is_left("a.test");
    cluster.restore(&snapshot);
    // Who lists it first notices; by then the next may find it as new as before.
    two.wait_until_there_are(1, "removed/");
    two.wait_until_there_are(0, "certificate/");
    assert!(two.homes().iter().all(|home| home.held("a.test").is_none()));
    two.stop();
}

#[test]
fn what_a_stranger_puts_back_holds_no_more() {
    let Some(two) = Two::start() else { return };
    let [first, second] = two.homes();
    let cluster = &two.machines.cluster;
    two.import(&["a.test"], 2021);
    let place = cluster.keys("certificate/").pop().unwrap();
    let old = cluster.value(&place);
    two.import(&["a.test"], 2022);
    let new = begin(first, "a.test");
    cluster.put(&place, &old);
    wait_for("the newer one", || (cluster.value(&place) != old).then_some(()));
    second.remove(&["a.test"]);
    two.wait_until_none_is_left("a.test");
    two.wait_until_there_are(1, "removed/");
    let word_at = cluster.keys("removed/").pop().unwrap();
    let word = cluster.value(&word_at);
    // The certificate, behind the word that it is removed.
    two.wait_until_there_are(0, "certificate/");
    cluster.put(&place, &old);
    std::thread::sleep(Duration::from_secs(3));
    assert!(two.homes().iter().all(|home| home.held("a.test").is_none()));
    two.import(&["a.test"], 2022);
    // The word, behind the certificate that was put since.
    cluster.control(&["del", &word_at]);
    cluster.put(&word_at, &word);
    std::thread::sleep(Duration::from_secs(3));
    assert!(new.is_some() && two.homes().iter().all(|home| begin(home, "a.test") == new));
    two.stop();
}

/// The name of an order that was removed is ordered again, also if the order had another.
#[test]
fn a_name_that_was_removed_is_ordered_again() {
    let Some(machines) = Machines::new(1, &[]) else { return };
    let home = &machines.homes[0];
    home.configure(&[
        home.authority(machines.authority.address, ""),
        home.by_dns(&["a.test", "b.test"]),
        machines.cluster.table("m0"),
    ]);
    let agent = home.start();
    home.wait_until_held("a.test");
    let count = |below| machines.cluster.keys(below).len();
    wait_for("it in the cluster", || (count("certificate/") == 1).then_some(()));
    home.remove(&["a.test"]);
    wait_for("the word that it is removed", || (count("removed/") == 1).then_some(()));
    home.wait_until_held("a.test");
    assert!(agent.stop().success());
    assert_eq!(machines.authority.issued(), 2);
}
