//! The agent at work: does what the schedule says, and tells it what came of that.

mod demand;
mod files;
mod follow;
mod job;
mod keepers;
mod plan;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sealane_operator::{Priority, say, say_at, value};
use sealane_renewal::{
    Action, AuthorityId, CertificateId, Failure, Held, ORDERS_IN_FLIGHT_MAX, Outcome, Schedule,
    Ticket, UnixSeconds,
};
use sealane_store::{KeyedStore, SealingKeys};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;

use crate::failure::Failed;
use crate::fleet::Fleet;
use crate::ledger::Ledger;
use crate::on_demand::Asked;
use crate::order::{Issued, Wanted};
use crate::renewal_info;
use crate::settings::{Settings, WantedCertificate};

use demand::Demanded;
use files::NamedFiles;
use follow::Followed;
use job::Authorities;
use keepers::Left;
use plan::{Plan, authority_of, held_of, schedule_of, seconds};

/// An agent with its schedule, its orders under way, and its store.
pub struct Agent {
    authorities: Rc<Authorities>,
    came: UnboundedReceiver<Came>,
    certificates: HashMap<CertificateId, WantedCertificate>,
    demanded: Demanded,
    /// What the schedule wants ordered, and what there is no room for yet.
    due: VecDeque<Due>,
    files: NamedFiles,
    fleet: Option<Rc<Fleet>>,
    followed: Followed,
    /// Counts schedules: what was begun for another is not told to this one.
    generation: u64,
    ledger: Ledger,
    left: Left,
    /// Orders of an agent before, which are gone on with first.
    resumed: VecDeque<CertificateId>,
    schedule: Schedule,
    /// The time when it was looked at last.
    seen: UnixSeconds,
    sender: UnboundedSender<Came>,
    settings: Settings,
    under_way: HashMap<CertificateId, UnderWay>,
}

impl Agent {
    /// An agent that keeps what it obtains in `store`. Orders that are remembered there go on.
    ///
    /// # Errors
    /// What is remembered cannot be read.
    pub fn new(
        settings: Settings,
        store: Arc<KeyedStore>,
        keys: SealingKeys,
    ) -> Result<Self, String> {
        let (sender, came) = unbounded_channel();
        let fleet = settings.fleet.as_ref();
        let fleet = fleet.map(|fleet| Fleet::new(fleet, Arc::clone(&store), keys)).transpose();
        let fleet = fleet.map_err(|error| format!("fleet: {error}"))?;
        let ledger = Ledger::new(store);
        ledger.drop_failed_renewals().map_err(|error| error.to_string())?;
        let plan = Plan::of(&settings, &ledger).map_err(|error| error.to_string())?;
        let mut agent = Self {
            authorities: Rc::new(Authorities::of(&settings, &ledger, fleet.as_ref())),
            came,
            certificates: HashMap::new(),
            demanded: Demanded::new(settings.on_demand.as_ref())?,
            due: VecDeque::new(),
            files: NamedFiles::of(&settings),
            fleet,
            followed: Followed::default(),
            generation: 0,
            ledger,
            left: Left::default(),
            resumed: VecDeque::new(),
            schedule: schedule_of(&settings),
            seen: now(),
            sender,
            settings,
            under_way: HashMap::new(),
        };
        waits::recall(&mut agent.schedule, &agent.settings, &agent.ledger);
        agent.adopt(plan);
        Ok(agent)
    }

    /// Goes on by other settings, and reads all files again that they name. Orders under way go on.
    /// Limits of authorities, and waits after failures, end only with other authorities, keys or
    /// roots.
    ///
    /// # Errors
    /// They take a restart, or what is remembered cannot be read; then nothing has changed.
    pub fn reload(&mut self, settings: Settings) -> Result<(), String> {
        let is_same_store =
            settings.store == self.settings.store && settings.store_key == self.settings.store_key;
        if !is_same_store {
            return Err("store and store_key take a restart; restart the agent".into());
        }
        if settings.fleet != self.settings.fleet {
            return Err("[fleet] takes a restart; restart the agent".into());
        }
        // All that can fail, before anything is changed.
        let plan = Plan::of(&settings, &self.ledger).map_err(|error| error.to_string())?;
        let demanded = Demanded::new(settings.on_demand.as_ref())?;
        let files = NamedFiles::of(&settings);
        let is_same = settings.authorities == self.settings.authorities
            && settings.on_demand == self.settings.on_demand
            && !files.has_other_credentials(&self.files);
        self.files = files;
        // Also with the same: their files may have others in them.
        self.authorities = Rc::new(Authorities::of(&settings, &self.ledger, self.fleet.as_ref()));
        self.settings = settings;
        if !is_same {
            self.begin_schedule();
        }
        self.change_service(demanded);
        self.adopt(plan);
        self.listen();
        self.reread_etcd();
        Ok(())
    }

    /// Begins to share with the fleet, and to hear of names that clients ask for, where it is to,
    /// until the agent is dropped.
    pub fn share(&mut self) {
        self.listen();
        let Some(fleet) = &self.fleet else { return };
        let sender = self.sender.clone();
        // Nobody is there to hear it at the end of the process.
        let changed = move |taken| drop(sender.send(Came::Taken(taken)));
        spawn_local(Rc::clone(fleet).share(changed));
        spawn_local(Rc::clone(fleet).keep_tickets());
    }

    /// Begins what is due, and waits until something has come of what is under way, or more is due.
    pub async fn step(&mut self) {
        self.look_at_clock(now());
        self.follow_files();
        self.follow_store();
        self.begin();
        let now = now();
        let wake = self.schedule.wake_at(now).filter(|_| !self.is_waiting_for_fleet());
        // Bounded, because the store, the fleet or the clock may change.
        let wait = wake.map_or(WAIT_MAX, |at| Duration::from_secs(at.since(now)).min(WAIT_MAX));
        self.let_lapse(now);
        let wait = wait.max(WAIT_MIN);
        if let Ok(Some(came)) = tokio::time::timeout(wait, self.came.recv()).await {
            self.note(came);
        }
    }

    /// Waits until nothing is under way, and leaves the fleet. Nothing more is begun.
    pub async fn finish(&mut self) {
        while !self.under_way.is_empty() {
            let Some(came) = self.came.recv().await else { return };
            self.note(came);
        }
        if let Some(fleet) = &self.fleet {
            fleet.leave().await;
        }
    }

    /// How many certificates it looks after.
    #[must_use]
    pub fn certificate_count(&self) -> usize {
        self.certificates.len()
    }

    fn begin(&mut self) {
        // What the fleet has by now is not ordered once more.
        if self.is_waiting_for_fleet() {
            return;
        }
        while self.under_way.len() < ORDERS_IN_FLIGHT_MAX
            && let Some(id) = self.resumed.pop_front()
        {
            self.resume(id);
        }
        while let Some(action) = self.schedule.next(now()) {
            match action {
                Action::AskPermission { ticket, id, name } => self.ask_permission(ticket, id, name),
                Action::AskRenewalInfo { ticket, id, authority } => {
                    self.ask_renewal_info(ticket, id, authority);
                }
                Action::Order { ticket, id, .. }
                    if !self.is_forced(id) && !self.is_still_demanded(id) =>
                {
                    self.schedule.happened(now(), ticket, Outcome::Failed(Failure::Ours));
                }
                Action::Order { ticket, id, authority, replaces, .. } => {
                    self.due.push_back(Due { ticket, id, authority, replaces });
                }
            }
        }
        for _ in 0..self.due.len() {
            let Some(due) = self.due.pop_front() else { return };
            if let Some(due) = self.order(due) {
                self.due.push_back(due);
            }
        }
    }

    fn is_waiting_for_fleet(&self) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| !fleet.is_complete())
    }

    /// Goes on with a remembered order, at the authority that has it; forgets it if the store has
    /// a newer certificate by now.
    fn resume(&mut self, id: CertificateId) {
        let entry = self.ledger.order(id);
        let Ok(Some(entry)) = entry else { return };
        let names = entry.names.join(", ");
        match self.ledger.is_over(&entry) {
            Ok(false) => {}
            Ok(true) => {
                say(&format!("{names}: order dropped: the store has changed since it was begun"));
                return self.give_up(id, entry);
            }
            Err(error) => return say_at(Priority::Warning, &format!("{names}: {error}")),
        }
        let Some(authority) = authority_of(&self.settings, &entry.directory) else { return };
        if let Some(wanted) = self.wanted(id, authority, true) {
            say(&format!("{names}: going on with the order at {}", entry.directory));
            self.start(wanted, authority, None);
        }
    }

    /// Orders what is due, or lets it wait: for room, or for an order of another authority.
    fn order(&mut self, due: Due) -> Option<Due> {
        let Due { ticket, id, authority, replaces } = due;
        // By another certificate it is due at another time.
        if self.look_again(id) {
            self.schedule.happened(now(), ticket, Outcome::HeldByAnother { until: now() });
            return None;
        }
        let Some(wanted) = self.wanted(id, authority, replaces) else {
            self.schedule.happened(now(), ticket, Outcome::Failed(Failure::Ours));
            return None;
        };
        let is_held = wanted.held_put_s != i64::MIN;
        let is_left = !self.is_forced(id);
        let until = self.learn_waits(id);
        let until = until.or_else(|| self.left_to_another(id, is_held).filter(|_| is_left));
        if let Some(until) = until {
            self.schedule.happened(now(), ticket, Outcome::HeldByAnother { until });
            return None;
        }
        let has_room = self.under_way.len() < ORDERS_IN_FLIGHT_MAX;
        match self.under_way.get_mut(&id) {
            Some(under_way) if under_way.directory == wanted.directory => {
                under_way.ticket = Some(ticket);
                None
            }
            Some(_) => Some(due),
            None if !has_room => Some(due),
            None => {
                self.start(wanted, authority, Some(ticket));
                None
            }
        }
    }

    fn start(&mut self, wanted: Wanted, authority: AuthorityId, ticket: Option<Ticket>) {
        let id = wanted.id;
        self.under_way.insert(id, UnderWay { directory: wanted.directory.clone(), ticket });
        let (authorities, sender) = (Rc::clone(&self.authorities), self.sender.clone());
        spawn_local(async move {
            let names = wanted.names.join(", ");
            let ordered = wanted.clone();
            let order = async move { authorities.order(authority, &ordered).await };
            let outcome = job::apart(&names, order).await;
            // Nobody is there to hear it at the end of the process.
            let _ = sender.send(Came::Order { id, outcome, wanted });
        });
    }

    fn ask_renewal_info(&mut self, ticket: Ticket, id: CertificateId, authority: AuthorityId) {
        if self.look_again(id) {
            let outcome = Outcome::Failed(Failure::TryLater);
            return self.schedule.happened(now(), ticket, outcome);
        }
        if let Some(outcome) = self.heard_by_another(id) {
            return self.schedule.happened(now(), ticket, outcome);
        }
        let certificate = self.certificates.get(&id);
        let known_as = certificate.and_then(|known| self.ledger.known_as(&known.names));
        let Some(known_as) = known_as else {
            let outcome = Outcome::Failed(Failure::TryLater);
            return self.schedule.happened(now(), ticket, outcome);
        };
        let (authorities, sender) = (Rc::clone(&self.authorities), self.sender.clone());
        let generation = self.generation;
        spawn_local(async move {
            let asked = async move {
                let opened = authorities.opened(authority).await?;
                Ok(renewal_info::ask(&opened, &known_as, now()).await)
            };
            let outcome = job::apart("renewal information", asked).await;
            let outcome = outcome.unwrap_or_else(|failed| failed.outcome());
            let _ = sender.send(Came::Answer { generation, outcome, ticket });
        });
    }

    fn note(&mut self, came: Came) {
        match came {
            Came::Answer { generation, outcome, ticket } => {
                if generation == self.generation {
                    self.schedule.happened(now(), ticket, outcome);
                }
            }
            Came::Asked(asked) => self.note_asked(asked),
            Came::Permission { generation, id, name, outcome, ticket } => {
                if generation == self.generation {
                    self.note_permission(id, name, &outcome);
                    self.schedule.happened(now(), ticket, outcome);
                }
            }
            Came::Taken(all) => {
                self.note_taken(&all);
                if all.is_empty() {
                    // All has been listed.
                    self.adopt_shared_demands(None);
                }
                waits::recall_told(&mut self.schedule, &self.settings, &self.ledger);
            }
            Came::Order { id, outcome, wanted } => {
                let ticket = self.under_way.remove(&id).and_then(|under_way| under_way.ticket);
                match outcome {
                    Ok(issued) => self.note_issued(&wanted, &issued, ticket),
                    Err(failed) => self.note_failed(&wanted, &failed, ticket),
                }
            }
        }
    }

    fn note_issued(&mut self, wanted: &Wanted, issued: &Issued, ticket: Option<Ticket>) {
        let (not_before, not_after) = (seconds(issued.not_before_s), seconds(issued.not_after_s));
        let left = Duration::from_secs(not_after.since(now()));
        let (names, days) = (wanted.names.join(", "), left.as_secs() / 86_400);
        say(&format!("{names}: issued by {}, good for {days} days", wanted.directory));
        self.forget_waits(wanted.id);
        self.end_renewal(wanted.id);
        if let Some(ticket) = ticket {
            let outcome = Outcome::Issued { not_before, not_after };
            return self.schedule.happened(now(), ticket, outcome);
        }
        if self.certificates.contains_key(&wanted.id) {
            let authority = authority_of(&self.settings, &wanted.directory);
            let held = Held { not_before, not_after, authority };
            self.schedule.want(now(), wanted.id, wanted.names.clone(), Some(held));
        }
    }

    fn note_failed(&mut self, wanted: &Wanted, failed: &Failed, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.schedule.happened(now(), ticket, failed.outcome());
            self.remember_waits(wanted, failed);
        }
        self.note_renewal_failed(wanted.id, failed);
        self.settle_demanded(wanted.id);
        if !self.certificates.contains_key(&wanted.id)
            && let Ok(Some(entry)) = self.ledger.order(wanted.id)
        {
            self.give_up(wanted.id, entry);
        }
        if failed.is_no_news {
            return;
        }
        let next = self.schedule.due(wanted.id).map(|at| at.since(now()));
        let next = next.map(|seconds| value::duration_text(Duration::from_secs(seconds)));
        let next = next.map(|text| format!("\n  tried again in {text}")).unwrap_or_default();
        say_at(Priority::Warning, &format!("{}{next}", failed.text));
    }

    /// What is to be ordered for a certificate.
    fn wanted(&self, id: CertificateId, at: AuthorityId, replaces: bool) -> Option<Wanted> {
        let certificate = self.certificates.get(&id)?;
        let authority = self.settings.authorities.get(usize::from(at.0))?;
        let held = self.ledger.held(&certificate.names).ok().flatten();
        let held_put_s = held.as_ref().map_or(i64::MIN, |held| held.imported_s);
        let is_theirs = held.is_some_and(|held| held.label == authority.directory);
        let replaces = (replaces && is_theirs).then(|| self.ledger.known_as(&certificate.names));
        Some(Wanted {
            challenge: certificate.challenge.clone(),
            directory: authority.directory.clone(),
            held_put_s,
            id,
            key: authority.key,
            names: certificate.names.clone(),
            profile: authority.profile.clone(),
            replaces: replaces.flatten(),
        })
    }
}

/// An order that the schedule wants.
#[derive(Clone, Copy)]
struct Due {
    ticket: Ticket,
    id: CertificateId,
    authority: AuthorityId,
    replaces: bool,
}

/// An order under way: at whom, and whom it is to be told to.
struct UnderWay {
    directory: String,
    ticket: Option<Ticket>,
}

/// What has come of something under way.
enum Came {
    /// What clients asked for.
    Asked(Asked),
    Answer {
        generation: u64,
        outcome: Outcome,
        ticket: Ticket,
    },
    Order {
        id: CertificateId,
        outcome: Result<Issued, Failed>,
        wanted: Wanted,
    },
    /// Whether there may be a certificate on demand.
    Permission {
        generation: u64,
        id: CertificateId,
        name: String,
        outcome: Outcome,
        ticket: Ticket,
    },
    /// Certificates of the fleet that are in the store now, by their names.
    Taken(Vec<Vec<String>>),
}

/// The time of this machine.
pub(crate) fn now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixSeconds(since.map_or(0, |since| since.as_secs()))
}

/// The same, as certificates have it.
pub(crate) fn now_s() -> i64 {
    signed(now())
}

/// A time as certificates have it.
pub(crate) fn signed(UnixSeconds(time): UnixSeconds) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// How often the agent looks whether the store has changed, or the fleet answers.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The shortest, so that a clock that stands still makes nobody spin.
const WAIT_MIN: Duration = Duration::from_millis(20);
