//! A fleet of one machine at a fake etcd.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use sealane_engine::certificates::{Certificate, DefaultCertificate, IndexBuilder};
use sealane_engine::tickets::{TicketRoot, UnixSeconds};
use sealane_operator::{KeySource, create_key_file, sealing_keys};
use sealane_renewal::CertificateId;
use sealane_store::{KeyedStore, SealingKeys, Store, TICKET_ROOTS};
use tempfile::TempDir;
use tokio::task::{LocalSet, spawn_local};

use super::*;
use crate::clock::{now, now_s};
use crate::etcd::Change;
use crate::etcd::fake::FakeEtcd;
use crate::ledger::Answer;
use crate::settings::{EtcdSettings, FleetSettings, RootSource};

/// A machine with a store of its own, and the cluster that it sees.
pub(super) struct Machine {
    pub(super) fleet: Rc<Fleet>,
    pub(super) fake: FakeEtcd,
    /// The key that was the fleet's before, which this machine has, too.
    pub(super) older: SealingKeys,
    pub(super) store: Arc<KeyedStore>,
    _folder: TempDir,
}

impl Machine {
    async fn new() -> Self {
        let (fake, folder) = (FakeEtcd::start().await, tempfile::tempdir().unwrap());
        let root = rcgen::generate_simple_self_signed(["ca.test".to_owned()]).unwrap();
        std::fs::write(folder.path().join("roots"), root.cert.pem()).unwrap();
        let (older, line) = SealingKeys::generate().unwrap();
        let file = folder.path().join("key");
        create_key_file(&file).unwrap();
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + &line).unwrap();
        let store = Store::open_or_create(&folder.path().join("store")).unwrap();
        let store = Arc::new(KeyedStore::new(Arc::new(store), keys(folder.path())).unwrap());
        let settings = FleetSettings {
            etcd: EtcdSettings {
                // A second one is asked when the first one is at fault.
                endpoints: vec![fake.endpoint.clone(); 2],
                identity: None,
                login: None,
                roots: vec![RootSource::File(folder.path().join("roots"))],
            },
            lease: Duration::from_secs(60),
            machine: "m0".into(),
            prefix: "/sealane/".into(),
            ticket_lifetime: Duration::from_secs(43_200),
            ticket_root_every: Duration::from_secs(604_800),
        };
        let fleet = Fleet::new(&settings, Arc::clone(&store), keys(folder.path())).unwrap();
        Self { fleet, fake, older, store, _folder: folder }
    }

    /// Puts a certificate for a name into the store, as if that had been so long ago; returns its
    /// place.
    pub(super) fn import(&self, name: &str, ago_s: i64) -> String {
        let certificate = certificate(&self.fleet, name);
        let put_s = i64::try_from(now().0).unwrap() - ago_s;
        self.store.import(&[Arc::clone(&certificate)], put_s).unwrap();
        self.fleet.places.certificate([name], certificate.key_type())
    }
}

/// A certificate for a name, which begins long ago.
pub(super) fn certificate(fleet: &Fleet, name: &str) -> Arc<Certificate> {
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
    let mut builder = IndexBuilder::new(&fleet.provider, 0);
    builder.add("push", (leaf.pem() + &key.serialize_pem()).as_bytes());
    let indexed = builder.finish(DefaultCertificate::Absent);
    assert!(indexed.errors.is_empty(), "{:?}", indexed.errors);
    indexed.index.iter().next().map(Arc::clone).unwrap()
}

fn keys(folder: &Path) -> SealingKeys {
    sealing_keys(&KeySource::File(folder.join("key"))).unwrap()
}

/// Runs a test beside the cluster that it sees.
pub(super) fn with_machine(test: impl AsyncFnOnce(Machine)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = async { test(Machine::new().await).await };
    runtime.block_on(LocalSet::new().run_until(run));
}

/// Waits until it is so, for as long as a busy machine may take.
pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within a minute: {what}");
}

const ID: CertificateId = CertificateId(5);

/// What it hangs on is its own, and lasts as long as the settings say.
#[test]
fn a_claim_hangs_on_a_lease() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        fleet.came_back();
        let (claim, _) = fleet.claim(ID, "a.test").await.unwrap();
        let (holder, lease) = fake.entry(&fleet.places.claim(ID)).unwrap();
        assert_eq!(holder, b"m0");
        assert_eq!(fake.asked("lease/grant")[0]["TTL"], "60");
        drop(claim);
        until("it to be given back", || !fake.asked("lease/revoke").is_empty()).await;
        assert_eq!(fake.asked("lease/revoke")[0]["ID"], lease.to_string());
    });
}

/// Nobody gives it back, and no time ends it: whoever waits has to be told.
#[test]
fn a_claim_on_no_lease_is_told_with_what_to_do() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        fleet.came_back();
        let place = fleet.places.claim(ID);
        fake.put_unheard(&place, b"a stranger");
        let Err(failed) = fleet.claim(ID, "a.test").await else { panic!("it is claimed") };
        assert!(failed.text.contains(&format!("delete it: etcdctl del {place}")), "{failed:?}");
        assert_eq!(fake.asked("lease/revoke").len(), 1, "its own lease is given back");
    });
}

/// A server that loses its leader says that time ran out, whatever comes of it.
#[test]
fn a_claim_whose_answer_is_lost_is_this_machines() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        fleet.came_back();
        fake.lose_answer("kv/txn");
        let Ok((claim, _)) = fleet.claim(ID, "a.test").await else { panic!("it is another's") };
        assert_eq!(fake.asked("kv/txn").len(), 2, "the second one was asked, too");
        claim.keep(b"an order", &[]).await.unwrap();
        assert!(fake.entry(&fleet.places.order(ID)).is_some(), "its fence holds");
    });
}

/// What whoever had the claim before put into the cluster, under whichever names, is in the store
/// before it is judged whether there is anything to order.
#[test]
fn an_order_waits_until_all_is_here_that_was_there_when_it_was_claimed() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        fleet.came_back();
        fake.put_unheard("/sealane/another", b"put before");
        fleet.seen.set(100);
        let (claim, _) = fleet.claim(ID, "a.test").await.unwrap();
        let waited = Rc::new(Cell::new(false));
        let waits = Rc::clone(&waited);
        let waiting = spawn_local(async move {
            let is_here = claim.wait_until_all_is_here().await;
            waits.set(true);
            is_here
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        fleet.seen.set(101);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!waited.get(), "it was claimed behind that");
        fleet.seen.set(102);
        assert!(waiting.await.unwrap());
    });
}

#[test]
fn whoever_waits_hears_that_the_cluster_is_back() {
    with_machine(async |machine| {
        let heard = Rc::new(Cell::new(false));
        let hears = Rc::clone(&heard);
        let fleet = Rc::clone(&machine.fleet);
        spawn_local(fleet.share(move |names| hears.set(hears.get() || names.is_empty())));
        until("word of it", || heard.get()).await;
        assert!(machine.fleet.is_complete());
    });
}

/// The fourth time is no sooner than after three and a half seconds, the fifth after seven and a
/// half.
#[test]
fn a_cluster_that_refuses_is_asked_less_and_less() {
    with_machine(async |machine| {
        machine.fake.refuse_all();
        spawn_local(Rc::clone(&machine.fleet).share(|_| ()));
        tokio::time::sleep(Duration::from_secs(4)).await;
        let asked = machine.fake.asked("kv/range").len();
        assert!((1..=8).contains(&asked), "two servers each time: {asked}");
    });
}

/// What nobody needs is erased here, too, and not once the cluster is back.
#[test]
fn ticket_roots_are_brought_forward_without_the_cluster() {
    with_machine(async |machine| {
        let then = UnixSeconds(now().0 - 20 * 43_200);
        let fill = |bytes: &mut [u8]| bytes.fill(7);
        let old = TicketRoot::generate(Duration::from_secs(43_200), then, fill).unwrap();
        let text = old.to_text().unwrap();
        machine.store.keep(&[], 0, &[(TICKET_ROOTS, Some(text.as_bytes()))]).unwrap();
        machine.fake.refuse_all();
        spawn_local(Rc::clone(&machine.fleet).keep_tickets());
        let stored = || {
            let entry = machine.store.kept(TICKET_ROOTS).unwrap().unwrap();
            TicketRoot::from_text(str::from_utf8(&entry).unwrap()).unwrap()
        };
        until("a later root", || stored().epoch() > old.epoch()).await;
        assert_eq!(stored().epoch(), old.oldest_accepted_at(UnixSeconds(now().0)));
        assert!(stored().agrees_with(&old), "it is the same one");
    });
}

/// Entries of somebody who writes into the store's file count as nothing, and all else
/// goes on.
#[test]
fn entries_of_the_store_that_no_key_opens_stop_no_roots_and_no_accounts() {
    with_machine(async |machine| {
        let Machine { fleet, fake, store, .. } = &machine;
        let (theirs, _) = SealingKeys::generate().unwrap();
        let stranger = KeyedStore::new(Arc::clone(store.store()), theirs).unwrap();
        let (ruined, good) = ("acme/account/0", "acme/account/1");
        let junk = [TICKET_ROOTS, "fleet/tickets", ruined].map(|name| (name, Some(&b"x"[..])));
        stranger.keep(&[], 0, &junk).unwrap();
        store.keep(&[], 0, &[(good, Some(b"{\"url\":\"https://ca.test/1\"}"))]).unwrap();
        fleet.came_back();
        spawn_local(Rc::clone(fleet).keep_tickets());
        let is_there = |name: &str| fake.entry(&fleet.places.entry(name)).is_some();
        until("an account", || is_there(good)).await;
        until("roots for all", || is_there(TICKET_ROOTS)).await;
        until("its own roots", || matches!(store.kept(TICKET_ROOTS), Ok(Some(_)))).await;
        assert!(!is_there(ruined));
        // The roots are in order again.
        until("it to be seen", || fleet.passed_over.borrow().len() == 1).await;
        tell(fleet).await;
        let (told, _) = fake.entry(&fleet.places.status("m0")).unwrap();
        let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
        assert_eq!(told["not_taken"], 1, "{told}");
    });
}

/// Roots of a machine that has another sealing key are let alone, and this machine's are
/// brought forward.
#[test]
fn roots_of_the_cluster_that_no_key_opens_stop_none_of_this_machine() {
    with_machine(async |machine| {
        let Machine { fleet, fake, store, .. } = &machine;
        let then = UnixSeconds(now().0 - 20 * 43_200);
        let fill = |bytes: &mut [u8]| bytes.fill(7);
        let old = TicketRoot::generate(Duration::from_secs(43_200), then, fill).unwrap();
        let text = old.to_text().unwrap();
        store.keep(&[], 0, &[(TICKET_ROOTS, Some(text.as_bytes()))]).unwrap();
        let place = fleet.places.entry(TICKET_ROOTS);
        let (theirs, _) = SealingKeys::generate().unwrap();
        let sealed = theirs.seal_for(&place, b"of another").unwrap();
        fake.put_unheard(&place, &sealed);
        fleet.came_back();
        spawn_local(Rc::clone(fleet).keep_tickets());
        let stored = || {
            let entry = store.kept(TICKET_ROOTS).unwrap().unwrap();
            TicketRoot::from_text(str::from_utf8(&entry).unwrap()).unwrap()
        };
        until("a later root", || stored().epoch() > old.epoch()).await;
        assert!(stored().agrees_with(&old), "it is the same one");
        assert_eq!(fake.entry(&place).unwrap().0, sealed, "they are let alone");
        assert_eq!(fleet.passed_over.borrow().len(), 1, "told once");
    });
}

/// A machine is there for a while after its last word, and no longer.
#[test]
fn what_a_machine_tells_of_itself_runs_out_soon_after_its_last_word() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        tell(fleet).await;
        let place = fleet.places.status("m0");
        let (_, lease) = fake.entry(&place).unwrap();
        assert_ne!(lease, 0);
        let granted = fake.asked("lease/grant");
        assert_eq!(granted.len(), 1);
        assert_eq!(granted[0]["TTL"], "30", "as docs/fleet.md has it, and three times its word");
    });
}

/// Reports the status of a machine, as a process does that has just started.
async fn tell(fleet: &Fleet) {
    status::Reported::default().renew(fleet, 0, &mut BTreeSet::new()).await.unwrap();
}

/// An order waits until all machines say that they have its answers.
#[test]
fn an_order_waits_for_all_machines() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        fleet.came_back();
        let (claim, _) = fleet.claim(ID, "a.test").await.unwrap();
        ["m0", "m1"].iter().for_each(|name| fleet.note_machine(name, true));
        let claim = Rc::new(claim);
        let waits = Rc::clone(&claim);
        let answer = Answer::over_http("t", "x");
        let kept = spawn_local(async move { waits.keep(b"an order", &[answer]).await });
        let place = fleet.places.entry("challenge/http-01/t");
        until("the answer", || fake.entry(&place).is_some()).await;
        let entry = fleet.etcd.get(&place).await.unwrap().unwrap();
        let mut answers = BTreeSet::from([entry.mod_revision]);
        let mut reported = status::Reported::default();
        reported.renew(fleet, 0, &mut answers).await.unwrap();
        assert!(answers.is_empty(), "it is told once");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!kept.is_finished(), "another machine has not said so");
        let below = fleet.places.answered(entry.mod_revision);
        fake.put_unheard(&(below.clone() + "m1"), b"");
        kept.await.unwrap().unwrap();
        assert!(fake.entry(&(below + "m0")).is_none(), "nothing is left of it");
    });
}

/// More than a page of them, of which the cluster has the last one.
#[test]
fn answers_that_are_over_are_dropped_however_many_they_are() {
    with_machine(async |machine| {
        let Machine { fleet, store, .. } = &machine;
        let names: Vec<String> =
            (0..1_200).map(|at| format!("challenge/http-01/{at:04}")).collect();
        let all: Vec<_> = names.iter().map(|name| (name.as_str(), Some(&b"x"[..]))).collect();
        store.keep(&[], 0, &all).unwrap();
        let last = names.last().unwrap();
        let there = HashSet::from([fleet.places.entry(last)]);
        entries::drop_answers(fleet, &there).unwrap();
        assert_eq!(store.kept_names("challenge/", None, 9).unwrap(), [last.as_str()]);
    });
}

#[test]
fn machines_are_told_of_however_many_they_are() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        for number in 0..1_200 {
            let place = fleet.places.status(&format!("m{number:04}"));
            fake.put_unheard(&place, status_text(number, 0).as_bytes());
        }
        fake.put_unheard(&fleet.places.status("of-another"), b"{}");
        let all = Statuses::ask(&fleet.etcd, "/sealane/").await.unwrap();
        assert_eq!((all.told.len(), all.strange.len()), (1_200, 1));
        assert!(all.strange[0].contains("of-another: is nothing that"), "{:?}", all.strange);
        let asked = fake.asked("kv/range");
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[1]["revision"], "1301", "all of one moment");
    });
}

/// The others do not take its words of removed names, and it would see nothing of that.
#[test]
fn a_machine_whose_clock_is_ahead_of_most_others_says_so() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        ["m1", "m2"].iter().for_each(|name| fleet.note_machine(name, true));
        let put = |number: usize, before_s| {
            let place = fleet.places.status(&format!("m{number}"));
            fake.put_unheard(&place, status_text(number, before_s).as_bytes());
        };
        let mut is_told = Vec::new();
        let day_s = 86_400;
        for (first, second) in [(0, -2 * day_s), (0, 2 * day_s), (2 * day_s, 3 * day_s), (0, 0)] {
            put(1, first);
            put(2, second);
            fleet.clocks.looked.set(None);
            fleet.look_at_clocks().await.unwrap();
            tell(fleet).await;
            let all = Statuses::ask(&fleet.etcd, "/sealane/").await.unwrap().told;
            let this = serde_json::to_value(&all[0]).unwrap();
            assert_eq!(this["machine"], "m0");
            is_told.push(this["is_clock_ahead"] == true);
            let table = table(&all);
            let clocks: Vec<_> = table.lines().filter_map(|line| line.rsplit(' ').next()).collect();
            let expected = match first + second {
                0 => ["CLOCK", "right", "right", "right"],
                172_800 => ["CLOCK", "right", "right", "-2d"],
                432_000 => ["CLOCK", "right", "-2d", "-3d"],
                _ => ["CLOCK", "right", "right", "+2d"],
            };
            assert_eq!(clocks.len(), expected.len());
            for (clock, expected) in clocks.iter().zip(expected) {
                assert!(clock.starts_with(expected), "{clock} of {table}");
            }
        }
        assert_eq!(is_told, [false, false, true, false], "of most, and until it is right");
        // Its own is none of the others.
        let second = fleet.places.status("m2");
        fleet.etcd.change(&[Change::Delete(&second)]).await.unwrap();
        fleet.clocks.note("m2", None);
        put(1, 2 * day_s);
        fleet.clocks.looked.set(None);
        fleet.look_at_clocks().await.unwrap();
        assert!(fleet.clocks.judge());
    });
}

/// What a machine tells whose clock is by so much before this one's.
fn status_text(number: usize, before_s: i64) -> String {
    let told_s = now_s() - before_s;
    serde_json::json!({
        "certificates": 0, "generation": 0, "machine": format!("m{number}"), "not_taken": 0,
        "revision": 0, "soonest_end_s": null, "told_s": told_s, "version": "0.2.0",
    })
    .to_string()
}
