//! Demands for client certificates that another way to the same backend undercuts: [`undercuts`].

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use sealane_operator::mistake::Problem;
use sealane_operator::reader::Value;

use crate::Config;
use crate::backend::BackendAddress;
use crate::client_trust::{ClientDemand, ClientTrust};
use crate::destination::Destination;
use crate::listener::Listener;
use crate::route::{Route, base_of, unconditional};

/// Notes each demand of `listener` for client certificates that another of its names undercuts;
/// `routes` and `at` are where its routes and itself are written.
pub(crate) fn check_demands(listener: &Listener, routes: &[Value<'_>], at: &Value<'_>) {
    for undercut in undercuts_within(listener) {
        let written = undercut.route().and_then(|index| routes.get(index)).unwrap_or(at);
        written.wrong(Problem::new(undercut.text(), REMEDY));
    }
}

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
    /// How the looser way writes the backend.
    loose_backend: &'c BackendAddress,
    strict: Way<'c>,
}

impl Undercut<'_> {
    /// The route with the demand; none if it is the listener itself.
    pub(crate) fn route(&self) -> Option<usize> {
        self.strict.route
    }

    /// Describes it for the listener with the demand.
    pub(crate) fn text(&self) -> String {
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
        let Self { backend, loose_backend, .. } = self;
        let spelling = match backend == loose_backend {
            true => String::new(),
            false if is_loopback(backend) && is_loopback(loose_backend) => {
                format!(" as {loose_backend}: a program that listens at every address gets both")
            }
            false => format!(" as {loose_backend}"),
        };
        format!(
            "requires client certificates, but {way}, {looser}, can reach the same backend \
             {backend}{spelling}"
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

/// The undercut demands of one listener, by its addresses as they are written.
pub(crate) fn undercuts_within(listener: &Listener) -> Vec<Undercut<'_>> {
    undercuts(ways(listener), |backend| vec![written_place(backend)])
}

/// The demands that are undercut on this machine, where `addresses` has those of a name. Each is a
/// text with its listener.
pub fn undercuts_here<'c, 'n>(
    config: &'c Config,
    addresses: impl Fn(&str) -> &'n [SocketAddr] + Copy,
) -> UndercutsHere<'c> {
    let lead = |backend: &BackendAddress| places_here(backend, addresses);
    let mut here = UndercutsHere::default();
    for listener in &config.listeners {
        // The reader of the configuration reports those of addresses as they are written.
        if undercuts_within(listener).is_empty() {
            let found = undercuts(ways(listener), lead).into_iter();
            here.within.extend(found.map(|each| {
                let label = each.strict.route_label().map(|route| format!("{route}: "));
                let text = format!("{}{}; {REMEDY}", label.unwrap_or_default(), each.text());
                (listener.name.as_str(), text)
            }));
        }
    }
    let found = undercuts(config.listeners.iter().flat_map(ways), lead).into_iter();
    let between = found.filter(|each| !std::ptr::eq(each.loose.listener, each.strict.listener));
    here.between = between.map(|each| (each.strict.listener.name.as_str(), each.text())).collect();
    here
}

/// Demands for client certificates that are undercut, with the names of their listeners.
#[derive(Default)]
pub struct UndercutsHere<'c> {
    /// By another listener, which is worth a warning.
    pub between: Vec<(&'c str, String)>,
    /// By the same listener, which cannot be served.
    pub within: Vec<(&'c str, String)>,
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

/// Finds each demand of `ways` that another of them with the same backend does not meet; `lead`
/// has the places of an address.
fn undercuts<'c>(
    ways: impl IntoIterator<Item = (Way<'c>, &'c Destination)>,
    lead: impl Fn(&BackendAddress) -> Vec<Place>,
) -> Vec<Undercut<'c>> {
    let mut by_backend: HashMap<Place, Vec<(Way<'c>, &'c BackendAddress)>> = HashMap::new();
    let mut order = Vec::new();
    for (way, destination) in ways {
        for (backend, _) in &destination.backends {
            for place in lead(backend) {
                let sharing = by_backend.entry(place.clone()).or_default();
                if sharing.is_empty() {
                    order.push(place);
                }
                // Equal demands of one listener never undercut each other.
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
            if let Some((loose, loose_backend)) = loose.filter(|_| told.insert(key)) {
                found.push(Undercut { backend, loose: *loose, loose_backend, strict: *strict });
            }
        }
    }
    found
}

/// A place where a backend listens. Addresses that share one lead to the same backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// The file of a unix socket, by its device and inode.
    File(u64, u64),
    Host(String, u16),
    Path(PathBuf),
    Tcp(IpAddr, u16),
}

/// The place of an address as it is written.
fn written_place(backend: &BackendAddress) -> Place {
    match backend {
        BackendAddress::Host { name, port } => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            match name == "localhost" || name.ends_with(".localhost") {
                true => tcp_place(Ipv4Addr::LOCALHOST.into(), *port),
                false => Place::Host(name, *port),
            }
        }
        BackendAddress::Tcp(address) => tcp_place(address.ip(), address.port()),
        BackendAddress::Unix(path) => Place::Path(without_dots(path)),
    }
}

/// The places to which an address leads on this machine; `addresses` has those of a name.
fn places_here<'n>(
    backend: &BackendAddress,
    addresses: impl Fn(&str) -> &'n [SocketAddr],
) -> Vec<Place> {
    let mut places = vec![written_place(backend)];
    match backend {
        BackendAddress::Host { name, port } => {
            places.extend(addresses(name).iter().map(|address| tcp_place(address.ip(), *port)));
        }
        BackendAddress::Tcp(_) => {}
        BackendAddress::Unix(path) => {
            places.push(Place::Path(linked_path(path)));
            places.extend(path.metadata().ok().map(|file| Place::File(file.dev(), file.ino())));
        }
    }
    places
}

/// The place of a numeric address. A program that listens at every address of a machine, as most
/// do, gets the connections to all loopback addresses; those to the unspecified address go there.
fn tcp_place(ip: IpAddr, port: u16) -> Place {
    let ip = ip.to_canonical();
    let is_loopback = ip.is_unspecified() || ip.is_loopback();
    Place::Tcp(if is_loopback { Ipv4Addr::LOCALHOST.into() } else { ip }, port)
}

/// Whether it is a numeric loopback address.
fn is_loopback(backend: &BackendAddress) -> bool {
    matches!(backend, BackendAddress::Tcp(address) if address.ip().to_canonical().is_loopback())
}

/// A path with its links followed, as far as its folders exist.
fn linked_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Some((folder, name)) = path.parent().zip(path.file_name()) else { break };
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let there = folder.join(name);
        match there.read_link() {
            Ok(to) => path = folder.join(to),
            Err(_) => return without_dots(&there),
        }
    }
    without_dots(&path)
}

/// A path without `..`.
fn without_dots(path: &Path) -> PathBuf {
    let mut bare = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(bare.pop()),
            part => bare.push(part),
        }
    }
    bare
}

/// Links that a path may have at its end, as in Linux.
const LINKS_MAX: usize = 40;

/// The remedy for an [`Undercut`] within a listener.
pub(crate) const REMEDY: &str = "give it backends of its own, demand the same of all names that \
                                 lead there, or set allow_other_names = true in its clients table";
