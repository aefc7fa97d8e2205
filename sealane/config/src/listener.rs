//! A listener and its keys: where it listens, what it serves and by which rules, and where its
//! plaintext goes.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealane_certificate_files::CertificateSource;
use sealane_engine::policy::{Policy, UnknownNames};
use sealane_lanes::kernel::Address;
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};
use sealane_store::NAMES_SOCKET;

use crate::certificates::certificates;
use crate::check::{Check, check};
use crate::claims::{Claims, Owner};
use crate::client_trust::{ClientTrust, clients};
use crate::demand::check_demands;
use crate::destination::{Destination, Manner, RESOLVE_DEFAULT};
use crate::lanes::Lanes;
use crate::limits::{LISTENERS_MAX, Limits, Shared};
use crate::listener_limits::{ListenerLimits, Steering, listener_limits};
use crate::policy::{HANDSHAKE_KEYS, policy};
use crate::proxy::{AcceptProxy, accept_proxy};
use crate::route::{Defaults, Route, may_get_tls, routes};
use crate::spoken::{ChallengeSource, Spoken, acme_responder, check_spoken, spoken};
use crate::value;

/// Addresses that share certificates, a policy and backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// In logs and metrics; the first address unless the operator gives one.
    pub name: String,
    /// Out of what challenges of ACME are answered where requests are redirected.
    pub acme_responder: Option<ChallengeSource>,
    /// Whose PROXY header tells who the client is; without it connections have none.
    pub accept_proxy: Option<AcceptProxy>,
    /// At least one.
    pub addresses: Vec<Address>,
    /// Who may open its unix sockets, as permissions of their files.
    pub socket_mode: u32,
    /// In the order written: of two certificates for one name the first is served. At least one, or
    /// a store.
    pub certificates: Vec<CertificateSource>,
    /// A certificate store, by its folder; it serves the names that the above do not, or answers
    /// challenges.
    pub store: Option<PathBuf>,
    /// The name whose certificate is served when none fits; without it, the first certificate.
    pub default_certificate: Option<String>,
    /// Whether names without a certificate are told to whoever obtains certificates.
    pub on_demand: bool,
    /// TLS versions, groups, ALPN and what happens to unknown names; not yet whose certificates
    /// clients are asked for, which takes files.
    pub policy: Policy,
    /// Whose certificates clients are asked for, if they are.
    pub clients: Option<ClientTrust>,
    /// Where its plaintext goes.
    pub destination: Destination,
    /// How its backends and those of its routes are checked, if they are.
    pub check: Option<Check>,
    /// How often names of backends are looked up while they are served; none: only when the
    /// configuration is read, and then each has to lead somewhere.
    pub resolve: Option<Duration>,
    /// Whether TLS is passed on as it is, but for clients with a route that ends it.
    pub passthrough: bool,
    /// What clients get that ask for certain names.
    pub routes: Vec<Route>,
    /// What clients speak.
    pub spoken: Spoken,
    /// From whom it takes how much, and for how long.
    pub limits: ListenerLimits,
}

impl Listener {
    /// Where plaintext goes: first its own, then that of each route which has one.
    pub fn destinations(&self) -> impl Iterator<Item = (Option<&Route>, &Destination)> {
        let of_routes = self.routes.iter();
        let of_routes = of_routes.filter_map(|r| Some((Some(r), r.destination.as_ref()?)));
        std::iter::once((None, &self.destination)).chain(of_routes)
    }

    /// Whose certificates clients are asked for: first its own, then those of its routes.
    pub fn client_trusts(&self) -> impl Iterator<Item = (Option<&Route>, &ClientTrust)> {
        let of_routes = self.routes.iter();
        let of_routes = of_routes.filter_map(|r| Some((Some(r), r.clients.as_ref()?)));
        self.clients.iter().map(|trust| (None, trust)).chain(of_routes)
    }

    /// What answers challenges of ACME is called, if there is something, among backends.
    pub fn responder_label(&self) -> Option<String> {
        Some(match self.acme_responder.as_ref()? {
            ChallengeSource::Folder(folder) => format!("acme:{}", folder.display()),
            ChallengeSource::Store => format!("acme:store:{}", self.store.as_ref()?.display()),
        })
    }

    /// Whether some TLS ends here, so that certificates are needed.
    pub fn ends_tls(&self) -> bool {
        self.spoken.is_tls() && !self.passthrough
            || self.routes.iter().any(|route| route.policy.is_some())
    }
}

/// The listeners that are written, of which no two may claim the same.
pub(crate) fn listener_list(
    written: &Value<'_>,
    shared: Shared<'_>,
    claims: &mut Claims,
) -> Option<Vec<Listener>> {
    if written.is_table() {
        written.wrong(Problem::new(
            "expected a list of tables, found one table",
            "write [[listener]] in double brackets above each listener",
        ));
        return None;
    }
    let most = shared.limits.listeners_max;
    if written.length() > most {
        let what = format!("there are {} listeners", written.length());
        let remedy = format!("limits.listeners allows {most}: raise it");
        written.wrong(Problem::new(what, remedy));
        return None;
    }
    written.list(most, |v| v.table(|table| listener(table, &v, shared, claims)))
}

/// Counts addresses of all files together: those of one may be within the limit.
pub(crate) fn check_number_of_addresses(
    listeners: &[Listener],
    limits: &Limits,
    written: &Value<'_>,
) {
    let addresses: usize = listeners.iter().map(|listener| listener.addresses.len()).sum();
    if addresses > limits.listeners_max {
        let what = format!("{addresses} addresses are listened on");
        let remedy = format!("limits.listeners allows {}: raise it", limits.listeners_max);
        written.wrong(Problem::new(what, remedy));
    }
}

fn listener(
    table: &mut Table<'_>,
    at: &Value<'_>,
    shared: Shared<'_>,
    claims: &mut Claims,
) -> Option<Listener> {
    let name = table.value("name");
    let accept_proxy = accept_proxy(table);
    let addresses = addresses(table, at, claims);
    let socket_mode = table.value("socket_mode").map(|v| v.parsed(value::socket_mode));
    let default_certificate = table.value("default_certificate");
    let spoken = spoken(table);
    let acme_responder = acme_responder(spoken, table);
    let passthrough = table.boolean("passthrough") == Some(true);
    let policy = policy(table, at);
    let clients = table.table("clients", |table| Some(clients(table))).flatten();
    let (routes, destination) = match spoken {
        Spoken::Redirect => (Some(Vec::new()), Some(Destination::nowhere())),
        _ => leading(table, passthrough, &policy, clients.as_ref(), shared.lanes),
    };
    let needs_none = match &routes {
        _ if !spoken.is_tls() => true,
        Some(routes) => passthrough && !ends_tls(routes),
        None => passthrough,
    };
    let certificates = certificates(table, needs_none);
    let of_routes = routes.as_deref().unwrap_or_default();
    let check = check(table, spoken, destination.as_ref(), of_routes);
    let resolve = table.value("resolve").map(|v| v.duration_or_off(RESOLVE));
    check_spoken(
        spoken,
        table,
        addresses.as_deref().unwrap_or_default(),
        destination.as_ref(),
        of_routes,
    );
    check_passed_on(table, passthrough && spoken.is_tls(), of_routes);
    let limits = listener_limits(table, shared);
    if let Some(addresses) = &addresses {
        check_sockets(table, addresses, accept_proxy.as_ref(), &limits);
    }

    let default_name = default_certificate.as_ref().and_then(|v| v.parsed(value::host_name));
    if let (Some(value), UnknownNames::Refuse) = (&default_certificate, policy.unknown_names) {
        value.wrong(Problem::new(
            "a default certificate is never served where unknown names are refused",
            "remove it, or say unknown_names = \"default\"",
        ));
    }
    let name = chosen_name(name.as_ref(), addresses.as_deref(), at, claims)?;
    let (certificates, served) = certificates?;
    let (acme_responder, answering) = acme_responder.unzip();
    let listener = Listener {
        name,
        acme_responder,
        accept_proxy,
        addresses: addresses?,
        socket_mode: socket_mode.unwrap_or(Some(SOCKET_MODE_DEFAULT))?,
        certificates,
        on_demand: on_demand(table, served.as_deref(), claims),
        store: served.or(answering.flatten()),
        default_certificate: default_name,
        policy,
        clients,
        check,
        destination: destination?,
        resolve: resolve.unwrap_or(Some(RESOLVE_DEFAULT))?,
        passthrough,
        routes: routes?,
        spoken,
        limits,
    };
    check_demands(&listener, &written_routes(table), at);
    Some(listener)
}

/// The routes of a listener, and its own destination.
fn leading(
    table: &mut Table<'_>,
    passthrough: bool,
    policy: &Policy,
    clients: Option<&ClientTrust>,
    lanes: Lanes,
) -> (Option<Vec<Route>>, Option<Destination>) {
    let manner = Manner::of_listener(table);
    let routes = routes(table, Defaults { clients, lanes, manner: &manner, policy });
    let destination = manner
        .destination(table, lanes)
        .filter(|destination| may_get_tls(passthrough, destination, table));
    if let Some(destination) = &destination {
        let others = routes.iter().flatten().filter_map(|route| route.destination.as_ref());
        manner.check_tls(&std::iter::once(destination).chain(others).collect::<Vec<_>>());
    }
    (routes, destination)
}

/// The name that is written, or the first address.
fn chosen_name(
    written: Option<&Value<'_>>,
    addresses: Option<&[Address]>,
    at: &Value<'_>,
    claims: &mut Claims,
) -> Option<String> {
    let name = match written {
        Some(written) => written.parsed(listener_name)?,
        None => addresses?.first()?.to_string(),
    };
    claims.name(&name, written.unwrap_or(at))?;
    Some(name)
}

/// Says what contradicts that a listener passes TLS on, or that a route does and its listener not.
fn check_passed_on(table: &mut Table<'_>, passthrough: bool, routes: &[Route]) {
    for (route, at) in routes.iter().zip(written_routes(table)) {
        if passthrough && route.names.is_empty() {
            let what = "the listener passes TLS through, so no protocol is known";
            at.wrong(Problem::new(what, "name the host names whose TLS is terminated"));
        }
        // A backend for decrypted bytes cannot read TLS, and the other way round.
        if route.destination.is_none() && route.policy.is_none() != passthrough {
            let what = "the backends of its listener get something else than this route has";
            at.wrong(Problem::new(what, "name its backends"));
        }
    }
    if passthrough {
        let remedy = "put it into the routes that end TLS";
        table.refuse(&["clients"], "nobody is asked where TLS is passed on", remedy);
        if !ends_tls(routes) {
            let what = "means nothing where all TLS is passed on";
            table.refuse(&HANDSHAKE_KEYS, what, "remove it, or passthrough");
            table.refuse(&UNUSED_WHERE_PASSED_ON, what, "remove it, or passthrough");
        }
    }
}

/// Says what means nothing on unix sockets, or without one.
fn check_sockets(
    table: &mut Table<'_>,
    addresses: &[Address],
    proxy: Option<&AcceptProxy>,
    limits: &ListenerLimits,
) {
    if limits.steering == Steering::Client && proxy.is_some() {
        let what = "the peer is always the balancer";
        table.refuse(&["steer"], what, "remove it; limits per client are then per lane");
    }
    let is_unix = |address: &Address| matches!(address, Address::Unix(_));
    let (has_unix, has_tcp) = (addresses.iter().any(is_unix), !addresses.iter().all(is_unix));
    match proxy {
        Some(proxy) if has_unix && !proxy.from_unix => {
            let what = "nobody who uses the unix socket is believed, so nobody gets in there";
            table.refuse(&["proxy_from"], what, "add \"unix\"");
        }
        Some(proxy) if has_tcp && proxy.from.is_empty() && proxy.from_unix => {
            let what = "nobody who comes by TCP is believed, so nobody gets in there";
            table.refuse(&["proxy_from"], what, "add the networks of your balancers");
        }
        Some(proxy) if !has_unix && proxy.from_unix => {
            let what = "\"unix\" means nothing without a unix socket";
            table.refuse(&["proxy_from"], what, "remove it");
        }
        None if has_unix => {
            let what = "clients of a unix socket have no address";
            let remedy = "remove it, say accept_proxy = \"required\", or give the socket a \
                          listener of its own";
            for (key, is_meant) in [
                ("allow", !limits.allow.is_empty()),
                ("connections_per_client", limits.per_client.connections_max.is_some()),
                ("deny", !limits.deny.is_empty()),
                ("handshakes_per_client", limits.per_client.handshakes_per_s.is_some()),
            ] {
                if is_meant {
                    table.refuse(&[key], what, remedy);
                }
            }
        }
        Some(_) | None => {}
    }
    if !has_unix {
        table.refuse(&["socket_mode"], "means nothing without a unix socket", "remove it");
    } else if !has_tcp {
        let what = "is about TCP, and all addresses are unix sockets";
        table.refuse(&["steer"], what, "remove it");
    }
}

fn ends_tls(routes: &[Route]) -> bool {
    routes.iter().any(|route| route.policy.is_some())
}

/// Each route as it is written.
fn written_routes<'d>(table: &mut Table<'d>) -> Vec<Value<'d>> {
    let written = table.value("route").and_then(|v| v.list(usize::MAX, Some));
    written.unwrap_or_default()
}

/// `address` for one, `addresses` for several.
fn addresses(table: &mut Table<'_>, at: &Value<'_>, claims: &mut Claims) -> Option<Vec<Address>> {
    let many = table.value("addresses");
    let one = match many {
        None => table.required("address", "address = \"0.0.0.0:443\""),
        Some(_) => table.value("address"),
    };
    let mut claimed = |v: &Value<'_>| {
        let addresses = v.parsed(value::listen_addresses)?.0;
        for address in &addresses {
            claims.address(address, Owner::Listener(at.place()), v)?;
        }
        Some(addresses)
    };
    match (one, many) {
        (Some(one), Some(_)) => {
            one.wrong(Problem::new(
                "both address and addresses are given",
                "put all in addresses = [...]",
            ));
            None
        }
        (Some(one), None) => claimed(&one),
        (None, Some(many)) => many.list(LISTENERS_MAX, |v| claimed(&v)).map(|each| each.concat()),
        (None, None) => None,
    }
}

fn listener_name(text: &str) -> Result<String, Problem> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    if (1..=LISTENER_NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_good) {
        return Ok(text.to_owned());
    }
    Err(Problem::new(
        format!("{text:?} is not a name for a listener"),
        format!("write 1 to {LISTENER_NAME_BYTES_MAX} letters, digits, \"-\", \"_\" or \".\""),
    ))
}

/// Certificates on demand come by a store, in whose folder their names are told.
fn on_demand(table: &mut Table<'_>, store: Option<&Path>, claims: &mut Claims) -> bool {
    let Some(written) = table.value("on_demand") else { return false };
    let on_demand = written.boolean().unwrap_or(false);
    match store.filter(|_| on_demand) {
        None if on_demand => written.wrong(Problem::new(
            "means nothing without a certificate store, by which such certificates come",
            "write certificates = [\"store:PATH\"] too, or remove it",
        )),
        None => {}
        Some(store) => {
            let socket = store.join(NAMES_SOCKET);
            let bytes = socket.as_os_str().len();
            if bytes > value::UNIX_PATH_BYTES_MAX {
                let what =
                    format!("{} is where names are told, and has {bytes} bytes", socket.display());
                let max = value::UNIX_PATH_BYTES_MAX;
                let remedy = format!("choose a store whose socket has at most {max}");
                written.wrong(Problem::new(what, remedy));
            }
            claims.on_demand(store, &written);
        }
    }
    on_demand
}

const UNUSED_WHERE_PASSED_ON: [&str; 5] =
    ["alpn", "certificates", "default_certificate", "on_demand", "unknown_names"];

const RESOLVE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

const LISTENER_NAME_BYTES_MAX: usize = 64;

/// The mode of a socket: for its owner and group, among whom a balancer on this machine can be.
pub(crate) const SOCKET_MODE_DEFAULT: u32 = 0o660;
