//! The fleet's store: what etcd would hold, with leases that end and tokens that fence.

use std::collections::HashMap;

use sealane_renewal::{Failing, Rate, Spent, UnixSeconds};

use crate::{
    authority::{Held, domain_of},
    clock::{DAY, HOUR, Span, Time},
    plan::{LEASE, Plan},
};

/// What all machines see.
pub(crate) struct Store {
    away: Span,
    pub(crate) certificates: Vec<Held>,
    leases: HashMap<u32, Lease>,
    /// The authority's order of a name, for who takes over.
    pub(crate) orders: HashMap<u32, u64>,
    /// When a name that is new may be ordered.
    pub(crate) slots: HashMap<u32, UnixSeconds>,
    /// When a name may be tried again that failed, whoever keeps it then, and what that one is to
    /// count on from.
    pub(crate) waits: HashMap<u32, (Time, Failing)>,
    account: Spent,
    account_rate: Rate,
    domains: HashMap<u32, Spent>,
    tokens: u64,
}

/// Who may order a name.
#[derive(Clone, Copy, Debug)]
struct Lease {
    by: Holder,
    token: u64,
}

/// A machine, and the session by which the store knows that it is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) machine: u32,
    pub(crate) session: u32,
}

/// A session as the store sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) number: u32,
    /// Since when nothing was heard of it.
    pub(crate) silent_since: Option<Time>,
}

impl Store {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            away: plan.store_away(),
            certificates: vec![Held::default(); plan.names as usize],
            leases: HashMap::new(),
            orders: HashMap::new(),
            slots: HashMap::new(),
            waits: HashMap::new(),
            account: Spent::default(),
            account_rate: Rate::new(plan.orders, 3 * HOUR),
            domains: HashMap::new(),
            tokens: 0,
        }
    }

    pub(crate) fn is_away(&self, now: Time) -> bool {
        self.away.contains(now)
    }

    pub(crate) fn back_at(&self) -> Time {
        self.away.to
    }

    /// When a session that fell silent is over: the store counts no lease down while it is away
    /// itself.
    pub(crate) fn over_at(&self, silent_since: Time) -> Time {
        let at = silent_since + LEASE;
        if at < self.away.from || self.away.to <= silent_since { at } else { self.away.to + LEASE }
    }

    /// Takes the lease of a name, with a token that no later holder has; or says when to ask again.
    pub(crate) fn acquire(
        &mut self,
        name: u32,
        by: Holder,
        now: Time,
        sessions: &[Session],
    ) -> Result<u64, Time> {
        if let Some(lease) = self.leases.get(&name)
            && self.is_held(*lease, now, sessions)
        {
            return Err(now + LEASE);
        }
        if let Some((until, _)) = self.waits.get(&name).copied().filter(|(until, _)| *until > now) {
            return Err(until);
        }
        self.tokens += 1;
        self.leases.insert(name, Lease { by, token: self.tokens });
        Ok(self.tokens)
    }

    /// A write that carries this token would succeed.
    pub(crate) fn admits(&self, name: u32, token: u64, now: Time, sessions: &[Session]) -> bool {
        let lease = self.leases.get(&name);
        lease.is_some_and(|lease| lease.token == token && self.is_held(*lease, now, sessions))
    }

    pub(crate) fn release(&mut self, name: u32, token: u64) {
        if self.leases.get(&name).is_some_and(|lease| lease.token == token) {
            self.leases.remove(&name);
        }
    }

    /// Leases that are held.
    pub(crate) fn leases(&self) -> usize {
        self.leases.len()
    }

    /// When a name without a certificate may be ordered, by a machine's clock: drawn once, from the
    /// account's limit and its registered domain's.
    pub(crate) fn slot(&mut self, name: u32, now: UnixSeconds) -> UnixSeconds {
        if let Some(at) = self.slots.get(&name) {
            return *at;
        }
        let domain = self.domains.entry(domain_of(name)).or_default();
        let of_domain = Rate::new(50, 7 * DAY).reserve(domain, now);
        // Not before the domain has one; of the account's, the next from then on.
        let of_account = self.account_rate.reserve(&mut self.account, now);
        let at = of_domain.max(of_account);
        self.slots.insert(name, at);
        at
    }

    fn is_held(&self, lease: Lease, now: Time, sessions: &[Session]) -> bool {
        let session = sessions[lease.by.machine as usize];
        session.number == lease.by.session
            && session.silent_since.is_none_or(|since| now < self.over_at(since))
    }
}
