//! The authority: it issues, counts as Let's Encrypt does, and is away at times.

use std::collections::HashMap;

use fastrand::Rng;
use sealane_renewal::{Failure, Outcome, Scope};

use crate::{
    clock::{DAY, HOUR, START, Span, Time, right},
    plan::{BACKDATED, LIFE, Plan},
    tally::Tally,
};

/// What the authority knows.
pub(crate) struct Authority {
    away: Span,
    revocation: Span,
    seed: u64,
    random: Rng,
    certificates: Vec<Issued>,
    orders: HashMap<u64, Order>,
    orders_made: u64,
    account: Bucket,
    domains: HashMap<u32, Bucket>,
    duplicates: HashMap<u32, Bucket>,
    failures: HashMap<u32, Bucket>,
    orders_max: u32,
}

/// The newest certificate of a name; number 0 is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Issued {
    pub(crate) number: u32,
    pub(crate) not_before: Time,
    /// What an order replaces already.
    replaced: u32,
}

impl Issued {
    pub(crate) fn not_after(self) -> Time {
        self.not_before + LIFE
    }

    pub(crate) fn held(self) -> Held {
        Held { number: self.number, not_after: self.not_after() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Order {
    name: u32,
    /// The newest certificate when it was ordered.
    base: u32,
    /// No limit counts it.
    is_exempt: bool,
    /// What came of it.
    issued: Option<Issued>,
}

impl Authority {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            away: plan.authority_away(),
            revocation: plan.revocation(),
            seed: plan.seed,
            random: Rng::with_seed(plan.seed ^ 0xca),
            certificates: vec![Issued::default(); plan.names as usize],
            orders: HashMap::new(),
            orders_made: 0,
            account: Bucket::default(),
            domains: HashMap::new(),
            duplicates: HashMap::new(),
            failures: HashMap::new(),
            orders_max: plan.orders,
        }
    }

    /// A certificate from before the simulation.
    pub(crate) fn had(&mut self, name: u32, age: u64) -> Held {
        let issued = Issued { number: 1, not_before: START - age, replaced: 0 };
        self.certificates[name as usize] = issued;
        issued.held()
    }

    /// The window in which a certificate is to be renewed; `None` if the authority is away.
    pub(crate) fn window(&self, name: u32, number: u32, now: Time) -> Option<Span> {
        if self.away.contains(now) {
            return None;
        }
        let issued = self.certificates[name as usize];
        if number == issued.number && self.is_to_be_revoked(name, issued, now) {
            let from = self.revocation.from;
            return Some(Span { from: from - HOUR, to: from - HOUR / 2 });
        }
        let ideal = issued.not_after() - LIFE / 3;
        Some(Span { from: ideal - DAY, to: ideal + DAY })
    }

    /// One of twenty, if it is from before the authority noticed.
    pub(crate) fn is_to_be_revoked(&self, name: u32, issued: Issued, now: Time) -> bool {
        let is_old = issued.not_after() < self.revocation.from - BACKDATED + LIFE;
        now >= self.revocation.from && is_old && self.drawn(name, 1).is_multiple_of(20)
    }

    /// Takes an order, which may say what it replaces.
    pub(crate) fn order(
        &mut self,
        name: u32,
        replaces: Option<u32>,
        now: Time,
        tally: &mut Tally,
    ) -> Result<u64, Failure> {
        if self.away.contains(now) {
            tally.unanswered += 1;
            return Err(Failure::TryLater);
        }
        if self.random.u32(0..200) == 0 {
            return Err(Failure::TryLater);
        }
        let issued = self.certificates[name as usize];
        if let Some(number) = replaces
            && issued.replaced >= number
        {
            tally.replaced_already += 1;
            return Err(Failure::AlreadyReplaced);
        }
        let window = self.window(name, issued.number, now);
        let is_in_window = window.is_some_and(|window| window.contains(now));
        let is_exempt = is_in_window && replaces == Some(issued.number);
        if !is_exempt {
            self.count(name, issued, now, tally)?;
        }
        if let Some(number) = replaces {
            self.certificates[name as usize].replaced = number;
        }
        tally.hour(now).orders += 1;
        self.orders_made += 1;
        self.orders
            .insert(self.orders_made, Order { name, base: issued.number, is_exempt, issued: None });
        Ok(self.orders_made)
    }

    /// Counts an order that is not exempt; a renewal counts as a duplicate alone.
    fn count(
        &mut self,
        name: u32,
        issued: Issued,
        now: Time,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        let domain = domain_of(name);
        let week = 7 * DAY;
        let is_renewal = issued.number > 0;
        let mut until = [0; 4];
        let failures = self.failures.get(&name).copied().unwrap_or_default();
        until[0] = failures.free_at(now, 5, HOUR);
        let duplicates = self.duplicates.get(&name).copied().unwrap_or_default();
        until[1] = duplicates.free_at(now, 5, week);
        if !is_renewal {
            let spent = self.domains.get(&domain).copied().unwrap_or_default();
            until[2] = spent.free_at(now, 50, week);
            until[3] = self.account.free_at(now, self.orders_max, 3 * HOUR);
        }
        let latest = until.into_iter().max().unwrap_or(now);
        if latest > now {
            for (count, until) in tally.refused_for_rate.iter_mut().zip(until) {
                *count += u64::from(until == latest);
            }
            let scope = if latest == until[3] { Scope::Account } else { Scope::Certificate };
            return Err(Failure::RateLimited { until: right(latest), scope });
        }
        // Certificates are counted when they are issued.
        if !is_renewal {
            self.account.take(now, self.orders_max, 3 * HOUR);
            tally.count_order(now);
        }
        Ok(())
    }

    /// Ends an order: looks for the challenge, and issues.
    pub(crate) fn finish(
        &mut self,
        order: u64,
        now: Time,
        tally: &mut Tally,
    ) -> Result<Held, Failure> {
        if self.away.contains(now) {
            tally.unanswered += 1;
            return Err(Failure::TryLater);
        }
        let Some(Order { name, base, is_exempt, issued }) = self.orders.get(&order).copied() else {
            // It failed, and who asked before could not say so in the store.
            return Err(Failure::Ours);
        };
        if let Some(issued) = issued {
            return Ok(issued.held());
        }
        if self.is_broken(name, now) {
            tally.validations_failed += 1;
            self.failures.entry(name).or_default().take(now, 5, HOUR);
            self.orders.remove(&order);
            // An order that failed replaces nothing.
            self.certificates[name as usize].replaced = base.saturating_sub(1);
            return Err(Failure::Validation { names: Vec::new() });
        }
        let before = self.certificates[name as usize];
        if before.number != base {
            tally.ordered_twice += 1;
        }
        if !is_exempt {
            self.duplicates.entry(name).or_default().take(now, 5, 7 * DAY);
        }
        if before.number == 0 {
            self.domains.entry(domain_of(name)).or_default().take(now, 50, 7 * DAY);
        }
        let not_before = now - BACKDATED;
        let issued = Issued { number: before.number + 1, not_before, replaced: before.replaced };
        self.certificates[name as usize] = issued;
        if let Some(order) = self.orders.get_mut(&order) {
            order.issued = Some(issued);
        }
        tally.hour(now).issued += 1;
        Ok(issued.held())
    }

    /// What an order came to is in the store: nobody asks for it again.
    pub(crate) fn forget(&mut self, order: u64) {
        self.orders.remove(&order);
    }

    /// One of a hundred names leads nowhere for three days.
    pub(crate) fn is_broken(&self, name: u32, now: Time) -> bool {
        let drawn = self.drawn(name, 2);
        let from = START + (drawn / 100) % (110 * DAY);
        drawn.is_multiple_of(100) && (from..from + 3 * DAY).contains(&now)
    }

    pub(crate) fn certificate(&self, name: u32) -> Issued {
        self.certificates[name as usize]
    }

    fn drawn(&self, name: u32, purpose: u64) -> u64 {
        Rng::with_seed(self.seed ^ (purpose << 40) ^ u64::from(name)).u64(..)
    }
}

/// A certificate as the store has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) number: u32,
    pub(crate) not_after: Time,
}

/// A limit's bucket, to the last order of it.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// When it is full again, in milliseconds.
    full_at_ms: u64,
}

impl Bucket {
    fn free_at(self, now: Time, count: u32, period: u64) -> Time {
        let interval = period * 1_000 / u64::from(count);
        let spent = self.full_at_ms + interval;
        spent.saturating_sub(period * 1_000).div_ceil(1_000).max(now)
    }

    fn take(&mut self, now: Time, count: u32, period: u64) {
        let interval = period * 1_000 / u64::from(count);
        self.full_at_ms = self.full_at_ms.max(now * 1_000) + interval;
    }
}

/// Ten names of a registered domain; of the first that come new, sixty.
pub(crate) fn domain_of(name: u32) -> u32 {
    if name < BIG_DOMAIN { 0 } else { name / 10 }
}

/// Names in the first registered domain.
const BIG_DOMAIN: u32 = 60;

/// What an authority's answer is to the machine that asked.
pub(crate) fn information(window: Option<Span>) -> Outcome {
    match window {
        None => Outcome::Failed(Failure::TryLater),
        Some(Span { from, to }) => Outcome::RenewalInfo {
            start: right(from),
            end: right(to),
            retry_after_s: Some(6 * HOUR),
        },
    }
}
