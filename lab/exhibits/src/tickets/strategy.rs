//! The strategies, [`Strategy`], and what they have in common: [`SharedKeys`] is a process's,
//! [`Issuer`] is what one thread seals and opens with.

use std::{cell::Cell, sync::Arc, time::Duration};

use sealane_engine::{
    policy::PolicyDigest,
    provider::{ProviderError, random},
    tickets::{LaneClock, LaneTickets, LeafDigest, TicketRoot, Ticketer, UnixSeconds},
};
use sealane_lab_model::error::Error;
use serde::{Deserialize, Serialize};

use super::{
    rotators::{Rotator, Switcher},
    tally::Tally,
};

/// How threads share ticket keys; the remedy last.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// One lock, held while a ticket is sealed or opened: rustls before 0.23.17
    Mutex,
    /// One lock for many readers, held likewise: rustls since
    #[value(name = "rwlock")]
    #[serde(rename = "rwlock")]
    RwLock,
    /// Keys that each thread derives by itself from one root: Sealane
    Lane,
}

impl Strategy {
    /// Whether its rows have the figure: the locks of a lane are not counted here, by what could
    /// count none, but by the shared writes that they would be.
    pub(super) fn tells(self, figure: &str) -> bool {
        self != Self::Lane || !figure.starts_with("lock_")
    }
}

/// What a process has one of.
pub(super) enum SharedKeys {
    Lane(TicketRoot),
    Mutex(Switcher),
    RwLock(Rotator),
}

impl SharedKeys {
    /// With the first keys made, which `tally` counts; a lane's root is one.
    ///
    /// # Errors
    /// The kernel gives no random bytes, or the engine takes no such lifetime.
    pub(super) fn new(
        strategy: Strategy,
        now: UnixSeconds,
        lifetime_s: u64,
        tally: &Tally,
    ) -> Result<Self, Error> {
        let shared = match strategy {
            Strategy::Mutex => Switcher::new(now, lifetime_s, tally).map(Self::Mutex),
            Strategy::RwLock => Rotator::new(now, lifetime_s, tally).map(Self::RwLock),
            Strategy::Lane => {
                let mut secret = [0; 32];
                random::fill(&mut secret).map_err(|error| Error::Check(error.to_string()))?;
                tally.generates();
                let fill = |bytes: &mut [u8]| bytes.copy_from_slice(&secret);
                let root = TicketRoot::generate(Duration::from_secs(lifetime_s), now, fill);
                Some(Self::Lane(root.map_err(|error| Error::Check(error.to_string()))?))
            }
        };
        shared.ok_or_else(|| Error::Check("no ticket keys could be made".into()))
    }

    /// The calling thread's.
    pub(super) fn issuer(&self, now: UnixSeconds) -> Issuer<'_> {
        let keys = match self {
            Self::Lane(root) => {
                let clock = Arc::new(LaneClock::new(now));
                let tickets = LaneTickets::new(root.clone(), Arc::clone(&clock), draw);
                let ticketer = Box::new(tickets.ticketer(POLICY));
                Keys::Lane { clock, leaf: LeafDigest::of(LEAF), ticketer, tickets }
            }
            Self::Mutex(switcher) => Keys::Mutex(switcher),
            Self::RwLock(rotator) => Keys::RwLock(rotator),
        };
        Issuer { keys, now, tally: Tally::default() }
    }
}

/// One thread's way to the keys, at a time that it sets.
pub(super) struct Issuer<'a> {
    keys: Keys<'a>,
    now: UnixSeconds,
    /// What it did.
    pub(super) tally: Tally,
}

enum Keys<'a> {
    Lane { clock: Arc<LaneClock>, leaf: LeafDigest, tickets: LaneTickets, ticketer: Box<Ticketer> },
    Mutex(&'a Switcher),
    RwLock(&'a Rotator),
}

impl Issuer<'_> {
    /// The time from now on; a lane does the same once per turn of its loop.
    ///
    /// # Errors
    /// The lane's clock and root contradict each other.
    pub(super) fn set(&mut self, now: UnixSeconds) -> Result<(), Error> {
        self.now = now;
        if let Keys::Lane { clock, tickets, .. } = &self.keys {
            clock.set(now);
            let rotated = self.drawing(0, || tickets.rotate());
            rotated.map_err(|error| Error::Check(error.to_string()))?;
        }
        Ok(())
    }

    /// A ticket for a session.
    ///
    /// # Errors
    /// None was made.
    pub(super) fn issue(&self, session: &[u8]) -> Result<Vec<u8>, Error> {
        let ticket = match &self.keys {
            // A nonce, and whatever else it may draw.
            Keys::Lane { leaf, ticketer, .. } => self.drawing(1, || ticketer.seal(leaf, session)),
            Keys::Mutex(shared) => shared.with(self.now, &self.tally, |keys| keys.seal(session)),
            Keys::RwLock(shared) => shared.with(self.now, &self.tally, |keys| keys.seal(session)),
        };
        ticket.ok_or_else(|| Error::Check("a ticket was not issued".into()))
    }

    /// The session of a ticket, if it opens.
    pub(super) fn resume(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        match &self.keys {
            Keys::Lane { leaf, ticketer, .. } => self.drawing(0, || ticketer.open(leaf, ticket)),
            Keys::Mutex(shared) => shared.with(self.now, &self.tally, |keys| keys.open(ticket)),
            Keys::RwLock(shared) => shared.with(self.now, &self.tally, |keys| keys.open(ticket)),
        }
    }
}

impl Issuer<'_> {
    /// What a lane does. It is given random bytes for so many nonces; those that it draws beyond
    /// them are of keys.
    fn drawing<T>(&self, nonces: u64, does: impl FnOnce() -> T) -> T {
        let before = DRAWN.get();
        let done = does();
        (nonces..DRAWN.get() - before).for_each(|_| self.tally.generates());
        done
    }
}

/// Fills a lane's buffer, and counts it.
fn draw(bytes: &mut [u8]) -> Result<(), ProviderError> {
    DRAWN.set(DRAWN.get() + 1);
    random::fill(bytes)
}

thread_local! {
    /// Buffers that this thread's lane has had filled.
    static DRAWN: Cell<u64> = const { Cell::new(0) };
}

/// Stands for the one certificate that is served here.
pub(super) const LEAF: &[u8] = b"the certificate of every listener";

/// The one policy of every listener here.
const POLICY: PolicyDigest = PolicyDigest([0x5e; 32]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_opens_every_threads_tickets() {
        let now = UnixSeconds(6_000_000);
        for (strategy, locks) in [(Strategy::Mutex, 2), (Strategy::RwLock, 2), (Strategy::Lane, 0)]
        {
            let shared = SharedKeys::new(strategy, now, 600, &Tally::default()).unwrap();
            let [first, second] = [shared.issuer(now), shared.issuer(now)];
            for (from, to) in [(&first, &second), (&second, &first)] {
                let ticket = from.issue(b"session").unwrap();
                assert_eq!(ticket.len(), 48 + 7, "{strategy:?}");
                assert_eq!(to.resume(&ticket).as_deref(), Some(&b"session"[..]), "{strategy:?}");
            }
            assert_eq!(first.tally.acquisitions.get(), locks, "{strategy:?}");
        }
    }

    #[test]
    fn random_bytes_that_a_lane_draws_beside_its_nonces_are_keys() {
        let now = UnixSeconds(6_000_000);
        let shared = SharedKeys::new(Strategy::Lane, now, 600, &Tally::default()).unwrap();
        let issuer = shared.issuer(now);
        let before = DRAWN.get();
        let ticket = issuer.issue(b"session").unwrap();
        assert!(issuer.resume(&ticket).is_some());
        assert_eq!(DRAWN.get() - before, 1, "the nonce, which is seen");
        assert_eq!(issuer.tally.generated.get(), 0);
        let draws = |times| (0..times).try_for_each(|_| draw(&mut [0; 32]));
        issuer.drawing(1, || draws(3)).unwrap();
        assert_eq!(issuer.tally.generated.get(), 2);
    }
}
