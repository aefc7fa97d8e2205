//! What an agent keeps to when settings, clocks and orders are not as they were.

use std::path::Path;
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair};
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
use sealane_operator::{KeySource, create_key_file, sealing_keys};
use sealane_renewal::Scope;
use sealane_store::Store;
use tempfile::TempDir;
use tokio::task::LocalSet;

use super::*;
use crate::certificate;
use crate::clock::now_s;
use crate::ledger::{OrderEntry, RenewalEntry, RenewalState, id_of};
use crate::settings::{ExternalAccount, KeyKind};

pub(super) const DIRECTORY: &str = "https://127.0.0.1:1/dir";

/// A folder with a store, and agents on it that reach nobody.
pub(super) struct Home {
    folder: TempDir,
    store: Arc<KeyedStore>,
}

impl Home {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        create_key_file(&folder.path().join("key")).unwrap();
        let keys = sealing_keys(&KeySource::File(folder.path().join("key"))).unwrap();
        let store = Store::open_or_create(&folder.path().join("store")).unwrap();
        let store = Arc::new(KeyedStore::new(Arc::new(store), keys).unwrap());
        Self { folder, store }
    }

    pub(super) fn settings(&self, directory: &str, names: &[&str]) -> Settings {
        self.settings_with(directory, names, "")
    }

    /// The same, with more tables.
    pub(super) fn settings_with(&self, directory: &str, names: &[&str], more: &str) -> Settings {
        let certificates: String = names
            .iter()
            .map(|name| format!("[[certificate]]\nnames = [\"{name}\"]\nchallenge = \"http-01\"\n"))
            .collect();
        let text = format!(
            "store = \"store\"\nstore_key = {{ file = \"key\" }}\n[[authority]]\n\
             directory = \"{directory}\"\nagree_to_terms = true\n{certificates}{more}"
        );
        let file: &Path = &self.folder.path().join("agent.toml");
        Settings::parse(file, &text).map_err(|mistakes| mistakes.to_string()).unwrap()
    }

    /// Puts a certificate for these names into the store that began and ends in so many days.
    pub(super) fn import(&self, names: &[&str], begun: i64, ends: i64) {
        let key = KeyPair::generate().unwrap();
        let all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut leaf = CertificateParams::new(all).unwrap();
        let day = |days: i64| {
            let days_s = u64::try_from(days.abs()).unwrap() * 86_400;
            let (today, away) = (SystemTime::now(), Duration::from_secs(days_s));
            if days < 0 { today - away } else { today + away }.into()
        };
        (leaf.not_before, leaf.not_after) = (day(begun), day(ends));
        let leaf = leaf.self_signed(&key).unwrap();
        let provider = crate::trust::our_provider().unwrap();
        let mut builder = IndexBuilder::new(&provider, now_s());
        builder.add("push", (leaf.pem() + &key.serialize_pem()).as_bytes());
        let indexed = builder.finish(DefaultCertificate::Absent);
        let all: Vec<_> = indexed.index.iter().map(Arc::clone).collect();
        self.store.import(&all, now_s()).unwrap();
    }

    fn agent(&self, names: &[&str]) -> Agent {
        self.agent_with(self.settings(DIRECTORY, names))
    }

    pub(super) fn agent_with(&self, settings: Settings) -> Agent {
        let keys = sealing_keys(&KeySource::File(self.folder.path().join("key"))).unwrap();
        Agent::new(settings, Arc::clone(&self.store), keys).unwrap()
    }
}

pub(super) fn in_tasks<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test)
}

pub(super) fn id(name: &str) -> CertificateId {
    id_of(&[name.to_owned()])
}

/// The order that the schedule hands out now, if any.
fn ordered(agent: &mut Agent) -> Option<Ticket> {
    std::iter::from_fn(|| agent.book.schedule.next(now())).find_map(|action| match action {
        Action::Order { ticket, .. } => Some(ticket),
        _ => None,
    })
}

fn limited() -> Outcome {
    let until = now().plus(3_600);
    Outcome::Failed(Failure::RateLimited { until, scope: Scope::Account })
}

#[test]
fn a_task_that_panics_has_failed_and_others_go_on() {
    let came: Result<(), Failed> =
        in_tasks(job::apart("a.test", async { panic!("at the end of time") }));
    let failed = came.unwrap_err();
    assert!(!failed.ends_order);
    assert_eq!(failed.failure, Failure::TryLater);
    assert!(failed.text.starts_with("a.test: given up by a fault of"), "{}", failed.text);
}

#[test]
fn a_reload_that_fails_changes_nothing() {
    let home = Home::new();
    in_tasks(async {
        let mut agent = home.agent(&["a.test"]);
        let before = agent.book.settings.clone();
        let entry: &[u8] = b"{\"of\":\"another version\"}";
        home.store.keep(&[], 0, &[("acme/order/0000000000000001", Some(entry))]).unwrap();
        let settings = home.settings("https://127.0.0.1:2/dir", &["b.test", "c.test"]);
        let told = agent.reload(settings).unwrap_err();
        assert!(told.contains("acme/order/0000000000000001"), "{told}");
        assert_eq!(agent.book.settings, before);
        assert_eq!((agent.book.generation, agent.certificate_count()), (0, 1));
        assert!(agent.book.schedule.due(id("a.test")).is_some());
    });
}

#[test]
fn a_reload_of_the_same_authorities_forgets_no_limit() {
    let home = Home::new();
    in_tasks(async {
        let mut agent = home.agent(&["a.test", "b.test"]);
        let ticket = ordered(&mut agent).unwrap();
        agent.book.schedule.happened(now(), ticket, limited());
        agent.reload(home.settings(DIRECTORY, &["b.test", "c.test"])).unwrap();
        assert_eq!(ordered(&mut agent), None, "told to stop");
        assert_eq!((agent.certificate_count(), agent.book.schedule.len()), (2, 2));
        assert_eq!(agent.book.schedule.due(id("a.test")), None, "nobody wants it any more");
        assert!(agent.book.schedule.due(id("c.test")).is_some());
        agent.reload(home.settings("https://127.0.0.1:2/dir", &["b.test"])).unwrap();
        assert!(ordered(&mut agent).is_some(), "of another, which said nothing");
    });
}

#[test]
fn never_more_than_five_orders_are_under_way_after_a_reload() {
    let home = Home::new();
    in_tasks(async {
        let mut agent = home.agent(&["a.test"]);
        for number in 0..5 {
            let directory = DIRECTORY.to_owned();
            agent.orders.begin(CertificateId(number), directory, None);
        }
        agent.begin();
        assert_eq!(agent.orders.counts(), (5, 1));
        agent.orders.end(CertificateId(0));
        agent.begin();
        assert_eq!(agent.orders.counts(), (5, 0));
        assert!(agent.orders.end(id("a.test")).is_some());
    });
}

#[test]
fn an_order_of_another_authority_is_not_taken_for_this_ones() {
    let home = Home::new();
    in_tasks(async {
        for (directory, is_theirs) in [("https://127.0.0.1:2/dir", false), (DIRECTORY, true)] {
            let mut agent = home.agent(&["a.test"]);
            agent.orders.begin(id("a.test"), directory.to_owned(), None);
            agent.begin();
            assert_eq!(agent.orders.counts(), (1, usize::from(!is_theirs)));
            assert_eq!(agent.orders.end(id("a.test")).is_some(), is_theirs);
        }
    });
}

#[test]
fn an_order_that_fails_when_nobody_wants_it_any_more_is_forgotten() {
    let home = Home::new();
    in_tasks(async {
        let mut agent = home.agent(&["a.test"]);
        let wanted = agent.book.wanted(id("a.test"), AuthorityId(0), false).unwrap();
        remember_order(&agent, &order_begun_at(0, None));
        agent.note_failed(&wanted, &Failed::later("later"), None);
        assert!(agent.book.ledger.order(wanted.id).unwrap().is_some(), "gone on with later");
        let directory = DIRECTORY.to_owned();
        agent.orders.begin(wanted.id, directory, None);
        agent.reload(home.settings(DIRECTORY, &["b.test"])).unwrap();
        assert!(agent.book.ledger.order(wanted.id).unwrap().is_some(), "under way");
        agent.note_failed(&wanted, &Failed::later("later"), None);
        assert!(agent.book.ledger.order(wanted.id).unwrap().is_none());
    });
}

/// An order of `a.test`, begun at a time, when the store had a certificate that was put there at
/// another.
fn order_begun_at(begun_s: i64, held_put_s: Option<i64>) -> OrderEntry {
    OrderEntry {
        answers: Vec::new(),
        begun_s,
        directory: DIRECTORY.into(),
        held_put_s,
        key: certificate::new_key(KeyKind::P256).unwrap(),
        names: vec!["a.test".to_owned()],
        records: Vec::new(),
        url: None,
    }
}

fn remember_order(agent: &Agent, entry: &OrderEntry) {
    agent.book.ledger.keep_order(id("a.test"), entry, Vec::new()).unwrap();
}

/// Another machine completed it, or a certificate was imported, while this one was away: by this
/// machine's clock before it was begun or after.
#[test]
fn drops_resumed_order_of_a_newer_certificate() {
    let (before, later) = (now_s() - 60, now_s() + 60);
    for (begun_s, held_put_s, is_over) in [
        (before, Some(i64::MIN), true),
        (later, Some(i64::MIN), true),
        (before, None, true),
        (later, None, false),
        (later, Some(later), false),
    ] {
        let home = Home::new();
        in_tasks(async {
            let agent = home.agent(&["a.test"]);
            remember_order(&agent, &order_begun_at(begun_s, held_put_s));
            drop(agent);
            home.import(&["a.test"], -1, 89);
            let mut agent = home.agent(&["a.test"]);
            assert_eq!(agent.orders.resumed().len(), 1);
            agent.begin();
            let is_resumed = agent.orders.is_under_way(id("a.test"));
            let is_kept = agent.book.ledger.order(id("a.test")).unwrap().is_some();
            assert_eq!((is_resumed, is_kept), (!is_over, !is_over), "{begun_s} {held_put_s:?}");
        });
    }
}

/// A removal in the second in which the order was begun is the later one, as times are whole
/// seconds.
#[test]
fn drops_resumed_order_of_a_removed_name() {
    for (seconds_since_removal, is_over) in [(-1, true), (0, true), (1, false)] {
        let home = Home::new();
        in_tasks(async {
            home.import(&["a.test"], -1, 89);
            let agent = home.agent(&["a.test"]);
            agent.book.ledger.remove("a.test").unwrap();
            let removal = home.store.store().removal("a.test").unwrap().unwrap();
            let order = order_begun_at(removal.at_s + seconds_since_removal, Some(i64::MIN));
            assert_eq!(
                agent.book.ledger.is_over(&order).unwrap(),
                is_over,
                "{seconds_since_removal}"
            );
        });
    }
}

#[test]
fn all_is_planned_anew_when_the_clock_was_set_back() {
    let home = Home::new();
    in_tasks(async {
        let mut agent = home.agent(&["a.test"]);
        let late = now().plus(86_400);
        agent.look_at_clock(late);
        agent.look_at_clock(UnixSeconds(late.0 - 60));
        assert_eq!(agent.book.generation, 0);
        let ticket = ordered(&mut agent).unwrap();
        agent.book.schedule.happened(late, ticket, Outcome::Failed(Failure::TryLater));
        assert_eq!(ordered(&mut agent), None);
        agent.look_at_clock(now());
        assert_eq!(agent.book.generation, 1);
        assert!(ordered(&mut agent).is_some());
        agent.look_at_clock(now());
        assert_eq!(agent.book.generation, 1, "once");
    });
}

/// An authority, or somebody who imports, gave more names than were asked for.
#[test]
fn a_certificate_with_more_names_counts_for_those_that_are_wanted() {
    let home = Home::new();
    in_tasks(async {
        home.import(&["a.test"], -80, 5);
        let mut agent = home.agent(&["a.test", "c.test"]);
        assert!(agent.book.schedule.due(id("a.test")).is_some_and(|at| at <= now()));
        home.import(&["a.test", "b.test"], -1, 89);
        let names = ["a.test", "b.test"].map(str::to_owned).to_vec();
        agent.note(Came::Taken(vec![names]));
        let due = agent.book.schedule.due(id("a.test")).unwrap();
        assert!(due > now().plus(50 * 86_400), "due by what is there now");
        assert_eq!(agent.certificate_count(), 2, "nothing else is looked after");
        agent.begin();
        assert_eq!(agent.orders.counts().0, 1);
        assert!(agent.orders.is_under_way(id("c.test")));
    });
}

/// Somebody imported it on this machine, of which nobody tells the agent.
#[test]
fn what_came_into_the_store_since_is_seen_before_anything_is_ordered() {
    let home = Home::new();
    in_tasks(async {
        home.import(&["a.test"], -80, 5);
        let mut agent = home.agent(&["a.test"]);
        home.import(&["a.test", "b.test"], -1, 89);
        agent.begin();
        assert_eq!(agent.orders.counts(), (0, 0), "nothing is ordered");
        let due = agent.book.schedule.due(id("a.test")).unwrap();
        assert!(due > now().plus(50 * 86_400), "due by what is there now");
        // A wildcard is another name.
        home.import(&["*.test"], -1, 89);
        let mut agent = home.agent(&["c.test"]);
        agent.begin();
        assert_eq!(agent.orders.counts().0, 1);
    });
}

/// Somebody removed, imported or restored certificates on this machine while the agent runs.
#[test]
fn follows_what_others_do_to_the_store() {
    let home = Home::new();
    in_tasks(async {
        home.import(&["a.test"], -1, 89);
        let mut agent = home.agent(&["a.test"]);
        agent.followed.follow(&mut agent.book, &mut agent.demanded);
        assert_eq!(ordered(&mut agent), None, "it is valid for months");
        home.store.store().remove(&["a.test".to_owned()], now_s()).unwrap();
        agent.followed.follow(&mut agent.book, &mut agent.demanded);
        assert!(agent.book.schedule.due(id("a.test")).unwrap() <= now(), "removed: ordered again");
        assert!(ordered(&mut agent).is_some());
    });
    in_tasks(async {
        home.import(&["b.test"], -1, 89);
        let mut agent = home.agent(&["b.test"]);
        home.import(&["b.test"], -89, 1);
        agent.followed.follow(&mut agent.book, &mut agent.demanded);
        assert!(ordered(&mut agent).is_some(), "the one that is served ends soon");
    });
}

fn ask_renewal(agent: &Agent, name: &str) {
    let names = vec![name.to_owned()];
    let held_put_s = agent.book.ledger.held(&names).unwrap().map(|held| held.imported_s);
    let entry = RenewalEntry { held_put_s, names, state: RenewalState::Asked };
    agent.book.ledger.keep_renewal(id(name), &entry).unwrap();
}

fn renewal_state(agent: &Agent, name: &str) -> Option<RenewalState> {
    agent.book.ledger.renewal(id(name)).unwrap().map(|entry| entry.state)
}

#[test]
fn renews_now_what_an_operator_asks_for() {
    let home = Home::new();
    in_tasks(async {
        home.import(&["a.test"], -1, 89);
        let agent = home.agent(&["a.test"]);
        ask_renewal(&agent, "a.test");
        ask_renewal(&agent, "other.test");
        // One that cannot be read holds up no other.
        home.store.keep(&[], now_s(), &[("acme/renew/0", Some(b"{}"))]).unwrap();
        drop(agent);
        let mut agent = home.agent(&["a.test"]);
        agent.followed.follow(&mut agent.book, &mut agent.demanded);
        assert_eq!(renewal_state(&agent, "other.test"), Some(RenewalState::Unknown));
        assert_eq!(renewal_state(&agent, "a.test"), Some(RenewalState::Ordering));
        agent.begin();
        let wanted = agent.book.wanted(id("a.test"), AuthorityId(0), false).unwrap();
        let ticket = agent.orders.end(id("a.test"));
        assert!(ticket.is_some(), "though it is valid for months");
        agent.note_failed(&wanted, &Failed::later("the CA is away"), ticket);
        let failed = RenewalState::Failed("the CA is away".into());
        assert_eq!(renewal_state(&agent, "a.test"), Some(failed));
        // A restart cancels it, and so does no reload.
        agent.reload(home.settings(DIRECTORY, &["a.test"])).unwrap();
        assert!(renewal_state(&agent, "a.test").is_some());
        drop(agent);
        let mut agent = home.agent(&["a.test"]);
        agent.followed.follow(&mut agent.book, &mut agent.demanded);
        assert_eq!((renewal_state(&agent, "a.test"), ordered(&mut agent)), (None, None));
        // Asked for again, it waits for nothing.
        ask_renewal(&agent, "a.test");
        agent.followed.follow(&mut agent.book, &mut agent.demanded);
        assert!(ordered(&mut agent).is_some());
        home.import(&["a.test"], 0, 90);
        agent.followed.follow(&mut agent.book, &mut agent.demanded);
        assert_eq!(renewal_state(&agent, "a.test"), None, "another machine has renewed it");
        assert!(!agent.followed.is_forced(id("a.test")));
    });
}

#[test]
fn another_key_of_an_account_ends_waits() {
    let home = Home::new();
    let file = home.folder.path().join("eab.key");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let settings = |home: &Home| {
        let mut settings = home.settings(DIRECTORY, &["a.test"]);
        settings.authorities[0].external_account =
            Some(ExternalAccount { kid: "kid-1".into(), key_file: file.clone() });
        settings
    };
    in_tasks(async {
        for is_reloaded in [true, false] {
            write("wrong");
            let mut agent = home.agent_with(settings(&home));
            let ticket = ordered(&mut agent).unwrap();
            agent.book.schedule.happened(now(), ticket, Outcome::Failed(Failure::Refused));
            agent.reload(settings(&home)).unwrap();
            agent.follow_files();
            assert_eq!(ordered(&mut agent), None, "the same key");
            std::fs::remove_file(&file).unwrap();
            agent.follow_files();
            assert_eq!(ordered(&mut agent), None, "a key that is replaced right now");
            write("right");
            match is_reloaded {
                true => agent.reload(settings(&home)).unwrap(),
                false => agent.follow_files(),
            }
            assert!(ordered(&mut agent).is_some(), "{is_reloaded}");
        }
    });
}
