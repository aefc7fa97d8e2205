//! Roots that machines take out of their stores, where another is announced and then holds.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::version::{TLS12, TLS13};
use sealane_engine::tickets::{Epoch, TicketRoot, UnixSeconds};
use sealane_store::{KeyedStore, SealingKeys, Store, TICKET_ROOTS};

use super::{Fleet, KEY_LIFETIME_S, Kept, Tally, wait_for};
use crate::harness::client::Connector;
use crate::harness::tools::required;

#[test]
fn two_machines_change_to_another_root_at_one_second_as_one_does() {
    change(&[1, 2], Duration::from_secs(3));
}

#[test]
#[ignore = "four minutes"]
fn one_two_and_five_machines_change_to_another_root_at_one_second_every_ten_seconds() {
    change(&[1, 2, 5], Duration::from_secs(10));
}

/// Fails unless all that are offered a ticket within its lifetime resume, and nobody fails, while
/// the root that machines share is replaced by another.
fn change(sizes: &[u8], lifetime: Duration) {
    let (Some(haproxy), Some(cc)) = (required("haproxy"), required("cc")) else { return };
    for machines in sizes {
        let fleet = Fleet::start(&haproxy, &cc, *machines, lifetime, Kept::InStores);
        let mut root = fleet.new_root(lifetime, 1);
        fleet.share(&root, 0..*machines);
        fleet.wait_until_taken(0..*machines, 1);
        let long = lifetime * 6;
        let all = thread::scope(|scope| {
            let load = scope.spawn(|| fleet.load(lifetime, long));
            let from = fleet.announce(&mut root, lifetime, 2, 9);
            fleet.share(&root, 0..*machines);
            fleet.wait_until_taken(0..*machines, 2);
            assert!(fleet.epoch(&root, lifetime) < from, "all have heard before it holds");
            let all = load.join().unwrap();
            assert!(fleet.epoch(&root, lifetime) > from, "it has held under load");
            all
        });
        println!("{machines} machines, another root, keys of {lifetime:?}: {all:?}");
        assert_eq!(all.resumed, all.offered, "each within its lifetime: {all:?}");
        assert!(all.offered > 100, "{all:?}");
        let elsewhere_expected = if *machines == 1 { 0 } else { all.resumed / 4 };
        assert!(all.resumed_elsewhere >= elsewhere_expected, "{all:?}");
        fleet.stop(&all);
    }
}

#[test]
fn a_machine_that_hears_late_of_a_root_resumes_then_and_one_that_never_hears_refuses_nobody() {
    let (Some(haproxy), Some(cc)) = (required("haproxy"), required("cc")) else { return };
    let lifetime = Duration::from_secs(10);
    let fleet = Fleet::start(&haproxy, &cc, 3, lifetime, Kept::InStores);
    let (early, late, never) = (0, 1, 2);
    let mut root = fleet.new_root(lifetime, 1);
    fleet.share(&root, 0..3);
    fleet.wait_until_taken(0..3, 1);
    let mut tally = Tally::default();
    for machines in [[early, late, never], [never, early, late]] {
        assert_eq!(fleet.resumed(&machines, &mut tally), [false, true, true]);
    }
    let from = fleet.announce(&mut root, lifetime, 1, 9);
    fleet.share(&root, early..late);
    fleet.wait_until_taken(early..late, 2);
    // It says so before its state does.
    let shown = wait_for("its state", || {
        let shown = fleet.machines[0].admin("/state");
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        (shown["tickets"]["announced"][0]["epoch"] == from.0).then_some(shown)
    });
    assert_eq!(shown["tickets"]["is_shared"], true);
    wait_for("it holds", || (fleet.epoch(&root, lifetime) >= from).then_some(()));
    // Lanes look at their clock once a second.
    wait_for("the first machine uses it", || {
        (fleet.resumed(&[early, late], &mut tally) == [false, false]).then_some(())
    });
    // With the old root, each opens what itself has sealed, and there is no failure.
    for alone in [late, never] {
        assert_eq!(fleet.resumed(&[early, alone, alone], &mut tally), [false, false, true]);
    }
    // Each ticket is used once, and lanes look at their clock once a second.
    let mut before: Vec<_> = (0..100).map(|_| fleet.connector()).collect();
    for connector in &before {
        assert!(!fleet.visit(connector, early, &mut tally));
    }
    fleet.share(&root, late..never);
    fleet.wait_until_taken(late..never, 2);
    wait_for("what was sealed before it heard of the root", || {
        let connector = before.pop().unwrap();
        fleet.visit(&connector, late, &mut tally).then_some(())
    });
    assert_eq!(fleet.resumed(&[late, early, late], &mut tally), [false, true, true]);
    assert_eq!(fleet.resumed(&[never, never, early], &mut tally), [false, true, false]);
    fleet.stop(&tally);
}

impl Fleet {
    fn now(&self, lifetime: Duration) -> UnixSeconds {
        let rate = KEY_LIFETIME_S / lifetime.as_secs();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let passed = Duration::from_secs_f64((since - self.clock_from_s as f64) * rate as f64);
        UnixSeconds(self.clock_from_s + passed.as_secs())
    }

    fn epoch(&self, root: &TicketRoot, lifetime: Duration) -> Epoch {
        root.epoch_at(self.now(lifetime))
    }

    fn new_root(&self, lifetime: Duration, fill: u8) -> TicketRoot {
        let key_lifetime = Duration::from_secs(KEY_LIFETIME_S);
        TicketRoot::generate(key_lifetime, self.now(lifetime), |bytes| bytes.fill(fill)).unwrap()
    }

    /// Announces another root, for so many epochs later.
    fn announce(&self, root: &mut TicketRoot, lifetime: Duration, later: u64, fill: u8) -> Epoch {
        let from = Epoch(self.epoch(root, lifetime).0 + later);
        root.announce(from, |bytes| bytes.fill(fill)).unwrap();
        from
    }

    /// Puts `root` into the stores of these machines.
    fn share(&self, root: &TicketRoot, machines: std::ops::Range<u8>) {
        for machine in machines {
            let store = Store::open(&self.roots[usize::from(machine)]).unwrap();
            let store = KeyedStore::new(Arc::new(store), key()).unwrap();
            let text = root.to_text().unwrap();
            store.keep(&[], 0, &[(TICKET_ROOTS, Some(text.as_bytes()))]).unwrap();
        }
    }

    fn wait_until_taken(&self, machines: std::ops::Range<u8>, times: usize) {
        for machine in &self.machines[usize::from(machines.start)..usize::from(machines.end)] {
            wait_for("the root is taken", || {
                (machine.count_said("tickets: the root is that of store:") == times).then_some(())
            });
        }
    }

    fn connector(&self) -> Connector {
        Connector::new(self.authority.der(), &TLS13).with_own_tickets()
    }

    /// Whether each visit of one client resumes what it got by the visit before.
    fn resumed(&self, machines: &[u8], tally: &mut Tally) -> Vec<bool> {
        let (tls12, tls13) = (Connector::new(self.authority.der(), &TLS12), self.connector());
        let each = [tls12.with_own_tickets(), tls13].map(|connector| {
            let visits = machines.iter().map(|machine| self.visit(&connector, *machine, tally));
            visits.collect::<Vec<bool>>()
        });
        assert_eq!(each[0], each[1], "TLS 1.2 and 1.3 at {machines:?}");
        let [_, last] = each;
        last
    }

    fn visit(&self, connector: &Connector, machine: u8, tally: &mut Tally) -> bool {
        let mut client = connector.connect(self.addresses[usize::from(machine)]).unwrap();
        let resumed = client.resumed();
        assert_eq!(client.read_rest().unwrap(), [machine]);
        tally.handshakes += 1;
        tally.resumed += u64::from(resumed);
        resumed
    }
}

/// Makes a store, and names it as a configuration does.
pub(super) fn make(folder: &Path) -> String {
    drop(Store::open_or_create(folder).unwrap());
    let file = folder.with_file_name("store.key");
    std::fs::write(&file, KEY).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    format!("store:{}", folder.display())
}

fn key() -> SealingKeys {
    SealingKeys::from_text(KEY).unwrap()
}

/// What opens it.
pub(super) const KEY_OF_STORE: &str = "store_key = { file = \"store.key\" }";
const KEY: &str = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\n";
