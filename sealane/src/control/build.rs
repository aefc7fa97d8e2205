//! From a [`Config`] to a generation that lanes can serve: everything that can fail, fails here.

use std::collections::HashMap;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sealane_engine::certificates::{CertificateIndex, ListenerStore};
use sealane_engine::client::{ClientContext, ClientContexts};
use sealane_engine::context::{Context, ContextId, LaneContext, LaneResources};
use sealane_engine::provider::lane_provider;
use sealane_engine::tickets::{TicketRoot, UnixSeconds};
use sealane_lanes::generation::{Generation, Listener};
use sealane_lanes::kernel::Address;
use sealane_store::{SealingKeys, Store};

use crate::admin::BackendSummary;
use crate::backends::{Backend, BackendCounters, BackendTls, Cursor, RelaySettings};
use crate::config::{self, BackendAddress, Config};
use crate::listener::backend_trust::{self, Expiry};
use crate::listener::certificates as certificate_files;
use crate::stores::{self, Checks, Stores};

/// A generation that has passed every check, and what an operator should know of it.
pub(super) struct Built {
    pub(super) generation: Generation<RelaySettings>,
    /// When what TLS to backends takes expires, with the name of the listener.
    pub(super) expiries: Vec<(String, Expiry)>,
    /// The store of each listener that has one, by the listener's name.
    pub(super) stores: Vec<(String, Arc<Store>)>,
    pub(super) warnings: Vec<String>,
}

/// What outlives generations.
#[derive(Default)]
pub(super) struct Registries {
    /// What lanes count for backends.
    pub(super) backends: BackendRegistry,
    /// What TLS is spoken to them with: equal options have one context.
    pub(super) clients: ClientContexts,
    /// The stores that listeners serve from, each opened once.
    pub(super) stores: Stores,
}

/// What lanes count for backends, by address and whether TLS is spoken there.
#[derive(Default)]
pub(super) struct BackendRegistry {
    by_address: HashMap<(Address, bool), Vec<Arc<BackendCounters>>>,
}

impl BackendRegistry {
    fn counters(
        &mut self,
        address: &Address,
        tls: bool,
        lanes: usize,
    ) -> Vec<Arc<BackendCounters>> {
        let make = || (0..lanes).map(|_| Arc::default()).collect();
        self.by_address.entry((address.clone(), tls)).or_insert_with(make).clone()
    }

    /// What is counted for each backend of a generation.
    pub(super) fn of(generation: &Generation<RelaySettings>) -> Vec<BackendSummary> {
        let listeners = generation.listeners.iter();
        let backends = listeners.flat_map(|listener| &listener.settings.backends);
        // Two listeners may have a backend in common, or one under two names.
        let mut summaries: Vec<BackendSummary> = Vec::new();
        for Backend { label, lanes, tls, .. } in backends {
            let is_same = |seen: &BackendSummary| {
                seen.lanes.first().map(Arc::as_ptr) == lanes.first().map(Arc::as_ptr)
            };
            if !summaries.iter().any(is_same) {
                let (label, lanes) = (label.clone(), lanes.clone());
                summaries.push(BackendSummary { label, lanes, tls: tls.is_some() });
            }
        }
        summaries
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
    registries: &mut Registries,
    root: &TicketRoot,
) -> Result<Built, Vec<String>> {
    // First, because it takes longest: another process reads what this one has to wait for.
    let mut checks = registries.stores.begin_checks(config);
    let mut found = Findings::default();
    let mut listeners = Vec::new();
    let keys = stores::keys_of(config).unwrap_or_else(|error| {
        found.problems.push(format!("store_key: {error}"));
        None
    });
    for (position, listener) in config.listeners.iter().enumerate() {
        let certificates = load_certificates(config, listener, &mut found);
        let client = client_context(config, listener, &mut registries.clients, &mut found);
        let backends = resolve_backends(
            config,
            listener,
            client.as_ref(),
            &mut registries.backends,
            &mut found,
        );
        let Some(certificates) = certificates else { continue };
        let stores = (&mut registries.stores, &mut checks);
        let Ok(store) = open_store(keys.as_ref(), listener, &certificates, stores, &mut found)
        else {
            continue;
        };
        listeners.push(Listener {
            number: u32::try_from(position).unwrap_or(u32::MAX),
            keys: listener.addresses.clone(),
            context: Arc::new(Context {
                id: ContextId::fresh(),
                policy: listener.policy.clone(),
                certificates: Arc::new(certificates),
                key_log: false,
                store,
                provider: config.crypto,
                tickets: config.tickets.count,
            }),
            named: Vec::new(),
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
    try_out(&generation, root, &mut found.problems);
    let Findings { expiries, problems, stores, warnings } = found;
    if problems.is_empty() {
        Ok(Built { generation, expiries, stores, warnings })
    } else {
        Err(problems)
    }
}

/// The store that `listener` serves from, if it has one; an error stands among what was found.
fn open_store(
    keys: Option<&SealingKeys>,
    listener: &config::Listener,
    certificates: &CertificateIndex,
    (stores, checks): (&mut Stores, &mut Checks),
    found: &mut Findings,
) -> Result<Option<ListenerStore>, ()> {
    let named = |text: String| format!("listener `{}`: {text}", listener.name);
    let store = match stores.of(listener, keys, checks) {
        Ok(store) => store,
        Err(error) => {
            found.problems.push(named(error.to_string()));
            return Err(());
        }
    };
    let Some(store) = store else { return Ok(None) };
    found.stores.push((listener.name.clone(), Arc::clone(store.store())));
    let warnings = stores::warnings(&store, listener, certificates);
    found.warnings.extend(warnings.into_iter().map(named));
    Ok(Some(stores::listener_store(store, listener, certificates)))
}

/// What comes to light while a generation is built.
#[derive(Default)]
struct Findings {
    expiries: Vec<(String, Expiry)>,
    problems: Vec<String>,
    stores: Vec<(String, Arc<Store>)>,
    warnings: Vec<String>,
}

/// The current time, for certificates and tickets.
pub(super) fn unix_now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(since.as_secs())
}

fn now_s() -> i64 {
    i64::try_from(unix_now().0).unwrap_or(i64::MAX)
}

fn load_certificates(
    config: &Config,
    listener: &config::Listener,
    found: &mut Findings,
) -> Option<CertificateIndex> {
    let provider = match lane_provider(config.crypto, &listener.policy.groups) {
        Ok(provider) => provider,
        Err(error) => {
            found.problems.push(format!("listener `{}`: {error}", listener.name));
            return None;
        }
    };
    let loaded = certificate_files::load(listener, &config.limits, &provider.crypto, now_s());
    let named = |text: String| format!("listener `{}`: {text}", listener.name);
    found.problems.extend(loaded.errors.into_iter().map(|error| named(error.to_string())));
    let shown = loaded.warnings.iter().take(WARNINGS_SHOWN_MAX).map(ToString::to_string);
    found.warnings.extend(shown.map(named));
    if let Some(more) = loaded.warnings.len().checked_sub(WARNINGS_SHOWN_MAX + 1) {
        found.warnings.push(named(format!("… and {} more; `sealane check` lists all", more + 1)));
    }
    Some(loaded.index)
}

/// The context by which TLS is spoken to the backends of `listener`; none if it is not, or after a
/// problem.
fn client_context(
    config: &Config,
    listener: &config::Listener,
    clients: &mut ClientContexts,
    found: &mut Findings,
) -> Option<Arc<ClientContext>> {
    let tls = listener.backend_tls.as_ref()?;
    let named = |text: String| format!("listener `{}`: backend_tls: {text}", listener.name);
    let loaded = backend_trust::load(tls, config.crypto, now_s());
    found.warnings.extend(loaded.warnings.into_iter().map(named));
    let expiries = loaded.expiries.into_iter().map(|expiry| (listener.name.clone(), expiry));
    found.expiries.extend(expiries);
    found.problems.extend(loaded.errors.into_iter().map(|error| named(error.to_string())));
    let context = clients.context(&loaded.options?);
    context.map_err(|error| found.problems.push(named(error.to_string()))).ok()
}

/// Warnings of one listener's certificates that a reload prints.
const WARNINGS_SHOWN_MAX: usize = 20;

fn resolve_backends(
    config: &Config,
    listener: &config::Listener,
    client: Option<&Arc<ClientContext>>,
    registry: &mut BackendRegistry,
    found: &mut Findings,
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
                let tls = backend_tls(listener, backend, client, found);
                let lanes = registry.counters(&address, tls.is_some(), config.lanes.get());
                let label = listener.backend_label(backend);
                backends.push(Backend { address, label, tls, lanes });
            }
            Err(error) => found.problems.push(format!(
                "listener `{}`: backend `{backend}` does not resolve: {error}; check the name, or \
                 give an address",
                listener.name
            )),
        }
    }
    backends
}

/// How TLS is spoken to `backend`, if it is. Where it should be and cannot, a problem is noted:
/// none must never come to mean plain bytes.
fn backend_tls(
    listener: &config::Listener,
    backend: &BackendAddress,
    client: Option<&Arc<ClientContext>>,
    found: &mut Findings,
) -> Option<BackendTls> {
    match listener.backend_tls.as_ref()?.server_name_of(backend) {
        Ok(name) => client.map(|context| BackendTls { context: Arc::clone(context), name }),
        Err(problem) => {
            let what = format!("listener `{}`: backend `{backend}`: {problem}", listener.name);
            found.problems.push(what);
            None
        }
    }
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

#[cfg(test)]
mod tests {
    use sealane_engine::client::{ClientOptions, Roots, Verification};

    use super::*;
    use crate::config::{Simple, value};

    #[test]
    fn a_backend_without_a_name_to_prove_is_never_spoken_to_in_the_clear() {
        let mut config = Config::simple(Simple {
            admin: None,
            backends: vec![value::backend("tls://127.0.0.1:1").unwrap()],
            certificates: vec!["site.pem".into()],
            lanes: None,
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            store_key_file: None,
        })
        .unwrap();
        // A configuration as no reader makes it.
        config.listeners[0].backends.push(BackendAddress::Unix("/run/app.sock".into()));
        let verification = Verification::DangerousNone;
        let options = ClientOptions { verification, ..ClientOptions::trusting(Roots::none()) };
        let context = ClientContexts::new().context(&options).unwrap();
        let (mut registry, mut found) = (BackendRegistry::default(), Findings::default());
        let listener = &config.listeners[0];
        resolve_backends(&config, listener, Some(&context), &mut registry, &mut found);
        assert_eq!(found.problems.len(), 1, "{:?}", found.problems);
        assert!(found.problems[0].contains("unix:/run/app.sock"), "{:?}", found.problems);
    }
}
