//! What is lost for good, and what to do then, as the page on fleets has it.

use std::fs;

use sealane_operator::create_key_file;

use super::harness::agent::{Home, run};
use super::harness::wait_for;
use super::machines::{Machines, pem};

/// What machines have in their stores they put into an empty cluster.
#[test]
fn a_cluster_that_lost_everything_is_filled_again_by_any_machine() {
    let Some(machines) = Machines::with_three_servers(2, &["a.test"]) else { return };
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    machines.homes[0].import(&["b.test"], &pem("b.test"));
    for name in ["a.test", "b.test"] {
        machines.homes[1].wait_until_held(name);
    }
    machines.cluster.start_over();
    for agent in &agents {
        agent.wait_until_said("this is another cluster than before");
    }
    wait_for("what was lost", || (machines.cluster.keys("certificate/").len() == 2).then_some(()));
    // A machine that is new has all of it from there.
    let third = machines.homes[0].beside(&machines.authority);
    let authority = third.authority(machines.authority.address, "");
    third.configure(&[authority, third.by_dns(&["a.test"]), machines.cluster.table("m2")]);
    let new = third.start();
    for name in ["a.test", "b.test"] {
        let held = third.wait_until_held(name);
        assert_eq!(Some(held.digest), machines.homes[0].held(name).map(|one| one.digest));
    }
    assert_eq!(machines.authority.issued(), 1, "nothing was ordered again");
    for agent in agents.into_iter().chain([new]) {
        assert!(agent.stop().success());
    }
}

/// What was sealed with a key that nobody has any more is nothing; all is ordered anew.
#[test]
fn without_the_sealing_key_all_is_removed_and_ordered_anew() {
    let Some(machines) = Machines::new(2, &["a.test"]) else { return };
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    let before = machines.homes[0].wait_until_held("a.test");
    machines.homes[1].wait_until_held("a.test");
    for agent in agents {
        assert!(agent.stop().success());
    }
    let key = machines.homes[0].path("key");
    fs::remove_file(&key).unwrap();
    create_key_file(&key).unwrap();
    fs::copy(&key, machines.homes[1].path("key")).unwrap();
    let (said, code) = run(&["check", "--config", "agent.toml"], &machines.homes[0]);
    assert!(code == Some(3) && said.contains("sealed with"), "{said}");
    machines.cluster.control(&["del", "--prefix", "/sealane/test/"]);
    for home in &machines.homes {
        fs::remove_dir_all(home.path("store")).unwrap();
    }
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    for home in &machines.homes {
        assert_ne!(home.wait_until_held("a.test").digest, before.digest);
    }
    assert_eq!(machines.authority.issued(), 2, "once for the fleet");
    for agent in agents {
        assert!(agent.stop().success());
    }
}
