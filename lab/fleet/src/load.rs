//! The load of the fleet's etcd: changes that every machine hears of by its watch, and requests
//! that etcd answers.
//!
//! A change below the watched prefixes goes to every machine, so regular writes of all machines
//! there would grow with the square of the machines. Only steps of orders, certificates, and
//! machines that come or go are watched. Statuses, reports that a machine has an answer, and leases
//! that are kept alive are not.

use crate::{
    clock::{HOUR, START, Time},
    plan::{Breach, Plan},
    tally::{Hour, Tally},
};

/// Changes of a claim and its order: claim, order, its number at the authority, answer, and at the
/// end the certificate, and order, answer and claim deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A machine comes or goes.
    Member,
    /// A claim is made, or given back.
    Claim,
    /// An order begins: it is written twice, and its answer.
    Order,
    /// An order ends: its certificate is put if there is one, order and answer are deleted.
    End,
}

impl Change {
    fn events(self) -> u64 {
        match self {
            Self::Claim | Self::Member => 1,
            Self::End | Self::Order => 3,
        }
    }
}

impl Tally {
    /// Counts changes that every machine hears of.
    pub(crate) fn note_change(&mut self, now: Time, change: Change) {
        let hour = self.hour(now);
        hour.heard += change.events();
        match change {
            Change::Claim => hour.claims += 1,
            Change::Member => hour.members += 1,
            Change::End | Change::Order => {}
        }
    }
}

/// Counts the regular writes of all machines in the day that begins at `from`.
pub(crate) fn run_day(plan: &Plan, from: Time, tally: &mut Tally) {
    for hour in 0..24 {
        let hour = tally.hour(from + hour * HOUR);
        hour.heard += HEARTBEATS;
        if plan.breach == Some(Breach::WatchedStatuses) {
            hour.heard += u64::from(plan.machines) * STATUSES;
        }
    }
}

/// Hours in which a machine heard more than orders and members explain. An order may end in the
/// hour after its claim.
pub(crate) fn hours_over(hours: &[Hour]) -> usize {
    let before = std::iter::once(&Hour::default()).chain(hours).copied().collect::<Vec<_>>();
    let is_over = |(hour, before): &(&Hour, Hour)| {
        let claims = hour.claims + before.claims;
        hour.heard > HEARTBEATS + EVENTS_OF_CLAIM * claims + hour.members
    };
    hours.iter().zip(before).filter(is_over).count()
}

/// Requests that etcd answers in an hour.
pub(crate) fn asked(plan: &Plan, hour: &Hour) -> u64 {
    let machines = u64::from(plan.machines);
    // Every machine reports that it has an order's answer.
    machines * (STATUSES + KEPT_ALIVE) + hour.claims * REQUESTS_OF_CLAIM + hour.orders() * machines
}

/// The hours that the simulation ran.
pub(crate) fn hours(plan: &Plan) -> u64 {
    (plan.end() - START) / HOUR
}

/// A watch that is silent for ten seconds makes one machine write.
const HEARTBEATS: u64 = 360;
/// How often a machine keeps its lease alive in an hour.
const KEPT_ALIVE: u64 = 360;
/// How often a machine writes its status in an hour.
const STATUSES: u64 = 120;
/// Changes of one claim and all that is written under it, at most.
const EVENTS_OF_CLAIM: u64 = 7;
/// Requests for one claim: its lease, the claim, its order, and five steps of that.
const REQUESTS_OF_CLAIM: u64 = 10;
