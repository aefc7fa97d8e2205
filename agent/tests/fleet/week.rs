//! A week without etcd, by a wall clock of the agents that makes it pass in half a minute.

use std::time::Duration;

use sealane_store::TICKET_ROOTS;

use super::harness::agent::Home;
use super::harness::{required, wait_for};
use super::machines::{Machines, pem};
use super::resumption::fast_clock;
use super::serving::{Serve, body};

/// What waits, leases, tokens and roots come to while nobody is asked, nothing is lost by it.
#[test]
#[ignore = "two minutes; ./check --all runs it"]
fn after_a_week_without_etcd_all_is_served_and_shared_again() {
    let Some(cc) = required("/usr/bin/cc".into()) else { return };
    let Some(machines) = Machines::with_three_servers(2, &["a.test"]) else { return };
    let (homes, cluster) = (&machines.homes, &machines.cluster);
    let agents: Vec<_> = homes.iter().map(Home::start).collect();
    for home in homes {
        home.wait_until_held("a.test");
        wait_for("ticket roots", || roots(home));
    }
    let Some(serve) = Serve::start(&homes[1]) else { return };
    let shown = serve.shown("a.test");
    assert!(shown.len() > 100 && body(&pem("a.test")) != shown);
    for agent in agents {
        assert!(agent.stop().success());
    }
    cluster.kill_all();
    let clock = fast_clock(&cc, homes[0].folder.path(), WEEK_S / 30);
    let agents: Vec<_> = homes.iter().map(|home| home.start_with(&clock)).collect();
    for agent in &agents {
        agent.wait_until_said("what is served is served on");
    }
    std::thread::sleep(Duration::from_secs(31));
    assert_eq!(serve.shown("a.test"), shown);
    cluster.start_again();
    homes[0].import(&["b.test"], &pem("b.test"));
    homes[1].wait_until_held("b.test");
    // Each epoch is two seconds now.
    wait_for("the same roots", || (roots(&homes[0])? == roots(&homes[1])?).then_some(()));
    assert_eq!(serve.shown("a.test"), shown);
    assert_eq!(machines.authority.issued(), 1, "nothing is ordered again");
    for (home, agent) in homes.iter().zip(agents) {
        assert!(!home.said().contains("fault"), "{}", home.said());
        assert!(agent.stop().success());
    }
}

fn roots(home: &Home) -> Option<Vec<u8>> {
    Some(home.store()?.kept(TICKET_ROOTS).unwrap()?.to_vec())
}

const WEEK_S: u64 = 7 * 86_400;
