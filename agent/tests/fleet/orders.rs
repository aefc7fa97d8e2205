//! Who orders what, and what an order that is put back comes to.

use std::fs;

use super::harness::agent::Home;
use super::harness::wait_for;
use super::machines::{Machines, pem};

/// Each machine looks after some of the names, so that fifty do not all try the same one.
#[test]
fn each_name_is_ordered_by_the_machine_that_looks_after_it() {
    let names: Vec<String> = (0..8).map(|number| format!("n{number}.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(machines) = Machines::new(2, &names) else { return };
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    for home in &machines.homes {
        for name in &names {
            home.wait_until_held(name);
        }
    }
    assert_eq!(machines.authority.issued(), names.len());
    let issued = |home: &Home| home.said().matches(": issued by ").count();
    // A machine has a certificate before it logs it.
    wait_for("each machine's part in its log", || {
        let each: Vec<usize> = machines.homes.iter().map(issued).collect();
        (!each.contains(&0) && each.iter().sum::<usize>() == names.len()).then_some(())
    });
    // Who is there alone looks after all.
    let mut agents = agents.into_iter();
    assert!(agents.next().unwrap().stop().success());
    let (left, home) = (agents.next().unwrap(), &machines.homes[1]);
    let more: Vec<String> = (0..4).map(|number| format!("more{number}.test")).collect();
    let mut tables = vec![home.authority(machines.authority.address, "")];
    tables.extend(more.iter().map(|name| home.by_dns(&[name])));
    tables.push(machines.cluster.table("m1"));
    home.configure(&tables);
    left.reload();
    for name in &more {
        home.wait_until_held(name);
    }
    assert!(left.stop().success());
}

/// Who can write to the cluster, and has no sealing key, puts back the order of a certificate that
/// was removed since.
#[test]
fn an_order_that_is_put_back_brings_no_old_certificate() {
    let Some(machines) = Machines::new(1, &["a.test"]) else { return };
    let (home, cluster) = (&machines.homes[0], &machines.cluster);
    let hook_waits = machines.authority.path("hook-waits");
    fs::write(&hook_waits, "").unwrap();
    let agent = home.start();
    wait_for("its order to be under way", || {
        let is_asked = !machines.authority.hook_calls().is_empty();
        (cluster.keys("order/").len() == 1 && is_asked).then_some(())
    });
    let place = cluster.keys("order/").pop().unwrap();
    let order = cluster.value(&place);
    fs::remove_file(&hook_waits).unwrap();
    let old = home.wait_until_held("a.test").digest;
    // An agent that runs would order it again at once.
    assert!(agent.stop().success());
    home.remove(&["a.test"]);
    cluster.put(&place, &order);
    let agent = home.start();
    let new = home.wait_until_held("a.test").digest;
    assert_ne!(new, old, "what was removed is back, with its old key");
    assert!(agent.stop().success());
}

/// Another machine ended it, and what it brought was removed since: the order that is remembered
/// here brings nothing back.
#[test]
fn an_order_of_this_machine_that_is_over_is_begun_anew() {
    let Some(machines) = Machines::new(1, &["a.test"]) else { return };
    let home = &machines.homes[0];
    let hook_waits = machines.authority.path("hook-waits");
    fs::write(&hook_waits, "").unwrap();
    let agent = home.start();
    wait_for("its order to be under way", || {
        (!machines.authority.hook_calls().is_empty()).then_some(())
    });
    agent.kill();
    let order = || home.entries("acme/order/");
    assert_eq!(order().len(), 1);
    home.import(&["a.test"], &pem("a.test"));
    home.remove(&["a.test"]);
    fs::remove_file(&hook_waits).unwrap();
    let agent = home.start();
    home.wait_until_held("a.test");
    assert_eq!(machines.authority.count_said("Added order "), 2);
    assert!(agent.stop().success());
}
