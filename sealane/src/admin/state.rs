//! What the control plane tells the admin thread: [`ControlState`], plain data behind a mutex.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Instant, SystemTime};

use sealane_engine::certificates::{Certificate, KeyType};
use sealane_lanes::counters::Counters;
use sealane_store::{Listed, Store, StoreError, Summary};

use crate::access_log::{LaneLogCounters, LogWriter, WriterCounters};
use crate::backends::BackendCounters;
use crate::config::{self, Config};
use crate::listener::backend_trust::Expiry;
use crate::timestamp::Timestamp;

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
    /// Generations that were published.
    pub generations: Generations,
    /// The listeners of the newest generation.
    pub listeners: Vec<ListenerSummary>,
    /// The backends of the newest generation.
    pub backends: Vec<BackendSummary>,
    /// When what TLS to backends takes expires, with the name of the listener.
    pub backend_certificates: Vec<(String, Expiry)>,
    /// The certificates of the newest generation that come from files.
    pub certificates: CertificateSummaries,
    /// The stores of the newest generation, each with the listener that serves from it.
    pub stores: Vec<(String, Arc<Store>)>,
    /// The limits of the newest generation.
    pub limits: config::Limits,
    /// How reloads went.
    pub reloads: Reloads,
    /// What the access log counts, if there is one.
    pub access_log: Option<AccessLogCounters>,
}

impl Default for ControlState {
    fn default() -> Self {
        Self {
            phase: Phase::Starting,
            started: Started { at: SystemTime::now(), clock: Instant::now() },
            lanes: Vec::new(),
            generations: Generations::default(),
            listeners: Vec::new(),
            backends: Vec::new(),
            backend_certificates: Vec::new(),
            certificates: CertificateSummaries::default(),
            stores: Vec::new(),
            limits: config::Limits::default(),
            reloads: Reloads::default(),
            access_log: None,
        }
    }
}

impl ControlState {
    /// How much is in each store now, by listener.
    pub fn stores_now(&self) -> Vec<(&str, &Store, Result<Summary, StoreError>)> {
        self.stores.iter().map(|(name, store)| (name.as_str(), &**store, store.summary())).collect()
    }

    /// The certificates that expire first, and how many there are: those of files, and those that
    /// are in the stores at this moment.
    pub fn certificates_now(&self) -> CertificateSummaries {
        let mut now = self.certificates.clone();
        for (listener, store) in &self.stores {
            // A store that cannot be read shows in the counters of the lanes.
            let Ok(soonest) = store.by_expiry(None, CERTIFICATES_SHOWN_MAX) else { continue };
            now.soonest.extend(soonest.iter().map(|each| CertificateSummary::kept(listener, each)));
            let count = store.summary().map_or(0, |summary| summary.certificates);
            now.total += usize::try_from(count).unwrap_or(usize::MAX);
        }
        now.soonest.sort_by_key(|each| each.not_after_s);
        now.soonest.truncate(CERTIFICATES_SHOWN_MAX);
        now
    }
}

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It takes no new connections and waits for those that are open.
    Draining,
    /// All lanes accept.
    Serving,
    /// Not all lanes accept yet.
    Starting,
}

impl Phase {
    /// As written in `/state`, and by `/healthz` if it is not well.
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

/// A listener as `/state` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSummary {
    /// Its name.
    pub name: String,
    /// What it listens on.
    pub addresses: Vec<String>,
    /// Where its plaintext goes.
    pub backends: Vec<String>,
    /// How a backend is chosen.
    pub balance: &'static str,
    /// Certificates that it serves.
    pub certificates: usize,
    /// Server names that they cover.
    pub names: usize,
}

impl ListenerSummary {
    /// Summaries of the listeners of `config`, given how many certificates and names each has.
    pub fn of<'a>(
        config: &'a Config,
        counts: impl IntoIterator<Item = (usize, usize)> + 'a,
    ) -> impl Iterator<Item = Self> + 'a {
        config.listeners.iter().zip(counts).map(|(listener, (certificates, names))| Self {
            name: listener.name.clone(),
            addresses: listener.addresses.iter().map(ToString::to_string).collect(),
            backends: listener.backend_labels().collect(),
            balance: listener.balance.name(),
            certificates,
            names,
        })
    }
}

/// A backend as `/metrics` shows it.
#[derive(Clone)]
pub struct BackendSummary {
    /// As it was written.
    pub label: String,
    /// What every lane counts for it.
    pub lanes: Vec<Arc<BackendCounters>>,
    /// Whether TLS is spoken there.
    pub tls: bool,
}

/// The certificates that expire first, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSummaries {
    /// The soonest to expire first, at most [`CERTIFICATES_SHOWN_MAX`].
    pub soonest: Vec<CertificateSummary>,
    /// Certificates in all.
    pub total: usize,
}

impl CertificateSummaries {
    /// Chooses among the certificates of all listeners, each with its listener's name.
    pub fn of<'a>(certificates: impl IntoIterator<Item = (&'a str, &'a Certificate)>) -> Self {
        let mut total = 0;
        let mut soonest: Vec<(&str, &Certificate)> = Vec::new();
        for (listener, certificate) in certificates {
            total += 1;
            let position = soonest
                .partition_point(|(_, each)| each.not_after_s() <= certificate.not_after_s());
            if position < CERTIFICATES_SHOWN_MAX {
                soonest.insert(position, (listener, certificate));
                soonest.truncate(CERTIFICATES_SHOWN_MAX);
            }
        }
        let soonest = soonest.into_iter();
        Self {
            soonest: soonest.map(|each| CertificateSummary::of(each.0, each.1)).collect(),
            total,
        }
    }
}

/// A certificate as `/state` and `/metrics` show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSummary {
    /// The name of the listener that serves it.
    pub listener: String,
    /// Where it was read from.
    pub source: String,
    /// The kind of its key.
    pub key_type: KeyType,
    /// Its first names, at most [`NAMES_SHOWN_MAX`].
    pub names: Vec<String>,
    /// Names in all.
    pub names_total: usize,
    /// When it expires, in seconds since 1970.
    pub not_after_s: i64,
}

impl CertificateSummary {
    fn kept(listener: &str, certificate: &Listed) -> Self {
        Self {
            listener: listener.to_owned(),
            source: certificate.label.clone(),
            key_type: certificate.key_type,
            names: certificate.names.iter().take(NAMES_SHOWN_MAX).cloned().collect(),
            names_total: certificate.names.len(),
            not_after_s: certificate.not_after_s,
        }
    }

    fn of(listener: &str, certificate: &Certificate) -> Self {
        let names = certificate.names();
        Self {
            listener: listener.to_owned(),
            source: certificate.label().to_owned(),
            key_type: certificate.key_type(),
            names: names.iter().take(NAMES_SHOWN_MAX).map(ToString::to_string).collect(),
            names_total: names.len(),
            not_after_s: certificate.not_after_s(),
        }
    }
}

/// How reloads went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// Those that were published.
    pub accepted: u64,
    /// Those that changed nothing.
    pub refused: u64,
    /// The last one.
    pub last: Option<Reload>,
}

impl Reloads {
    /// Counts a reload that was published, or the error that kept it from being so.
    pub fn count(&mut self, at: SystemTime, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.accepted += 1,
            Err(_) => self.refused += 1,
        }
        self.last = Some(Reload { at: at.into(), error: outcome.err() });
    }
}

/// One reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// When it was decided.
    pub at: Timestamp,
    /// Why it changed nothing, if so.
    pub error: Option<String>,
}

/// What the access log counts.
#[derive(Clone)]
pub struct AccessLogCounters {
    /// Of each lane, by its number.
    pub lanes: Vec<Arc<LaneLogCounters>>,
    /// Of the writer.
    pub writer: Arc<WriterCounters>,
}

impl AccessLogCounters {
    /// Those of a running log.
    pub fn of(writer: &LogWriter) -> Self {
        Self { lanes: writer.lane_counters().to_vec(), writer: Arc::clone(writer.counters()) }
    }
}

/// Certificates in `/state` and `/metrics`: those that expire first.
pub const CERTIFICATES_SHOWN_MAX: usize = 100;
/// Names of each certificate in `/state`.
pub const NAMES_SHOWN_MAX: usize = 8;
