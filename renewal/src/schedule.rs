//! The plan of one machine: due actions, and the effects of their outcomes.

mod due;
mod order;

use std::collections::HashMap;

use fastrand::Rng;

use crate::{
    Action, Authority, AuthorityId, Demand, Held, OnDemand, Outcome, PERMISSION_ASKS_IN_FLIGHT_MAX,
    RENEWAL_ASK_S, RENEWAL_ASK_S_MAX, RENEWAL_ASK_S_MIN, RENEWAL_ASKS_IN_FLIGHT_MAX, Ticket,
    UnixSeconds, Window, authority::Account, demand::Demands, retry,
};

use due::{Queues, State};
pub use order::Failing;
use order::{Ordered, Reserved};

/// The certificates that a machine keeps, and the time of the next action for each.
#[derive(Debug)]
pub struct Schedule {
    random: Rng,
    accounts: Vec<Account>,
    /// Boxed: half of the places of a table may be empty, and each takes as much as a full one.
    certificates: HashMap<CertificateId, Box<Certificate>>,
    queues: Queues,
    /// Names that failed their last validation.
    failing: HashMap<Box<str>, Failing>,
    demands: Demands,
    flights: HashMap<Ticket, Flight>,
    orders_in_flight: usize,
    renewal_asks_in_flight: usize,
    permission_asks_in_flight: usize,
    tickets: u64,
}

impl Schedule {
    /// A plan without certificates. Equal seeds and equal calls make equal plans.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        let accounts: Vec<_> = settings.authorities.into_iter().map(Account::new).collect();
        Self {
            random: Rng::with_seed(seed),
            queues: Queues::new(accounts.len()),
            accounts,
            certificates: HashMap::new(),
            failing: HashMap::new(),
            demands: Demands::new(settings.on_demand),
            flights: HashMap::new(),
            orders_in_flight: 0,
            renewal_asks_in_flight: 0,
            permission_asks_in_flight: 0,
            tickets: 0,
        }
    }

    /// Takes on a certificate with these names. `held` is the one in the store, if there is one. It
    /// is called again whenever the one in the store has changed, for any reason. An action that is
    /// under way for it goes on.
    ///
    /// A call without a change has no effect, so it may be repeated. Returns whether something
    /// changed.
    pub fn want(
        &mut self,
        now: UnixSeconds,
        id: CertificateId,
        names: Vec<String>,
        held: Option<Held>,
    ) -> bool {
        let names = names.into_boxed_slice();
        if let Some(known) = self.certificates.get(&id)
            && known.names == names
            && known.held == held
        {
            return false;
        }
        self.forget(id);
        // Also for one that was forgotten and is wanted again.
        let is_ordering = self.flights.values().any(|flight| flight.orders(id));
        let mut certificate = Certificate::new(now, names, held, false);
        if is_ordering {
            certificate.state = State::Ordering;
        }
        self.certificates.insert(id, Box::new(certificate));
        self.plan_ask(now, id, None);
        self.place(now, id);
        true
    }

    /// Renews a certificate as soon as an authority takes an order, because the operator asks for
    /// it: its key may have leaked. Its waits after failures end. Limits of the authority and waits
    /// for names that failed validation remain. Returns whether there is such a certificate.
    pub fn renew(&mut self, now: UnixSeconds, id: CertificateId) -> bool {
        let Some(certificate) = self.certificates.get_mut(&id) else { return false };
        self.queues.remove(id, certificate);
        certificate.is_forced = true;
        certificate.renew_at = now;
        certificate.due = now;
        certificate.failures = 0;
        certificate.refused_by = 0;
        if certificate.state != State::Ordering {
            certificate.state = State::None;
            self.place(now, id);
        }
        true
    }

    /// The certificate that the schedule believes to be in the store.
    #[must_use]
    pub fn held(&self, id: CertificateId) -> Option<Held> {
        self.certificates.get(&id)?.held
    }

    /// Drops a certificate. An action that is under way for it goes on, and its outcome changes
    /// nothing.
    pub fn forget(&mut self, id: CertificateId) {
        self.give_back(id);
        let Some(certificate) = self.certificates.remove(&id) else { return };
        self.queues.remove(id, &certificate);
        self.queues.remove_ask(id, &certificate);
        for name in &certificate.names {
            self.failing.remove(name.as_str());
            if certificate.is_demanded {
                self.demands.end(name);
            }
        }
    }

    /// Takes a name that a client asked for and no certificate covers. `id` is that of its future
    /// certificate. The service is asked once, however many clients come, and the certificate is
    /// ordered if the service allows it.
    pub fn on_demand(&mut self, now: UnixSeconds, id: CertificateId, name: &str) -> Demand {
        match self.certificates.get(&id) {
            Some(certificate) if certificate.held.is_some() => Demand::Held,
            Some(_) => Demand::UnderWay,
            None => self.demands.ask(now, id, name),
        }
    }

    /// Goes on with a name that a client asked for and the service allowed, of which nothing is
    /// known here: after a restart.
    pub fn resume_demand(&mut self, now: UnixSeconds, id: CertificateId, name: &str) {
        if !self.certificates.contains_key(&id) {
            self.demands.begin(id, name);
            self.begin_demanded(now, id, name);
        }
    }

    /// Whether it looks after a certificate.
    #[must_use]
    pub fn contains(&self, id: CertificateId) -> bool {
        self.certificates.contains_key(&id)
    }

    /// One more thing to do, if there is one that may be begun now; to be called until there is
    /// none.
    pub fn next(&mut self, now: UnixSeconds) -> Option<Action> {
        self.next_permission().or_else(|| self.next_order(now)).or_else(|| self.next_ask(now))
    }

    /// The time to call [`next`](Self::next) again, if nothing happens before. `None` if something
    /// has to happen first.
    #[must_use]
    pub fn wake_at(&self, now: UnixSeconds) -> Option<UnixSeconds> {
        let can_ask_permission = self.permission_asks_in_flight < PERMISSION_ASKS_IN_FLIGHT_MAX;
        if can_ask_permission && self.demands.has_queued() {
            return Some(now);
        }
        let ask = self.queues.first_ask().filter(|_| self.may_ask());
        [ask, self.order_at(now)].into_iter().flatten().min().map(|at| at.max(now))
    }

    /// Takes the outcome of an action. A ticket that is not under way changes nothing. An outcome
    /// of another kind of action counts as [`Failure::TryLater`](crate::Failure::TryLater).
    pub fn happened(&mut self, now: UnixSeconds, ticket: Ticket, outcome: Outcome) {
        match self.flights.remove(&ticket) {
            Some(Flight::Order(order)) => {
                self.orders_in_flight -= 1;
                self.ordered(now, order, outcome);
            }
            Some(Flight::Permission { id, name }) => {
                self.permission_asks_in_flight -= 1;
                self.permitted(now, id, &name, &outcome);
            }
            Some(Flight::RenewalInfo { id }) => {
                self.renewal_asks_in_flight -= 1;
                self.informed(now, id, &outcome);
            }
            None => {}
        }
    }

    /// The count of certificates that it keeps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    /// The schedule looks after none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// The time when a certificate is looked at next. `None` if it is not known, or an order is
    /// under way.
    #[must_use]
    pub fn due(&self, id: CertificateId) -> Option<UnixSeconds> {
        let certificate = self.certificates.get(&id)?;
        match certificate.state {
            State::Ordering => None,
            State::Waiting(at) => Some(at),
            State::None | State::Ready(_) => Some(certificate.due),
        }
    }

    /// The end of a pause that an authority asked for, if it is in the future.
    #[must_use]
    pub fn told_until(&self, now: UnixSeconds, authority: AuthorityId) -> Option<UnixSeconds> {
        self.accounts.get(authority.place())?.told_until(now)
    }

    /// Learns of a pause that an authority asked of an earlier process, or of another machine.
    pub fn learn_told(&mut self, authority: AuthorityId, until: UnixSeconds) {
        if let Some(account) = self.accounts.get_mut(authority.place()) {
            account.stop(until);
        }
    }

    fn next_permission(&mut self) -> Option<Action> {
        if self.permission_asks_in_flight >= PERMISSION_ASKS_IN_FLIGHT_MAX {
            return None;
        }
        let (id, name) = self.demands.pop()?;
        self.permission_asks_in_flight += 1;
        let ticket = self.issue(Flight::Permission { id, name: name.clone() });
        Some(Action::AskPermission { ticket, id, name })
    }

    fn next_ask(&mut self, now: UnixSeconds) -> Option<Action> {
        if !self.may_ask() {
            return None;
        }
        let id = self.queues.pop_ask(now)?;
        let certificate = self.certificates.get_mut(&id)?;
        certificate.info.ask_at = None;
        let authority = certificate.held?.authority?;
        self.renewal_asks_in_flight += 1;
        let ticket = self.issue(Flight::RenewalInfo { id });
        Some(Action::AskRenewalInfo { ticket, id, authority })
    }

    fn may_ask(&self) -> bool {
        self.renewal_asks_in_flight < RENEWAL_ASKS_IN_FLIGHT_MAX
    }

    fn permitted(&mut self, now: UnixSeconds, id: CertificateId, name: &str, outcome: &Outcome) {
        match outcome {
            Outcome::Permission { is_given: true } => {}
            Outcome::Permission { is_given: false } => {
                return self.demands.refuse(now, name, &mut self.random);
            }
            _ => return self.demands.put_off(now, name, &mut self.random),
        }
        if self.certificates.contains_key(&id) {
            return self.demands.end(name);
        }
        self.begin_demanded(now, id, name);
    }

    fn begin_demanded(&mut self, now: UnixSeconds, id: CertificateId, name: &str) {
        let names = vec![name.to_owned()].into_boxed_slice();
        let certificate = Certificate::new(now, names, None, true);
        self.certificates.insert(id, Box::new(certificate));
        self.place(now, id);
    }

    /// Takes the window of a certificate from its authority's answer.
    fn informed(&mut self, now: UnixSeconds, id: CertificateId, outcome: &Outcome) {
        let Some(certificate) = self.certificates.get_mut(&id) else { return };
        let Outcome::RenewalInfo { start, end, retry_after_s } = *outcome else {
            certificate.info.failures = certificate.info.failures.saturating_add(1);
            let wait_s = retry::wait_s(certificate.info.failures, &mut self.random);
            return self.plan_ask(now, id, Some(wait_s.min(RENEWAL_ASK_S)));
        };
        certificate.info.failures = 0;
        let window = Window { start, end };
        let is_news = certificate.info.last != Some(window);
        certificate.info.last = Some(window);
        if is_news
            && !certificate.is_forced
            && let Some(held) = certificate.held
        {
            let moment = held.moment_in(window, &mut self.random);
            certificate.info.window = moment.map(|_| window);
            certificate.renew_at = moment.unwrap_or_else(|| held.renew_at());
            // A certificate that waits after a failure goes on waiting.
            if certificate.failures == 0 && certificate.state != State::Ordering {
                self.queues.remove(id, certificate);
                certificate.due = certificate.renew_at;
                self.place(now, id);
            }
        }
        let wait_s = retry_after_s.unwrap_or(RENEWAL_ASK_S);
        self.plan_ask(now, id, Some(wait_s.clamp(RENEWAL_ASK_S_MIN, RENEWAL_ASK_S_MAX)));
    }

    /// Plans the next question for renewal information: in `wait_s` seconds and a little more.
    /// Without `wait_s` it is somewhere in the first hours, so that a start does not ask for all at
    /// once.
    fn plan_ask(&mut self, now: UnixSeconds, id: CertificateId, wait_s: Option<u64>) {
        let Some(certificate) = self.certificates.get_mut(&id) else { return };
        let authority = certificate.held.and_then(|held| held.authority);
        let account = authority.and_then(|AuthorityId(a)| self.accounts.get(usize::from(a)));
        if !account.is_some_and(|account| account.authority.has_renewal_info) {
            return;
        }
        let wait_s = match wait_s {
            Some(wait_s) => wait_s + self.random.u64(0..=wait_s / 20),
            None => self.random.u64(0..=RENEWAL_ASK_S),
        };
        self.queues.remove_ask(id, certificate);
        certificate.info.ask_at = Some(now.plus(wait_s));
        self.queues.insert_ask(id, certificate);
    }

    fn issue(&mut self, flight: Flight) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.flights.insert(ticket, flight);
        ticket
    }
}

/// The settings of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The authorities, the preferred one first.
    pub authorities: Vec<Authority>,
    /// Limits of on-demand certificates.
    pub on_demand: OnDemand,
}

impl Settings {
    /// Settings for these authorities, the preferred one first; the first
    /// [`AUTHORITIES_MAX`](Self::AUTHORITIES_MAX) are used.
    #[must_use]
    pub fn new(mut authorities: Vec<Authority>) -> Self {
        authorities.truncate(Self::AUTHORITIES_MAX);
        Self { authorities, on_demand: OnDemand::default() }
    }

    /// The most authorities that a schedule uses.
    pub const AUTHORITIES_MAX: usize = 16;
}

/// A certificate, by a number that its names have on every machine and that no others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CertificateId(pub u64);

/// The state of a certificate in a schedule.
#[derive(Debug)]
struct Certificate {
    names: Box<[String]>,
    held: Option<Held>,
    state: State,
    /// The time when it is looked at next.
    due: UnixSeconds,
    /// The time when it is to be renewed if nothing fails.
    renew_at: UnixSeconds,
    info: Info,
    failures: u32,
    /// Authorities that refused it for good, a bit each.
    refused_by: u16,
    reserved: Option<Reserved>,
    /// Another order replaces the one held.
    is_replaced: bool,
    /// A client asked for it, and there is none yet.
    is_demanded: bool,
    /// The operator asked for a renewal now.
    is_forced: bool,
}

/// Renewal information of the authority.
#[derive(Debug, Default)]
struct Info {
    /// The window that the time of the renewal is in.
    window: Option<Window>,
    /// The last window of the authority, good or not.
    last: Option<Window>,
    ask_at: Option<UnixSeconds>,
    failures: u32,
}

impl Certificate {
    fn new(now: UnixSeconds, names: Box<[String]>, held: Option<Held>, is_demanded: bool) -> Self {
        let renew_at = held.map_or(now, |held| held.renew_at());
        Self {
            names,
            held,
            state: State::None,
            due: renew_at,
            renew_at,
            info: Info::default(),
            failures: 0,
            refused_by: 0,
            reserved: None,
            is_replaced: false,
            is_demanded,
            is_forced: false,
        }
    }
}

/// An action that is under way.
#[derive(Debug)]
enum Flight {
    Order(Ordered),
    Permission { id: CertificateId, name: String },
    RenewalInfo { id: CertificateId },
}

impl Flight {
    /// An order of this certificate.
    fn orders(&self, wanted: CertificateId) -> bool {
        matches!(self, Self::Order(order) if order.id == wanted)
    }
}
