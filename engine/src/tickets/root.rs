//! The secret that ticket keys come from, in two forms. The ratcheted form has one epoch at a time,
//! announced successors and a text form. The other form is shared by several processes.

mod error;
#[cfg(test)]
mod tests;
mod text;

use std::{fmt, time::Duration};

use crate::{
    policy::PolicyDigest,
    tickets::{
        UnixSeconds,
        secret::{Secret, derive, extract},
    },
};

pub use error::TicketRootError;
pub use text::TEXT_BYTES_MAX;

/// The secret of one epoch. Those of later epochs follow from it, those of earlier ones do not. Or
/// secrets that are [shared](Self::shared), from which the keys of any epoch follow.
///
/// Others may be [announced](Self::announce), each to hold from an epoch on. The keys of an epoch
/// come from the youngest one that holds by then. All processes with the same ones change to the
/// same key at the same instant.
///
/// With it, every ticket of its epoch and of all later ones can be opened. It is zeroed when it is
/// dropped or advanced. Only the hash function's working copies on the stack are left to be
/// overwritten by later calls.
#[derive(Clone)]
pub struct TicketRoot {
    epoch: Epoch,
    lifetime_s: u32,
    secrets: Secrets,
    /// By the epochs from which they hold, which are after the root's own.
    announced: Vec<Announced>,
}

/// A secret that holds from a later epoch on.
#[derive(Clone)]
struct Announced {
    epoch: Epoch,
    secret: Box<Secret>,
}

/// Boxed so that moving the root leaves no copy behind.
#[derive(Clone)]
enum Secrets {
    /// The secret of the root's epoch.
    Ratchet(Box<Secret>),
    /// The values extracted from each shared secret. The root's epoch is the first.
    Shared(Box<[Secret]>),
}

impl TicketRoot {
    /// A new root for the epoch of `now`, from 32 bytes of `random`.
    pub fn generate(
        lifetime: Duration,
        now: UnixSeconds,
        mut random: impl FnMut(&mut [u8]),
    ) -> Result<Self, TicketRootError> {
        let lifetime_s = lifetime_in_range(lifetime.as_secs())?;
        if lifetime.subsec_nanos() != 0 {
            return Err(TicketRootError::Lifetime);
        }
        let mut secret = Box::new(Secret::default());
        random(secret.as_mut_slice());
        Ok(Self::ratchet(epoch_at(now, lifetime_s), lifetime_s, secret))
    }

    /// A root of `secrets` that are kept elsewhere and given to every process that is to open the
    /// others' tickets. Tickets are sealed with the first and open with any. So a new one is put
    /// before the old ones, which are dropped one or two lifetimes later.
    ///
    /// It does not advance: with one of the secrets, every ticket ever sealed with it can be
    /// opened. So replace them often. They are random bytes, and the caller zeroes its own copy.
    ///
    /// # Errors
    /// There is no secret, or more than [`SHARED_KEYS_MAX`], or `lifetime_s` is out of range.
    pub fn shared(secrets: &[[u8; 48]], lifetime_s: u32) -> Result<Self, TicketRootError> {
        if !(1..=SHARED_KEYS_MAX).contains(&secrets.len()) {
            return Err(TicketRootError::SharedCount { count: secrets.len() });
        }
        if !(1..=LIFETIME_S_MAX).contains(&lifetime_s) {
            return Err(TicketRootError::SharedLifetime { lifetime_s });
        }
        let secrets = Secrets::Shared(secrets.iter().map(extract).collect());
        Ok(Self { epoch: Epoch(0), lifetime_s, secrets, announced: Vec::new() })
    }

    fn ratchet(epoch: Epoch, lifetime_s: u32, secret: Box<Secret>) -> Self {
        Self { epoch, lifetime_s, secrets: Secrets::Ratchet(secret), announced: Vec::new() }
    }

    /// Adds a new root, from 32 bytes of `random`, that holds from `epoch` on. It replaces those
    /// that were to hold from then or later. Choose an epoch by which all processes with this root
    /// have the new one.
    ///
    /// # Errors
    /// The epoch is not after this root's, there are [`ROOTS_MAX`], or the root is
    /// [shared](Self::shared).
    pub fn announce(
        &mut self,
        epoch: Epoch,
        mut random: impl FnMut(&mut [u8]),
    ) -> Result<(), TicketRootError> {
        if matches!(self.secrets, Secrets::Shared(_)) {
            return Err(TicketRootError::SharedText);
        }
        if epoch <= self.epoch {
            return Err(TicketRootError::Order);
        }
        let mut secret = Box::new(Secret::default());
        random(secret.as_mut_slice());
        self.announced.retain(|one| one.epoch < epoch);
        self.put(Announced { epoch, secret })
    }

    fn put(&mut self, announced: Announced) -> Result<(), TicketRootError> {
        if self.announced.len() + 1 >= ROOTS_MAX {
            return Err(TicketRootError::Roots);
        }
        self.announced.push(announced);
        Ok(())
    }

    fn youngest(&self) -> Epoch {
        self.announced.last().map_or(self.epoch, |one| one.epoch)
    }

    /// From when on each announced root holds, the next one first.
    pub fn announced(&self) -> impl Iterator<Item = Epoch> {
        self.announced.iter().map(|one| one.epoch)
    }

    /// Whether both give the same keys from the epoch on that both have.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let from = self.epoch.max(other.epoch);
        let text = |root: &Self| {
            let mut root = root.clone();
            root.advance_to(from).and_then(|()| root.to_text()).ok()
        };
        self.lifetime_s == other.lifetime_s
            && text(self).is_some_and(|own| Some(own) == text(other))
    }

    /// The epoch of this secret: the oldest one of which it can open tickets, which is the first of
    /// all for a shared root.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The epoch of a time.
    pub fn epoch_at(&self, now: UnixSeconds) -> Epoch {
        epoch_at(now, self.lifetime_s)
    }

    /// The oldest epoch of which tickets are accepted at a time. [`advance_to`] it, and no further,
    /// before the root is stored, or a restart loses the tickets of the last epoch.
    ///
    /// [`advance_to`]: Self::advance_to
    pub fn oldest_accepted_at(&self, now: UnixSeconds) -> Epoch {
        self.epoch_at(now).previous()
    }

    /// The end of the epoch of a time.
    pub fn epoch_end(&self, now: UnixSeconds) -> UnixSeconds {
        epoch_end(now, self.lifetime_s)
    }

    /// The length of an epoch.
    pub fn lifetime_s(&self) -> u32 {
        self.lifetime_s
    }

    /// Replaces the secret by that of a later epoch and erases it. Also erases those of roots that
    /// another has replaced by then. An epoch that is not later changes nothing, nor does one that
    /// is more than [`RATCHET_STEPS_MAX`] ahead. A shared root never changes.
    pub fn advance_to(&mut self, epoch: Epoch) -> Result<(), TicketRootError> {
        let Secrets::Ratchet(secret) = &mut self.secrets else { return Ok(()) };
        let over = self.announced.iter().take_while(|one| one.epoch <= epoch).count();
        let holds = over.checked_sub(1).and_then(|last| self.announced.get(last));
        let from = holds.map_or(self.epoch, |one| one.epoch);
        let steps = epoch.0.saturating_sub(from.0);
        if steps > RATCHET_STEPS_MAX {
            return Err(TicketRootError::ClockAhead { root: self.epoch, clock: epoch });
        }
        if let Some(holds) = self.announced.drain(..over).next_back() {
            (self.epoch, *secret) = (holds.epoch, holds.secret);
        }
        for _ in 0..steps {
            let next = derive(secret, LABEL_NEXT, &[]);
            secret.copy_from_slice(next.as_slice());
            self.epoch = self.epoch.next();
        }
        Ok(())
    }

    /// The count of secrets to open with. The first of them seals.
    pub(super) fn secrets(&self) -> usize {
        match &self.secrets {
            Secrets::Ratchet(_) => 1,
            Secrets::Shared(secrets) => secrets.len(),
        }
    }

    /// The key of the secret with this number for the tickets of an epoch and a policy; none if
    /// its root is erased. A later epoch's is derived without advancing this root.
    pub(super) fn key(
        &self,
        epoch: Epoch,
        number: usize,
        policy: &PolicyDigest,
    ) -> Result<Option<Secret>, TicketRootError> {
        let secret = match &self.secrets {
            Secrets::Ratchet(secret) => secret,
            Secrets::Shared(secrets) => {
                let secret = secrets.get(number);
                return Ok(secret.map(|secret| derive(secret, &epoch.0.to_be_bytes(), &policy.0)));
            }
        };
        if epoch < self.epoch {
            return Ok(None);
        }
        if epoch == self.epoch {
            return Ok(Some(derive(secret, LABEL_KEY, &policy.0)));
        }
        let mut ahead = self.clone();
        ahead.advance_to(epoch)?;
        ahead.key(epoch, number, policy)
    }
}

impl fmt::Debug for TicketRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketRoot")
            .field("epoch", &self.epoch)
            .field("lifetime_s", &self.lifetime_s)
            .finish_non_exhaustive()
    }
}

/// A span of one lifetime, counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The one before; before the first there is none.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The one after; after the last there is none.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

fn epoch_at(now: UnixSeconds, lifetime_s: u32) -> Epoch {
    Epoch(now.0 / u64::from(lifetime_s))
}

pub(super) fn epoch_end(now: UnixSeconds, lifetime_s: u32) -> UnixSeconds {
    UnixSeconds(epoch_at(now, lifetime_s).next().0.saturating_mul(lifetime_s.into()))
}

fn lifetime_in_range(lifetime_s: u64) -> Result<u32, TicketRootError> {
    match u32::try_from(lifetime_s) {
        Ok(lifetime_s) if (LIFETIME_S_MIN..=LIFETIME_S_MAX).contains(&lifetime_s) => Ok(lifetime_s),
        _ => Err(TicketRootError::Lifetime),
    }
}

/// The length of an epoch unless the operator sets another: 12 h.
pub const LIFETIME_DEFAULT_S: u32 = 43_200;

/// The longest epoch: 7 days, the longest hint that RFC 8446, 4.6.1 allows.
pub const LIFETIME_S_MAX: u32 = 604_800;

/// The shortest epoch: below, clocks a few minutes apart lose tickets.
pub const LIFETIME_S_MIN: u32 = 600;

/// The most epochs that a root advances at once. At 12 h each it is more than five years.
pub const RATCHET_STEPS_MAX: u64 = 4_096;

/// Secrets of a shared root: the one in use, the next, and those of the last few days.
pub const SHARED_KEYS_MAX: usize = 8;

/// Roots, at most: the one that holds and those announced.
pub const ROOTS_MAX: usize = 8;

const LABEL_KEY: &[u8] = b"sealane ticket 1 key";
const LABEL_NEXT: &[u8] = b"sealane ticket 1 next";
