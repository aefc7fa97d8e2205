//! A lane's replica of the ticket root and the keys that it derived so far.

use std::{cell::RefCell, fmt, rc::Rc, sync::Arc};

use fragile::Fragile;

use crate::{
    policy::PolicyDigest,
    provider::ProviderError,
    tickets::{
        Epoch, LaneClock, TicketKey, TicketRoot, TicketRootError, Ticketer, UnixSeconds,
        root::epoch_end,
    },
};

/// The tickets of one lane, for all its policies and generations.
///
/// It reads no clock: it goes by the last time that the lane set on its [`LaneClock`].
pub struct LaneTickets {
    clock: Arc<LaneClock>,
    random: FillRandom,
    replica: Rc<RefCell<Replica>>,
}

impl LaneTickets {
    /// A replica of `root`, made on the lane's own thread; `random` fills nonces.
    pub fn new(root: TicketRoot, clock: Arc<LaneClock>, random: FillRandom) -> Self {
        Self { clock, random, replica: Rc::new(RefCell::new(Replica::new(root))) }
    }

    /// The ticketer that rustls asks on this lane for tickets under one policy.
    pub fn ticketer(&self, policy: PolicyDigest) -> Ticketer {
        Ticketer {
            clock: Arc::clone(&self.clock),
            policy,
            proofs: None,
            random: self.random,
            replica: Fragile::new(Rc::clone(&self.replica)),
        }
    }

    /// Erases all keys and goes on with those of `root`, for every policy and generation of the
    /// lane: the [`Ticketer`]s that it made use them from now on.
    pub fn replace(&self, root: TicketRoot) {
        self.replica.borrow_mut().replace(root);
    }

    /// Erases keys that have expired by the lane's clock. One comparison if there are none.
    ///
    /// Tickets rotate without it. A lane calls it at [`rotates_at`](Self::rotates_at), so that old
    /// keys go even if no client comes. On an error no tickets are issued or opened, and it repeats
    /// until the clock or the root is put right.
    pub fn rotate(&self) -> Result<(), TicketRootError> {
        match (self.clock.now(), self.replica.try_borrow_mut()) {
            (Some(now), Ok(mut replica)) => replica.rotate(now).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// The end of the epoch of the lane's clock.
    pub fn rotates_at(&self) -> UnixSeconds {
        let lifetime_s = self.replica.borrow().lifetime_s();
        epoch_end(self.clock.now().unwrap_or(UnixSeconds(0)), lifetime_s)
    }
}

impl fmt::Debug for LaneTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneTickets").finish_non_exhaustive()
    }
}

/// Fills a buffer with unpredictable bytes, or no ticket is sealed.
pub type FillRandom = fn(&mut [u8]) -> Result<(), ProviderError>;

/// The root, at the oldest epoch that is accepted, and the keys in use.
pub(super) struct Replica {
    evict_next: usize,
    // Fixed slots: a key is never moved, so none is left behind in freed or unused memory.
    keys: [Option<HeldKey>; KEYS_HELD_MAX],
    /// Keys of epochs before this one are erased.
    oldest: Epoch,
    root: TicketRoot,
}

impl Replica {
    fn new(root: TicketRoot) -> Self {
        let keys = [const { None }; KEYS_HELD_MAX];
        Self { evict_next: 0, keys, oldest: root.epoch(), root }
    }

    /// In place, for the reason that the slots are fixed.
    fn replace(&mut self, root: TicketRoot) {
        for slot in &mut self.keys {
            *slot = None;
        }
        self.oldest = root.epoch();
        self.root = root;
    }

    pub(super) fn lifetime_s(&self) -> u32 {
        self.root.lifetime_s()
    }

    /// The count of secrets that may have sealed a ticket.
    pub(super) fn secrets(&self) -> usize {
        self.root.secrets()
    }

    /// The key to seal with at a time; none if the clock is wrong.
    pub(super) fn sealing_key(
        &mut self,
        now: UnixSeconds,
        policy: &PolicyDigest,
    ) -> Option<&TicketKey> {
        let clock = self.rotate(now).ok()?;
        // A clock that fell back into an epoch already erased: the next one's tickets open
        // everywhere.
        let epoch = clock.max(self.root.epoch());
        self.key(epoch, 0, policy)
    }

    /// The key of one of the secrets that opens a ticket of an epoch at a time. `None` if the
    /// ticket is too old or too new.
    pub(super) fn opening_key(
        &mut self,
        now: UnixSeconds,
        epoch: Epoch,
        secret: usize,
        policy: &PolicyDigest,
    ) -> Option<&TicketKey> {
        let clock = self.rotate(now).ok()?;
        if epoch < clock.previous() || clock.next() < epoch {
            return None;
        }
        self.key(epoch, secret, policy)
    }

    /// Brings the root to the oldest epoch accepted at a time, erases older keys, and returns the
    /// clock's epoch.
    fn rotate(&mut self, now: UnixSeconds) -> Result<Epoch, TicketRootError> {
        let clock = self.root.epoch_at(now);
        let oldest = self.root.oldest_accepted_at(now);
        self.root.advance_to(oldest)?;
        if self.oldest != oldest {
            self.oldest = oldest;
            for slot in &mut self.keys {
                if slot.as_ref().is_some_and(|held| held.key.epoch() < oldest) {
                    *slot = None;
                }
            }
        }
        if clock.next() < self.root.epoch() {
            return Err(TicketRootError::ClockBehind { root: self.root.epoch(), clock });
        }
        Ok(clock)
    }

    fn key(&mut self, epoch: Epoch, secret: usize, policy: &PolicyDigest) -> Option<&TicketKey> {
        let is_it = |held: &HeldKey| {
            held.key.epoch() == epoch && held.secret == secret && held.policy == *policy
        };
        let held = self.keys.iter().position(|slot| slot.as_ref().is_some_and(is_it));
        let at = match held {
            Some(at) => at,
            None => self.derive_key(epoch, secret, policy)?,
        };
        self.keys.get(at)?.as_ref().map(|held| &held.key)
    }

    /// Derives a key into a free slot, or into the one that was filled longest ago.
    fn derive_key(&mut self, epoch: Epoch, secret: usize, policy: &PolicyDigest) -> Option<usize> {
        let derived = self.root.key(epoch, secret, policy).ok()??;
        let free = self.keys.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            let at = self.evict_next;
            self.evict_next = (at + 1) % KEYS_HELD_MAX;
            at
        });
        let slot = self.keys.get_mut(at)?;
        *slot = Some(HeldKey { key: TicketKey::new(epoch, &derived), policy: *policy, secret });
        Some(at)
    }
}

struct HeldKey {
    key: TicketKey,
    policy: PolicyDigest,
    /// The number of its secret in the root.
    secret: usize,
}

/// The most keys that a lane holds at once: three epochs of 16 policies. With more policies they
/// take turns, and a ticket costs another derivation.
pub const KEYS_HELD_MAX: usize = 48;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn replica() -> Replica {
        let root = TicketRoot::generate(Duration::from_secs(600), UnixSeconds(6_000), |bytes| {
            bytes.fill(1);
        });
        Replica::new(root.unwrap())
    }

    fn held(replica: &Replica) -> Vec<u64> {
        let mut epochs: Vec<_> =
            replica.keys.iter().flatten().map(|held| held.key.epoch().0).collect();
        epochs.sort_unstable();
        epochs
    }

    #[test]
    fn rotating_erases_keys_and_root_without_a_client() {
        let mut replica = replica();
        let policy = PolicyDigest([0; 32]);
        for epoch in [10, 11] {
            assert!(replica.opening_key(UnixSeconds(6_000), Epoch(epoch), 0, &policy).is_some());
        }
        assert_eq!(held(&replica), [10, 11]);
        replica.rotate(UnixSeconds(6_600)).unwrap();
        assert_eq!((held(&replica), replica.root.epoch()), (vec![10, 11], Epoch(10)));
        replica.rotate(UnixSeconds(7_200)).unwrap();
        assert_eq!((held(&replica), replica.root.epoch()), (vec![11], Epoch(11)));
    }

    #[test]
    fn keys_of_shared_secrets_are_erased_when_they_open_nothing_any_more() {
        let root = TicketRoot::shared(&[[1; 48], [2; 48]], 600).unwrap();
        let mut replica = Replica::new(root);
        let policy = PolicyDigest([0; 32]);
        for (epoch, secret) in [(9, 0), (9, 1), (10, 1), (11, 0)] {
            assert!(
                replica.opening_key(UnixSeconds(6_000), Epoch(epoch), secret, &policy).is_some()
            );
        }
        assert_eq!(held(&replica), [9, 9, 10, 11]);
        replica.rotate(UnixSeconds(6_600)).unwrap();
        assert_eq!(held(&replica), [10, 11]);
        replica.replace(TicketRoot::shared(&[[1; 48]], 600).unwrap());
        assert!(held(&replica).is_empty());
    }

    #[test]
    fn looking_at_the_next_epoch_erases_nothing() {
        let mut replica = replica();
        let policy = PolicyDigest([0; 32]);
        assert!(replica.opening_key(UnixSeconds(6_000), Epoch(11), 0, &policy).is_some());
        assert!(replica.opening_key(UnixSeconds(6_000), Epoch(12), 0, &policy).is_none());
        assert_eq!(replica.root.epoch(), Epoch(10));
        assert!(replica.opening_key(UnixSeconds(6_000), Epoch(10), 0, &policy).is_some());
    }

    #[test]
    fn what_is_held_is_zeroed_on_drop() {
        fn assert_zeroed<T: zeroize::ZeroizeOnDrop>() {}
        assert_zeroed::<crate::tickets::secret::Secret>();
    }

    #[test]
    fn more_policies_than_slots_take_turns() {
        let mut replica = replica();
        for round in 0..2 {
            for policy in 0..=u8::try_from(KEYS_HELD_MAX).unwrap() {
                let policy = PolicyDigest([policy; 32]);
                let key = replica.sealing_key(UnixSeconds(6_000), &policy);
                assert!(key.is_some(), "round {round}");
            }
            assert_eq!(held(&replica).len(), KEYS_HELD_MAX);
        }
    }
}
