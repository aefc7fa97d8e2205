//! Ticket roots of machines that share them through real servers of etcd.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sealane_engine::tickets::{TicketRoot, UnixSeconds};
use sealane_store::TICKET_ROOTS;

use super::harness::agent::{Home, run};
use super::harness::wait_for;
use super::machines::Machines;

#[test]
fn one_machine_makes_a_ticket_root_and_all_have_it_and_each_that_follows() {
    let Some(machines) = Machines::new(3, &[]) else { return };
    let (homes, cluster) = (&machines.homes, &machines.cluster);
    let mut agents: Vec<_> = homes.iter().map(Home::start).collect();
    let first = shared(homes, |_| true);
    assert_eq!(first.lines().count(), 1);
    let entry = cluster.control(&["get", ROOTS, "-w", "json"]);
    assert!(entry.contains("\"version\":1,"), "of three that were there, one was first: {entry}");
    let value = cluster.control(&["get", ROOTS, "-w", "fields"]);
    assert!(!value.contains("sealane-ticket-root"), "sealed: {value}");

    let said = rotate(&homes[1]);
    assert!(said.contains("a new ticket root holds from epoch"), "{said}");
    let second = shared(homes, |text| text != first);
    assert!(second.starts_with(&first), "what holds until then is as before");
    let root = TicketRoot::from_text(&second).unwrap();
    let from = root.announced().next().unwrap();
    assert_eq!((root.announced().count(), from.0), (1, root.epoch_at(now()).0 + 3));

    // One that is away hears of the next one when it is back.
    agents.pop().unwrap().kill();
    rotate(&homes[0]);
    let third = shared(&homes[..2], |text| text != second);
    assert!(third.starts_with(&first) && third.lines().count() == 2, "it takes its place");
    assert_eq!(stored(&homes[2]).as_ref(), Some(&second));
    agents.push(homes[2].start());
    assert_eq!(shared(homes, |text| text != second), third);
    for agent in agents {
        assert!(agent.stop().success());
    }
}

#[test]
fn what_is_put_into_an_empty_cluster_opens_nothing_old() {
    let Some(machines) = Machines::new(2, &[]) else { return };
    let homes = &machines.homes;
    let agent = homes[0].start();
    shared(&homes[..1], |_| true);
    assert!(agent.stop().success());
    let lifetime = Duration::from_secs(43_200);
    let then = UnixSeconds(now().0 - 20 * lifetime.as_secs());
    let old = TicketRoot::generate(lifetime, then, |bytes| bytes.fill(7)).unwrap();
    let text = old.to_text().unwrap();
    let store = wait_for("the store", || homes[0].store());
    store.keep(&[], 0, &[(TICKET_ROOTS, Some(text.as_bytes()))]).unwrap();
    // A process opens one only once.
    drop(store);
    machines.cluster.control(&["del", ROOTS]);
    let agents: Vec<_> = homes[..1].iter().map(Home::start).collect();
    wait_for("the root in the cluster", || {
        (!machines.cluster.keys("entry/tickets/").is_empty()).then_some(())
    });
    let other = homes[1].start();
    let root = TicketRoot::from_text(&shared(homes, |shared| shared != *text)).unwrap();
    assert_eq!(root.epoch(), root.oldest_accepted_at(now()), "older secrets are erased");
    assert!(root.agrees_with(&old) || root.announced().count() == 1, "it is the same one");
    for agent in agents.into_iter().chain([other]) {
        assert!(agent.stop().success());
    }
}

#[test]
fn roots_that_a_stranger_puts_back_or_ruins_set_nobody_back() {
    let Some(machines) = Machines::new(3, &[]) else { return };
    let (homes, cluster) = (&machines.homes, &machines.cluster);
    let mut agents: Vec<_> = homes[..2].iter().map(Home::start).collect();
    let first = shared(&homes[..2], |_| true);
    let old = cluster.value(ROOTS);
    rotate(&homes[0]);
    let second = shared(&homes[..2], |text| text != first);
    for strange in [old.as_slice(), b"junk"] {
        cluster.put(ROOTS, strange);
        // One that begins looks into the cluster whatever it has been told.
        assert!(agents.pop().unwrap().stop().success());
        agents.push(homes[1].start());
        wait_for("the roots are put back", || {
            let now = cluster.value(ROOTS);
            (now != strange && !now.is_empty()).then_some(())
        });
        assert_eq!(shared(&homes[..2], |_| true), second, "nobody took the older ones");
    }
    // By a command, while the cluster has the old ones: what is here counts.
    cluster.put(ROOTS, &old);
    rotate(&homes[0]);
    let third = shared(&homes[..2], |text| text != second);
    assert!(third.starts_with(&first), "what holds until then is as before");
    agents.push(homes[2].start());
    assert_eq!(shared(homes, |_| true), third, "one that joins has what holds");
    for agent in agents {
        assert!(agent.stop().success());
    }
}

#[test]
fn a_machine_that_joins_once_all_of_etcd_was_lost_takes_the_roots_that_were_there() {
    let Some(machines) = Machines::new(2, &[]) else { return };
    let (homes, cluster) = (&machines.homes, &machines.cluster);
    let first = homes[0].start();
    let before = shared(&homes[..1], |_| true);
    assert!(first.stop().success());
    cluster.start_over();
    // It is there alone, and makes one.
    let second = homes[1].start();
    let its_own = shared(&homes[1..], |_| true);
    assert_ne!(its_own, before);
    // What was counted further holds: here it was rotated once.
    assert!(second.stop().success());
    cluster.start_over();
    let first = homes[0].start();
    wait_for("the root is put there", || (!cluster.value(ROOTS).is_empty()).then_some(()));
    rotate(&homes[0]);
    let rotated = shared(&homes[..1], |text| text != before);
    assert!(rotated.starts_with(&before), "nobody's tickets are lost");
    cluster.start_over();
    let second = homes[1].start();
    assert_eq!(shared(homes, |_| true), rotated);
    for agent in [first, second] {
        assert!(agent.stop().success());
    }
}

/// What all of them have, once it is the same and `is_it`.
fn shared(homes: &[Home], is_it: impl Fn(&str) -> bool) -> String {
    wait_for("ticket roots", || {
        let all: Option<Vec<_>> = homes.iter().map(stored).collect();
        let all = all?;
        (is_it(&all[0]) && all.iter().all(|one| *one == all[0])).then(|| all[0].clone())
    })
}

fn stored(home: &Home) -> Option<String> {
    let entry = home.store()?.kept(TICKET_ROOTS).unwrap()?;
    Some(String::from_utf8(entry.to_vec()).unwrap())
}

fn rotate(home: &Home) -> String {
    let (said, code) = run(&["fleet", "rotate-tickets", "--config", "agent.toml"], home);
    assert_eq!(code, Some(0), "{said}");
    said
}

/// Where the roots are in the cluster.
const ROOTS: &str = "/sealane/test/entry/tickets/roots";

fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}
