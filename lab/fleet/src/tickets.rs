//! The ticket ratchet on all machines: one root, and each machine's own clock.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use sealane_engine::{
    policy::PolicyDigest,
    tickets::{LIFETIME_DEFAULT_S, LaneClock, LaneTickets, LeafDigest, TicketRoot, Ticketer},
};

use crate::{
    clock::{START, Time, skewed},
    plan::SKEW,
};

/// A lane of each machine.
pub(crate) struct Ratchet {
    lanes: Vec<Lane>,
    leaf: LeafDigest,
    random: Rng,
    /// Tickets that are still good, with when they were made.
    made: Vec<(Time, Vec<u8>)>,
    pub(crate) counts: Counts,
}

/// What came of tickets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Tries to make one.
    pub(crate) made: u64,
    /// Tickets that were not made.
    pub(crate) not_made: u64,
    /// Tries to open one in the second in which it was made, or later within its lifetime, less
    /// what two clocks can differ.
    pub(crate) opened: u64,
    /// Tickets that were not opened.
    pub(crate) not_opened: u64,
    /// Times at which a clock or the root was wrong.
    pub(crate) refused: u64,
}

struct Lane {
    skew: i64,
    clock: Arc<LaneClock>,
    tickets: LaneTickets,
    ticketer: Ticketer,
}

impl Ratchet {
    /// Copies of one root on machines whose clocks differ as told; none if there can be no root.
    pub(crate) fn new(seed: u64, skews: &[i64]) -> Option<Self> {
        let mut random = Rng::with_seed(seed ^ 0x71c);
        let mut secret = [0; 32];
        random.fill(&mut secret);
        let lifetime = Duration::from_secs(LIFETIME_DEFAULT_S.into());
        let fill = |bytes: &mut [u8]| bytes.copy_from_slice(&secret);
        let mut root = TicketRoot::generate(lifetime, engine(skewed(START, 0)), fill).ok()?;
        // As it is stored: of the oldest epoch that any clock accepts.
        let slowest = skewed(START - SKEW, 0);
        root.advance_to(root.oldest_accepted_at(engine(slowest))).ok()?;
        let lane = |skew: &i64| {
            let clock = Arc::new(LaneClock::new(engine(skewed(START, *skew))));
            let tickets = LaneTickets::new(root.clone(), Arc::clone(&clock), |bytes| {
                bytes.fill(7);
                Ok(())
            });
            let ticketer = tickets.ticketer(PolicyDigest([0; 32]));
            Lane { skew: *skew, clock, tickets, ticketer }
        };
        let lanes = skews.iter().map(lane).collect();
        let leaf = LeafDigest::of(b"a certificate");
        Some(Self { lanes, leaf, random, made: Vec::new(), counts: Counts::default() })
    }

    /// A day: around the end of each epoch, when clocks disagree, and at moments between.
    pub(crate) fn run_day(&mut self, day: Time) {
        let lifetime = u64::from(LIFETIME_DEFAULT_S);
        let end = day + crate::clock::DAY;
        let mut moments: Vec<Time> = (0..MOMENTS).map(|_| self.random.u64(day..end)).collect();
        let mut epoch = skewed(day, 0).0.next_multiple_of(lifetime) - skewed(0, 0).0;
        while epoch < end {
            moments.extend((0..MOMENTS).map(|_| epoch - SKEW + self.random.u64(0..2 * SKEW)));
            epoch += lifetime;
        }
        moments.sort_unstable();
        for now in moments.into_iter().filter(|now| (day..end).contains(now)) {
            self.exchange(now);
        }
    }

    /// Some machines make a ticket each, and every machine opens them, and those made before.
    fn exchange(&mut self, now: Time) {
        for lane in &self.lanes {
            lane.clock.set(engine(skewed(now, lane.skew)));
            self.counts.refused += u64::from(lane.tickets.rotate().is_err());
        }
        let good_for = u64::from(LIFETIME_DEFAULT_S) - 2 * SKEW;
        self.made.retain(|(made, _)| now < made + good_for);
        for _ in 0..MAKERS {
            let lane = &self.lanes[self.random.usize(0..self.lanes.len())];
            self.counts.made += 1;
            match lane.ticketer.seal(&self.leaf, SESSION) {
                Some(ticket) => self.made.push((now, ticket)),
                None => self.counts.not_made += 1,
            }
        }
        // Of those from before, the oldest and one drawn.
        let drawn = self.random.usize(0..self.made.len().max(1));
        let newest = self.made.len().saturating_sub(MAKERS)..self.made.len();
        for at in newest.chain([0, drawn]) {
            let Some((_, ticket)) = self.made.get(at) else { continue };
            for lane in &self.lanes {
                let opened = lane.ticketer.open(&self.leaf, ticket);
                self.counts.opened += 1;
                self.counts.not_opened += u64::from(opened.as_deref() != Some(SESSION));
            }
        }
    }
}

/// The engine's form of a time.
fn engine(time: sealane_renewal::UnixSeconds) -> sealane_engine::tickets::UnixSeconds {
    sealane_engine::tickets::UnixSeconds(time.0)
}

/// Moments of each day, and around each end of an epoch.
const MOMENTS: usize = 4;
/// Machines that make a ticket at a moment.
const MAKERS: usize = 3;
const SESSION: &[u8] = b"what a client comes back with";
