//! From a [`Config`] to a generation that lanes can serve: everything that can fail, fails here.

use std::collections::HashMap;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sealane_engine::certificates::{CertificateIndex, CertificateWarning};
use sealane_engine::context::{Context, LaneContext, LaneResources};
use sealane_engine::provider::lane_provider;
use sealane_engine::tickets::{TicketRoot, UnixSeconds};
use sealane_lanes::generation::{Generation, Listener};
use sealane_lanes::kernel::Address;
use sealane_store::Store;

use crate::backends::{Backend, BackendCounters, Cursor, RelaySettings};
use crate::certificate_files;
use crate::certificate_store::{self, Stores};
use crate::config::{self, BackendAddress, Config};

/// A generation that has passed every check, and what an operator should know of it.
pub(super) struct Built {
    pub(super) generation: Generation<RelaySettings>,
    /// The store of each listener that has one, by the listener's name.
    pub(super) stores: Vec<(String, Arc<Store>)>,
    pub(super) warnings: Vec<String>,
}

/// What lanes count for backends, by address: it outlives generations.
#[derive(Default)]
pub(super) struct BackendRegistry {
    by_address: HashMap<Address, Vec<Arc<BackendCounters>>>,
}

impl BackendRegistry {
    fn counters(&mut self, address: &Address, lanes: usize) -> Vec<Arc<BackendCounters>> {
        let make = || (0..lanes).map(|_| Arc::default()).collect();
        self.by_address.entry(address.clone()).or_insert_with(make).clone()
    }

    /// What is counted for each backend of a generation, by its label.
    pub(super) fn of(
        generation: &Generation<RelaySettings>,
    ) -> Vec<(String, Vec<Arc<BackendCounters>>)> {
        let listeners = generation.listeners.iter();
        let backends = listeners.flat_map(|listener| &listener.settings.backends);
        // Two listeners may have a backend in common, or one under two names.
        let mut by_counters: Vec<(_, String, Vec<Arc<BackendCounters>>)> = Vec::new();
        for backend in backends {
            let first = backend.lanes.first().map(Arc::as_ptr);
            if !by_counters.iter().any(|(seen, ..)| *seen == first) {
                by_counters.push((first, backend.label.clone(), backend.lanes.clone()));
            }
        }
        by_counters.into_iter().map(|(_, label, lanes)| (label, lanes)).collect()
    }

    /// Forgets backends that no generation names any more.
    pub(super) fn prune(&mut self) {
        self.by_address.retain(|_, lanes| lanes.iter().any(|lane| Arc::strong_count(lane) > 1));
    }
}

/// Builds generation `number` whole.
///
/// # Errors
/// Everything that is wrong, a line each.
pub(super) fn build(
    config: &Config,
    number: u64,
    (registry, stores): (&mut BackendRegistry, &mut Stores),
    root: &TicketRoot,
) -> Result<Built, Vec<String>> {
    let mut problems = Vec::new();
    let mut warnings = Vec::new();
    let mut listeners = Vec::new();
    let mut used = Vec::new();
    for (position, listener) in config.listeners.iter().enumerate() {
        let certificates = load_certificates(config, listener, &mut problems, &mut warnings);
        let Some(certificates) = certificates else { continue };
        let store = match stores.of(config, listener) {
            Ok(store) => store,
            Err(error) => {
                problems.push(format!("listener `{}`: {error}", listener.name));
                continue;
            }
        };
        let store = store.map(|store| {
            used.push((listener.name.clone(), Arc::clone(store.store())));
            let named = |text| format!("listener `{}`: {text}", listener.name);
            let found = certificate_store::warnings(&store, listener, &certificates);
            warnings.extend(found.into_iter().map(named));
            certificate_store::listener_store(store, listener, &certificates)
        });
        let backends = resolve_backends(config, listener, registry, &mut problems);
        listeners.push(Listener {
            number: u32::try_from(position).unwrap_or(u32::MAX),
            keys: listener.addresses.clone(),
            context: Arc::new(Context {
                policy: listener.policy.clone(),
                certificates: Arc::new(certificates),
                store,
                provider: config.crypto,
                tickets: config.tickets.count,
            }),
            settings: Arc::new(RelaySettings {
                listener: listener.name.clone(),
                backends,
                balance: listener.balance,
                connect_timeout: config.limits.connect_timeout,
                proxy_header: listener.proxy_header,
                cursors: (0..config.lanes.get()).map(|_| Arc::<Cursor>::default()).collect(),
            }),
        });
    }
    let limits = config.limits.per_lane(config.lanes);
    let generation = Generation { number, limits, listeners };
    try_out(&generation, root, &mut problems);
    if problems.is_empty() {
        Ok(Built { generation, stores: used, warnings })
    } else {
        Err(problems)
    }
}

/// The current time, for certificates and tickets.
pub(super) fn unix_now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(since.as_secs())
}

fn load_certificates(
    config: &Config,
    listener: &config::Listener,
    problems: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Option<CertificateIndex> {
    let provider = match lane_provider(config.crypto, &listener.policy.groups) {
        Ok(provider) => provider,
        Err(error) => {
            problems.push(format!("listener `{}`: {error}", listener.name));
            return None;
        }
    };
    let now_s = i64::try_from(unix_now().0).unwrap_or(i64::MAX);
    let loaded = certificate_files::load(listener, &config.limits, &provider.crypto, now_s);
    let named = |text: String| format!("listener `{}`: {text}", listener.name);
    problems.extend(loaded.errors.into_iter().map(|error| named(error.to_string())));
    let shown = loaded.warnings.iter().take(WARNINGS_SHOWN_MAX).map(CertificateWarning::to_string);
    warnings.extend(shown.map(named));
    if let Some(more) = loaded.warnings.len().checked_sub(WARNINGS_SHOWN_MAX + 1) {
        warnings.push(named(format!("… and {} more; `sealane check` lists all", more + 1)));
    }
    Some(loaded.index)
}

/// Warnings of one listener's certificates that a reload prints.
const WARNINGS_SHOWN_MAX: usize = 20;

fn resolve_backends(
    config: &Config,
    listener: &config::Listener,
    registry: &mut BackendRegistry,
    problems: &mut Vec<String>,
) -> Vec<Backend> {
    let mut backends = Vec::new();
    for backend in &listener.backends {
        let address = match backend {
            BackendAddress::Tcp(address) => Ok(Address::Tcp(*address)),
            BackendAddress::Unix(path) => Ok(Address::Unix(path.clone())),
            BackendAddress::Host { name, port } => resolve(name, *port),
        };
        match address {
            Ok(address) => {
                let lanes = registry.counters(&address, config.lanes.get());
                backends.push(Backend { address, label: backend.to_string(), lanes });
            }
            Err(error) => problems.push(format!(
                "listener `{}`: backend `{backend}` does not resolve: {error}; check the name, or \
                 give an address",
                listener.name
            )),
        }
    }
    backends
}

/// Looks a name up, on a thread of its own: a resolver that is silent must not hold up a signal.
fn resolve(name: &str, port: u16) -> Result<Address, String> {
    let (sender, found) = std::sync::mpsc::channel();
    let asked = name.to_owned();
    let look_up = move || {
        let first = (asked, port).to_socket_addrs().map(|mut addresses| addresses.next());
        // Whoever asked may have given up.
        let _ = sender.send(first);
    };
    let spawned = std::thread::Builder::new().name("resolver".into()).spawn(look_up);
    spawned.map_err(|error| error.to_string())?;
    match found.recv_timeout(RESOLVE_TIMEOUT) {
        Ok(Ok(Some(address))) => Ok(Address::Tcp(address)),
        Ok(Ok(None)) => Err("the name has no address".into()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", RESOLVE_TIMEOUT.as_secs())),
    }
}

/// One look-up of a backend's name; for as long a signal may have to wait.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Does once what every lane will do, so that a context that no lane can use is found here.
fn try_out(generation: &Generation<RelaySettings>, root: &TicketRoot, problems: &mut Vec<String>) {
    let resources = LaneResources::new(root.clone(), unix_now(), std::num::NonZeroUsize::MIN);
    for listener in &generation.listeners {
        if let Err(error) = LaneContext::new(&listener.context, &resources) {
            problems.push(format!("listener `{}`: {error}", listener.settings.listener));
        }
    }
}
