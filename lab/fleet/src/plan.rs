//! What is simulated: how many machines and names, and what goes wrong when.

use crate::clock::{DAY, HOUR, START, Span, Time};

/// A fleet and its misfortunes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) machines: u32,
    pub(crate) names: u32,
    pub(crate) days: u32,
    /// Orders that the authority gives the account in three hours.
    pub(crate) orders: u32,
    /// Days for which the authority is away.
    pub(crate) away_days: u32,
    /// What the fleet does wrong, for tests that show that a check can fail.
    pub(crate) breach: Option<Breach>,
}

/// A rule that the fleet breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// Nobody looks after what a dead machine looked after.
    NoTakeover,
    /// Who writes to the store is not held against the lease.
    NoFence,
    /// Who takes an order over does not look for what the holder before began.
    NoRecords,
    /// The fleet does not share what it spent of the account's limit.
    NoSharedLimit,
    /// Nobody asks for renewal information.
    NoInformation,
    /// Machines watch the statuses of all machines.
    WatchedStatuses,
    /// Clocks of machines differ by days.
    WildClocks,
}

impl Plan {
    pub(crate) fn end(&self) -> Time {
        START + u64::from(self.days) * DAY
    }

    /// When the fleet's store is away.
    pub(crate) fn store_away(&self) -> Span {
        days(20, 22)
    }

    /// When the authority is away.
    pub(crate) fn authority_away(&self) -> Span {
        days(40, 40 + u64::from(self.away_days))
    }

    /// When the authority says that it is going to revoke one of twenty certificates, and when it
    /// does.
    pub(crate) fn revocation(&self) -> Span {
        days(80, 81)
    }

    /// When an operator brings one of a hundred names at once.
    pub(crate) fn import_at(&self) -> Time {
        START + 10 * DAY
    }

    /// One of so many orders is where its machine dies or stops at one of the worst moments.
    pub(crate) fn worst_moments(&self) -> u32 {
        (self.names / 150).max(300)
    }

    /// Names without a certificate at the beginning: half of them come at
    /// [`import_at`](Self::import_at), the others evenly.
    pub(crate) fn new_names(&self) -> u32 {
        self.names / 50
    }
}

/// The time between two days of the simulation.
fn days(from: u64, to: u64) -> Span {
    Span { from: START + from * DAY, to: START + to * DAY }
}

/// How long a certificate is valid.
pub(crate) const LIFE: u64 = 45 * DAY;
/// The authority dates certificates back.
pub(crate) const BACKDATED: u64 = HOUR;
/// Without news a lease is over after this.
pub(crate) const LEASE: u64 = 60;
/// The most that a clock is wrong.
pub(crate) const SKEW: u64 = 300;
/// An agent looks for what is due so often.
pub(crate) const LOOK: u64 = 60;
/// A machine dies once in so many seconds.
pub(crate) const BETWEEN_DEATHS: u64 = 30 * DAY;
