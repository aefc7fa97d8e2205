//! Certificates that change, which a lane serves together with files.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use rcgen::PKCS_ECDSA_P256_SHA256;
use rustls::SignatureScheme;

use super::lane::{hello, resolve};
use super::served::LOOKED_UP;
use super::*;
use crate::context::{Context, ContextId, LaneContext, LaneResources, Refusal};
use crate::hello::Hello;
use crate::policy::{Policy, UnknownNames};
use crate::tickets::{TicketRoot, UnixSeconds};

/// A store in memory. It lives on the test's thread alone, which [`fragile::Fragile`] sees to.
#[derive(Debug)]
struct InMemory(fragile::Fragile<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    certificates: RefCell<HashMap<String, Arc<Certificate>>>,
    challenges: RefCell<HashMap<String, Arc<Certificate>>>,
    gone: RefCell<Vec<CertificateDigest>>,
    is_broken: Cell<bool>,
    is_list_of_gone_broken: Cell<bool>,
    opened: Cell<usize>,
    version: Cell<u64>,
}

impl InMemory {
    fn new() -> Arc<Self> {
        Arc::new(Self(fragile::Fragile::new(Shelf::default())))
    }

    /// Serves another certificate for `name`, or none.
    fn set(&self, name: &str, certificate: Option<Arc<Certificate>>) {
        let shelf = self.0.get();
        let before = match certificate {
            Some(certificate) => shelf.certificates.borrow_mut().insert(name.into(), certificate),
            None => shelf.certificates.borrow_mut().remove(name),
        };
        shelf.gone.borrow_mut().extend(before.map(|before| before.digest()));
        shelf.version.set(shelf.version.get() + 1);
    }
}

impl CertificateStore for InMemory {
    fn id(&self) -> StoreId {
        StoreId([1; 16])
    }

    fn view(&self) -> Result<Box<dyn StoreView + '_>, StoreFailure> {
        let shelf = self.0.get();
        if shelf.is_broken.get() { Err(StoreFailure) } else { Ok(Box::new(shelf)) }
    }

    fn inventory(&self, entries_max: usize) -> Result<Inventory, InventoryFailure> {
        let shelf = self.0.get().certificates.borrow();
        let soonest = shelf.values().take(entries_max).map(|each| InventoryEntry::from(&**each));
        let certificates = shelf.len() as u64;
        Ok(Inventory { certificates, names: certificates, soonest: soonest.collect() })
    }
}

impl StoreView for &Shelf {
    fn version(&self) -> u64 {
        self.version.get()
    }

    fn named(&self, name: &str) -> Result<Vec<StoredCertificate>, StoreFailure> {
        let found = self.certificates.borrow().get(name).map(|certificate| StoredCertificate {
            digest: certificate.digest(),
            key_type: certificate.key_type(),
        });
        Ok(found.into_iter().collect())
    }

    fn open(&self, digest: CertificateDigest) -> Result<OpenedCertificate, StoreFailure> {
        let certificates = self.certificates.borrow();
        let found = certificates.values().find(|certificate| certificate.digest() == digest);
        let certificate = found.ok_or(StoreFailure)?;
        self.opened.set(self.opened.get() + 1);
        Ok(opened(certificate))
    }

    fn challenge(&self, name: &str) -> Result<Option<OpenedCertificate>, StoreFailure> {
        Ok(self.challenges.borrow().get(name).map(|certificate| opened(certificate)))
    }

    fn gone_since(&self, seen: Option<u64>) -> Result<Gone, StoreFailure> {
        if self.is_list_of_gone_broken.get() {
            return Err(StoreFailure);
        }
        let gone = self.gone.borrow();
        let from = seen.map_or(gone.len(), |seen| usize::try_from(seen).unwrap());
        Ok(Gone { digests: Some(gone[from..].to_vec()), last: gone.len() as u64 })
    }
}

pub(super) fn opened(certificate: &Certificate) -> OpenedCertificate {
    OpenedCertificate {
        chain: certificate.chain().map(|der| CertificateDer::from(der.to_vec())).collect(),
        key: EncodedKey::new(certificate.key().encoding(), certificate.key().der()),
    }
}

/// A lane that serves `files` and a store.
struct TestLane {
    keys: Rc<RefCell<LaneKeys>>,
    resolver: LaneResolver,
    served: Served,
    store: Arc<InMemory>,
}

impl TestLane {
    fn new(files: CertificateIndex, default_name: Option<&str>, refuse: bool) -> Self {
        let store = InMemory::new();
        let certificates: Arc<dyn CertificateStore> = Arc::clone(&store) as _;
        let default_name = default_name.map(Box::from);
        let served = Served {
            index: Arc::new(files),
            store: Some(ListenerStore { certificates, default_name, on_demand: false }),
            unknown_names: if refuse { UnknownNames::Refuse } else { UnknownNames::ServeDefault },
        };
        let keys = Rc::new(RefCell::new(LaneKeys::new(NonZeroUsize::new(8).unwrap())));
        let resolver =
            LaneResolver::new(served.clone(), provider(), (Rc::clone(&keys), clock()), None);
        Self { keys, resolver, served, store }
    }

    /// The leaf that a client gets which asks for `name`, and is admitted first.
    fn leaf(&self, name: &str) -> Option<Vec<u8>> {
        let is_covered = self.resolver.covers(Some(name)).unwrap_or(false);
        let found = self.resolved(name);
        assert_eq!(is_covered, found.is_some(), "{name}");
        found
    }

    fn resolved(&self, name: &str) -> Option<Vec<u8>> {
        let hello = hello(name, &[SignatureScheme::ECDSA_NISTP256_SHA256]);
        resolve(&self.resolver, &hello).map(|found| found.cert[0].to_vec())
    }

    fn counters(&self) -> LaneKeyCounters {
        self.keys.borrow().counters()
    }
}

fn one(names: &[&str]) -> Arc<Certificate> {
    Arc::clone(index(&[&pem_p256(names)]).iter().next().unwrap())
}

fn leaf(certificate: &Certificate) -> Option<Vec<u8>> {
    certificate.chain().next().map(<[u8]>::to_vec)
}

fn no_files() -> CertificateIndex {
    let provider = provider();
    let indexed = IndexBuilder::new(&provider, NOW_S).finish(DefaultCertificate::Absent);
    assert_eq!(indexed.errors, []);
    indexed.index
}

#[test]
fn exact_names_go_before_wildcards_and_files_before_the_store() {
    let files = index(&[&pem_p256(&["a.test"]), &pem_p256(&["*.b.test"])]);
    let (file_a, file_b) = (leaf(&files.find("a.test")[0]), leaf(&files.find("x.b.test")[0]));
    let lane = TestLane::new(files, None, true);
    let (exact, wild) = (one(&["www.b.test"]), one(&["*.c.test"]));
    lane.store.set("a.test", Some(one(&["a.test"])));
    lane.store.set("www.b.test", Some(Arc::clone(&exact)));
    lane.store.set("*.c.test", Some(Arc::clone(&wild)));
    assert_eq!(lane.leaf("a.test"), file_a);
    assert_eq!(lane.leaf("www.b.test"), leaf(&exact));
    assert_eq!(lane.leaf("other.b.test"), file_b);
    assert_eq!(lane.leaf("x.c.test"), leaf(&wild));
    assert_eq!(lane.leaf("c.test"), None);
}

#[test]
fn expired_certificates_give_way_across_sources() {
    let dated = |name: &str, years| pem_dated(&PKCS_ECDSA_P256_SHA256, name, years);
    let stored = |name: &str, years| index(&[&dated(name, years)]).iter().next().map(Arc::clone);
    let (expired, valid) = ((2020, 2026), (2020, 2030));
    let files = index(&[&dated("a.test", expired), &dated("*.c.test", valid)]);
    let wild = leaf(&files.find("x.c.test")[0]);
    let lane = TestLane::new(files, None, true);
    let (a, b) = (stored("a.test", valid), stored("*.b.test", valid));
    lane.store.set("a.test", a.clone());
    lane.store.set("www.b.test", stored("www.b.test", expired));
    lane.store.set("*.b.test", b.clone());
    lane.store.set("www.c.test", stored("www.c.test", expired));
    let lonely = stored("www.d.test", expired);
    lane.store.set("www.d.test", lonely.clone());
    for _ in 0..2 {
        assert_eq!(lane.leaf("a.test"), leaf(&a.clone().unwrap()));
        assert_eq!(lane.leaf("www.b.test"), leaf(&b.clone().unwrap()));
        assert_eq!(lane.leaf("www.c.test"), wild);
        assert_eq!(lane.leaf("www.d.test"), leaf(&lonely.clone().unwrap()));
    }
}

#[test]
fn whether_a_name_has_a_certificate_is_told_of_stores_that_are_filled_on_demand() {
    let files = || index(&[&pem_p256(&["a.test"])]);
    let lane = TestLane::new(files(), None, false);
    lane.leaf("a.test");
    assert_eq!(lane.resolver.has_own(), None, "nobody wants to know");

    let mut lane = TestLane::new(files(), None, false);
    lane.served.store.as_mut().unwrap().on_demand = true;
    let keys = Rc::clone(&lane.keys);
    lane.resolver = LaneResolver::new(lane.served.clone(), provider(), (keys, clock()), None);
    lane.store.set("b.test", Some(one(&["b.test"])));
    for (name, has_own) in [("a.test", true), ("b.test", true), ("c.test", false)] {
        assert!(lane.leaf(name).is_some(), "the first file's stands in");
        assert_eq!(lane.resolver.has_own(), Some(has_own), "{name}");
        assert_eq!(lane.resolver.has_own(), None, "it is told once");
    }
    lane.store.0.get().is_broken.set(true);
    assert!(lane.leaf("b.test").is_some());
    assert_eq!(lane.resolver.has_own(), None, "nobody knows what the store has");
}

#[test]
fn a_key_is_opened_once_and_dropped_when_its_certificate_has_left() {
    let lane = TestLane::new(no_files(), None, true);
    let (old, new) = (one(&["a.test"]), one(&["a.test"]));
    lane.store.set("a.test", Some(Arc::clone(&old)));
    lane.store.set("b.test", Some(one(&["b.test"])));
    for _ in 0..3 {
        assert_eq!(lane.leaf("a.test"), leaf(&old));
    }
    assert_eq!((lane.counters().opened, lane.counters().hits), (1, 2));
    lane.store.set("a.test", Some(Arc::clone(&new)));
    // Any hello makes the lane notice.
    lane.leaf("b.test").unwrap();
    assert_eq!(lane.keys.borrow().len(), 1);
    assert_eq!(lane.leaf("a.test"), leaf(&new));
    lane.store.set("a.test", None);
    assert_eq!(lane.leaf("a.test"), None);
    assert_eq!(lane.keys.borrow().len(), 1);
    assert_eq!(lane.counters().store_failures, 0);
}

#[test]
fn keys_of_a_store_stay_when_files_leave() {
    let lane = TestLane::new(index(&[&pem_p256(&["file.test"])]), None, true);
    lane.store.set("a.test", Some(one(&["a.test"])));
    assert!(lane.leaf("a.test").is_some() && lane.leaf("file.test").is_some());
    assert_eq!(lane.keys.borrow().len(), 2);
    lane.keys.borrow_mut().forget_unserved([]);
    assert!(lane.leaf("a.test").is_some());
    assert_eq!((lane.keys.borrow().len(), lane.counters().opened), (1, 1));
}

#[test]
fn a_store_that_fails_takes_its_own_names_along_and_no_other() {
    let lane = TestLane::new(index(&[&pem_p256(&["file.test"])]), None, false);
    lane.store.set("a.test", Some(one(&["a.test"])));
    lane.leaf("a.test").unwrap();
    lane.store.0.get().is_broken.set(true);
    assert_eq!(lane.leaf("a.test"), lane.leaf("file.test"), "the default");
    assert_eq!(lane.counters().store_failures, 2);
    lane.store.0.get().is_broken.set(false);
    assert_ne!(lane.leaf("a.test"), lane.leaf("file.test"));
}

#[test]
fn without_the_list_of_what_left_the_files_go_on() {
    let lane = TestLane::new(index(&[&pem_p256(&["file.test"])]), None, true);
    lane.store.0.get().is_list_of_gone_broken.set(true);
    assert!(lane.leaf("file.test").is_some());
    assert_eq!(lane.counters().store_failures, 1);
}

#[test]
fn a_name_that_only_a_broken_store_could_know_is_a_failure_and_not_unknown() {
    let lane = TestLane::new(index(&[&pem_p256(&["file.test"])]), None, true);
    let resources = lane_resources();
    let policy = Policy { unknown_names: UnknownNames::Refuse, ..Policy::default() };
    let (certificates, store) = (Arc::clone(&lane.served.index), lane.served.store.clone());
    let provider = ProviderChoice::Auto;
    let id = ContextId::fresh();
    let context = Context { id, policy, certificates, key_log: false, store, provider, tickets: 0 };
    let context = LaneContext::new(&Arc::new(context), &resources).unwrap();
    let admit = |name: &str| {
        let hello = Hello { server_name: Some(name.into()), ..Hello::default() };
        (context.admit(&hello).map(drop), resources.keys.borrow().counters().store_failures)
    };
    assert_eq!(admit("a.test"), (Err(Refusal::UnknownName), 0));
    lane.store.0.get().is_broken.set(true);
    assert_eq!(admit("a.test"), (Err(Refusal::UnknownName), 1));
    assert_eq!(admit("file.test"), (Ok(()), 1));
}

#[test]
fn an_authority_is_answered_out_of_the_store_and_by_nothing_but_its_own_hello() {
    let lane = TestLane::new(no_files(), None, true);
    let resources = lane_resources();
    let policy = Policy { alpn: vec![b"h2".to_vec()], ..Policy::default() };
    let (certificates, store) = (Arc::clone(&lane.served.index), lane.served.store.clone());
    let (id, provider) = (ContextId::fresh(), ProviderChoice::Auto);
    let context = Context { id, policy, certificates, key_log: false, store, provider, tickets: 2 };
    let context = LaneContext::new(&Arc::new(context), &resources).unwrap();
    let asked = |name: Option<&str>, alpn: &[u8]| {
        let server_name = name.map(Into::into);
        context.challenge(&Hello { server_name, alpn: alpn.into(), ..Hello::default() })
    };
    let only = b"\x0aacme-tls/1";
    assert!(asked(Some("a.test"), only).is_none(), "nobody has an order for it");
    let answer = one(&["a.test"]);
    lane.store.0.get().challenges.borrow_mut().insert("a.test".into(), Arc::clone(&answer));
    let config = asked(Some("a.test"), only).unwrap();
    assert_eq!(config.alpn_protocols, [b"acme-tls/1".to_vec()]);
    assert_eq!((config.send_tls13_tickets, config.ticketer.enabled()), (0, false));
    for (name, alpn) in [
        (Some("b.test"), &only[..]),
        (None, only),
        (Some("a.test"), b""),
        (Some("a.test"), b"\x02h2"),
        (Some("a.test"), b"\x0aacme-tls/1\x02h2"),
        (Some("a.test"), b"\x02h2\x0aacme-tls/1"),
    ] {
        assert!(asked(name, alpn).is_none(), "{name:?}, {alpn:?}");
    }
    assert_eq!(resources.keys.borrow().counters().store_failures, 0);
    lane.store.0.get().is_broken.set(true);
    assert!(asked(Some("a.test"), only).is_none());
    assert_eq!(resources.keys.borrow().counters().store_failures, 1);
}

fn lane_resources() -> LaneResources {
    let now = UnixSeconds(1_800_000_000);
    let root = TicketRoot::generate(Duration::from_secs(3_600), now, |bytes| bytes.fill(3));
    LaneResources::new(root.unwrap(), now, NonZeroUsize::MIN)
}

#[test]
fn a_name_is_looked_up_once_for_a_hello_and_again_when_the_store_has_changed() {
    let text = pem_p256(&["file.test"]);
    let file = Arc::clone(index(&[&text]).iter().next().unwrap());
    let lane = TestLane::new(index(&[&text]), None, true);
    let (before, after) = (one(&["a.test"]), one(&["a.test"]));
    lane.store.set("a.test", Some(Arc::clone(&before)));
    let look_ups = |name: &str, expected: &Arc<Certificate>| {
        LOOKED_UP.set(0);
        assert_eq!(lane.leaf(name), leaf(expected), "{name}");
        LOOKED_UP.get()
    };
    assert_eq!((look_ups("file.test", &file), look_ups("A.test.", &before)), (1, 1));

    LOOKED_UP.set(0);
    assert_eq!(lane.resolver.covers(Some("a.test")), Ok(true));
    lane.store.set("a.test", Some(Arc::clone(&after)));
    assert_eq!((lane.resolved("a.test"), LOOKED_UP.get()), (leaf(&after), 2));
    // A result for a hello that came no further is not used for another name.
    assert_eq!(lane.resolver.covers(Some("a.test")), Ok(true));
    assert_eq!(lane.resolved("file.test"), leaf(&file));
    // If no client is refused, nothing is looked up before rustls asks.
    let lane = TestLane::new(index(&[&text]), None, false);
    LOOKED_UP.set(0);
    assert_eq!((lane.leaf("unknown.test"), LOOKED_UP.get()), (leaf(&file), 1));
}

#[test]
fn the_default_may_be_in_the_store() {
    let lane = TestLane::new(no_files(), Some("www.a.test"), false);
    assert_eq!(lane.leaf("unknown.test"), None);
    let wild = one(&["*.a.test"]);
    lane.store.set("*.a.test", Some(Arc::clone(&wild)));
    assert_eq!(lane.leaf("unknown.test"), leaf(&wild));
    assert_eq!(lane.resolver.covers(None), Ok(true));
}
