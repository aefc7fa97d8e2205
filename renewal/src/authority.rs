//! An authority: its limits, whether it is away, and the count of its orders.

use std::collections::HashMap;

use fastrand::Rng;

use crate::{CertificateId, DAY_S, HOUR_S, Rate, Spent, UnixSeconds, retry};

/// A certificate authority as the settings have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The directory has `renewalInfo`.
    pub has_renewal_info: bool,
    /// Rate limits of orders.
    pub limits: Limits,
}

impl Authority {
    /// Let's Encrypt, as it is without an override.
    #[must_use]
    pub fn lets_encrypt() -> Self {
        Self { has_renewal_info: true, limits: Limits::lets_encrypt() }
    }
}

/// Rate limits of one account. `None` is no limit, or one that the fleet keeps. An order that names
/// the certificate it replaces, in the window of that, is not counted at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// New orders of the account.
    pub orders: Option<Rate>,
    /// Certificates of one registered domain.
    pub certificates_of_domain: Option<Rate>,
    /// Certificates of exactly the same names.
    pub duplicates: Option<Rate>,
    /// Failed validations of one name.
    pub failed_validations: Option<Rate>,
    /// A renewal with the same names, out of its window or without one, counts as a duplicate
    /// alone.
    pub exempts_renewals: bool,
}

impl Limits {
    /// Let's Encrypt's limits without an override.
    #[must_use]
    pub fn lets_encrypt() -> Self {
        Self {
            orders: Some(Rate::new(300, 3 * HOUR_S)),
            certificates_of_domain: Some(Rate::new(50, 7 * DAY_S)),
            duplicates: Some(Rate::new(5, 7 * DAY_S)),
            failed_validations: Some(Rate::new(5, HOUR_S)),
            exempts_renewals: true,
        }
    }
}

/// An authority, by its place in the order of preference; 0 is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AuthorityId(pub u8);

/// Failures in a row, of the network or the authority, after which it is away.
pub const AWAY_FAILURES: u32 = 3;
/// The longest that an authority is left alone while it is away.
pub const AWAY_S_MAX: u64 = HOUR_S;

/// The state of an authority in a schedule.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) authority: Authority,
    pub(crate) in_flight: usize,
    failures: u32,
    /// Nothing is ordered before.
    stopped_until: UnixSeconds,
    /// The end of a pause that the authority asked for.
    told_until: UnixSeconds,
    orders: Spent,
    domains: HashMap<Box<str>, Spent>,
    duplicates: HashMap<CertificateId, Spent>,
}

impl Account {
    pub(crate) fn new(authority: Authority) -> Self {
        Self {
            authority,
            in_flight: 0,
            failures: 0,
            stopped_until: UnixSeconds(0),
            told_until: UnixSeconds(0),
            orders: Spent::default(),
            domains: HashMap::new(),
            duplicates: HashMap::new(),
        }
    }

    /// Until when nothing may be ordered, if not now.
    pub(crate) fn stopped_until(&self, now: UnixSeconds) -> Option<UnixSeconds> {
        (self.stopped_until > now).then_some(self.stopped_until)
    }

    /// The end of a pause that the authority asked for, if it is in the future.
    pub(crate) fn told_until(&self, now: UnixSeconds) -> Option<UnixSeconds> {
        (self.told_until > now).then_some(self.told_until)
    }

    /// Whether an authority is away, or asked for a pause: urgent orders fail over to another.
    pub(crate) fn is_away(&self, now: UnixSeconds) -> bool {
        self.failures >= AWAY_FAILURES || self.told_until > now
    }

    /// Orders that it may have at a time: one while it is tried.
    pub(crate) fn in_flight_max(&self) -> usize {
        if self.failures >= AWAY_FAILURES { 1 } else { crate::ORDERS_IN_FLIGHT_MAX }
    }

    /// Notes that the authority answered, with success or an error.
    pub(crate) fn answered(&mut self) {
        self.failures = 0;
    }

    /// The authority did not answer, or was not well.
    pub(crate) fn failed(&mut self, now: UnixSeconds, random: &mut Rng) {
        self.failures = self.failures.saturating_add(1);
        let beyond = (self.failures + 1).saturating_sub(AWAY_FAILURES);
        if beyond > 0 {
            let wait_s = retry::doubled_s(beyond, retry::RETRY_S_MIN, AWAY_S_MAX, random);
            self.stopped_until = self.stopped_until.max(now.plus(wait_s));
        }
    }

    /// Stops orders until the authority's pause ends.
    pub(crate) fn stop(&mut self, until: UnixSeconds) {
        self.told_until = self.told_until.max(until);
        self.stopped_until = self.stopped_until.max(until);
    }

    /// The time when the account has an order left: now, or later.
    pub(crate) fn order_free_at(&self, now: UnixSeconds) -> UnixSeconds {
        self.authority.limits.orders.map_or(now, |rate| rate.free_at(self.orders, now))
    }

    /// Counts an order of the account.
    pub(crate) fn count_order(&mut self, now: UnixSeconds) {
        if let Some(rate) = self.authority.limits.orders {
            rate.reserve(&mut self.orders, now);
        }
    }

    /// Counts an order no longer that was not made.
    pub(crate) fn give_back_order(&mut self) {
        if let Some(rate) = self.authority.limits.orders {
            rate.give_back(&mut self.orders);
        }
    }

    /// Takes one of exactly these names, and if it is not a renewal one of each registered domain.
    /// Returns when they may be ordered.
    pub(crate) fn reserve(
        &mut self,
        id: CertificateId,
        domains_of: &[String],
        now: UnixSeconds,
    ) -> UnixSeconds {
        let limits = &self.authority.limits;
        let mut at = now;
        if let Some(rate) = limits.duplicates {
            let spent = self.duplicates.entry(id).or_default();
            at = at.max(rate.reserve(spent, now));
        }
        if let Some(rate) = limits.certificates_of_domain {
            for domain in registered_domains(domains_of) {
                let spent = self.domains.entry(domain.into()).or_default();
                at = at.max(rate.reserve(spent, now));
            }
        }
        self.prune(now);
        at
    }

    /// Gives back the share that [`reserve`](Self::reserve) took, because no certificate was
    /// issued.
    pub(crate) fn give_back(&mut self, id: CertificateId, domains_of: &[String]) {
        let limits = &self.authority.limits;
        if let (Some(rate), Some(spent)) = (limits.duplicates, self.duplicates.get_mut(&id)) {
            rate.give_back(spent);
        }
        if let Some(rate) = limits.certificates_of_domain {
            for domain in registered_domains(domains_of) {
                if let Some(spent) = self.domains.get_mut(domain) {
                    rate.give_back(spent);
                }
            }
        }
    }

    /// Drops entries that are long over, whenever a table has doubled.
    fn prune(&mut self, now: UnixSeconds) {
        if self.domains.len() == self.domains.capacity() {
            self.domains.retain(|_, spent| !spent.is_nothing(now));
        }
        if self.duplicates.len() == self.duplicates.capacity() {
            self.duplicates.retain(|_, spent| !spent.is_nothing(now));
        }
    }
}

/// The registered domains of names, each once.
fn registered_domains(names: &[String]) -> Vec<&str> {
    let mut domains: Vec<_> = names.iter().map(|name| registered_domain(name)).collect();
    domains.sort_unstable();
    domains.dedup();
    domains
}

/// The registered domain of a name, near enough without the list of public suffixes: the last two
/// labels, or three of a country's second level (`example.co.uk`, `example.com.br`). An authority
/// that counts otherwise answers with a moment, and the certificate waits until then.
pub(crate) fn registered_domain(name: &str) -> &str {
    let mut ends = name.rmatch_indices('.').map(|(at, _)| at);
    let (Some(first), Some(second)) = (ends.next(), ends.next()) else { return name };
    let is_second_level = name.len() - first - 1 == 2 && first - second - 1 <= 3;
    if !is_second_level {
        return &name[second + 1..];
    }
    ends.next().map_or(name, |third| &name[third + 1..])
}
