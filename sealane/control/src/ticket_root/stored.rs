//! Ticket roots in a certificate store, where whoever fills it puts them for all machines of a
//! fleet.

use std::str;
use std::sync::Arc;

use sealane_config::Tickets;
use sealane_engine::tickets::{RATCHET_STEPS_MAX, TicketRoot, TicketRootError, UnixSeconds};
use sealane_store::{KeyedStore, TICKET_ROOTS};
use tracing::{info, warn};

/// The roots of a store, as they change.
pub(super) struct StoredRoots {
    settings: Tickets,
    store: Option<Arc<KeyedStore>>,
    /// Whether the root in use is of the store.
    is_used: bool,
    /// What was last reported, so that it is reported once.
    reported: Option<String>,
    /// The version of the store that was looked at last, if there was nothing wrong with it.
    seen: Option<u64>,
}

impl StoredRoots {
    pub(super) fn new(settings: &Tickets) -> Self {
        let settings = settings.clone();
        Self { settings, store: None, is_used: false, reported: None, seen: None }
    }

    pub(super) fn follow(&mut self, store: Arc<KeyedStore>) {
        (self.store, self.seen) = (Some(store), None);
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// The roots of the store, if they give other keys than `running`. What is wrong with them is
    /// said once.
    pub(super) fn news(&mut self, running: &TicketRoot, now: UnixSeconds) -> Option<TicketRoot> {
        let store = self.store.as_ref()?;
        // First: what changes after that is looked at again.
        let version = store.store().generation().ok();
        if version.is_some() && version == self.seen {
            return None;
        }
        let found = read(store, &self.settings, now);
        let problem = match &found {
            Ok(Some(_)) => None,
            Ok(None) => Some(none_yet(store)),
            Err(problem) => Some(format!("{problem}; the root that was in use is used on")),
        };
        self.seen = version.filter(|_| found.is_ok());
        if let Some(problem) = problem.as_ref().filter(|now| self.reported.as_ref() != Some(now)) {
            warn!("{problem}");
        }
        self.reported = problem;
        let root = found.ok()??;
        if root.epoch() > root.epoch_at(now) {
            // Until then it has no key to make tickets with; what is in use has.
            self.seen = None;
            return None;
        }
        self.is_used = true;
        if running.agrees_with(&root) {
            return None;
        }
        info!("{}", taken(&root, &self.settings));
        Some(root)
    }
}

/// What `store` has for `settings`, brought forward to the oldest epoch that is accepted now.
///
/// # Errors
/// What is wrong with it, in words that do not quote it: it is a secret.
pub fn read(
    store: &KeyedStore,
    settings: &Tickets,
    now: UnixSeconds,
) -> Result<Option<TicketRoot>, String> {
    let named = |what: String| format!("tickets.root: {}: {what}", place(store));
    let entry = store.kept(TICKET_ROOTS).map_err(|error| {
        named(format!("its ticket roots cannot be read: {error}; sealane-agent puts them anew"))
    })?;
    let Some(entry) = entry else { return Ok(None) };
    let refused = |error: TicketRootError| {
        named(format!("{error}; this is a fault of who put it there, sealane-agent or a program"))
    };
    let text = str::from_utf8(&entry).map_err(|_| refused(TicketRootError::Title))?;
    let mut root = TicketRoot::from_text(text).map_err(refused)?;
    if u64::from(root.lifetime_s()) != settings.lifetime.as_secs() {
        return Err(named(format!(
            "its roots are for a lifetime of {} s, tickets.lifetime says {} s; machines that share \
             them must agree: set tickets.lifetime, or ticket_lifetime in [fleet] of the agent",
            root.lifetime_s(),
            settings.lifetime.as_secs()
        )));
    }
    let clock = root.epoch_at(now);
    if root.epoch() > clock.next() {
        return Err(named(format!(
            "its first root holds from epoch {}, and this machine's clock says epoch {}: this \
             clock is behind, or that of the machine which made the root was ahead; set it right",
            root.epoch().0,
            clock.0
        )));
    }
    root.advance_to(root.oldest_accepted_at(now)).map_err(|_| {
        named(format!(
            "its root is of epoch {}, and this machine's clock says epoch {}, more than \
             {RATCHET_STEPS_MAX} ahead: this clock is ahead, or no agent has run for that long; \
             set it right, or start sealane-agent",
            root.epoch().0,
            clock.0
        ))
    })?;
    Ok(Some(root))
}

/// What to say of a store that has no roots.
pub fn none_yet(store: &KeyedStore) -> String {
    format!(
        "tickets.root: {} has no ticket roots yet, so this machine has one of its own and resumes \
         no other's sessions; sealane-agent puts them there where it has the table [fleet]",
        place(store)
    )
}

fn taken(root: &TicketRoot, settings: &Tickets) -> String {
    let announced: Vec<String> = root.announced().map(|epoch| epoch.0.to_string()).collect();
    let from = settings.root.as_ref().map(ToString::to_string).unwrap_or_default();
    match announced.is_empty() {
        true => format!("tickets: the root is that of {from}"),
        false => format!(
            "tickets: the root is that of {from}; another holds from epoch {}",
            announced.join(", and from ")
        ),
    }
}

fn place(store: &KeyedStore) -> String {
    format!("store:{}", store.store().path().display())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sealane_engine::tickets::Epoch;
    use sealane_store::{SealingKeys, Store};

    use super::*;
    use sealane_config::RootPlace;

    const LIFETIME_S: u64 = 43_200;
    const NOW: UnixSeconds = UnixSeconds(10 * LIFETIME_S + 5);

    struct Rig {
        store: Arc<KeyedStore>,
        settings: Tickets,
        _folder: tempfile::TempDir,
    }

    impl Rig {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let store = Arc::new(Store::open_or_create(folder.path()).unwrap());
            let keys = SealingKeys::from_text(&format!("{}\n", "A".repeat(43) + "=")).unwrap();
            let root = Some(RootPlace::Store(folder.path().into()));
            Self {
                store: Arc::new(KeyedStore::new(store, keys).unwrap()),
                settings: Tickets { root, ..Tickets::default() },
                _folder: folder,
            }
        }

        fn put(&self, value: Option<&[u8]>) {
            self.store.keep(&[], 0, &[(TICKET_ROOTS, value)]).unwrap();
        }

        fn put_root(&self, root: &TicketRoot) {
            self.put(Some(root.to_text().unwrap().as_bytes()));
        }

        fn following(&self) -> StoredRoots {
            let mut stored = StoredRoots::new(&self.settings);
            stored.follow(Arc::clone(&self.store));
            stored
        }
    }

    fn root(epoch: u64, fill: u8) -> TicketRoot {
        let now = UnixSeconds(epoch * LIFETIME_S);
        let lifetime = Duration::from_secs(LIFETIME_S);
        TicketRoot::generate(lifetime, now, |bytes| bytes.fill(fill)).unwrap()
    }

    #[test]
    fn what_is_new_is_taken_and_what_gives_the_same_keys_is_not() {
        let rig = Rig::new();
        let (own, mut theirs) = (root(10, 1), root(7, 2));
        let mut stored = rig.following();
        assert!(stored.news(&own, NOW).is_none() && !stored.is_used());
        assert!(stored.reported.as_ref().unwrap().contains("has no ticket roots yet"));
        rig.put_root(&theirs);
        let taken = stored.news(&own, NOW).unwrap();
        assert!(stored.is_used() && taken.agrees_with(&theirs) && stored.reported.is_none());
        assert_eq!(taken.epoch(), Epoch(9), "brought forward");
        // Brought forward by another machine, and one that is announced.
        theirs.advance_to(Epoch(9)).unwrap();
        rig.put_root(&theirs);
        assert!(stored.news(&taken, NOW).is_none());
        theirs.announce(Epoch(13), |bytes| bytes.fill(3)).unwrap();
        rig.put_root(&theirs);
        let taken = stored.news(&taken, NOW).unwrap();
        assert_eq!(taken.announced().collect::<Vec<_>>(), [Epoch(13)]);
        // Gone again: what was taken stays.
        rig.put(None);
        assert!(stored.news(&taken, NOW).is_none() && stored.is_used());
    }

    #[test]
    fn each_mistake_is_named_and_changes_nothing_until_it_is_mended() {
        let rig = Rig::new();
        let own = root(10, 1);
        let other_lifetime =
            TicketRoot::generate(Duration::from_secs(600), NOW, |bytes| bytes.fill(2)).unwrap();
        let text = |root: &TicketRoot| root.to_text().unwrap().as_bytes().to_vec();
        let mut stored = rig.following();
        let cases: [(Vec<u8>, &str); 5] = [
            (vec![0xff; 3], "does not begin with `sealane-ticket-root`"),
            (b"sealane-ticket-root 1 43200 9 a5".to_vec(), "field 5, the secret"),
            (text(&other_lifetime), "for a lifetime of 600 s, tickets.lifetime says 43200 s"),
            (text(&root(12, 2)), "holds from epoch 12, and this machine's clock says epoch 10"),
            (text(&root(0, 2)), "more than 4096 ahead"),
        ];
        for (value, expected) in cases {
            // The last one is of a clock that is years ahead.
            let is_far = expected.contains("4096");
            let now = if is_far { UnixSeconds(9_000 * LIFETIME_S) } else { NOW };
            rig.put(Some(&value));
            assert!(stored.news(&own, now).is_none(), "{expected}");
            let said = stored.reported.clone().unwrap();
            assert!(said.contains(expected) && said.contains("used on"), "{said}");
            assert!(!said.contains("a5"), "{said}");
            assert!(read(&rig.store, &rig.settings, now).is_err());
        }
        rig.put_root(&root(11, 2));
        assert!(stored.news(&own, NOW).is_none(), "its maker's clock is a little ahead");
        assert_eq!(stored.reported, None);
        let then = UnixSeconds(11 * LIFETIME_S);
        assert!(stored.news(&own, then).unwrap().agrees_with(&root(11, 2)), "from then on");
    }
}
