//! What a listener is made of: everything that it takes from outside, each material in a file of
//! this folder.
//!
//! [`survey`] reads all of it, and it alone: `check` tells what it found, a start and a reload
//! serve it, the admin address shows it. [`files`] is what the watch follows. A new material is a
//! file here with a `Material`, a line in `MATERIALS`, and what it makes in a [`Survey`].
#![forbid(unsafe_code)]

mod admission;
mod backend_trust;
mod backends;
mod certificates;
mod challenges;
mod client_trust;
mod contexts;
mod last_good;
mod names;
mod resolver;
mod store;
pub mod stores;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealane_config::networks::Access;
use sealane_config::{
    self as config, ClientDemand, ClientTrust, Config, RootPlace, Route, undercuts_here,
};
use sealane_engine::certificates::{CertificateIndex, ListenerStore};
use sealane_engine::client::{ClientContext, ClientContexts};
use sealane_engine::context::{Context, ContextId, LaneContext, LaneResources};
use sealane_engine::days::days;
use sealane_engine::policy::{ClientCertificates, Group, Policy};
use sealane_engine::provider::{Provider, ProviderChoice, lane_provider};
use sealane_engine::tickets::{TicketRoot, UnixSeconds};
use sealane_store::{KeyedStore, SealingKeys};
use sealane_traffic::backends::PlannedBackend;

use crate::stores::{Checks, Stores};

pub use backend_trust::SYSTEM_BUNDLES;
pub use backend_trust::{Expiry, Usage};
pub use backends::host_names;
pub use backends::shown as shown_addresses;
pub use certificates::bounds;
pub use client_trust::{Believed, ClientsSummary, KnownClientRoots, RootFile, list_file};
pub use contexts::Contexts;
pub use last_good::{Fault, LastGood};
use last_good::{Found, key_path};
pub use names::{NameNews, NameSummary, Names};
pub use resolver::{Answer, Answers, look_again, resolve_all};
pub use summary::{EXPIRIES_SHOWN_MAX, RouteSummary, StoreSummary, Summary};

/// One thing that a listener takes from outside.
struct Material {
    /// What it is read from: a change there is a change of the configuration.
    files: fn(&config::Listener) -> Vec<PathBuf>,
    /// Reads it, and puts down what it made and what is wrong.
    read: fn(&mut Survey<'_>, &mut Reading<'_, '_>),
}

/// In the order in which they are read: each may look at what those before it made, and the store
/// comes last because it is waited for.
const MATERIALS: [Material; 7] = [
    admission::MATERIAL,
    certificates::MATERIAL,
    challenges::MATERIAL,
    client_trust::MATERIAL,
    backend_trust::MATERIAL,
    backends::MATERIAL,
    store::MATERIAL,
];

/// The files and folders that `listener` is made of, but for its store: what changes there is
/// served without a reload.
pub fn files(listener: &config::Listener) -> Vec<PathBuf> {
    MATERIALS.iter().flat_map(|material| (material.files)(listener)).collect()
}

/// Reads what the listeners of `config` are made of. It goes on after a mistake, so that one start
/// or one check names them all.
pub fn survey<'c>(config: &'c Config, around: &mut Surroundings<'_>) -> Surveys<'c> {
    // First, because it takes longest: another process reads what this one has to wait for.
    let checks = around.stores.begin_checks(config);
    let mut errors = Vec::new();
    // Whether a library runs here does not depend on the listener, and if it does not, that is no
    // reason to leave keys and certificates unread.
    let crypto = match lane_provider(config.crypto, &Group::ALL) {
        Ok(_) => config.crypto,
        Err(error) => {
            errors.push(format!("crypto: {error}"));
            ProviderChoice::AwsLc
        }
    };
    let names = host_names(config).into_keys().map(str::to_owned).collect();
    let answers = (around.resolve)(names);
    let (good, keys) = (LastGood::default(), None);
    let mut reading = Reading { answers, around, checks, config, crypto, good, keys };
    let mut found = Vec::from_iter(reading.find_keys());
    reading.around.client_roots.prune();
    let listeners: Vec<_> =
        config.listeners.iter().map(|each| Survey::of(each, &mut reading)).collect();
    let (tickets, of_tickets) = reading.ticket_store();
    found.extend(of_tickets);
    let mut faults = Vec::new();
    for found in found {
        match reading.judge(None, found) {
            Ok(fault) => faults.push(fault),
            Err(mistake) => errors.push(mistake),
        }
    }
    let names = &*reading.around.names;
    let undercuts = undercuts_here(config, |name| names.addresses(name));
    let said = |(name, text): (&str, String)| said_of(name, &text);
    let undercuts_within = undercuts.within.into_iter().map(said).collect();
    let warnings = undercuts.between.into_iter().map(said).collect();
    let last_good = reading.into_last_good(&listeners);
    Surveys { crypto, errors, faults, last_good, listeners, tickets, undercuts_within, warnings }
}

/// What a survey needs of the process and of the machine.
pub struct Surroundings<'s> {
    /// What was parsed of the authorities of clients: equal ones are kept once.
    pub client_roots: &'s mut KnownClientRoots,
    /// What TLS is spoken to backends with: equal options have one context.
    pub clients: &'s mut ClientContexts,
    /// Materials as they were when they were last in order and served.
    pub last_good: &'s mut LastGood,
    /// What names of backends led to before.
    pub names: &'s mut Names,
    /// The time.
    pub now: UnixSeconds,
    /// Looks host names up, and says why it cannot.
    pub resolve: &'s dyn Fn(BTreeSet<String>) -> Answers,
    /// The stores that are open.
    pub stores: &'s mut Stores,
}

/// What was found of a whole configuration.
pub struct Surveys<'c> {
    /// What keys were decoded with: the chosen library, or what stands in for one that does not
    /// run here.
    pub crypto: ProviderChoice,
    /// What is wrong with what all listeners have in common.
    pub errors: Vec<String>,
    /// Materials that all listeners have in common, and that cannot be used as they are.
    pub faults: Vec<Fault>,
    /// Materials that are in order, to be kept if this is served.
    pub last_good: LastGood,
    /// What was found of each listener, in their order.
    pub listeners: Vec<Survey<'c>>,
    /// The store that ticket roots are kept in.
    pub tickets: Option<Arc<KeyedStore>>,
    /// Demands for client certificates that another way to the same backend undercuts, by the
    /// addresses that names have now.
    pub undercuts_within: Vec<String>,
    /// Demands of one listener that another undercuts.
    pub warnings: Vec<String>,
}

/// What one listener is made of.
pub struct Survey<'c> {
    /// What it was read for.
    pub listener: &'c config::Listener,
    /// From where clients may come.
    pub access: Access,
    /// For each of its destinations, how backends are spoken to in TLS, if they are and that is in
    /// order.
    pub backend_tls: Vec<Option<Arc<ClientContext>>>,
    /// For each of its destinations, the backends that are in order.
    pub backends: Vec<Vec<PlannedBackend>>,
    /// The certificates of its files that are in order.
    pub certificates: Option<Arc<CertificateIndex>>,
    /// The store out of which challenges are answered, if it is one that is in order.
    pub challenges: Option<Arc<KeyedStore>>,
    /// The files with the authorities of its clients.
    pub client_roots: Vec<RootFile>,
    /// The trust in clients of the listener and of its routes, each different one once.
    pub clients: Vec<Believed<'c>>,
    /// Problems to correct before it can be served.
    pub errors: Vec<String>,
    /// Materials that cannot be used as they are; the listener uses their last good state, or none.
    pub faults: Vec<Fault>,
    /// Expiry dates of its materials, except for the certificates that it serves.
    pub expiries: Vec<Expiry>,
    /// Findings that may be intended.
    pub notes: Vec<String>,
    /// The store that it serves from, if it has one that is in order.
    pub store: Option<ListenerStore>,
    /// The same with the keys to its seals.
    pub keyed_store: Option<Arc<KeyedStore>>,
    /// Settings that can be served, but are probably not intended: a list for each material, so
    /// that many for one hide none for another.
    pub warnings: Vec<Vec<String>>,
}

impl<'c> Survey<'c> {
    /// Before anything was read.
    pub fn nothing_of(listener: &'c config::Listener) -> Self {
        Self {
            listener,
            access: Access::default(),
            backend_tls: Vec::new(),
            backends: Vec::new(),
            certificates: None,
            challenges: None,
            client_roots: Vec::new(),
            clients: Vec::new(),
            errors: Vec::new(),
            faults: Vec::new(),
            expiries: Vec::new(),
            notes: Vec::new(),
            store: None,
            keyed_store: None,
            warnings: Vec::new(),
        }
    }

    fn of(listener: &'c config::Listener, reading: &mut Reading<'_, '_>) -> Self {
        let mut survey = Self::nothing_of(listener);
        for material in &MATERIALS {
            survey.warnings.push(Vec::new());
            (material.read)(&mut survey, reading);
        }
        if let Err(problem) = survey.try_out(reading) {
            survey.errors.push(problem);
        }
        survey
    }

    /// Whether it can serve any client with its usable materials.
    fn can_serve(&self) -> bool {
        let is_open = self.access.allow.as_ref().is_none_or(|allow| !allow.is_empty());
        let files = self.certificates.as_ref();
        let has_certificate = self.store.is_some() || files.is_some_and(|files| !files.is_empty());
        // A name may ask for less than the listener does.
        let asks_in_vain = |believed: &Believed<'_>| {
            let is_required = believed.trust.demand == ClientDemand::Required;
            is_required && believed.roots.as_ref().is_some_and(|roots| roots.has_no_authority())
        };
        let is_in_vain = !self.clients.is_empty() && self.clients.iter().all(asks_in_vain);
        let listener = self.listener;
        let forwards = listener.passthrough || listener.routes.iter().any(|r| r.policy.is_none());
        let terminates = has_certificate && !(listener.clients.is_some() && is_in_vain);
        is_open && (!listener.ends_tls() || forwards || terminates)
    }

    /// What lanes serve it with; without an index, or whom to believe, nothing can be served.
    pub fn contexts(&self, config: &Config) -> Option<Contexts> {
        Contexts::of(self, |policy| self.context(config, config.crypto, policy))
    }

    fn context(
        &self,
        config: &Config,
        provider: ProviderChoice,
        policy: &Policy,
    ) -> Option<Arc<Context>> {
        Some(Arc::new(Context {
            id: ContextId::fresh(),
            policy: policy.clone(),
            certificates: Arc::clone(self.certificates.as_ref()?),
            key_log: false,
            store: self.store.clone(),
            provider,
            tickets: config.tickets.count,
        }))
    }

    /// The policy as it is `written`, with what is asked of clients; who demands certificates of
    /// them gets none without whom to believe.
    fn policy(&self, written: &Policy, asked: Option<&ClientTrust>) -> Option<Policy> {
        let clients = match asked {
            None => ClientCertificates::NotAsked,
            Some(trust) => {
                let believed = self.clients.iter().find(|believed| believed.trust == trust)?;
                trust.demand.of(Arc::clone(believed.roots.as_ref()?))
            }
        };
        Some(Policy { clients, ..written.clone() })
    }

    /// Does once what every lane will do, so that a context that no lane can use is found here.
    fn try_out(&self, reading: &Reading<'_, '_>) -> Result<(), String> {
        let (config, now) = (reading.config, reading.around.now);
        let make = |policy: &Policy| self.context(config, reading.crypto, policy);
        let Some(contexts) = Contexts::of(self, make) else { return Ok(()) };
        // Nothing is sealed with it.
        let root = TicketRoot::generate(config.tickets.lifetime, now, |into| into.fill(0));
        let root = root.map_err(|error| error.to_string())?;
        let lane = LaneResources::new(root, now, NonZeroUsize::MIN);
        for context in contexts.distinct() {
            LaneContext::new(context, &lane).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Warns of what expires soon; what has expired is the material's own to tell.
    fn warn_if_soon(&mut self, label: &str, not_after_s: i64, now: UnixSeconds) {
        if (0..EXPIRY_WARNING_DAYS).contains(&days_until(not_after_s, now)) {
            let left = days(not_after_s.saturating_sub(unix_s(now)));
            self.warn([format!("{label}: expires in {left}; renew it")]);
        }
    }

    /// Warns of the material that is being read.
    fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        if let Some(of_material) = self.warnings.last_mut() {
            of_material.extend(warnings);
        }
    }
}

/// A survey under way.
struct Reading<'r, 's> {
    /// What the names of backends lead to now.
    answers: Answers,
    around: &'r mut Surroundings<'s>,
    checks: Checks,
    config: &'r Config,
    /// What decodes and judges keys.
    crypto: ProviderChoice,
    /// Materials that were found in order so far.
    good: LastGood,
    /// The keys to stores, if they can be had.
    keys: Option<SealingKeys>,
}

impl Reading<'_, '_> {
    /// The provider that decodes the keys of `listener`.
    fn provider(&self, listener: &config::Listener) -> Result<Provider, String> {
        lane_provider(self.crypto, &listener.policy.groups).map_err(|error| error.to_string())
    }

    /// Reads the keys to stores; returns the fault, if there is one.
    fn find_keys(&mut self) -> Option<Found> {
        let source = self.config.store_key.as_ref()?;
        let read = stores::keys_of(self.config).transpose()?;
        let path = key_path(source);
        let settled = self.settle(|good| &mut good.sealing_keys, &path, read);
        self.keys = settled.value;
        let text = format!("store_key: {}", settled.error?);
        let without = "no certificate store is served";
        Some(Found { is_kept: settled.is_kept, source: path.clone(), path, text, without })
    }

    /// The store in the folder `path`, if there are keys to it, and the fault, if there is one.
    fn store(
        &mut self,
        path: &Path,
        without: &'static str,
    ) -> (Option<Arc<KeyedStore>>, Option<Found>) {
        let opened = self.around.stores.of(path, self.keys.as_ref(), &mut self.checks);
        let Some(opened) = opened.transpose() else { return (None, None) };
        let settled = self.settle(|good| &mut good.stores, path, opened);
        let (path, source, is_kept) = (path.to_owned(), path.to_owned(), settled.is_kept);
        let found = settled.error.map(|error| {
            let text = error.to_string();
            Found { is_kept, path, source, text, without }
        });
        (settled.value, found)
    }

    /// The store that ticket roots are kept in, and the fault, if there is one.
    fn ticket_store(&mut self) -> (Option<Arc<KeyedStore>>, Option<Found>) {
        let config = self.config;
        let Some(path) = config.tickets.root.as_ref().and_then(RootPlace::store) else {
            return (None, None);
        };
        let (store, found) = self.store(path, "tickets of other machines are not opened");
        let named = |found: Found| Found { text: format!("tickets.root: {}", found.text), ..found };
        (store, found.map(named))
    }

    fn now_s(&self) -> i64 {
        unix_s(self.around.now)
    }
}

/// What is said of the listener `name`.
pub fn said_of(name: &str, text: &str) -> String {
    format!("listener {name}: {text}")
}

/// What is said of a route, or of the listener that has it.
fn said_of_route(route: Option<&Route>, text: &str) -> String {
    match route {
        Some(route) => format!("{}: {text}", route.label()),
        None => text.to_owned(),
    }
}

/// Whole days from `now` on to the last second of validity; negative if it is over.
pub fn days_until(not_after_s: i64, now: UnixSeconds) -> i64 {
    not_after_s.saturating_sub(unix_s(now)).div_euclid(DAY_S)
}

fn unix_s(now: UnixSeconds) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

const DAY_S: i64 = 86_400;
/// Two weeks are enough to find out why a renewal failed.
const EXPIRY_WARNING_DAYS: i64 = 14;
