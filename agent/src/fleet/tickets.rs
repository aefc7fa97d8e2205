//! Ticket roots that the machines of a fleet share: made by one of them, and announced to all
//! before they hold.
//!
//! What is to be done is decided by [`Rotation`]. All agents decide the same; of those that write
//! at once, one is first by a comparison in the cluster. Each change of the roots has the next
//! [number](Numbered), sealed with them: of two, every machine takes the later one, so that an
//! older one which somebody puts back, or a cluster that has lost them, sets nobody back.

mod rotation;

use std::rc::Rc;
use std::time::{Duration, Instant};

use sealane_engine::provider::random;
use sealane_engine::tickets::{TicketRoot, TicketRootError, UnixSeconds};
use sealane_store::{KeyedStore, SealingKeys, StoreError, TICKET_ROOTS, UnsealError};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_local;
use tracing::warn;
use zeroize::Zeroizing;

use super::member::Fleet;
use super::places::Places;
use crate::clock::now;
use crate::etcd::{Change, Compare, Entry, Etcd};
use crate::settings::FleetSettings;

use rotation::Rotation;

impl Fleet {
    /// Keeps the fleet's ticket roots up until the process ends, and its accounts beside them.
    /// Where the cluster is away, the roots of this machine's store are brought forward alone.
    pub(crate) async fn keep_tickets(self: Rc<Self>) {
        spawn_local(Rc::clone(&self).keep_accounts());
        let mut reported: Option<String> = None;
        let mut looks = Looks::default();
        loop {
            let done = match self.is_complete() {
                true => self.keep_shared_tickets(&mut looks).await,
                false => {
                    // What comes back may be another.
                    looks.last = None;
                    self.keep_own_tickets()
                }
            };
            let problem = done.err();
            if let Some(problem) = problem.as_ref().filter(|now| reported.as_ref() != Some(now)) {
                warn!("fleet: ticket roots: {problem}");
            }
            reported = problem;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Does what is due by what is here, and looks into the cluster now and then whatever is here.
    async fn keep_shared_tickets(&self, looks: &mut Looks) -> Result<(), String> {
        let rotation = Rotation::of(&self.settings);
        let here = Numbered::of_store(&self.store)?;
        self.opened(TICKET_ROOTS).map_err(|error| error.to_string())?;
        let is_looked = looks.last.is_some_and(|at| at.elapsed() < CLUSTER_LOOK);
        let root = here.as_ref().map(|here| &here.root);
        if is_looked && decided(rotation, root)?.is_none() {
            return looks.found();
        }
        looks.last = Some(Instant::now());
        let shared = match Shared::of(&self.etcd, &self.places, &self.keys).await? {
            Ok(shared) => shared,
            // Whoever put it there may know more.
            Err(unread) => {
                self.pass_over(&unread.place, Some(&unread.text()));
                return self.keep_own_tickets();
            }
        };
        self.pass_over(&shared.place, None);
        let theirs = shared.roots.as_ref();
        let known = Known::of(here.as_ref(), theirs, time());
        if let Some(root) = decided(rotation, known.root)? {
            // If another was first, the watch brings that one.
            shared.replace(&Numbered { number: known.next, root }).await?;
        } else if let Some(here) = here.as_ref().filter(|_| known.is_here) {
            let number = if known.is_theirs_ahead { known.next } else { here.number };
            shared.replace(&Numbered { number, root: here.root.clone() }).await?;
        } else if let Some(theirs) = theirs {
            theirs.keep_if_later(&self.store, time())?;
            // Once: a machine that has another key first would seal it with that one again.
            if !shared.is_current && !std::mem::replace(&mut looks.has_resealed, true) {
                shared.replace(theirs).await?;
            }
        }
        looks.is_ahead = known.is_theirs_ahead;
        looks.found()
    }

    fn keep_own_tickets(&self) -> Result<(), String> {
        let Some(Numbered { number, mut root }) = Numbered::of_store(&self.store)? else {
            return Ok(());
        };
        let (before, oldest) = (root.epoch(), root.oldest_accepted_at(time()));
        root.advance_to(oldest).map_err(|error| error.to_string())?;
        if root.epoch() == before {
            return Ok(());
        }
        Numbered { number, root }.keep(&self.store)
    }
}

/// How a process has looked at the roots in the cluster.
#[derive(Default)]
struct Looks {
    /// Whether it has put them there again because an older sealing key had sealed them.
    has_resealed: bool,
    /// Whether those in the cluster were ahead at the last look.
    is_ahead: bool,
    last: Option<Instant>,
}

impl Looks {
    /// What is wrong by the last look, so that it is told again only once it has been right.
    fn found(&self) -> Result<(), String> {
        match self.is_ahead {
            true => Err(AHEAD.to_owned()),
            false => Ok(()),
        }
    }
}

/// Takes the roots of an entry of the cluster, if they are later than what is here. What is wrong
/// with them is told by who keeps them up.
///
/// # Errors
/// No sealing key of this machine opens it.
pub(super) fn take(fleet: &Fleet, entry: &Entry) -> Result<(), UnsealError> {
    let opened = fleet.keys.open_at(&entry.key, &entry.value)?;
    let taken =
        Numbered::parse(&opened).and_then(|theirs| theirs.keep_if_later(&fleet.store, time()));
    // It is looked at again within a minute.
    let _ = taken;
    Ok(())
}

/// Has a new root hold as soon as all machines can have it; returns from which epoch on, and the
/// Unix time at which that begins. `store` is that of this machine, which may have later ones than
/// the cluster.
///
/// # Errors
/// The cluster does not answer as it should, or what it has does not open.
pub(crate) async fn rotate_tickets(
    etcd: &Etcd,
    keys: &SealingKeys,
    settings: &FleetSettings,
    store: &KeyedStore,
) -> Result<(u64, u64), String> {
    let places = Places::below(&settings.prefix);
    let rotation = Rotation::of(settings);
    for _ in 0..ATTEMPTS {
        let shared = Shared::of(etcd, &places, keys).await?.map_err(|unread| unread.text())?;
        let here = Numbered::of_store(store)?;
        let known = Known::of(here.as_ref(), shared.roots.as_ref(), time());
        let secret = secret()?;
        let rotated = rotation.rotated(known.root, time(), |into| fill(into, &secret));
        let (root, from) = rotated.map_err(|error| error.to_string())?;
        let from_s = from.0.saturating_mul(root.lifetime_s().into());
        if shared.replace(&Numbered { number: known.next, root }).await? {
            return Ok((from.0, from_s));
        }
    }
    Err("other machines change the ticket roots all the time; try again".into())
}

/// Roots, and the how-manieth change of them they are.
#[derive(Clone)]
struct Numbered {
    /// 0: nobody has counted, as where a program of somebody else's put them into the store.
    number: u64,
    root: TicketRoot,
}

impl Numbered {
    /// What this machine's store has. What no sealing key opens there counts as nothing, so that
    /// what others have takes its place.
    fn of_store(store: &KeyedStore) -> Result<Option<Self>, String> {
        let opened = |name| match store.kept(name) {
            Err(StoreError::Damaged { .. }) => Ok(None),
            read => read.map_err(|error| error.to_string()),
        };
        let Some(text) = opened(TICKET_ROOTS)? else { return Ok(None) };
        let counted = opened(COUNTED)?;
        let counted = counted.and_then(|counted| String::from_utf8(counted.to_vec()).ok());
        let number = counted.and_then(|counted| {
            let (number, of) = counted.split_once(' ')?;
            // It counts nothing but what it was written with.
            (of == digest(&text)).then(|| number.parse().ok()).flatten()
        });
        Ok(Some(Self { number: number.unwrap_or(0), root: parsed(&text)? }))
    }

    /// What the cluster has, opened.
    fn parse(opened: &[u8]) -> Result<Self, String> {
        let end = opened.iter().position(|byte| *byte == b'\n').unwrap_or(opened.len());
        let (head, text) = opened.split_at(end);
        let number = str::from_utf8(head).ok().and_then(|head| head.strip_prefix(TITLE));
        match number {
            Some(number) => {
                let number = number.parse().map_err(|_| "their number is none".to_owned())?;
                Ok(Self { number, root: parsed(text)? })
            }
            None => Ok(Self { number: 0, root: parsed(opened)? }),
        }
    }

    fn text(&self) -> Result<Zeroizing<String>, String> {
        self.root.to_text().map_err(|error| error.to_string())
    }

    /// Whether all machines are to have this one and not the other: of two that were made of the
    /// same one, by machines that did not hear each other, chance says which, to all the same.
    fn is_later_than(&self, other: Option<&Self>) -> bool {
        let Some(other) = other else { return true };
        if self.number != other.number || self.root.agrees_with(&other.root) {
            return self.number > other.number;
        }
        let digest = |one: &Self| one.text().map(|text| digest(text.as_bytes())).ok();
        digest(self) > digest(other)
    }

    /// Whether it was made by a clock that is ahead of this one, which has no key of it yet.
    fn is_ahead(&self, now: UnixSeconds) -> bool {
        self.root.epoch() > self.root.epoch_at(now).next()
    }

    fn keep_if_later(&self, store: &KeyedStore, now: UnixSeconds) -> Result<(), String> {
        match !self.is_ahead(now) && self.is_later_than(Self::of_store(store)?.as_ref()) {
            true => self.keep(store),
            false => Ok(()),
        }
    }

    fn keep(&self, store: &KeyedStore) -> Result<(), String> {
        let text = self.text()?;
        let counted = format!("{} {}", self.number, digest(text.as_bytes()));
        let both = [(TICKET_ROOTS, Some(text.as_bytes())), (COUNTED, Some(counted.as_bytes()))];
        store.keep(&[], 0, &both).map(drop).map_err(|error| error.to_string())
    }
}

/// Which roots count, of those of this machine and those of the cluster.
struct Known<'r> {
    root: Option<&'r TicketRoot>,
    /// They are this machine's, and the cluster is to have them.
    is_here: bool,
    /// Those of the cluster do not count, because no key of now is left of them.
    is_theirs_ahead: bool,
    /// The number of what takes their place.
    next: u64,
}

impl<'r> Known<'r> {
    fn of(here: Option<&'r Numbered>, theirs: Option<&'r Numbered>, now: UnixSeconds) -> Self {
        let is_usable = here.is_some_and(|here| !here.is_ahead(now));
        let is_theirs_ahead = is_usable && theirs.is_some_and(|theirs| theirs.is_ahead(now));
        let is_here = is_theirs_ahead || here.is_some_and(|here| here.is_later_than(theirs));
        let number = here.into_iter().chain(theirs).map(|one| one.number).max();
        let root = if is_here { here } else { theirs }.map(|known| &known.root);
        Self { root, is_here, is_theirs_ahead, next: number.unwrap_or(0).saturating_add(1) }
    }
}

/// The roots in the cluster, as they are replaced if nobody has done that since.
struct Shared<'f> {
    etcd: &'f Etcd,
    /// Whether the key that seals now has sealed them.
    is_current: bool,
    keys: &'f SealingKeys,
    place: String,
    roots: Option<Numbered>,
    /// The revision at which they were put there; 0 if there are none.
    revision: i64,
}

impl<'f> Shared<'f> {
    /// Those that are there now.
    ///
    /// # Errors
    /// The cluster does not answer as it should; or another machine may have put there what cannot
    /// be read here.
    async fn of(
        etcd: &'f Etcd,
        places: &Places,
        keys: &'f SealingKeys,
    ) -> Result<Result<Self, Unread>, String> {
        let place = places.entry(TICKET_ROOTS);
        let entry = etcd.get(&place).await.map_err(|error| error.to_string())?;
        let revision = entry.as_ref().map_or(0, |entry| entry.mod_revision);
        let is_current = entry.as_ref().is_none_or(|entry| keys.is_current(&entry.value));
        let opened = entry.map(|entry| keys.open_at(&place, &entry.value));
        let read = match opened {
            Some(Ok(opened)) => Numbered::parse(&opened).map(Some),
            // Nobody with the sealing key wrote it: it counts as nothing.
            Some(Err(UnsealError::Damaged)) | None => Ok(None),
            Some(Err(error @ UnsealError::KeyMissing { .. })) => Err(error.to_string()),
        };
        Ok(match read {
            Ok(roots) => Ok(Self { etcd, is_current, keys, place, revision, roots }),
            Err(what) => Err(Unread { place, what }),
        })
    }

    /// Puts `roots` there; whether nobody was faster.
    async fn replace(&self, roots: &Numbered) -> Result<bool, String> {
        let text = Zeroizing::new(format!("{TITLE}{}\n{}", roots.number, *roots.text()?));
        let sealed = self.keys.seal_for(&self.place, text.as_bytes());
        let sealed = sealed.map_err(|error| error.to_string())?;
        let compare = [Compare::Modified(&self.place, self.revision)];
        let put = [Change::Put(&self.place, &sealed, 0)];
        let made = self.etcd.change_if(&compare, &put).await;
        made.map(|revision| revision.is_some()).map_err(|error| error.to_string())
    }
}

/// Roots in the cluster that cannot be read here.
struct Unread {
    place: String,
    what: String,
}

impl Unread {
    fn text(&self) -> String {
        let Self { place, what } = self;
        format!(
            "{place}: {what}; the ticket roots of this machine are brought forward alone until \
             then; if no machine can read it: etcdctl del {place}"
        )
    }
}

fn decided(rotation: Rotation, shared: Option<&TicketRoot>) -> Result<Option<TicketRoot>, String> {
    let secret = secret()?;
    let decided = rotation.next(shared, time(), |into| fill(into, &secret));
    decided.map_err(|error| error.to_string())
}

fn parsed(text: &[u8]) -> Result<TicketRoot, String> {
    let text = str::from_utf8(text).map_err(|_| TicketRootError::Title.to_string())?;
    TicketRoot::from_text(text).map_err(|error| error.to_string())
}

fn digest(text: &[u8]) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn secret() -> Result<Zeroizing<[u8; 32]>, String> {
    let mut secret = Zeroizing::new([0; 32]);
    random::fill(secret.as_mut_slice()).map_err(|error| error.to_string())?;
    Ok(secret)
}

fn fill(into: &mut [u8], secret: &Zeroizing<[u8; 32]>) {
    into.copy_from_slice(secret.as_slice());
}

fn time() -> UnixSeconds {
    UnixSeconds(now().0)
}

/// What is wrong with roots that an agent has brought forward too far.
const AHEAD: &str = "a machine of the fleet whose clock is ahead has brought them forward to \
                     epochs that have not begun: those of this machine are put back; set that \
                     clock right";
/// How often it is tried to be the first who writes.
const ATTEMPTS: usize = 5;
/// How often it is looked what the cluster has, whatever a watch has told.
const CLUSTER_LOOK: Duration = Duration::from_secs(60);
/// The entry of this machine's store with the number of its roots.
const COUNTED: &str = "fleet/tickets";
/// How often it is looked what is to be done.
const LOOK: Duration = Duration::from_secs(1);
/// What is before the number.
const TITLE: &str = "sealane-fleet-tickets 1 ";

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use sealane_engine::tickets::Epoch;
    use sealane_store::Store;

    use super::*;
    use crate::fleet::tests::{Machine, with_machine};

    const NOW: UnixSeconds = UnixSeconds(600_000);

    fn numbered(number: u64, fill: u8) -> Numbered {
        let lifetime = Duration::from_secs(600);
        let root = TicketRoot::generate(lifetime, NOW, |bytes| bytes.fill(fill)).unwrap();
        Numbered { number, root }
    }

    fn store(folder: &Path) -> KeyedStore {
        let keys = SealingKeys::from_text(&format!("{}\n", "A".repeat(43) + "=")).unwrap();
        KeyedStore::new(Arc::new(Store::open_or_create(folder).unwrap()), keys).unwrap()
    }

    fn sealed_text(one: &Numbered) -> String {
        format!("{TITLE}{}\n{}", one.number, *one.text().unwrap())
    }

    #[test]
    fn all_machines_agree_on_which_roots_are_later() {
        let (one, other) = (numbered(3, 1), numbered(3, 2));
        assert!(one.is_later_than(None) && !one.is_later_than(Some(&one)));
        assert!(one.is_later_than(Some(&other)) != other.is_later_than(Some(&one)));
        let least = numbered(2, 1);
        assert!(one.is_later_than(Some(&least)) && !least.is_later_than(Some(&one)));
        // Brought forward alone it is the same one.
        let mut ahead = one.clone();
        ahead.root.advance_to(one.root.epoch().next()).unwrap();
        assert!(!ahead.is_later_than(Some(&one)) && !one.is_later_than(Some(&ahead)));
        let read = Numbered::parse(sealed_text(&one).as_bytes()).unwrap();
        assert!(read.number == 3 && read.root.agrees_with(&one.root));
        let uncounted = Numbered::parse(one.text().unwrap().as_bytes()).unwrap();
        assert_eq!(uncounted.number, 0);
        assert!(Numbered::parse(b"sealane-fleet-tickets 1 x\n").is_err());
    }

    /// One machine with a clock ten epochs ahead, of which each second all others hear.
    #[test]
    fn one_clock_that_is_ahead_takes_no_keys_from_the_others() {
        let here = numbered(3, 1);
        let mut ahead = numbered(9, 1);
        ahead.root.advance_to(Epoch(1_009)).unwrap();
        let known = Known::of(Some(&here), Some(&ahead), NOW);
        assert!(known.is_here && known.is_theirs_ahead && known.next == 10);
        assert_eq!(known.root.unwrap().epoch(), Epoch(1_000));
        // A little is what clocks differ by, and who has nothing waits.
        let mut little = numbered(9, 1);
        little.root.advance_to(Epoch(1_001)).unwrap();
        let known = Known::of(Some(&here), Some(&little), NOW);
        assert!(!known.is_here && !known.is_theirs_ahead && known.next == 10);
        let known = Known::of(None, Some(&ahead), NOW);
        assert!(!known.is_here && !known.is_theirs_ahead);
        assert_eq!(known.root.unwrap().epoch(), Epoch(1_009));
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        here.keep_if_later(&store, NOW).unwrap();
        ahead.keep_if_later(&store, NOW).unwrap();
        assert_eq!(Numbered::of_store(&store).unwrap().unwrap().number, 3);
    }

    #[test]
    fn a_number_counts_nothing_but_the_roots_that_it_was_written_with() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        assert!(Numbered::of_store(&store).unwrap().is_none());
        numbered(7, 1).keep_if_later(&store, NOW).unwrap();
        numbered(6, 2).keep_if_later(&store, NOW).unwrap();
        let here = Numbered::of_store(&store).unwrap().unwrap();
        assert!(here.number == 7 && here.root.agrees_with(&numbered(7, 1).root));
        let text = numbered(0, 3).text().unwrap();
        store.keep(&[], 0, &[(TICKET_ROOTS, Some(text.as_bytes()))]).unwrap();
        assert_eq!(Numbered::of_store(&store).unwrap().unwrap().number, 0, "somebody else's");
    }

    /// The cluster is looked at once a minute, and what was found then is so until the next time.
    #[test]
    fn that_a_clock_is_ahead_is_told_until_it_is_right_again() {
        with_machine(async |machine| {
            let Machine { fleet, fake, store, .. } = &machine;
            fleet.came_back();
            let lifetime = Duration::from_secs(43_200);
            let root = TicketRoot::generate(lifetime, time(), |bytes| bytes.fill(1)).unwrap();
            Numbered { number: 3, root: root.clone() }.keep(store).unwrap();
            let mut ahead = Numbered { number: 9, root };
            ahead.root.advance_to(Epoch(ahead.root.epoch().0 + 10)).unwrap();
            let place = fleet.places.entry(TICKET_ROOTS);
            let sealed = fleet.keys.seal_for(&place, sealed_text(&ahead).as_bytes()).unwrap();
            fake.put_unheard(&place, &sealed);
            let mut looks = Looks::default();
            for _ in 0..2 {
                let told = fleet.keep_shared_tickets(&mut looks).await.unwrap_err();
                assert_eq!(told, AHEAD);
            }
            // This machine has put its own back.
            looks.last = None;
            for _ in 0..2 {
                fleet.keep_shared_tickets(&mut looks).await.unwrap();
            }
        });
    }
}
