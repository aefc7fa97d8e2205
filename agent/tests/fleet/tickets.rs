//! Ticket roots of machines that share them through three real servers of etcd.

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
    let entry = cluster.control(&["get", "/sealane/test/entry/tickets/roots", "-w", "json"]);
    assert!(entry.contains("\"version\":1,"), "of three that were there, one was first: {entry}");
    let value = cluster.control(&["get", "/sealane/test/entry/tickets/roots", "-w", "fields"]);
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
    machines.cluster.control(&["del", "/sealane/test/entry/tickets/roots"]);
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

fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}
