//! Two ways to share ticket keys that change with time, as rustls has them: [`Switcher`] under a
//! mutex, [`Rotator`] under a lock for many readers.
//!
//! ```text
//! now <= switch at     current seals; current and previous open
//! now >  switch at     the next thread that comes makes current the previous one: nothing rotates
//!                      while nobody comes
//! ```

use std::{
    mem,
    sync::{Mutex, RwLock},
};

use sealane_engine::{
    provider::random,
    tickets::{Epoch, LeafDigest, NONCE_BYTES, TicketKey, UnixSeconds},
};

use super::{strategy::LEAF, tally::Tally};

/// rustls' `TicketSwitcher`, which its tickets had until 0.23.17: the lock is held while a ticket
/// is sealed or opened. The next key waits ready, so none is made under the lock.
pub(super) struct Switcher {
    lifetime_s: u64,
    state: Mutex<Switched>,
}

struct Switched {
    next: Option<TicketKey>,
    keys: Keys,
}

impl Switcher {
    pub(super) fn new(now: UnixSeconds, lifetime_s: u64, tally: &Tally) -> Option<Self> {
        let switched =
            Switched { next: Some(generate(tally)?), keys: Keys::new(now, lifetime_s, tally)? };
        Some(Self { lifetime_s, state: Mutex::new(switched) })
    }

    /// What `work` makes of the keys of a time, under the lock.
    pub(super) fn with<T>(
        &self,
        now: UnixSeconds,
        tally: &Tally,
        work: impl FnOnce(&Keys) -> Option<T>,
    ) -> Option<T> {
        let mut state = tally.lock(&self.state)?;
        if now > state.keys.switch_at {
            // It is missing only if making one failed, or takes longer than a lifetime.
            let next = state.next.take()?;
            state.keys.switch(next, now, self.lifetime_s);
            drop(state);
            let next = generate(tally)?;
            state = tally.lock(&self.state)?;
            state.next = Some(next);
        }
        work(&state.keys)
    }
}

/// rustls' `TicketRotator`, which its tickets have since 0.23.17: many threads seal and open at
/// once, each holding the lock to read. Every thread that finds the time up makes a key, before the
/// lock to write, and all but the first throw theirs away.
pub(super) struct Rotator {
    lifetime_s: u64,
    state: RwLock<Keys>,
}

impl Rotator {
    pub(super) fn new(now: UnixSeconds, lifetime_s: u64, tally: &Tally) -> Option<Self> {
        let state = RwLock::new(Keys::new(now, lifetime_s, tally)?);
        Some(Self { lifetime_s, state })
    }

    /// What `work` makes of the keys of a time, under the lock to read.
    pub(super) fn with<T>(
        &self,
        now: UnixSeconds,
        tally: &Tally,
        work: impl FnOnce(&Keys) -> Option<T>,
    ) -> Option<T> {
        let state = tally.read(&self.state)?;
        if now <= state.switch_at {
            return work(&state);
        }
        drop(state);
        let next = generate(tally)?;
        let mut state = tally.write(&self.state)?;
        if now > state.switch_at {
            state.switch(next, now, self.lifetime_s);
        }
        drop(state);
        work(&*tally.read(&self.state)?)
    }
}

/// The keys in use.
pub(super) struct Keys {
    current: TicketKey,
    leaf: LeafDigest,
    previous: Option<TicketKey>,
    switch_at: UnixSeconds,
}

impl Keys {
    fn new(now: UnixSeconds, lifetime_s: u64, tally: &Tally) -> Option<Self> {
        let switch_at = UnixSeconds(now.0.saturating_add(lifetime_s));
        let leaf = LeafDigest::of(LEAF);
        Some(Self { current: generate(tally)?, leaf, previous: None, switch_at })
    }

    fn switch(&mut self, next: TicketKey, now: UnixSeconds, lifetime_s: u64) {
        self.previous = Some(mem::replace(&mut self.current, next));
        self.switch_at = UnixSeconds(now.0.saturating_add(lifetime_s));
    }

    pub(super) fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut random = [0; NONCE_BYTES];
        random::fill(&mut random).ok()?;
        self.current.seal(&random, &self.leaf, plain)
    }

    pub(super) fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let previous = || self.previous.as_ref()?.open(&self.leaf, ticket);
        self.current.open(&self.leaf, ticket).or_else(previous)
    }
}

/// A new key. rustls' tickets begin with 16 random bytes that name their key; here it is the epoch.
fn generate(tally: &Tally) -> Option<TicketKey> {
    tally.generates();
    let (mut name, mut secret) = ([0; 8], [0; 32]);
    random::fill(&mut name).ok()?;
    random::fill(&mut secret).ok()?;
    Some(TicketKey::new(Epoch(u64::from_be_bytes(name)), &secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixSeconds = UnixSeconds(1_000_000);
    const LIFETIME_S: u64 = 600;

    fn at(seconds: u64) -> UnixSeconds {
        UnixSeconds(START.0 + seconds)
    }

    /// Seals at the start, and says when the ticket opens for the last time if somebody comes every
    /// second; with how many keys were made, and made under a lock.
    fn opens_until(
        seal: impl Fn(UnixSeconds, &[u8], &Tally) -> Option<Vec<u8>>,
        open: impl Fn(UnixSeconds, &[u8], &Tally) -> Option<Vec<u8>>,
    ) -> (u64, u64, u64) {
        let tally = Tally::default();
        let ticket = seal(START, b"session", &tally).unwrap();
        let mut last = 0;
        for second in 0..3 * LIFETIME_S {
            match open(at(second), &ticket, &tally) {
                Some(plain) => {
                    assert_eq!(plain, b"session");
                    assert_eq!(last, second.saturating_sub(1), "it came back to life");
                    last = second;
                }
                None => assert!(second > LIFETIME_S, "too young to be refused: {second}"),
            }
        }
        (last, tally.generated.get(), tally.generated_locked.get())
    }

    #[test]
    fn a_ticket_opens_for_two_lifetimes_and_the_seconds_in_which_keys_change() {
        let tally = Tally::default();
        let switcher = Switcher::new(START, LIFETIME_S, &tally).unwrap();
        let rotator = Rotator::new(START, LIFETIME_S, &tally).unwrap();
        assert_eq!(tally.generated.get(), 3);
        // Each key is current until its lifetime is over, which is one second more.
        let expected = (2 * LIFETIME_S + 1, 2, 0);
        let of_switcher = opens_until(
            |now, plain, tally| switcher.with(now, tally, |keys| keys.seal(plain)),
            |now, ticket, tally| switcher.with(now, tally, |keys| keys.open(ticket)),
        );
        assert_eq!(of_switcher, expected);
        let of_rotator = opens_until(
            |now, plain, tally| rotator.with(now, tally, |keys| keys.seal(plain)),
            |now, ticket, tally| rotator.with(now, tally, |keys| keys.open(ticket)),
        );
        assert_eq!(of_rotator, expected);
    }
}
