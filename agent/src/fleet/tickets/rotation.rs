//! What becomes of the ticket roots that machines share, as time goes on: [`Rotation`], which does
//! nothing itself and is told the time.

use std::time::Duration;

use sealane_engine::tickets::{Epoch, TicketRoot, TicketRootError, UnixSeconds};

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
            return Ok(Some(self.anew(now, fill)?));
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
            let root = self.anew(now, fill)?;
            let from = root.epoch();
            return Ok((root, from));
        };
        let from = soonest(root.epoch_at(now));
        root.announce(from, fill)?;
        Ok((root, from))
    }

    /// A root that holds at once for all, of the epoch before: where a clock is behind this one,
    /// and an epoch has just begun here, it is that one still, which has no key of a later root.
    fn anew(
        self,
        now: UnixSeconds,
        fill: impl FnMut(&mut [u8]),
    ) -> Result<TicketRoot, TicketRootError> {
        let before = UnixSeconds(now.0.saturating_sub(self.lifetime.as_secs()));
        TicketRoot::generate(self.lifetime, before, fill)
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

/// Whole epochs between an announcement and when the root holds.
const LEAD: u64 = 2;
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
            assert!(step(&mut shared, epoch), "{epoch}");
            let root = shared.as_ref().unwrap();
            // The first one is good for a machine, too, whose clock is a little behind.
            assert_eq!(root.epoch().0, epoch - 1, "older secrets are erased");
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
            assert_eq!((root.epoch(), from), (Epoch(99), Epoch(99)), "anew, and at once");
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
