//! Ticket roots that the machines of a fleet share: made by one of them, and announced to all
//! before they hold.
//!
//! What is to be done is decided by [`Rotation`], which does nothing itself and is told the time.
//! All agents decide the same; of those that write at once, one is first by a comparison in the
//! cluster.

use std::time::Duration;

use sealane_engine::provider::random;
use sealane_engine::tickets::{Epoch, TicketRoot, TicketRootError, UnixSeconds};
use sealane_operator::{Priority, say_at};
use sealane_store::{SealingKeys, TICKET_ROOTS};
use zeroize::Zeroizing;

use super::Fleet;
use super::places::Places;
use crate::agent::now;
use crate::etcd::{Change, Compare, Etcd};
use crate::settings::FleetSettings;

/// How often the root of a fleet's ticket keys is replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotation {
    /// How long an epoch lasts.
    lifetime: Duration,
    /// Epochs from one root to the next: those whose number it divides begin a new one.
    epochs: u64,
}

impl Rotation {
    pub(super) fn of(settings: &FleetSettings) -> Self {
        let (lifetime, every) = (settings.ticket_lifetime, settings.ticket_root_every);
        let epochs = every.as_secs().div_ceil(lifetime.as_secs().max(1)).max(1);
        Self { lifetime, epochs }
    }

    /// What is to take the place of the roots that are shared; none if nothing is.
    ///
    /// What no epoch that is accepted needs is erased, so that an old copy of the cluster opens
    /// nothing that a newer one does not; the next root is announced [`LEAD`] whole epochs before
    /// it holds, so that machines which are late have it by then.
    ///
    /// # Errors
    /// The roots are for another lifetime, or do not fit the time.
    pub(super) fn next(
        self,
        shared: Option<&TicketRoot>,
        now: UnixSeconds,
        fill: impl FnMut(&mut [u8]),
    ) -> Result<Option<TicketRoot>, RotationError> {
        let Some(shared) = shared else {
            return Ok(Some(TicketRoot::generate(self.lifetime, now, fill)?));
        };
        if !self.fits(shared) {
            let (theirs, ours) = (shared.lifetime_s(), self.lifetime.as_secs());
            return Err(RotationError::Lifetime { theirs, ours });
        }
        let (mut root, clock) = (shared.clone(), shared.epoch_at(now));
        if root.epoch() > clock.next() {
            return Err(TicketRootError::ClockBehind { root: root.epoch(), clock }.into());
        }
        let oldest = root.oldest_accepted_at(now);
        let is_old = root.epoch() < oldest;
        root.advance_to(oldest)?;
        let from = self.announced_at(clock).filter(|from| root.announced().all(|at| at != *from));
        if let Some(from) = from {
            root.announce(from, fill)?;
        }
        Ok((is_old || from.is_some()).then_some(root))
    }

    /// The roots that are shared with a new one that holds as soon as all can have it; where there
    /// is none for this lifetime, a new one that holds at once.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn rotated(
        self,
        shared: Option<&TicketRoot>,
        now: UnixSeconds,
        fill: impl FnMut(&mut [u8]),
    ) -> Result<(TicketRoot, Epoch), TicketRootError> {
        let usable = shared.filter(|root| self.fits(root)).and_then(|shared| {
            let mut root = shared.clone();
            root.advance_to(root.oldest_accepted_at(now)).ok()?;
            (root.epoch() <= root.epoch_at(now).next()).then_some(root)
        });
        let Some(mut root) = usable else {
            let root = TicketRoot::generate(self.lifetime, now, fill)?;
            let from = root.epoch();
            return Ok((root, from));
        };
        let from = soonest(root.epoch_at(now));
        root.announce(from, fill)?;
        Ok((root, from))
    }

    fn fits(self, root: &TicketRoot) -> bool {
        u64::from(root.lifetime_s()) == self.lifetime.as_secs()
    }

    /// The epoch for which a root is announced in the epoch `clock`, if one is.
    fn announced_at(self, clock: Epoch) -> Option<Epoch> {
        let soonest = soonest(clock);
        let next = Epoch(soonest.0.next_multiple_of(self.epochs));
        (next.0 - soonest.0 <= WINDOW).then_some(next)
    }
}

/// The first epoch before which [`LEAD`] whole ones pass.
fn soonest(clock: Epoch) -> Epoch {
    Epoch(clock.0.saturating_add(LEAD + 1))
}

/// Why the roots that are shared stay as they are.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RotationError {
    /// Machines disagree on how long an epoch lasts: the operator's fault.
    #[error(
        "the fleet's ticket roots are for a lifetime of {theirs} s, and fleet.ticket_lifetime says \
         {ours} s: set it as on the machine that made them, or have new ones made, with: \
         sealane-agent fleet rotate-tickets"
    )]
    Lifetime {
        /// Seconds by the roots.
        theirs: u32,
        /// Seconds by the settings.
        ours: u64,
    },
    /// The roots do not fit the time.
    #[error(transparent)]
    Root(#[from] TicketRootError),
}

impl Fleet {
    /// Keeps the fleet's ticket roots up until the process ends. Where the cluster is away, those
    /// of this machine's store are brought forward alone.
    pub(crate) async fn keep_tickets(self: std::rc::Rc<Self>) {
        let mut reported: Option<String> = None;
        // The first look is at the cluster, whatever is here.
        let mut is_first = true;
        loop {
            let done = match self.is_complete() {
                true => self.keep_shared_tickets(&mut is_first).await,
                false => self.keep_own_tickets(),
            };
            let problem = done.err();
            if let Some(problem) = problem.as_ref().filter(|now| reported.as_ref() != Some(now)) {
                say_at(Priority::Warning, &format!("fleet: ticket roots: {problem}"));
            }
            reported = problem;
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn keep_shared_tickets(&self, is_first: &mut bool) -> Result<(), String> {
        let rotation = Rotation::of(&self.settings);
        let here = self.own_tickets()?;
        if !*is_first && decided(rotation, here.as_ref())?.is_none() {
            return Ok(());
        }
        let shared = Shared::of(&self.etcd, &self.places, &self.keys).await?;
        // Into an empty cluster, what this machine has goes.
        let from_here = shared.root.is_none().then_some(here.clone()).flatten();
        let known = shared.root.as_ref().or(from_here.as_ref());
        if let Some(root) = decided(rotation, known)?.or(from_here) {
            // If another was first, the watch brings that one.
            shared.replace(&root).await?;
        }
        *is_first = false;
        Ok(())
    }

    fn keep_own_tickets(&self) -> Result<(), String> {
        let Some(mut root) = self.own_tickets()? else { return Ok(()) };
        let (before, oldest) = (root.epoch(), root.oldest_accepted_at(time()));
        root.advance_to(oldest).map_err(|error| error.to_string())?;
        if root.epoch() == before {
            return Ok(());
        }
        let text = root.to_text().map_err(|error| error.to_string())?;
        let kept = self.store.keep(&[], 0, &[(TICKET_ROOTS, Some(text.as_bytes()))]);
        kept.map(drop).map_err(|error| error.to_string())
    }

    fn own_tickets(&self) -> Result<Option<TicketRoot>, String> {
        let entry = self.store.kept(TICKET_ROOTS).map_err(|error| error.to_string())?;
        entry.map(|entry| parsed(&entry)).transpose()
    }
}

/// Has a new root hold as soon as all machines can have it; returns from which epoch on, and the
/// Unix time at which that begins.
///
/// # Errors
/// The cluster does not answer as it should, or what it has does not open.
pub(crate) async fn rotate_tickets(
    etcd: &Etcd,
    keys: &SealingKeys,
    settings: &FleetSettings,
) -> Result<(u64, u64), String> {
    let places = Places::below(&settings.prefix);
    let rotation = Rotation::of(settings);
    for _ in 0..ATTEMPTS {
        let shared = Shared::of(etcd, &places, keys).await?;
        let secret = secret()?;
        let rotated = rotation.rotated(shared.root.as_ref(), time(), |into| fill(into, &secret));
        let (root, from) = rotated.map_err(|error| error.to_string())?;
        if shared.replace(&root).await? {
            return Ok((from.0, from.0.saturating_mul(root.lifetime_s().into())));
        }
    }
    Err("other machines change the ticket roots all the time; try again".into())
}

/// The roots in the cluster, as they are replaced if nobody has done that since.
struct Shared<'f> {
    etcd: &'f Etcd,
    keys: &'f SealingKeys,
    place: String,
    root: Option<TicketRoot>,
    /// The revision at which they were put there; 0 if there are none.
    revision: i64,
}

impl<'f> Shared<'f> {
    async fn of(etcd: &'f Etcd, places: &Places, keys: &'f SealingKeys) -> Result<Self, String> {
        let place = places.entry(TICKET_ROOTS);
        let entry = etcd.get(&place).await.map_err(|error| error.to_string())?;
        let revision = entry.as_ref().map_or(0, |entry| entry.mod_revision);
        let opened = entry.map(|entry| {
            let opened = keys.open_at(&place, &entry.value);
            parsed(&opened.map_err(|error| format!("{place}: {error}"))?)
        });
        Ok(Self { etcd, keys, root: opened.transpose()?, place, revision })
    }

    /// Puts `root` there; whether nobody was faster.
    async fn replace(&self, root: &TicketRoot) -> Result<bool, String> {
        let text = root.to_text().map_err(|error| error.to_string())?;
        let sealed = self.keys.seal_for(&self.place, text.as_bytes());
        let sealed = sealed.map_err(|error| error.to_string())?;
        let compare = [Compare::Modified(&self.place, self.revision)];
        let put = [Change::Put(&self.place, &sealed, 0)];
        let made = self.etcd.change_if(&compare, &put).await;
        made.map(|revision| revision.is_some()).map_err(|error| error.to_string())
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

/// How often it is tried to be the first who writes.
const ATTEMPTS: usize = 5;
/// Whole epochs between an announcement and when the root holds.
const LEAD: u64 = 2;
/// How often it is looked what is to be done.
const LOOK: Duration = Duration::from_secs(1);
/// Epochs during which a root is announced, beside the last one: so long all agents may be away.
const WINDOW: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME_S: u64 = 43_200;
    const WEEKLY: Rotation = Rotation { lifetime: Duration::from_secs(LIFETIME_S), epochs: 14 };

    fn at(epoch: u64) -> UnixSeconds {
        UnixSeconds(epoch * LIFETIME_S + 5)
    }

    fn announced(root: &TicketRoot) -> Vec<u64> {
        root.announced().map(|epoch| epoch.0).collect()
    }

    fn step(shared: &mut Option<TicketRoot>, epoch: u64) -> bool {
        let next = WEEKLY.next(shared.as_ref(), at(epoch), |bytes| bytes.fill(7)).unwrap();
        let has_changed = next.is_some();
        *shared = next.or(shared.take());
        assert!(WEEKLY.next(shared.as_ref(), at(epoch), |_| panic!()).unwrap().is_none());
        has_changed
    }

    #[test]
    fn a_root_is_made_brought_forward_and_announced_two_whole_epochs_before_it_holds() {
        let mut shared = None;
        let mut seen = Vec::new();
        for epoch in 100..=113 {
            assert!(step(&mut shared, epoch) == (epoch != 101), "{epoch}");
            let root = shared.as_ref().unwrap();
            assert_eq!(root.epoch().0, (epoch - 1).max(100), "older secrets are erased");
            seen.push((epoch, announced(root)));
        }
        // 112 is a multiple of 14.
        let expected = |epoch| if (106..=112).contains(&epoch) { vec![112] } else { vec![] };
        assert!(seen.iter().all(|(epoch, seen)| *seen == expected(*epoch)), "{seen:?}");
    }

    #[test]
    fn what_does_not_fit_is_named_and_let_alone() {
        let fill = |bytes: &mut [u8]| bytes.fill(1);
        let other = TicketRoot::generate(Duration::from_secs(600), at(100), fill).unwrap();
        let error = WEEKLY.next(Some(&other), at(100), fill).unwrap_err();
        assert_eq!(error, RotationError::Lifetime { theirs: 600, ours: LIFETIME_S });
        let ahead = TicketRoot::generate(WEEKLY.lifetime, at(102), fill).unwrap();
        assert!(WEEKLY.next(Some(&ahead), at(100), fill).is_err());
        assert!(WEEKLY.next(Some(&ahead), at(101), fill).is_ok());
        assert!(WEEKLY.next(Some(&ahead), at(9_000), fill).is_err());
        for unusable in [&other, &ahead] {
            let (root, from) = WEEKLY.rotated(Some(unusable), at(100), fill).unwrap();
            assert_eq!((root.epoch(), from), (Epoch(100), Epoch(100)), "anew");
        }
    }

    #[test]
    fn a_rotation_that_is_asked_for_keeps_what_holds_before() {
        let fill = |bytes: &mut [u8]| bytes.fill(1);
        let mut root = TicketRoot::generate(WEEKLY.lifetime, at(105), fill).unwrap();
        for epoch in [106, 112] {
            root.announce(Epoch(epoch), fill).unwrap();
        }
        let (rotated, from) = WEEKLY.rotated(Some(&root), at(105), fill).unwrap();
        assert_eq!((from, announced(&rotated)), (Epoch(108), vec![106, 108]));
        let next = WEEKLY.next(Some(&rotated), at(106), fill).unwrap().unwrap();
        assert_eq!((next.epoch().0, announced(&next)), (105, vec![106, 108, 112]));
    }

    #[test]
    fn no_root_is_missed_where_an_agent_is_there_within_the_window() {
        for seed in 0..300 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let rotation = Rotation { epochs: chance.u64(1..30), ..WEEKLY };
            let begins = chance.u64(0..100);
            let mut now = begins;
            let mut shared: Option<TicketRoot> = None;
            let mut announced_in = std::collections::BTreeMap::new();
            for fill in 0..40 {
                let next = rotation.next(shared.as_ref(), at(now), |bytes| bytes.fill(fill));
                let next = next.unwrap().or(shared.take()).unwrap();
                for from in next.announced() {
                    announced_in.entry(from.0).or_insert(now);
                }
                assert!(next.epoch().0 <= now, "the epoch of now has a key");
                assert!(next.epoch().0 + 1 >= now, "nothing older is left");
                shared = Some(next);
                now += chance.u64(1..=WINDOW);
            }
            let all = begins + LEAD + WINDOW + 1..now;
            for from in all.filter(|from| from.is_multiple_of(rotation.epochs)) {
                let Some(announced) = announced_in.get(&from) else {
                    // Shorter than the agents were away.
                    assert!(rotation.epochs < WINDOW, "{from} was missed by {rotation:?}");
                    continue;
                };
                assert!(announced + LEAD < from, "{from} in {announced}");
            }
        }
    }
}
