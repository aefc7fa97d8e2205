//! What the control plane tells the admin thread: [`ControlState`], plain data behind a mutex.

mod faults;
mod verdict;

use std::any::Any;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Instant, SystemTime};

use sealane_config::{Limits, Tickets};
use sealane_engine::certificates::{
    CertificateStore as _, Inventory, InventoryEntry, InventoryFailure,
};
use sealane_engine::client_certificates::RevocationList;
use sealane_lanes::counters::Counters;
use sealane_listeners::{EXPIRIES_SHOWN_MAX, Fault, NameSummary, StoreSummary, Summary, list_file};
use sealane_operator::timestamp::Timestamp;
use sealane_traffic::access_log::{LaneLogCounters, LogFault, LogWriter, WriterCounters};
use sealane_traffic::admission::{ListenerCounters, RefusedClients};
use sealane_traffic::backends::{BackendCounters, Drained};
use sealane_traffic::lane_orders::LaneDesk;

use crate::file_tables::FileTables;

pub use faults::{FAULTS_SHOWN_MAX, Faults};
pub use verdict::Verdict;

/// The control plane's side of the state: it writes on start, reload and drain; the admin thread
/// reads on request. No lane knows of it, so a lock does no harm.
#[derive(Clone, Default)]
pub struct SharedState(Arc<Mutex<ControlState>>);

impl SharedState {
    /// The state, for as long as the guard lives; keep that short.
    pub fn lock(&self) -> MutexGuard<'_, ControlState> {
        // Plain data is as good as it was when another thread panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known about the process, beside what its lanes count.
pub struct ControlState {
    /// Where the process is in its life.
    pub phase: Phase,
    /// When it began.
    pub started: Started,
    /// What each lane counts, by its number.
    pub lanes: Vec<Arc<Counters>>,
    /// Where each takes orders.
    pub desks: Vec<LaneDesk>,
    /// Whose tables of open files they have.
    pub file_tables: FileTables,
    /// How many have one of their own.
    pub lanes_with_own_table: usize,
    /// Why they are held to no filter of system calls, if they are not.
    pub filter_refusal: Option<String>,
    /// Generations that were published.
    pub generations: Generations,
    /// The listeners of the newest generation.
    pub listeners: Vec<Summary>,
    /// What is counted of each, by its name.
    pub listeners_counted: Vec<(String, ListenerCounters)>,
    /// The backends of the newest generation.
    pub backends: Vec<BackendSummary>,
    /// Backends that an operator has drained.
    pub drained: Drained,
    /// What names of backends lead to.
    pub names: Vec<NameSummary>,
    /// Materials of the newest generation that cannot be used as they are.
    pub faults: Faults,
    /// The limits of the newest generation.
    pub limits: Limits,
    /// How reloads went.
    pub reloads: Reloads,
    /// How sessions are resumed.
    pub tickets: Tickets,
    /// Why the file with the root of their keys is not used, if so.
    pub ticket_root_fault: Option<Fault>,
    /// The roots that their keys come from.
    pub ticket_roots: TicketRoots,
    /// What the access log counts, if there is one.
    pub access_log: Option<AccessLogCounters>,
    /// The clients that each lane has refused most often.
    pub refused: Vec<Arc<RefusedClients>>,
}

/// The roots that ticket keys come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TicketRoots {
    /// The epochs from which roots hold that are announced.
    pub announced: Vec<u64>,
    /// Whether they are what tickets.root names; else they are of this process alone.
    pub is_shared: bool,
}

impl Default for ControlState {
    fn default() -> Self {
        Self {
            phase: Phase::Starting,
            started: Started { at: SystemTime::now(), clock: Instant::now() },
            lanes: Vec::new(),
            desks: Vec::new(),
            file_tables: FileTables::OfLanes,
            lanes_with_own_table: 0,
            filter_refusal: Some("no lane has started yet".to_owned()),
            generations: Generations::default(),
            listeners: Vec::new(),
            listeners_counted: Vec::new(),
            backends: Vec::new(),
            drained: Drained::default(),
            names: Vec::new(),
            faults: Faults::default(),
            limits: Limits::default(),
            reloads: Reloads::default(),
            tickets: Tickets::default(),
            ticket_root_fault: None,
            ticket_roots: TicketRoots::default(),
            access_log: None,
            refused: Vec::new(),
        }
    }
}

impl ControlState {
    /// Every reason for an operator to act although clients are served, if there is any.
    pub fn degradation(&self, now: SystemTime) -> Option<String> {
        let now = Timestamp::from(now);
        let faults = self.faults_now();
        // The faults already include a list that is no longer accepted.
        let is_fault =
            |list: &RevocationList| faults.shown.iter().any(|f| f.path == list_file(list));
        let clients = || self.listeners.iter().filter_map(|each| each.clients.as_ref());
        let mut lists = clients().flat_map(|clients| &clients.lists);
        let is_refused = self.reloads.last().is_some_and(|last| !last.verdict.is_accepted());
        let has_ended =
            lists.any(|list| Timestamp::from_unix_s(list.next_update_s) < now && !is_fault(list));
        let mut roots = clients().flat_map(|clients| &clients.roots);
        let has_expired = roots.any(|root| {
            let is_fault = faults.shown.iter().any(|f| f.path.as_path() == Path::new(&root.source));
            Timestamp::from_unix_s(root.not_after_s) < now && !is_fault
        });
        let reasons = [
            is_refused.then(|| "the last reload was refused; /state shows why".to_owned()),
            has_ended.then(|| "a revocation list has expired; /state shows which".to_owned()),
            has_expired
                .then(|| "a CA certificate of clients has expired; /state shows which".to_owned()),
            faults.summary(),
            self.fleet_is_away(now),
        ];
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Whether a listener can serve a client at all.
    pub fn serves(&self) -> bool {
        self.listeners.is_empty() || self.listeners.iter().any(|listener| listener.can_serve)
    }

    /// The materials that cannot be used as they are: of the listeners, and of the process.
    pub fn faults_now(&self) -> Faults {
        let mut faults = self.faults.clone();
        let of_log = self.access_log.as_ref().and_then(AccessLogCounters::fault);
        let of_process = self.ticket_root_fault.clone().into_iter().chain(of_log);
        of_process.for_each(|fault| faults.add(fault));
        faults
    }

    /// What the agent says of a fleet's cluster that has not answered for long.
    fn fleet_is_away(&self, now: Timestamp) -> Option<String> {
        let stores = self.listeners.iter().filter_map(|each| each.store.as_ref());
        let mut words = stores.filter_map(|store| store.certificates.store().word());
        words.find_map(|text| {
            let (since, what) = text.split_once(' ')?;
            let since = Timestamp::from_unix_s(since.parse().ok()?);
            let is_long = now.unix_ms().saturating_sub(since.unix_ms()) >= FLEET_AWAY_TOLD_MS;
            is_long.then(|| format!("renewals wait since {since}: {what}"))
        })
    }

    /// What is in each store now, with the name of its listener.
    pub fn stores_now(&self) -> Vec<(&str, &StoreSummary, Result<Inventory, InventoryFailure>)> {
        let stores = self.listeners.iter().filter_map(|each| Some((each, each.store.as_ref()?)));
        let now = |store: &StoreSummary| store.certificates.inventory(0);
        stores.map(|(each, store)| (each.name.as_str(), store, now(store))).collect()
    }

    /// The certificates that expire first: of those of files, and of those that are in the stores
    /// at this moment.
    pub fn soonest_to_expire(&self) -> SoonestToExpire {
        let mut soonest = SoonestToExpire::default();
        for listener in &self.listeners {
            soonest.add(&listener.name, &listener.certificates);
            let store = listener.store.as_ref();
            // A store that cannot be read shows in the counters of the lanes.
            if let Some(Ok(now)) = store.map(|s| s.certificates.inventory(EXPIRIES_SHOWN_MAX)) {
                soonest.add(&listener.name, &now);
            }
        }
        soonest.certificates.sort_by_key(|(_, each)| each.not_after_s);
        soonest.certificates.truncate(EXPIRIES_SHOWN_MAX);
        soonest
    }
}

/// The certificates that expire first, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoonestToExpire {
    /// With the names of their listeners, at most [`EXPIRIES_SHOWN_MAX`].
    pub certificates: Vec<(String, InventoryEntry)>,
    /// Certificates in all.
    pub total: u64,
}

impl SoonestToExpire {
    fn add(&mut self, listener: &str, inventory: &Inventory) {
        let named = inventory.soonest.iter().map(|entry| (listener.to_owned(), entry.clone()));
        self.certificates.extend(named);
        self.total += inventory.certificates;
    }
}

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The process takes no new connections and waits for those that are open.
    Draining,
    /// All lanes accept.
    Serving,
    /// Not all lanes accept yet.
    Starting,
}

impl Phase {
    /// The state as written in `/state`, and by `/healthz` if it is not well.
    pub fn name(self) -> &'static str {
        match self {
            Self::Draining => "draining",
            Self::Serving => "serving",
            Self::Starting => "starting",
        }
    }
}

/// When the process began.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// By the calendar.
    pub at: SystemTime,
    /// By a clock that nobody sets.
    pub clock: Instant,
}

/// Published generations, and which of them still have connections.
#[derive(Default)]
pub struct Generations {
    newest: u64,
    published: Vec<(u64, Weak<dyn Any + Send + Sync>)>,
}

impl Generations {
    /// Notes that `generation` was published under `number`; it counts as live until the last
    /// reference to it is gone.
    pub fn publish<T: Any + Send + Sync>(&mut self, number: u64, generation: &Arc<T>) {
        self.published.retain(|(_, each)| each.strong_count() > 0);
        let weak = Arc::downgrade(generation);
        let weak: Weak<dyn Any + Send + Sync> = weak;
        self.published.push((number, weak));
        self.newest = number;
    }

    /// The number of the newest.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The numbers of those that are still referred to, the oldest first.
    pub fn live(&self) -> impl Iterator<Item = u64> {
        self.published.iter().filter(|(_, each)| each.strong_count() > 0).map(|(number, _)| *number)
    }
}

/// A backend as `/metrics` shows it.
#[derive(Clone)]
pub struct BackendSummary {
    /// Where it is: a name may lead to many.
    pub address: String,
    /// What checks have found, if anything yet.
    pub checked: Option<Result<(), String>>,
    /// The backend as it was written.
    pub label: String,
    /// Other names that it is written by.
    pub other_labels: Vec<String>,
    /// What every lane counts for it.
    pub lanes: Vec<Arc<BackendCounters>>,
    /// Whether TLS is spoken there.
    pub tls: bool,
}

impl BackendSummary {
    /// All names that the backend is written by.
    pub fn labels(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.label).chain(&self.other_labels)
    }
}

/// How reloads went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// Those that were published.
    pub accepted: u64,
    /// Those that changed nothing.
    pub refused: u64,
    /// The last ones, the newest first, at most `RELOADS_KEPT_MAX`.
    pub recent: VecDeque<Reload>,
}

impl Reloads {
    /// Counts a reload.
    pub fn count(&mut self, at: SystemTime, verdict: Verdict) {
        let counter = if verdict.is_accepted() { &mut self.accepted } else { &mut self.refused };
        *counter += 1;
        self.recent.truncate(RELOADS_KEPT_MAX - 1);
        self.recent.push_front(Reload { at: at.into(), verdict });
    }

    /// The last one.
    pub fn last(&self) -> Option<&Reload> {
        self.recent.front()
    }
}

/// Reloads that are remembered.
pub const RELOADS_KEPT_MAX: usize = 10;

/// One reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// When it was decided.
    pub at: Timestamp,
    /// What came of it.
    pub verdict: Verdict,
}

/// What the access log counts.
#[derive(Clone)]
pub struct AccessLogCounters {
    /// Counters of each lane, by its number.
    pub lanes: Vec<Arc<LaneLogCounters>>,
    /// Counters of the writer.
    pub writer: Arc<WriterCounters>,
}

impl AccessLogCounters {
    /// Those of a running log.
    pub fn of(writer: &LogWriter) -> Self {
        Self { lanes: writer.lane_counters().to_vec(), writer: Arc::clone(writer.counters()) }
    }

    /// Why lines are not written where they should be.
    fn fault(&self) -> Option<Fault> {
        let LogFault { destination, text, without } = self.writer.fault()?;
        Some(Fault::of_process(&destination, text, without))
    }
}

/// How long a fleet's cluster may be away before it is told: renewals have weeks.
const FLEET_AWAY_TOLD_MS: u64 = 3_600_000;

/// A listener with nothing special.
#[cfg(test)]
pub(crate) fn plain_listener(name: &str) -> Summary {
    Summary {
        name: name.into(),
        addresses: Vec::new(),
        can_serve: true,
        backends: Vec::new(),
        balance: "round-robin",
        certificates: Inventory::default(),
        clients: None,
        expiries: Vec::new(),
        limits: Default::default(),
        passthrough: false,
        proxy_from: None,
        proxy_header: "off",
        routes: Vec::new(),
        routes_total: 0,
        speaks: Default::default(),
        store: None,
        tls: Default::default(),
    }
}
