//! Orders: the authority, the turn, and the effects of an outcome.

use crate::{
    Action, AuthorityId, CertificateId, DAY_S, Failure, Held, NEW_PATIENCE_S, ORDERS_IN_FLIGHT_MAX,
    Outcome, RETRY_S_MIN, Scope, Spent, UnixSeconds, authority::Account, retry,
};

use super::{
    Certificate, Flight, Schedule,
    due::{Place, State},
};

impl Schedule {
    /// The order of the certificate that expires first, of those that may be begun now.
    pub(super) fn next_order(&mut self, now: UnixSeconds) -> Option<Action> {
        while let Some(id) = self.queues.pop_waiting(now) {
            if let Some(certificate) = self.certificates.get_mut(&id) {
                certificate.state = State::None;
                self.place(now, id);
            }
        }
        let (Place { authority, counted, .. }, id) = self.pop_ready(now)?;
        let certificate = self.certificates.get_mut(&id)?;
        certificate.state = State::Ordering;
        for name in &certificate.names {
            // Other certificates with this name wait for the outcome of this order.
            if let Some(failing) = self.failing.get_mut(name.as_str()) {
                failing.until = now.plus(RETRY_S_MIN);
            }
        }
        let (names, held) = (certificate.names.to_vec(), certificate.held);
        let account = self.accounts.get_mut(authority.place())?;
        let replaces = account.authority.has_renewal_info && certificate.may_replace(authority);
        if counted {
            account.count_order(now);
        }
        account.in_flight += 1;
        self.orders_in_flight += 1;
        let ticket = self.issue(Flight::Order(Ordered { id, authority, counted, held }));
        Some(Action::Order { ticket, id, names, authority, replaces })
    }

    /// The time when there is something to look at again, as far as orders go.
    pub(super) fn order_at(&self, now: UnixSeconds) -> Option<UnixSeconds> {
        let ready = if self.orders_in_flight >= ORDERS_IN_FLIGHT_MAX {
            None
        } else if self.first_ready(now).is_some() {
            Some(now)
        } else {
            let counted = self.authorities().filter(|(authority, account)| {
                account.in_flight < account.in_flight_max()
                    && self.queues.first_ready(*authority, true).is_some()
            });
            counted.map(|(_, account)| account.order_free_at(now)).min()
        };
        [ready, self.queues.first_waiting()].into_iter().flatten().min()
    }

    /// Puts a certificate that is in no queue where it belongs: until it is due, until its
    /// authority may be asked, or among those that may be ordered.
    pub(super) fn place(&mut self, now: UnixSeconds, id: CertificateId) {
        let Some(certificate) = self.certificates.get(&id) else { return };
        if certificate.state == State::Ordering || self.accounts.is_empty() {
            return;
        }
        let at = certificate.due.max(self.names_free_at(now, certificate));
        if at > now {
            return self.wait(id, at);
        }
        let authority = self.choose(now, certificate);
        let Some(account) = self.accounts.get(authority.place()) else { return };
        if let Some(until) = account.stopped_until(now) {
            let urgent_at = certificate.urgent_at();
            return self.wait(id, if urgent_at > now { until.min(urgent_at) } else { until });
        }
        let counted = certificate.is_counted(now, authority, account);
        let free_at = self.reserve(now, id, authority, counted);
        if free_at > now {
            return self.wait(id, free_at);
        }
        if let Some(certificate) = self.certificates.get_mut(&id) {
            let deadline = certificate.deadline();
            certificate.state = State::Ready(Place { authority, counted, deadline });
            self.queues.insert(id, certificate);
        }
    }

    /// Takes the outcome of an order.
    pub(super) fn ordered(&mut self, now: UnixSeconds, order: Ordered, outcome: Outcome) {
        let Ordered { id, authority, counted, held } = order;
        let Some(account) = self.accounts.get_mut(authority.place()) else { return };
        account.in_flight -= 1;
        let was_stopped = account.stopped_until(now);
        match &outcome {
            Outcome::HeldByAnother { .. } if counted => account.give_back_order(),
            Outcome::HeldByAnother { .. } | Outcome::Failed(Failure::Ours) => {}
            Outcome::Failed(Failure::RateLimited { until, scope: Scope::Account }) => {
                account.answered();
                account.stop((*until).max(now.plus(RETRY_S_MIN)));
            }
            Outcome::Failed(Failure::Away { until }) => {
                account.failed(now, &mut self.random);
                account.stop(*until);
            }
            Outcome::Failed(Failure::TryLater)
            | Outcome::Permission { .. }
            | Outcome::RenewalInfo { .. } => account.failed(now, &mut self.random),
            Outcome::Failed(_) | Outcome::Issued { .. } => account.answered(),
        }
        let is_stopped = account.stopped_until(now);
        if let Some(certificate) = self.certificates.get_mut(&id) {
            certificate.state = State::None;
            // The failure is not about a certificate that another machine has stored in the
            // meantime.
            if certificate.held == held || matches!(outcome, Outcome::Issued { .. }) {
                self.settle(now, id, authority, outcome);
            }
            self.place(now, id);
        }
        // Each certificate in the queue may now fail over, or come back.
        if is_stopped != was_stopped {
            for id in self.queues.drain(authority) {
                if let Some(certificate) = self.certificates.get_mut(&id) {
                    certificate.state = State::None;
                }
                self.place(now, id);
            }
        }
    }

    /// Changes a certificate by the outcome of its order.
    fn settle(
        &mut self,
        now: UnixSeconds,
        id: CertificateId,
        authority: AuthorityId,
        outcome: Outcome,
    ) {
        let failure = match outcome {
            Outcome::Issued { not_before, not_after } => {
                let held = Held { not_before, not_after, authority: Some(authority) };
                return self.settle_issued(now, id, held);
            }
            Outcome::HeldByAnother { until } => {
                let at = until.max(now.plus(1)).plus(self.random.u64(0..10));
                return self.retry_at(id, at);
            }
            Outcome::Failed(failure) => failure,
            Outcome::Permission { .. } | Outcome::RenewalInfo { .. } => Failure::TryLater,
        };
        self.give_back(id);
        let Some(certificate) = self.certificates.get_mut(&id) else { return };
        certificate.failures = certificate.failures.saturating_add(1);
        if certificate.is_demanded && failure.is_of_the_name() {
            return self.refuse_demanded(now, id);
        }
        match failure {
            Failure::AlreadyReplaced if !certificate.is_replaced => {
                certificate.is_replaced = true;
                self.retry_at(id, now);
            }
            Failure::RateLimited { scope: Scope::Account, .. } => self.retry_at(id, now),
            Failure::RateLimited { until, scope: Scope::Certificate } => {
                let at = until.max(now.plus(RETRY_S_MIN));
                let at = at.plus(self.random.u64(0..RETRY_S_MIN));
                self.retry_at(id, at);
            }
            Failure::Refused => {
                certificate.refused_by |= authority.bit();
                let all_refused = self.authorities().all(|(authority, _)| {
                    self.certificates.get(&id).is_some_and(|known| known.is_refused_by(authority))
                });
                let wait_s = if all_refused { self.random.u64(DAY_S / 4 * 3..=DAY_S) } else { 0 };
                if let (true, Some(certificate)) = (all_refused, self.certificates.get_mut(&id)) {
                    certificate.refused_by = 0;
                }
                self.retry_at(id, now.plus(wait_s));
            }
            // After `alreadyReplaced` the next order named nothing to replace, so the answer does
            // not fit it.
            Failure::AlreadyReplaced | Failure::Away { .. } | Failure::Ours | Failure::TryLater => {
                let wait_s = retry::wait_s(certificate.failures, &mut self.random);
                let wait_s = certificate.wait_s(now, wait_s);
                self.retry_at(id, now.plus(wait_s));
            }
            Failure::Validation { names } => self.settle_validation(now, id, authority, &names),
        }
    }

    fn settle_issued(&mut self, now: UnixSeconds, id: CertificateId, held: Held) {
        let Some(before) = self.certificates.remove(&id) else { return };
        self.queues.remove_ask(id, &before);
        for name in &before.names {
            self.failing.remove(name.as_str());
            if before.is_demanded {
                self.demands.end(name);
            }
        }
        let mut certificate = Certificate::new(now, before.names, Some(held), false);
        if certificate.due <= now {
            // By our clock or the authority's it is old already: none is ordered without end.
            certificate.failures = before.failures.saturating_add(1);
            let wait_s = retry::wait_s(certificate.failures, &mut self.random);
            certificate.due = now.plus(wait_s);
        }
        self.certificates.insert(id, Box::new(certificate));
        self.plan_ask(now, id, None);
    }

    /// The state of a name that failed its last validation, or `None` for any other.
    #[must_use]
    pub fn failing(&self, name: &str) -> Option<Failing> {
        self.failing.get(name).copied()
    }

    /// Learns another machine's state of a name that failed its validation, before an order of it
    /// is begun. Counts go on from there.
    pub fn learn_failing(&mut self, name: &str, told: Failing) {
        let known = self.failing.entry(name.into()).or_default();
        known.count = known.count.max(told.count);
        known.until = known.until.max(told.until);
        known.spent = known.spent.max(told.spent);
    }

    /// Counts a failed validation for each of the names, wherever they are.
    fn settle_validation(
        &mut self,
        now: UnixSeconds,
        id: CertificateId,
        authority: AuthorityId,
        failed: &[String],
    ) {
        let Some(certificate) = self.certificates.get(&id) else { return };
        let account = self.accounts.get(authority.place());
        let rate = account.and_then(|account| account.authority.limits.failed_validations);
        // If none of the names are its own, something failed, but the name is unknown.
        let is_whole = !certificate.names.iter().any(|name| failed.contains(name));
        let is_meant = |name: &&String| is_whole || failed.contains(name);
        for name in certificate.names.iter().filter(is_meant) {
            let failing = self.failing.entry(name.as_str().into()).or_default();
            failing.count = failing.count.saturating_add(1);
            let wait_s = retry::wait_s(failing.count, &mut self.random);
            failing.until = now.plus(certificate.wait_s(now, wait_s));
            if let Some(rate) = rate {
                rate.reserve(&mut failing.spent, now);
                failing.until = failing.until.max(rate.free_at(failing.spent, now));
            }
        }
        self.retry_at(id, now.plus(RETRY_S_MIN));
    }

    /// Forgets a certificate that a client asked for, after its name was refused.
    fn refuse_demanded(&mut self, now: UnixSeconds, id: CertificateId) {
        let Some(certificate) = self.certificates.remove(&id) else { return };
        for name in &certificate.names {
            self.demands.refuse(now, name, &mut self.random);
        }
    }

    fn retry_at(&mut self, id: CertificateId, at: UnixSeconds) {
        if let Some(certificate) = self.certificates.get_mut(&id) {
            // It may have been renewed by another meanwhile.
            certificate.due = certificate.renew_at.max(at);
        }
    }

    fn wait(&mut self, id: CertificateId, at: UnixSeconds) {
        if let Some(certificate) = self.certificates.get_mut(&id) {
            certificate.state = State::Waiting(at);
            self.queues.insert(id, certificate);
        }
    }

    /// Until when a certificate's names are left alone because their validation failed.
    fn names_free_at(&self, now: UnixSeconds, certificate: &Certificate) -> UnixSeconds {
        if self.failing.is_empty() {
            return now;
        }
        let failing = certificate.names.iter().filter_map(|name| self.failing.get(name.as_str()));
        failing.map(|failing| failing.until).fold(now, UnixSeconds::max)
    }

    /// The authority to order from: the first that is not away, or the first of all if there is
    /// time to wait for it. If all are away and there is no time, the one that may be tried first.
    fn choose(&self, now: UnixSeconds, certificate: &Certificate) -> AuthorityId {
        let is_urgent = certificate.urgent_at() <= now;
        let mut possible =
            self.authorities().filter(|(authority, _)| !certificate.is_refused_by(*authority));
        let chosen = possible.clone().find(|(_, account)| !is_urgent || !account.is_away(now));
        let (authority, _) = chosen
            .or_else(|| possible.clone().min_by_key(|(_, account)| account.stopped_until(now)))
            .or_else(|| possible.next())
            .unwrap_or((AuthorityId(0), &self.accounts[0]));
        authority
    }

    /// Reserves a certificate's share of an authority's limits, once, and returns when it may be
    /// ordered.
    fn reserve(
        &mut self,
        now: UnixSeconds,
        id: CertificateId,
        authority: AuthorityId,
        counted: bool,
    ) -> UnixSeconds {
        let Some(certificate) = self.certificates.get(&id) else { return now };
        // The authority does not count such an order, so it needs no share.
        if certificate.replaces_in_window(now, authority) {
            self.give_back(id);
            return now;
        }
        if let Some(reserved) = certificate.reserved
            && reserved.authority == authority
            && reserved.of_domains == counted
        {
            return reserved.at;
        }
        self.give_back(id);
        let Some(certificate) = self.certificates.get_mut(&id) else { return now };
        let Some(account) = self.accounts.get_mut(authority.place()) else { return now };
        let at = account.reserve(id, if counted { &certificate.names } else { &[] }, now);
        certificate.reserved = Some(Reserved { authority, at, of_domains: counted });
        at
    }

    /// Gives back a certificate's share.
    pub(super) fn give_back(&mut self, id: CertificateId) {
        let Some(certificate) = self.certificates.get_mut(&id) else { return };
        if let Some(reserved) = certificate.reserved.take()
            && let Some(account) = self.accounts.get_mut(reserved.authority.place())
        {
            account.give_back(id, if reserved.of_domains { &certificate.names } else { &[] });
        }
    }

    /// Takes the certificate with the first deadline of those that may be ordered now. One with a
    /// name that failed validation in the meantime goes on waiting.
    fn pop_ready(&mut self, now: UnixSeconds) -> Option<(Place, CertificateId)> {
        loop {
            let (place, id) = self.first_ready(now)?;
            let certificate = self.certificates.get_mut(&id)?;
            self.queues.remove(id, certificate);
            certificate.state = State::None;
            let certificate = self.certificates.get(&id)?;
            let free_at = self.names_free_at(now, certificate);
            if free_at <= now {
                return Some((place, id));
            }
            self.wait(id, free_at);
        }
    }

    /// The certificate with the first deadline of those that may be ordered now.
    fn first_ready(&self, now: UnixSeconds) -> Option<(Place, CertificateId)> {
        if self.orders_in_flight >= ORDERS_IN_FLIGHT_MAX {
            return None;
        }
        let open = self.authorities().filter(|(_, account)| {
            account.stopped_until(now).is_none() && account.in_flight < account.in_flight_max()
        });
        let first = open.flat_map(|(authority, account)| {
            let may_count = account.order_free_at(now) <= now;
            [false, true].into_iter().filter(move |counted| may_count || !counted).filter_map(
                move |counted| {
                    let (deadline, id) = self.queues.first_ready(authority, counted)?;
                    Some((Place { authority, counted, deadline }, id))
                },
            )
        });
        first.min_by_key(|(place, id)| (place.deadline, *id))
    }

    fn authorities(&self) -> impl Iterator<Item = (AuthorityId, &Account)> + Clone {
        (0..).map(AuthorityId).zip(&self.accounts)
    }
}

/// An order that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordered {
    pub(super) id: CertificateId,
    authority: AuthorityId,
    /// The account's limit counted it.
    counted: bool,
    /// The certificate in the store when it began.
    held: Option<Held>,
}

/// A name that failed its last validation. A fleet keeps it in its store, because an authority
/// counts the failures of all machines together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failing {
    /// Failures in a row.
    pub count: u32,
    /// The time when it is retried.
    pub until: UnixSeconds,
    /// The used part of the authority's limit of failed validations.
    pub spent: Spent,
}

/// The share of an authority's limits for a certificate that is not ordered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserved {
    authority: AuthorityId,
    at: UnixSeconds,
    /// Registered domains' too.
    of_domains: bool,
}

impl Certificate {
    /// The time when a third is left of its margin. Always, if there is none yet.
    fn urgent_at(&self) -> UnixSeconds {
        match self.held {
            Some(_) => Held::urgent_at(self.renew_at, self.deadline()),
            None => UnixSeconds(0),
        }
    }

    /// The latest time for a replacement.
    fn deadline(&self) -> UnixSeconds {
        match self.held {
            Some(_) if self.is_forced => self.renew_at,
            Some(held) => held.deadline(self.info.window),
            None => self.renew_at.plus(NEW_PATIENCE_S),
        }
    }

    /// The wait, cut short for one that is served and runs out.
    fn wait_s(&self, now: UnixSeconds, wait_s: u64) -> u64 {
        self.held.map_or(wait_s, |held| retry::wait_until_end_s(wait_s, now, held.not_after))
    }

    fn is_refused_by(&self, authority: AuthorityId) -> bool {
        self.refused_by & authority.bit() != 0
    }

    /// Whether an authority's order may name the held certificate as the one that it replaces.
    fn may_replace(&self, authority: AuthorityId) -> bool {
        !self.is_replaced && self.held.is_some_and(|held| held.authority == Some(authority))
    }

    fn replaces_in_window(&self, now: UnixSeconds, authority: AuthorityId) -> bool {
        let is_in_window =
            self.info.window.is_some_and(|window| (window.start..=window.end).contains(&now));
        is_in_window && self.may_replace(authority)
    }

    /// The account's limit counts an order of it now.
    fn is_counted(&self, now: UnixSeconds, authority: AuthorityId, account: &Account) -> bool {
        let is_renewal = self.held.is_some_and(|held| held.authority == Some(authority));
        let is_exempt = is_renewal && account.authority.limits.exempts_renewals;
        !is_exempt && !self.replaces_in_window(now, authority)
    }
}

impl Failure {
    /// Whether a failure is about the name: every account would get the same answer.
    fn is_of_the_name(&self) -> bool {
        matches!(self, Self::Refused | Self::Validation { .. })
    }
}

impl AuthorityId {
    pub(super) fn place(self) -> usize {
        usize::from(self.0)
    }

    fn bit(self) -> u16 {
        1 << (self.0 % 16)
    }
}
