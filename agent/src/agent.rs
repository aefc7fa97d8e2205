//! The agent at work: does what the schedule says, and tells it what came of that.

mod book;
mod demand;
mod files;
mod follow;
mod job;
mod keepers;
mod orders;
mod patience;
mod plan;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sealane_operator::value;
use sealane_renewal::{
    Action, AuthorityId, CertificateId, Failure, Held, Outcome, Ticket, UnixSeconds,
};
use sealane_store::{KeyedStore, SealingKeys};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::spawn_local;
use tracing::{error, info, warn};

use crate::clock::now;
use crate::failure::Failed;
use crate::fleet::Fleet;
use crate::ledger::{Ledger, id_of};
use crate::order::state::{Issued, Wanted};
use crate::renewal_info;
use crate::settings::Settings;

use book::{Book, Came};
use demand::Demanded;
use files::NamedFiles;
use follow::{Followed, note_taken};
use job::Authorities;
use orders::{Due, Orders, Place};
use patience::Left;
use plan::{Plan, authority_of, schedule_of, seconds};

/// An agent with its schedule, its orders under way, and its store.
pub struct Agent {
    authorities: Rc<Authorities>,
    book: Book,
    came: UnboundedReceiver<Came>,
    demanded: Demanded,
    files: NamedFiles,
    followed: Followed,
    orders: Orders,
    /// The time when it was looked at last.
    seen: UnixSeconds,
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
            demanded: Demanded::new(settings.on_demand.as_ref())?,
            files: NamedFiles::of(&settings),
            followed: Followed::default(),
            orders: Orders::default(),
            seen: now(),
            book: Book {
                certificates: HashMap::new(),
                fleet,
                generation: 0,
                ledger,
                left: Left::default(),
                schedule: schedule_of(&settings),
                sender,
                settings,
            },
        };
        waits::recall(&mut agent.book.schedule, &agent.book.settings, &agent.book.ledger);
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
        let is_same_store = settings.store == self.book.settings.store
            && settings.store_key == self.book.settings.store_key;
        if !is_same_store {
            return Err("store and store_key take a restart; restart the agent".into());
        }
        if settings.fleet != self.book.settings.fleet {
            return Err("[fleet] takes a restart; restart the agent".into());
        }
        // All that can fail, before anything is changed.
        let plan = Plan::of(&settings, &self.book.ledger).map_err(|error| error.to_string())?;
        let demanded = Demanded::new(settings.on_demand.as_ref())?;
        let files = NamedFiles::of(&settings);
        let is_same = settings.authorities == self.book.settings.authorities
            && settings.on_demand == self.book.settings.on_demand
            && !files.has_other_credentials(&self.files);
        self.files = files;
        // Also with the same: their files may have others in them.
        self.authorities =
            Rc::new(Authorities::of(&settings, &self.book.ledger, self.book.fleet.as_ref()));
        self.book.settings = settings;
        if !is_same {
            self.begin_schedule();
        }
        self.demanded.change_service(demanded);
        self.adopt(plan);
        self.demanded.listen(&self.book);
        self.reread_etcd();
        Ok(())
    }

    /// Begins to share with the fleet, and to hear of names that clients ask for, where it is to,
    /// until the agent is dropped.
    pub fn share(&mut self) {
        self.demanded.listen(&self.book);
        let Some(fleet) = &self.book.fleet else { return };
        let sender = self.book.sender.clone();
        // Nobody is there to hear it at the end of the process.
        let changed = move |taken| drop(sender.send(Came::Taken(taken)));
        spawn_local(Rc::clone(fleet).share(changed));
        spawn_local(Rc::clone(fleet).keep_tickets());
    }

    /// Begins what is due, and waits until something has come of what is under way, or more is due.
    pub async fn step(&mut self) {
        self.look_at_clock(now());
        self.follow_files();
        self.followed.follow(&mut self.book, &mut self.demanded);
        self.begin();
        let now = now();
        let wake = self.book.schedule.wake_at(now).filter(|_| !self.book.is_waiting_for_fleet());
        // Bounded, because the store, the fleet or the clock may change.
        let wait = wake.map_or(WAIT_MAX, |at| Duration::from_secs(at.since(now)).min(WAIT_MAX));
        self.demanded.let_lapse(&mut self.book, now);
        let wait = wait.max(WAIT_MIN);
        if let Ok(Some(came)) = tokio::time::timeout(wait, self.came.recv()).await {
            self.note(came);
        }
    }

    /// Waits until nothing is under way, and leaves the fleet. Nothing more is begun.
    pub async fn finish(&mut self) {
        while !self.orders.is_idle() {
            let Some(came) = self.came.recv().await else { return };
            self.note(came);
        }
        if let Some(fleet) = &self.book.fleet {
            fleet.leave().await;
        }
    }

    /// How many certificates it looks after.
    #[must_use]
    pub fn certificate_count(&self) -> usize {
        self.book.certificates.len()
    }

    fn begin(&mut self) {
        // What the fleet has by now is not ordered once more.
        if self.book.is_waiting_for_fleet() {
            return;
        }
        while let Some(id) = self.orders.next_resumed() {
            self.resume(id);
        }
        while let Some(action) = self.book.schedule.next(now()) {
            match action {
                Action::AskPermission { ticket, id, name } => {
                    self.demanded.ask_permission(&mut self.book, ticket, id, name);
                }
                Action::AskRenewalInfo { ticket, id, authority } => {
                    self.ask_renewal_info(ticket, id, authority);
                }
                Action::Order { ticket, id, .. }
                    if !self.followed.is_forced(id)
                        && !self.demanded.is_still_demanded(&mut self.book, id) =>
                {
                    self.book.schedule.happened(now(), ticket, Outcome::Failed(Failure::Ours));
                }
                Action::Order { ticket, id, authority, replaces, .. } => {
                    self.orders.add_due(Due { ticket, id, authority, replaces });
                }
            }
        }
        for due in self.orders.take_due() {
            if let Some(due) = self.order(due) {
                self.orders.add_due(due);
            }
        }
    }

    /// Goes on with a remembered order, at the authority that has it; forgets it if the store has
    /// a newer certificate by now.
    fn resume(&mut self, id: CertificateId) {
        let entry = self.book.ledger.order(id);
        let Ok(Some(entry)) = entry else { return };
        let names = entry.names.join(", ");
        match self.book.ledger.is_over(&entry) {
            Ok(false) => {}
            Ok(true) => {
                info!("{names}: order dropped: the store has changed since it was begun");
                return self.book.give_up(id, entry);
            }
            Err(error) => return warn!("{names}: {error}"),
        }
        let Some(authority) = authority_of(&self.book.settings, &entry.directory) else { return };
        if let Some(wanted) = self.book.wanted(id, authority, true) {
            info!("{names}: going on with the order at {}", entry.directory);
            self.start(wanted, authority, None);
        }
    }

    /// Orders what is due, or lets it wait: for room, or for an order of another authority.
    fn order(&mut self, due: Due) -> Option<Due> {
        let Due { ticket, id, authority, replaces } = due;
        // By another certificate it is due at another time.
        if self.demanded.look_again(&mut self.book, id) {
            self.book.schedule.happened(now(), ticket, Outcome::HeldByAnother { until: now() });
            return None;
        }
        let Some(wanted) = self.book.wanted(id, authority, replaces) else {
            self.book.schedule.happened(now(), ticket, Outcome::Failed(Failure::Ours));
            return None;
        };
        let is_held = wanted.held_put_s != i64::MIN;
        let is_left = !self.followed.is_forced(id);
        let until = waits::learn(&mut self.book, id);
        let until = until.or_else(|| {
            let until = keepers::left_to_another(&mut self.book, &self.demanded, id, is_held);
            until.filter(|_| is_left)
        });
        if let Some(until) = until {
            self.book.schedule.happened(now(), ticket, Outcome::HeldByAnother { until });
            return None;
        }
        match self.orders.place(id, &wanted.directory, ticket) {
            Place::Joined => None,
            Place::Free => {
                self.start(wanted, authority, Some(ticket));
                None
            }
            Place::Waits => Some(due),
        }
    }

    fn start(&mut self, wanted: Wanted, authority: AuthorityId, ticket: Option<Ticket>) {
        let id = wanted.id;
        self.orders.begin(id, wanted.directory.clone(), ticket);
        let (authorities, sender) = (Rc::clone(&self.authorities), self.book.sender.clone());
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
        if self.demanded.look_again(&mut self.book, id) {
            let outcome = Outcome::Failed(Failure::TryLater);
            return self.book.schedule.happened(now(), ticket, outcome);
        }
        if let Some(outcome) = keepers::heard_by_another(&self.book, &self.demanded, id) {
            return self.book.schedule.happened(now(), ticket, outcome);
        }
        let certificate = self.book.certificates.get(&id);
        let known_as = certificate.and_then(|known| self.book.ledger.known_as(&known.names));
        let Some(known_as) = known_as else {
            let outcome = Outcome::Failed(Failure::TryLater);
            return self.book.schedule.happened(now(), ticket, outcome);
        };
        let (authorities, sender) = (Rc::clone(&self.authorities), self.book.sender.clone());
        let generation = self.book.generation;
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
                if generation == self.book.generation {
                    self.book.schedule.happened(now(), ticket, outcome);
                }
            }
            Came::Asked(asked) => self.demanded.note_asked(&mut self.book, asked),
            Came::Permission { generation, id, name, outcome, ticket } => {
                if generation == self.book.generation {
                    self.demanded.note_permission(&mut self.book, id, name, &outcome);
                    self.book.schedule.happened(now(), ticket, outcome);
                }
            }
            Came::Taken(all) => {
                note_taken(&mut self.book, &mut self.demanded, &self.orders, &all);
                if all.is_empty() {
                    // All has been listed.
                    self.demanded.adopt_shared(&mut self.book, &self.orders, None);
                }
                waits::recall_told(&mut self.book.schedule, &self.book.settings, &self.book.ledger);
            }
            Came::Order { id, outcome, wanted } => {
                let ticket = self.orders.end(id);
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
        info!("{names}: issued by {}, good for {days} days", wanted.directory);
        waits::forget(&self.book, wanted.id);
        self.followed.end_renewal(&self.book, wanted.id);
        if let Some(ticket) = ticket {
            let outcome = Outcome::Issued { not_before, not_after };
            return self.book.schedule.happened(now(), ticket, outcome);
        }
        if self.book.certificates.contains_key(&wanted.id) {
            let authority = authority_of(&self.book.settings, &wanted.directory);
            let held = Held { not_before, not_after, authority };
            self.book.schedule.want(now(), wanted.id, wanted.names.clone(), Some(held));
        }
    }

    fn note_failed(&mut self, wanted: &Wanted, failed: &Failed, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.book.schedule.happened(now(), ticket, failed.outcome());
            waits::remember(&self.book, wanted, failed);
        }
        self.followed.note_renewal_failed(&self.book, wanted.id, failed);
        self.demanded.settle(&mut self.book, wanted.id);
        if !self.book.certificates.contains_key(&wanted.id)
            && let Ok(Some(entry)) = self.book.ledger.order(wanted.id)
        {
            self.book.give_up(wanted.id, entry);
        }
        if failed.is_no_news {
            return;
        }
        let next = self.book.schedule.due(wanted.id).map(|at| at.since(now()));
        let next = next.map(|seconds| value::duration_text(Duration::from_secs(seconds)));
        let next = next.map(|text| format!("\n  tried again in {text}")).unwrap_or_default();
        warn!("{}{next}", failed.text);
    }

    /// Updates the schedule with wanted and present certificates, and finds orders to continue.
    fn adopt(&mut self, plan: Plan) {
        self.followed.note_planned(plan.generation);
        let before = std::mem::take(&mut self.book.certificates);
        for (wanted, held) in plan.certificates {
            let id = id_of(&wanted.names);
            // What is shown in another way may come now.
            if before.get(&id).is_some_and(|known| *known != wanted) {
                self.book.schedule.forget(id);
            }
            self.book.schedule.want(now(), id, wanted.names.clone(), held);
            self.book.certificates.insert(id, wanted);
        }
        self.demanded.adopt(&mut self.book, &self.orders, plan.demands, &plan.orders, &before);
        for id in before.into_keys().filter(|id| !self.book.certificates.contains_key(id)) {
            self.book.schedule.forget(id);
        }
        let mut resumed = Vec::new();
        for (id, entry) in plan.orders {
            if self.orders.is_under_way(id) {
                continue;
            }
            let is_wanted = self.book.certificates.contains_key(&id);
            match is_wanted && authority_of(&self.book.settings, &entry.directory).is_some() {
                true => resumed.push(id),
                false => self.book.give_up(id, entry),
            }
        }
        self.orders.resume(resumed);
    }

    /// Begins an empty schedule, without orders in progress.
    fn begin_schedule(&mut self) {
        self.book.schedule = schedule_of(&self.book.settings);
        self.book.generation += 1;
        self.book.certificates.clear();
        self.orders.forget_schedule();
    }

    /// Plans anew when the clock was set back: by the schedule all would wait until it has caught
    /// up.
    fn look_at_clock(&mut self, now: UnixSeconds) {
        let back_s = std::mem::replace(&mut self.seen, now).since(now);
        if back_s <= CLOCK_BACK_S_MAX {
            return;
        }
        let text = value::duration_text(Duration::from_secs(back_s));
        warn!("the clock was set back by {text}: all is planned anew");
        match Plan::of(&self.book.settings, &self.book.ledger) {
            Ok(plan) => {
                self.begin_schedule();
                self.adopt(plan);
            }
            Err(error) => error!("not planned anew: {error}"),
        }
    }

    /// Reads files again that have changed. A file that cannot be read changes nothing.
    fn follow_files(&mut self) {
        if self.files.has_other_etcd() {
            self.reread_etcd();
        }
        if !self.files.has_other_authorities() {
            return;
        }
        let read = NamedFiles::of(&self.book.settings);
        if !read.has_other_credentials(&self.files) {
            return;
        }
        match Plan::of(&self.book.settings, &self.book.ledger) {
            Ok(plan) => {
                info!("files of [[authority]] have changed: they are read again, and waits end");
                self.files = read;
                let fleet = self.book.fleet.as_ref();
                self.authorities =
                    Rc::new(Authorities::of(&self.book.settings, &self.book.ledger, fleet));
                self.begin_schedule();
                self.adopt(plan);
            }
            Err(error) => error!("[[authority]]: not read: {error}"),
        }
    }

    /// Reads the files of the fleet's cluster again.
    fn reread_etcd(&self) {
        let Some(fleet) = &self.book.fleet else { return };
        match fleet.reread() {
            Ok(()) => info!("fleet: the files of etcd are read again"),
            Err(error) => {
                warn!("fleet: {error}\n  what was read before is used until this is right");
            }
        }
    }
}

/// How often the agent looks whether the store has changed, or the fleet answers.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The shortest, so that a clock that stands still makes nobody spin.
const WAIT_MIN: Duration = Duration::from_millis(20);
/// By how much a clock may be set back, as a daemon of time does, without a plan anew.
const CLOCK_BACK_S_MAX: u64 = 60;
