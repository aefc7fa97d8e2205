//! Certificates for names that a client asked for and that are not configured.

use std::collections::{BTreeSet, HashMap, VecDeque};

use fastrand::Rng;

use crate::{CertificateId, HOUR_S, Rate, Spent, UnixSeconds, retry};

/// Limits of on-demand certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// Names that are asked about or ordered at the same time.
    pub waiting_max: usize,
    /// Names that are remembered as refused. Beyond it, the one with the refusal that ends first is
    /// dropped.
    pub refused_max: usize,
    /// Names that are asked about in a time.
    pub rate: Rate,
}

impl Default for OnDemand {
    fn default() -> Self {
        Self { waiting_max: 100, refused_max: 10_000, rate: Rate::new(10, 60) }
    }
}

/// The answer for a name that a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The service is going to be asked, by an action of [`Schedule::next`](crate::Schedule::next).
    Begun,
    /// Too many names are under way, or came in the last minute: nothing is remembered of this one.
    Full,
    /// The schedule has a certificate for it already.
    Held,
    /// The name was refused, or failed, and is not asked about again before a moment.
    Refused {
        /// The moment.
        until: UnixSeconds,
    },
    /// The same name is under way: nothing more is asked or ordered.
    UnderWay,
}

/// The shortest time for which a refused name is not asked about again.
pub const REFUSED_S_MIN: u64 = 60;
/// The longest time for which a refused name is not asked about again.
pub const REFUSED_S_MAX: u64 = HOUR_S;

/// The names that are under way, and those that were refused.
#[derive(Debug)]
pub(crate) struct Demands {
    settings: OnDemand,
    under_way: HashMap<String, CertificateId>,
    /// To be asked about.
    queue: VecDeque<String>,
    refused: HashMap<String, Refusal>,
    /// The same names, by the end of their refusals.
    refused_until: BTreeSet<(UnixSeconds, String)>,
    spent: Spent,
}

#[derive(Debug)]
struct Refusal {
    count: u32,
    until: UnixSeconds,
}

impl Demands {
    pub(crate) fn new(settings: OnDemand) -> Self {
        Self {
            settings,
            under_way: HashMap::new(),
            queue: VecDeque::new(),
            refused: HashMap::new(),
            refused_until: BTreeSet::new(),
            spent: Spent::default(),
        }
    }

    pub(crate) fn ask(&mut self, now: UnixSeconds, id: CertificateId, name: &str) -> Demand {
        if self.under_way.contains_key(name) {
            return Demand::UnderWay;
        }
        if let Some(Refusal { until, .. }) = self.refused.get(name)
            && *until > now
        {
            return Demand::Refused { until: *until };
        }
        if self.under_way.len() >= self.settings.waiting_max
            || self.settings.rate.take(&mut self.spent, now).is_err()
        {
            return Demand::Full;
        }
        self.begin(id, name);
        self.queue.push_back(name.to_owned());
        Demand::Begun
    }

    /// Notes that the name is under way, without a question to the service.
    pub(crate) fn begin(&mut self, id: CertificateId, name: &str) {
        self.under_way.insert(name.to_owned(), id);
    }

    /// The next name to ask about.
    pub(crate) fn pop(&mut self) -> Option<(CertificateId, String)> {
        let name = self.queue.pop_front()?;
        let id = *self.under_way.get(&name)?;
        Some((id, name))
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Ends the demand: there is a certificate for the name now, or none is wanted any more.
    pub(crate) fn end(&mut self, name: &str) {
        self.under_way.remove(name);
        self.queue.retain(|queued| queued != name);
        if let Some(refusal) = self.refused.remove(name) {
            self.refused_until.remove(&(refusal.until, name.to_owned()));
        }
    }

    /// Notes that the service did not answer whether there may be a certificate for the name. It is
    /// asked again after the shortest time, and this does not count as a refusal.
    pub(crate) fn put_off(&mut self, now: UnixSeconds, name: &str, random: &mut Rng) {
        self.remember(now, name, false, random);
    }

    /// The name was refused, or its order failed: longer with each time in a row.
    pub(crate) fn refuse(&mut self, now: UnixSeconds, name: &str, random: &mut Rng) {
        self.remember(now, name, true, random);
    }

    fn remember(&mut self, now: UnixSeconds, name: &str, is_counted: bool, random: &mut Rng) {
        self.under_way.remove(name);
        let before = self.refused.remove(name);
        if let Some(refusal) = &before {
            self.refused_until.remove(&(refusal.until, name.to_owned()));
        }
        // A row of refusals ends after as long without a question as the longest refusal.
        let in_a_row = before.filter(|refusal| now.since(refusal.until) <= REFUSED_S_MAX);
        let count = in_a_row.map_or(0, |refusal| refusal.count).saturating_add(is_counted.into());
        let doubled = if is_counted { count } else { 1 };
        let until = now.plus(retry::doubled_s(doubled, REFUSED_S_MIN, REFUSED_S_MAX, random));
        self.refused.insert(name.to_owned(), Refusal { count, until });
        self.refused_until.insert((until, name.to_owned()));
        while self.refused.len() > self.settings.refused_max {
            let Some((_, first)) = self.refused_until.pop_first() else { break };
            self.refused.remove(&first);
        }
    }
}
