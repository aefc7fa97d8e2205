//! The agent at work: does what the schedule says, and tells it what came of that.

mod job;

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sealane_operator::{Priority, say, say_at, value};
use sealane_renewal::{
    self as renewal, Action, AuthorityId, CertificateId, Failure, Held, Limits,
    ORDERS_IN_FLIGHT_MAX, Outcome, Schedule, Ticket, UnixSeconds,
};
use sealane_store::KeyedStore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;

use crate::failure::Failed;
use crate::ledger::{Ledger, LedgerError, OrderEntry, id_of};
use crate::order::{Issued, Wanted};
use crate::renewal_info;
use crate::settings::{Settings, WantedCertificate};

use job::Authorities;

/// An agent with its schedule, its orders under way, and its store.
pub struct Agent {
    authorities: Rc<Authorities>,
    came: UnboundedReceiver<Came>,
    certificates: HashMap<CertificateId, WantedCertificate>,
    /// Counts settings: what was begun for others is not told to this schedule.
    generation: u64,
    ledger: Ledger,
    /// Orders of an agent before, which are gone on with first.
    resumed: VecDeque<CertificateId>,
    schedule: Schedule,
    sender: UnboundedSender<Came>,
    settings: Settings,
    /// What is ordered now, each with whom it is to be told to.
    under_way: HashMap<CertificateId, Option<Ticket>>,
}

impl Agent {
    /// An agent that keeps what it obtains in `store`. Orders that are remembered there go on.
    ///
    /// # Errors
    /// What is remembered cannot be read.
    pub fn new(settings: Settings, store: Arc<KeyedStore>) -> Result<Self, String> {
        let (sender, came) = unbounded_channel();
        let ledger = Ledger::new(store);
        let mut agent = Self {
            authorities: Rc::new(Authorities::of(&settings, &ledger)),
            came,
            certificates: HashMap::new(),
            generation: 0,
            ledger,
            resumed: VecDeque::new(),
            schedule: schedule_of(&settings),
            sender,
            settings,
            under_way: HashMap::new(),
        };
        agent.plan().map_err(|error| error.to_string())?;
        Ok(agent)
    }

    /// Goes on by other settings. What is under way comes to its end.
    ///
    /// # Errors
    /// They take a restart, or what is remembered cannot be read; then nothing has changed.
    pub fn reload(&mut self, settings: Settings) -> Result<(), String> {
        let is_same_store =
            settings.store == self.settings.store && settings.store_key == self.settings.store_key;
        if !is_same_store {
            return Err("store and store_key take a restart; restart the agent".into());
        }
        self.authorities = Rc::new(Authorities::of(&settings, &self.ledger));
        self.schedule = schedule_of(&settings);
        self.settings = settings;
        self.generation += 1;
        self.certificates.clear();
        for ticket in self.under_way.values_mut() {
            *ticket = None;
        }
        self.plan().map_err(|error| error.to_string())
    }

    /// Begins what is due, and waits until something has come of what is under way, or more is due.
    pub async fn step(&mut self) {
        self.begin();
        let now = now();
        let wake = self.schedule.wake_at(now);
        // Bounded, because a clock may be set meanwhile.
        let wait = wake.map_or(WAIT_MAX, |at| Duration::from_secs(at.since(now)).min(WAIT_MAX));
        let wait = wait.max(WAIT_MIN);
        if let Ok(Some(came)) = tokio::time::timeout(wait, self.came.recv()).await {
            self.note(came);
        }
    }

    /// Waits until nothing is under way. Nothing more is begun.
    pub async fn finish(&mut self) {
        while !self.under_way.is_empty() {
            let Some(came) = self.came.recv().await else { return };
            self.note(came);
        }
    }

    /// How many certificates it looks after.
    #[must_use]
    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    /// Whether it looks after none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Tells the schedule what is wanted and what there is, and finds orders to go on with.
    fn plan(&mut self) -> Result<(), LedgerError> {
        for wanted in self.settings.certificates.clone() {
            let id = id_of(&wanted.names);
            let held = self.held(&wanted.names)?;
            self.schedule.want(now(), id, wanted.names.clone(), held);
            self.certificates.insert(id, wanted);
        }
        self.resumed.clear();
        for (id, entry) in self.ledger.orders()? {
            if self.under_way.contains_key(&id) {
                continue;
            }
            let is_wanted = self.certificates.contains_key(&id);
            match is_wanted && self.authority(&entry.directory).is_some() {
                true => self.resumed.push_back(id),
                false => self.give_up(id, entry)?,
            }
        }
        Ok(())
    }

    /// Forgets an order that nobody wants any more.
    fn give_up(&self, id: CertificateId, entry: OrderEntry) -> Result<(), LedgerError> {
        self.ledger.drop_order(id, &entry)?;
        spawn_local(async move { job::clean_up(&entry.records).await });
        Ok(())
    }

    fn begin(&mut self) {
        while self.under_way.len() < ORDERS_IN_FLIGHT_MAX
            && let Some(id) = self.resumed.pop_front()
        {
            self.resume(id);
        }
        while let Some(action) = self.schedule.next(now()) {
            match action {
                // Nobody asks for one.
                Action::AskPermission { ticket, .. } => {
                    let refused = Outcome::Permission { is_given: false };
                    self.schedule.happened(now(), ticket, refused);
                }
                Action::AskRenewalInfo { ticket, id, authority } => {
                    self.ask_renewal_info(ticket, id, authority);
                }
                Action::Order { ticket, id, authority, replaces, .. } => {
                    self.order(ticket, id, authority, replaces);
                }
            }
        }
    }

    /// Goes on with an order that is remembered, wherever that was ordered.
    fn resume(&mut self, id: CertificateId) {
        let entry = self.ledger.order(id);
        let Ok(Some(entry)) = entry else { return };
        let Some(authority) = self.authority(&entry.directory) else { return };
        if let Some(wanted) = self.wanted(id, authority, true) {
            say(&format!(
                "{}: going on with the order at {}",
                entry.names.join(", "),
                entry.directory
            ));
            self.start(wanted, authority, None);
        }
    }

    fn order(&mut self, ticket: Ticket, id: CertificateId, authority: AuthorityId, replaces: bool) {
        if let Some(under_way) = self.under_way.get_mut(&id) {
            *under_way = Some(ticket);
            return;
        }
        match self.wanted(id, authority, replaces) {
            Some(wanted) => self.start(wanted, authority, Some(ticket)),
            None => self.schedule.happened(now(), ticket, Outcome::Failed(Failure::Ours)),
        }
    }

    fn start(&mut self, wanted: Wanted, authority: AuthorityId, ticket: Option<Ticket>) {
        let id = wanted.id;
        self.under_way.insert(id, ticket);
        let (authorities, sender) = (Rc::clone(&self.authorities), self.sender.clone());
        spawn_local(async move {
            let outcome = authorities.order(authority, &wanted).await;
            // Nobody is there to hear it at the end of the process.
            let _ = sender.send(Came::Order { id, outcome, wanted });
        });
    }

    fn ask_renewal_info(&mut self, ticket: Ticket, id: CertificateId, authority: AuthorityId) {
        let certificate = self.certificates.get(&id);
        let known_as = certificate.and_then(|known| self.ledger.known_as(&known.names));
        let Some(known_as) = known_as else {
            let outcome = Outcome::Failed(Failure::TryLater);
            return self.schedule.happened(now(), ticket, outcome);
        };
        let (authorities, sender) = (Rc::clone(&self.authorities), self.sender.clone());
        let generation = self.generation;
        spawn_local(async move {
            let outcome = match authorities.opened(authority).await {
                Ok(opened) => renewal_info::ask(&opened, &known_as, now()).await,
                Err(failed) => failed.outcome(),
            };
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
            Came::Order { id, outcome, wanted } => {
                let ticket = self.under_way.remove(&id).flatten();
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
        if let Some(ticket) = ticket {
            let outcome = Outcome::Issued { not_before, not_after };
            return self.schedule.happened(now(), ticket, outcome);
        }
        if self.certificates.contains_key(&wanted.id) {
            let authority = self.authority(&wanted.directory);
            let held = Held { not_before, not_after, authority };
            self.schedule.want(now(), wanted.id, wanted.names.clone(), Some(held));
        }
    }

    fn note_failed(&mut self, wanted: &Wanted, failed: &Failed, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.schedule.happened(now(), ticket, failed.outcome());
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
        let is_theirs = held.is_some_and(|held| held.label == authority.directory);
        let replaces = (replaces && is_theirs).then(|| self.ledger.known_as(&certificate.names));
        Some(Wanted {
            challenge: certificate.challenge.clone(),
            directory: authority.directory.clone(),
            id,
            key: authority.key,
            names: certificate.names.clone(),
            profile: authority.profile.clone(),
            replaces: replaces.flatten(),
        })
    }

    /// The certificate for these names that is in the store.
    fn held(&self, names: &[String]) -> Result<Option<Held>, LedgerError> {
        let held = self.ledger.held(names)?;
        Ok(held.map(|held| Held {
            not_before: seconds(held.not_before_s),
            not_after: seconds(held.not_after_s),
            // One that came otherwise is renewed as well; its authority knows nothing of us.
            authority: self.authority(&held.label),
        }))
    }

    fn authority(&self, directory: &str) -> Option<AuthorityId> {
        let all = &self.settings.authorities;
        let place = all.iter().position(|authority| authority.directory == directory)?;
        u8::try_from(place).ok().map(AuthorityId)
    }
}

/// What has come of something under way.
enum Came {
    Answer { generation: u64, outcome: Outcome, ticket: Ticket },
    Order { id: CertificateId, outcome: Result<Issued, Failed>, wanted: Wanted },
}

fn schedule_of(settings: &Settings) -> Schedule {
    let authorities = settings.authorities.iter().map(|authority| {
        let host = authority.directory.strip_prefix("https://").unwrap_or_default();
        let host = host.split(['/', ':']).next().unwrap_or_default();
        let limits = match host == "letsencrypt.org" || host.ends_with(".letsencrypt.org") {
            true => Limits::lets_encrypt(),
            false => Limits::default(),
        };
        // Whether it has is seen when it is asked.
        renewal::Authority { has_renewal_info: true, limits }
    });
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = seed.map_or(0, |since| since.as_nanos()) ^ u128::from(std::process::id());
    let seed = u64::try_from(seed & u128::from(u64::MAX)).unwrap_or_default();
    Schedule::new(renewal::Settings::new(authorities.collect()), seed)
}

/// The time of this machine.
pub(crate) fn now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixSeconds(since.map_or(0, |since| since.as_secs()))
}

fn seconds(time_s: i64) -> UnixSeconds {
    UnixSeconds(u64::try_from(time_s).unwrap_or(0))
}

/// The longest that nothing is looked at.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The shortest, so that a clock that stands still makes nobody spin.
const WAIT_MIN: Duration = Duration::from_millis(20);
