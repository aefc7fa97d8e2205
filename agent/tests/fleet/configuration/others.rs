//! Who has no part in a configuration: a stranger who writes to the cluster, and another fleet.

use std::fs;
use std::time::Duration;

use super::super::harness::agent::Home;
use super::super::harness::wait_for;
use super::super::machines::{Machines, pem};
use super::super::serving::Serve;
use super::{Fleet, begin, configure, text, told};

/// The place is taken under the lease of its command, which the stranger's copy does not hang on.
#[test]
fn a_copy_under_a_strangers_lease_ends_what_was_on_trial() {
    let Some(fleet) = Fleet::start(2) else { return };
    let cluster = &fleet.machines.cluster;
    let (said, code) = configure(&fleet.homes()[0], &text("one", "site.pem"), &[]);
    assert_eq!(code, Some(0), "{said}");
    let mut begun = begin(&fleet.homes()[0], &text("two", "site.pem"));
    wait_for("it to hold first on one", || (fleet.serve("two") == [true, false]).then_some(()));
    let place = "/sealane/test/configuration/proposed";
    let copy = cluster.folder.path().join("copy");
    fs::write(&copy, cluster.value(place)).unwrap();
    let granted = cluster.control(&["lease", "grant", "600"]);
    let lease = granted.split(' ').nth(1).unwrap();
    cluster.shell(&format!("etcdctl put --lease={lease} {place} < {}", copy.display()));
    begun.kill().unwrap();
    begun.wait().unwrap();
    wait_for("the one before", || (fleet.serve("one") == [true, true]).then_some(()));
    assert_eq!(fleet.serve("two"), [false, false]);
    cluster.control(&["lease", "revoke", lease]);
    fleet.stop();
}

/// The sealing key is the same, and so may the cluster be: numbers are a fleet's own.
#[test]
fn a_machine_that_comes_from_another_fleet_brings_no_text() {
    let Some(machines) = Machines::new(2, &[]) else { return };
    let [first, second] = &machines.homes[..] else { panic!() };
    let join = |home: &Home, which: &str| {
        let path = home.path("agent.toml");
        let settings = fs::read_to_string(&path).unwrap();
        let is_it = |line: &&str| line.starts_with("prefix = ");
        let before = settings.lines().find(is_it).unwrap();
        let after = format!("prefix = \"/sealane/test/{which}/\"");
        fs::write(&path, settings.replace(before, &after)).unwrap();
        home.start()
    };
    for home in [first, second] {
        fs::write(home.path("site.pem"), pem("site.test")).unwrap();
    }
    let (moving, other) = (join(first, "a"), join(second, "b"));
    let serves = [first, second].map(|home| Serve::start_including(home).unwrap());
    wait_for("each in its fleet", || {
        [first, second].iter().all(|home| told(home).len() == 1).then_some(())
    });
    for (home, name) in [(first, "staging"), (first, "staging"), (second, "prod")] {
        let (said, code) = configure(home, &text(name, "site.pem"), &[]);
        assert_eq!(code, Some(0), "{said}");
    }
    assert!(moving.stop().success());
    let moved = join(first, "b");
    wait_for("it to take what holds there", || serves[0].has("prod").then_some(()));
    std::thread::sleep(Duration::from_secs(4));
    assert!(serves.iter().all(|serve| serve.has("prod") && !serve.has("staging")));
    for agent in [moved, other] {
        assert!(agent.stop().success());
    }
}
