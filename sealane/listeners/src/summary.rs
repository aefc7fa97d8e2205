//! What a listener is made of, for people: [`Summary`] is what `check`, `/state` and `/metrics`
//! show of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sealane_config::{
    self as config, AcceptProxy, ClientDemand, Destination, HANDSHAKE_KEYS, Route, Spoken,
    chosen_policy,
};
use sealane_engine::certificates::{Inventory, Served};
use sealane_store::KeyedStore;
use serde::Serialize;

use super::{ClientsSummary, Expiry, Survey};

/// A listener as it is shown.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The listener's name.
    pub name: String,
    /// The addresses that it listens on.
    pub addresses: Vec<String>,
    /// Whether it can serve any client with its usable materials.
    pub can_serve: bool,
    /// Where its plaintext goes.
    pub backends: Vec<String>,
    /// How a backend is chosen.
    pub balance: &'static str,
    /// The certificates that it serves from files.
    pub certificates: Inventory,
    /// The certificates that clients are asked for, if they are.
    pub clients: Option<ClientsSummary>,
    /// Expiry dates of its other materials.
    pub expiries: Vec<Expiry>,
    /// The listener's limits that are not as they are by default, by their keys.
    pub limits: BTreeMap<&'static str, String>,
    /// Whether TLS is forwarded, except for clients with a route that terminates it.
    pub passthrough: bool,
    /// From where it takes PROXY headers, which it then requires.
    pub proxy_from: Option<Vec<String>>,
    /// The PROXY header that its backends get.
    pub proxy_header: &'static str,
    /// Routes for certain server names: the first hundred.
    pub routes: Vec<RouteSummary>,
    /// How many routes there are.
    pub routes_total: usize,
    /// The protocol of its clients.
    pub speaks: Spoken,
    /// The store that it also serves from.
    pub store: Option<StoreSummary>,
    /// The settings of TLS that differ from their defaults, by their keys.
    pub tls: BTreeMap<&'static str, String>,
}

/// A route as it is shown, with the settings that hold for it: its own and those of its listener.
#[derive(Clone, Debug, Serialize)]
pub struct RouteSummary {
    /// Server names of the route; empty: all names without a route.
    pub names: Vec<String>,
    /// Protocols of the route; empty: all.
    pub alpn: Vec<String>,
    /// Where plaintext goes; empty: where that of the listener goes.
    pub backends: Vec<String>,
    /// How a backend is chosen.
    pub balance: &'static str,
    /// Whether clients must show a certificate: "off", "asked" or "required".
    pub clients: &'static str,
    /// Whether TLS is forwarded.
    pub passthrough: bool,
    /// The PROXY header that backends get.
    pub proxy_header: &'static str,
    /// The settings of TLS that differ from their defaults, by their keys; of a route for a
    /// protocol there are none.
    pub tls: BTreeMap<&'static str, String>,
}

impl RouteSummary {
    fn of(listener: &config::Listener, route: &Route) -> Self {
        let to = route.destination.as_ref().unwrap_or(&listener.destination);
        let policy = route.policy.as_ref().filter(|_| route.alpn.is_empty());
        let mut tls = policy.map(chosen_policy).unwrap_or_default();
        tls.retain(|key, _| HANDSHAKE_KEYS.contains(key));
        let alpn = route.alpn.iter().map(|protocol| protocol.escape_ascii().to_string());
        Self {
            names: route.names.clone(),
            alpn: alpn.collect(),
            backends: route.destination.iter().flat_map(Destination::labels).collect(),
            balance: to.balance.name(),
            clients: demand_name(route.clients.as_ref().map(|trust| trust.demand)),
            passthrough: route.policy.is_none(),
            proxy_header: to.proxy_header.name(),
            tls,
        }
    }
}

/// A store as it is shown: what is in it is asked of it when somebody wants to know.
#[derive(Clone, Debug)]
pub struct StoreSummary {
    /// The certificates.
    pub certificates: Arc<KeyedStore>,
    /// The store's folder.
    pub path: PathBuf,
    /// What the listener serves from it and beside it.
    pub served: Served,
}

impl StoreSummary {
    fn of(survey: &Survey<'_>) -> Option<Self> {
        let served = Served {
            index: Arc::clone(survey.certificates.as_ref()?),
            store: survey.store.clone(),
            unknown_names: survey.listener.policy.unknown_names,
        };
        let certificates = Arc::clone(survey.keyed_store.as_ref()?);
        Some(Self { certificates, path: survey.listener.store.clone()?, served })
    }
}

impl From<&Survey<'_>> for Summary {
    fn from(survey: &Survey<'_>) -> Self {
        let listener = survey.listener;
        let index = survey.certificates.as_ref();
        Self {
            name: listener.name.clone(),
            addresses: listener.addresses.iter().map(ToString::to_string).collect(),
            can_serve: survey.can_serve(),
            backends: listener.destination.labels().chain(listener.responder_label()).collect(),
            balance: listener.destination.balance.name(),
            certificates: index.map(|i| i.inventory(EXPIRIES_SHOWN_MAX)).unwrap_or_default(),
            clients: ClientsSummary::of(survey),
            expiries: survey.expiries.clone(),
            limits: listener.limits.chosen(),
            passthrough: listener.passthrough,
            proxy_from: listener.accept_proxy.as_ref().map(AcceptProxy::sources),
            proxy_header: listener.destination.proxy_header.name(),
            routes: listener
                .routes
                .iter()
                .take(ROUTES_SHOWN_MAX)
                .map(|route| RouteSummary::of(listener, route))
                .collect(),
            routes_total: listener.routes.len(),
            speaks: listener.spoken,
            store: StoreSummary::of(survey),
            tls: chosen_policy(&listener.policy),
        }
    }
}

fn demand_name(demand: Option<ClientDemand>) -> &'static str {
    demand.map_or("off", ClientDemand::name)
}

/// Routes of a listener that are shown.
const ROUTES_SHOWN_MAX: usize = 100;
/// Certificates of files or of a store that are shown: those that expire first.
pub const EXPIRIES_SHOWN_MAX: usize = 100;
