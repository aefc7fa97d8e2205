//! What was counted.

use crate::clock::{HOUR, START, Time};

/// All that the checks and the picture are made of.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) hours: Vec<Hour>,
    /// Orders that the account's limit counted, by time, for as long as its period.
    counted: std::collections::VecDeque<Time>,
    pub(crate) counted_in_3_h_max: usize,
    pub(crate) orders_counted: u64,
    pub(crate) deaths: u64,
    pub(crate) worst_moments: u64,
    pub(crate) moved: u64,
    pub(crate) conflicts: u64,
    pub(crate) fenced: u64,
    pub(crate) written_late: u64,
    pub(crate) resumed: u64,
    pub(crate) replaced_already: u64,
    pub(crate) unanswered: u64,
    /// For failed validations, duplicates, a registered domain's, the account's.
    pub(crate) refused_for_rate: [u64; 4],
    pub(crate) validations_failed: u64,
    pub(crate) ordered_twice: u64,
    pub(crate) expired: u64,
    /// Those of them in an absence of the authority longer than the margin.
    pub(crate) expired_in_absence: u64,
    pub(crate) least_left: Option<u64>,
    pub(crate) first_issues: u64,
    pub(crate) first_wait_max: u64,
    pub(crate) revoked: u64,
    pub(crate) revoked_served: u64,
    pub(crate) in_flight_max: usize,
    pub(crate) missing: u64,
}

/// One hour of the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hour {
    pub(crate) orders: u32,
    pub(crate) issued: u32,
    pub(crate) asks: u32,
    /// Claims that were made or given back.
    pub(crate) claims: u64,
    /// Changes in etcd that every machine hears of.
    pub(crate) heard: u64,
    /// Machines that came or went.
    pub(crate) members: u64,
}

impl Hour {
    pub(crate) fn orders(&self) -> u64 {
        self.orders.into()
    }
}

impl Tally {
    pub(crate) fn hour(&mut self, now: Time) -> &mut Hour {
        let at = usize::try_from((now - START) / HOUR).unwrap_or(usize::MAX).min(HOURS_MAX);
        if self.hours.len() <= at {
            self.hours.resize(at + 1, Hour::default());
        }
        &mut self.hours[at]
    }

    pub(crate) fn count_order(&mut self, now: Time) {
        self.orders_counted += 1;
        self.counted.push_back(now);
        while self.counted.front().is_some_and(|at| at + 3 * HOUR <= now) {
            self.counted.pop_front();
        }
        self.counted_in_3_h_max = self.counted_in_3_h_max.max(self.counted.len());
    }
}

/// Hours beyond are counted as this one: more than a simulation has.
const HOURS_MAX: usize = 100_000;
