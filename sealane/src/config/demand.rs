//! Demands for client certificates that another way to the same backend undercuts: [`undercuts`].

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{BackendAddress, ClientDemand, ClientTrust, Config, Destination, Listener, Route};
use super::{base_of, unconditional};

/// A way by which clients reach backends: a listener itself, or one of its routes.
#[derive(Clone, Copy)]
pub(crate) struct Way<'c> {
    demand: Option<&'c ClientTrust>,
    listener: &'c Listener,
    route: Option<usize>,
}

/// A demand for client certificates, and a looser way to one of its backends.
pub(crate) struct Undercut<'c> {
    backend: &'c BackendAddress,
    loose: Way<'c>,
    strict: Way<'c>,
}

impl Undercut<'_> {
    /// The route with the demand; none if it is the listener itself.
    pub(super) fn route(&self) -> Option<usize> {
        self.strict.route
    }

    /// Describes it for the listener with the demand.
    pub(super) fn text(&self) -> String {
        let looser = match self.loose.demand.map(|trust| trust.demand) {
            None => "without a client certificate",
            Some(ClientDemand::Asked) => "where a client certificate is optional",
            Some(ClientDemand::Required) => "with other client certificates",
        };
        let is_same = std::ptr::eq(self.loose.listener, self.strict.listener);
        let way = match (is_same, self.loose.route_label()) {
            (true, None) => "other names".to_owned(),
            (true, Some(route)) => route,
            (false, None) => format!("listener {}", self.loose.listener.name),
            (false, Some(route)) => format!("{route} of listener {}", self.loose.listener.name),
        };
        format!(
            "requires client certificates, but {way}, {looser}, can reach the same backend {}",
            self.backend
        )
    }
}

impl<'c> Way<'c> {
    fn route_label(&self) -> Option<String> {
        self.route.and_then(|index| self.listener.routes.get(index)).map(Route::label)
    }

    /// Whether each client of this way meets the demand `strict` as well.
    fn meets(&self, strict: &ClientTrust) -> bool {
        let Some(own) = self.demand.filter(|own| own.demand == ClientDemand::Required) else {
            return false;
        };
        let names = &own.rules.names;
        let has_names = strict.rules.names.is_empty()
            || !names.is_empty() && names.iter().all(|name| strict.rules.names.contains(name));
        has_names
            && own.roots.iter().all(|root| strict.roots.contains(root))
            && strict.crls.iter().all(|list| own.crls.contains(list))
            && (strict.rules.accept_ended_lists || !own.rules.accept_ended_lists)
    }

    /// The demand that the others must meet, if there is one.
    fn strict(&self) -> Option<&'c ClientTrust> {
        let is_strict = |trust: &&ClientTrust| {
            trust.demand == ClientDemand::Required && !trust.allow_other_names
        };
        self.demand.filter(is_strict)
    }
}

/// The undercut demands of one listener.
pub(super) fn undercuts_within(listener: &Listener) -> Vec<Undercut<'_>> {
    undercuts(ways(listener))
}

/// The demands of one listener that another listener undercuts, each as a text with its listener.
pub(crate) fn undercuts_between(config: &Config) -> Vec<(&str, String)> {
    let found = undercuts(config.listeners.iter().flat_map(ways));
    let between =
        found.into_iter().filter(|each| !std::ptr::eq(each.loose.listener, each.strict.listener));
    between.map(|each| (each.strict.listener.name.as_str(), each.text())).collect()
}

/// The ways of a listener with the backends that they lead to.
fn ways(listener: &Listener) -> Vec<(Way<'_>, &Destination)> {
    let terminates = listener.spoken.is_tls() && !listener.passthrough;
    let own = listener.clients.as_ref().filter(|_| terminates);
    let way = |demand, route| Way { demand, listener, route };
    let mut ways = vec![(way(own, None), &listener.destination)];
    let unconditional = unconditional(&listener.routes);
    for (index, route) in listener.routes.iter().enumerate() {
        let destination = route.destination.as_ref().unwrap_or(&listener.destination);
        if route.alpn.is_empty() {
            let demand = route.clients.as_ref().filter(|_| route.policy.is_some());
            ways.push((way(demand, Some(index)), destination));
            continue;
        }
        // The demand is settled before the protocol: it is that of the name.
        let bases: HashSet<Option<usize>> = match route.names.as_slice() {
            [] => [None].into(),
            names => names.iter().map(|name| base_of(&unconditional, name)).collect(),
        };
        for base in bases {
            let demand = base.map_or(own, |base| listener.routes[base].clients.as_ref());
            ways.push((way(demand, Some(index)), destination));
        }
    }
    ways
}

/// Finds each demand of `ways` that another of them with the same backend does not meet.
fn undercuts<'c>(ways: impl IntoIterator<Item = (Way<'c>, &'c Destination)>) -> Vec<Undercut<'c>> {
    let mut by_backend: HashMap<BackendAddress, Vec<(Way<'c>, &'c BackendAddress)>> =
        HashMap::new();
    let mut order = Vec::new();
    for (way, destination) in ways {
        for (backend, _) in &destination.backends {
            for place in places(backend) {
                let sharing = by_backend.entry(place.clone()).or_default();
                if sharing.is_empty() {
                    order.push(place);
                }
                // Equal demands of one listener undercut each other nowhere.
                let is_new = |(known, _): &(Way<'_>, _)| {
                    known.demand != way.demand || !std::ptr::eq(known.listener, way.listener)
                };
                if sharing.iter().all(is_new) {
                    sharing.push((way, backend));
                }
            }
        }
    }
    let mut found = Vec::new();
    let mut told = HashSet::new();
    for sharing in order.iter().filter_map(|place| by_backend.get(place)) {
        for (strict, backend) in sharing {
            let Some(demand) = strict.strict() else { continue };
            let loose = sharing.iter().find(|(other, _)| !other.meets(demand));
            let key = (std::ptr::from_ref(strict.listener), strict.route);
            if let Some((loose, _)) = loose.filter(|_| told.insert(key)) {
                found.push(Undercut { backend, loose: *loose, strict: *strict });
            }
        }
    }
    found
}

/// The places that an address may name: "localhost" is two.
fn places(backend: &BackendAddress) -> Vec<BackendAddress> {
    let tcp = |ip, port| BackendAddress::Tcp(SocketAddr::new(ip, port));
    match backend {
        BackendAddress::Host { name, port } if name.eq_ignore_ascii_case("localhost") => {
            vec![tcp(Ipv4Addr::LOCALHOST.into(), *port), tcp(Ipv6Addr::LOCALHOST.into(), *port)]
        }
        BackendAddress::Host { name, port } => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            vec![BackendAddress::Host { name, port: *port }]
        }
        BackendAddress::Tcp(address) => vec![tcp(address.ip().to_canonical(), address.port())],
        BackendAddress::Unix(_) => vec![backend.clone()],
    }
}
