//! From a [`Config`] to a generation that lanes can serve: everything that can fail, fails here.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use sealane_config::{
    self as config, BackendAddress, ChallengeSource, Config, ProxyHeader, Share, Spoken,
};
use sealane_engine::client::ClientContexts;
use sealane_lanes::generation::{Generation, Listener};
use sealane_lanes::kernel::Address;
use sealane_listeners::stores::Stores;
use sealane_listeners::{
    Contexts, Fault, KnownClientRoots, LastGood, Names, Summary, Surroundings, Survey, Surveys,
    resolve_all, said_of, survey,
};
use sealane_operator::timestamp::unix_now;
use sealane_store::KeyedStore;
use sealane_traffic::admission::Admission;
use sealane_traffic::backends::{
    Backend, BackendCounters, Destination, Drained, LaneMemory, LaneShare, NameRoutes,
    PlannedBackend, RelaySettings, places,
};
use sealane_traffic::challenges::{Responder, Source};

use crate::state::Faults;
use crate::systemd;

use super::Event;
use super::health::Health;
use super::listeners::ListenerRegistry;
use super::responders::ResponderRegistry;

/// A generation that has passed every check, with its faults, warnings and summaries.
pub(super) struct Built {
    pub(super) generation: Generation<RelaySettings>,
    /// Materials that cannot be used as they are.
    pub(super) faults: Faults,
    /// Materials that are in order.
    pub(super) last_good: LastGood,
    /// Listeners, as they are shown.
    pub(super) summaries: Vec<Summary>,
    /// The store that ticket roots are kept in.
    pub(super) tickets: Option<Arc<KeyedStore>>,
    pub(super) warnings: Vec<String>,
}

/// State that outlives generations.
pub(super) struct Registries {
    /// Counters of lanes for each backend.
    pub(super) backends: BackendRegistry,
    /// Parsed authorities of clients.
    pub(super) client_roots: KnownClientRoots,
    /// TLS contexts for backends: equal options have one context.
    pub(super) clients: ClientContexts,
    /// Results of health checks of backends.
    pub(super) health: Health,
    /// The last good state of the materials that are served.
    pub(super) last_good: LastGood,
    /// Counters of lanes for each listener.
    pub(super) listeners: ListenerRegistry,
    /// Resolved names of backends.
    pub(super) names: Names,
    /// Responders to challenges of ACME clients.
    pub(super) responders: ResponderRegistry,
    /// The stores that listeners serve from, each opened once.
    pub(super) stores: Stores,
}

impl Registries {
    /// Empty registries; responders send messages for the operator to `notices`.
    pub(super) fn new(notices: Sender<Event>, drained: Drained) -> Self {
        Self {
            backends: BackendRegistry { by_address: HashMap::new(), drained },
            client_roots: KnownClientRoots::default(),
            clients: ClientContexts::default(),
            health: Health::default(),
            last_good: LastGood::default(),
            listeners: ListenerRegistry::default(),
            names: Names::default(),
            responders: ResponderRegistry::new(notices),
            stores: Stores::of_a_server(),
        }
    }
}

/// What lanes count for backends, by address and whether TLS is spoken there.
pub(super) struct BackendRegistry {
    by_address: HashMap<(Address, bool), Vec<Arc<BackendCounters>>>,
    drained: Drained,
}

impl BackendRegistry {
    fn counters(
        &mut self,
        address: &Address,
        planned: &PlannedBackend,
        lanes: usize,
    ) -> Vec<Arc<BackendCounters>> {
        let make = || {
            let counters = BackendCounters::default();
            // No lane has it yet.
            counters.drain(self.drained.has(&planned.label));
            Arc::new(counters)
        };
        let make = || (0..lanes).map(|_| make()).collect();
        let of_it = (address.clone(), planned.tls.is_some());
        self.by_address.entry(of_it).or_insert_with(make).clone()
    }

    /// Forgets backends that none of `generations`, which are all, names any more.
    pub(super) fn prune(&mut self, generations: &[Arc<Generation<RelaySettings>>]) {
        self.by_address.retain(|_, lanes| lanes.iter().any(|lane| Arc::strong_count(lane) > 1));
        let listeners = || generations.iter().flat_map(|generation| &generation.listeners);
        let destinations = || listeners().flat_map(|listener| &listener.settings.destinations);
        self.drained.retain(|label| {
            destinations().flat_map(|to| &*to.planned).any(|planned| planned.label == label)
        });
    }
}

impl Registries {
    /// The backends of `planned`, where their names lead now.
    fn located(&mut self, planned: &[PlannedBackend], lanes: NonZeroUsize) -> Vec<Backend> {
        let Self { backends, health, names, .. } = self;
        let places = places(planned, |name| names.addresses(name)).into_iter();
        let located = places.map(|(address, planned)| Backend {
            label: planned.label.clone(),
            share: LaneShare::of(planned.share, lanes),
            target: health.target(&address, planned),
            tls: planned.tls.clone(),
            lanes: backends.counters(&address, planned, lanes.get()),
            address,
        });
        located.collect()
    }

    /// `destination`, where its names lead now; none if that is where they led before.
    pub(super) fn moved(
        &mut self,
        destination: &Destination,
        lanes: NonZeroUsize,
    ) -> Option<Destination> {
        let backends = self.located(&destination.planned, lanes);
        // The same address may be another name's now, with its certificate and its share.
        let before = destination.backends.iter().map(|each| (&each.address, &each.label));
        let is_new = !before.eq(backends.iter().map(|each| (&each.address, &each.label)));
        is_new.then(|| Destination {
            memories: self.memories(&backends, lanes),
            backends,
            ..destination.clone()
        })
    }

    /// What `lanes` lanes remember of their choices among these.
    fn memories(&self, backends: &[Backend], lanes: NonZeroUsize) -> Vec<Arc<LaneMemory>> {
        match backends {
            [] => Vec::new(),
            [only] if only.target.is_none() => Vec::new(),
            all => {
                let down = self.health.down(all);
                let memory = |_| Arc::new(LaneMemory::of(all.len(), down));
                (0..lanes.get()).map(memory).collect()
            }
        }
    }
}

/// Builds generation `number` whole. Names may have other addresses than at the start: an undercut
/// demand that follows from them holds up no renewal of the configuration that is `running`.
///
/// # Errors
/// Everything that is wrong, a line each.
pub(super) fn build(
    config: &Config,
    number: u64,
    registries: &mut Registries,
    running: Option<&Config>,
) -> Result<Built, Vec<String>> {
    let Registries { client_roots, clients, last_good, names, stores, .. } = registries;
    let now = unix_now();
    let resolve = &resolve_all;
    let mut around = Surroundings { client_roots, clients, last_good, names, now, resolve, stores };
    let Surveys {
        mut errors,
        faults,
        last_good,
        listeners: mut surveys,
        tickets,
        undercuts_within,
        mut warnings,
        ..
    } = survey(config, &mut around);
    match running == Some(config) {
        true => warnings.extend(undercuts_within),
        false => errors.extend(undercuts_within),
    }
    for survey in &surveys {
        errors.extend(survey.errors.iter().map(|error| said_of(&survey.listener.name, error)));
    }
    let summaries = surveys.iter().map(Summary::from).collect();
    let mut listeners = Vec::new();
    for (position, survey) in surveys.iter_mut().enumerate() {
        systemd::tell_progress();
        let Some(contexts) = survey.contexts(config) else { continue };
        let Contexts { named, names: routes, speech } = contexts;
        let source = challenge_source(survey);
        let responder = source.map(|source| registries.responders.of(source)).transpose();
        let responder = responder.unwrap_or_else(|error| {
            let text = format!("acme_responder: cannot be started: {error}");
            errors.push(said_of(&survey.listener.name, &text));
            None
        });
        listeners.push(Listener {
            number: u32::try_from(position).unwrap_or(u32::MAX),
            keys: survey.listener.addresses.clone(),
            preamble: preamble(config, survey.listener),
            speech,
            named,
            liveness: survey.listener.limits.liveness,
            steer: registries.listeners.steer(survey.listener, config.lanes.get()),
            timeouts: survey.listener.limits.timeouts,
            settings: Arc::new(settings(config, survey, routes, responder, registries)),
        });
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let limits = config.limits.per_lane(config.lanes);
    Ok(Built {
        generation: Generation { number, limits, listeners },
        faults: faults.into_iter().chain(surveys.iter_mut().flat_map(take_faults)).collect(),
        last_good,
        summaries,
        tickets,
        warnings: surveys.iter().flat_map(shown_warnings).chain(warnings).collect(),
    })
}

fn take_faults(survey: &mut Survey<'_>) -> Vec<Fault> {
    std::mem::take(&mut survey.faults)
}

/// Out of what the challenges are answered that come to a listener, if they are.
fn challenge_source(survey: &Survey<'_>) -> Option<Source> {
    match survey.listener.acme_responder.as_ref()? {
        ChallengeSource::Folder(folder) => Some(Source::Folder(folder.clone())),
        ChallengeSource::Store => Some(Source::Store(Arc::clone(survey.challenges.as_ref()?))),
    }
}

/// How long what comes before the rest may take, if something does.
fn preamble(config: &Config, listener: &config::Listener) -> Option<Duration> {
    match (&listener.accept_proxy, listener.spoken) {
        // As long as the handshake may take, for the header and what follows it.
        (_, Spoken::Postgres | Spoken::Redirect) => Some(Duration::MAX),
        (Some(_), Spoken::Relay | Spoken::Tls) => Some(config.limits.proxy_timeout),
        (None, Spoken::Relay | Spoken::Tls) => None,
    }
}

/// Where HTTPS is served: at its own port if there is a listener, else at the first that others
/// reach.
fn https_port(config: &Config) -> u16 {
    let listeners = config.listeners.iter().filter(|each| each.spoken == Spoken::Tls);
    let addresses = listeners.flat_map(|each| &each.addresses);
    let addresses: Vec<_> = addresses
        .filter_map(|address| match address {
            Address::Tcp(tcp) => Some(tcp),
            Address::Unix(_) => None,
        })
        .collect();
    let is_own = addresses.iter().any(|address| address.port() == HTTPS_PORT);
    let public = addresses.iter().find(|address| !address.ip().is_loopback());
    let first = public.or(addresses.first()).filter(|_| !is_own);
    first.map_or(HTTPS_PORT, |address| address.port())
}

const HTTPS_PORT: u16 = 443;

/// What the relay has to know of a listener.
fn settings(
    config: &Config,
    survey: &mut Survey<'_>,
    names: Vec<NameRoutes>,
    responder: Option<Arc<Responder>>,
    registries: &mut Registries,
) -> RelaySettings {
    let access = std::mem::take(&mut survey.access);
    let listener = survey.listener;
    let lanes = config.lanes;
    // Who sends every request elsewhere has no other backend.
    if let (Some(responder), Some(label)) = (&responder, listener.responder_label())
        && let Some(planned) = survey.backends.first_mut()
    {
        let address = match responder.address().clone() {
            Address::Tcp(address) => BackendAddress::Tcp(address),
            Address::Unix(path) => BackendAddress::Unix(path),
        };
        planned.push(PlannedBackend {
            address,
            check: None,
            label,
            proxy_header: ProxyHeader::Off,
            share: Share::default(),
            tls: None,
        });
    }
    let planned = std::mem::take(&mut survey.backends);
    let destinations = listener.destinations().zip(planned).map(|((_, written), planned)| {
        let planned: Arc<[PlannedBackend]> = planned.into();
        let backends = registries.located(&planned, lanes);
        let slow_start = listener.check.as_ref().map_or(Duration::ZERO, |check| check.slow_start);
        Destination {
            balance: written.balance,
            memories: registries.memories(&backends, lanes),
            backends,
            planned,
            proxy_header: written.proxy_header,
            slow_start_ms: u64::try_from(slow_start.as_millis()).unwrap_or(u64::MAX),
        }
    });
    let destinations = destinations.collect();
    RelaySettings {
        listener: listener.name.clone(),
        accept_proxy: listener.accept_proxy.clone(),
        admission: Arc::new(Admission {
            access,
            connections_max: listener.limits.connections_per_lane(config.lanes),
            per_client: listener.limits.per_client_on_lane(config.lanes),
            counted: registries.listeners.counters(&listener.name, lanes.get()),
        }),
        connect_timeout: config.limits.connect_timeout,
        destinations,
        https_port: https_port(config),
        liveness: listener.limits.liveness,
        names: names.into(),
        responder,
        spoken: listener.spoken,
    }
}

/// The first warnings about each material of a listener, and how many more there are.
fn shown_warnings(survey: &Survey<'_>) -> Vec<String> {
    let said = |text: &str| said_of(&survey.listener.name, text);
    let mut shown = Vec::new();
    for warnings in &survey.warnings {
        shown.extend(warnings.iter().take(WARNINGS_SHOWN_MAX).map(|warning| said(warning)));
        if let Some(more) = warnings.len().checked_sub(WARNINGS_SHOWN_MAX + 1) {
            shown.push(said(&format!("… and {} more; `sealane check` lists all", more + 1)));
        }
    }
    shown
}

/// Warnings about one material of a listener that a start or a reload prints.
const WARNINGS_SHOWN_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_config::{Simple, value};

    #[test]
    fn the_many_warnings_of_one_material_hide_none_of_another() {
        let config = Config::simple(Simple {
            backends: vec![value::backend("127.0.0.1:1").unwrap()],
            certificates: vec!["site.pem".into()],
            listen: value::listen_addresses("127.0.0.1:0").unwrap().0,
            ..Simple::default()
        })
        .unwrap();
        let survey = Survey {
            warnings: vec![vec!["expires".into(); WARNINGS_SHOWN_MAX + 7], vec!["believed".into()]],
            ..Survey::nothing_of(&config.listeners[0])
        };
        let shown = shown_warnings(&survey);
        assert_eq!(shown.len(), WARNINGS_SHOWN_MAX + 2);
        assert!(shown[WARNINGS_SHOWN_MAX].contains("… and 7 more;"), "{shown:?}");
        assert!(shown[WARNINGS_SHOWN_MAX + 1].ends_with(": believed"), "{shown:?}");
    }
}
