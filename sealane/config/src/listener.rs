//! A listener and its keys: where it listens, what it serves and by which rules, and where its
//! plaintext goes.

use std::path::PathBuf;
use std::time::Duration;

use sealane_certificate_files::CertificateSource;
use sealane_engine::policy::{Policy, UnknownNames};
use sealane_lanes::kernel::Address;
use sealane_operator::key::{Group, Key, SharedKeys, Text};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::addresses::{ADDRESS, ADDRESSES, SOCKET_MODE, SOCKET_MODE_DEFAULT, addresses};
use crate::backend_tls::BACKEND_TLS;
use crate::certificates::{CERTIFICATES, DEFAULT_CERTIFICATE, ON_DEMAND, certificates, on_demand};
use crate::check::{CHECK, Check, check};
use crate::claims::Claims;
use crate::client_trust::{CLIENTS, ClientTrust, clients};
use crate::contradictions::{check_passed_on, check_sockets, check_spoken};
use crate::destination::{BACKENDS, BALANCE, Destination, Manner, RESOLVE, RESOLVE_DEFAULT};
use crate::lanes::Lanes;
use crate::limits::Shared;
use crate::listener_limits::{
    ALLOW, CONNECTIONS, CONNECTIONS_PER_CLIENT, DENY, HANDSHAKES_PER_CLIENT, KEEPALIVE,
    ListenerLimits, STEER, USER_TIMEOUT, listener_limits,
};
use crate::policy::{
    ALPN, ALPN_MISMATCH, GROUPS, REQUIRE_EXTENDED_MASTER_SECRET, SCHEMES, SUITES, UNKNOWN_NAMES,
    VERSIONS, policy,
};
use crate::proxy::{
    ACCEPT_PROXY, ALLOW_ANYBODY, AcceptProxy, PROXY_FROM, PROXY_PASS_TLVS, accept_proxy,
};
use crate::proxy_header::{PROXY_HEADER, PROXY_TLVS};
use crate::route::{Defaults, ROUTE, Route, ends_tls, may_get_tls, routes};
use crate::spoken::{
    ACME_RESPONDER, ALLOW_REMOTE, ChallengeSource, PASSTHROUGH, PLAIN, STARTTLS, Spoken,
    acme_responder, spoken,
};
use crate::timeouts::TIMEOUT_KEYS;

/// Addresses that share certificates, a policy and backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// In logs and metrics; the first address unless the operator gives one.
    pub name: String,
    /// Out of what challenges of ACME are answered where requests are redirected.
    pub acme_responder: Option<ChallengeSource>,
    /// The senders of PROXY headers that are trusted; without it connections have none.
    pub accept_proxy: Option<AcceptProxy>,
    /// At least one.
    pub addresses: Vec<Address>,
    /// The permissions of its unix sockets.
    pub socket_mode: u32,
    /// In the order written: of two certificates for one name the first is served. At least one, or
    /// a store.
    pub certificates: Vec<CertificateSource>,
    /// A certificate store, by its folder; it serves the names that the above do not, or answers
    /// challenges.
    pub store: Option<PathBuf>,
    /// The name whose certificate is served when none fits; without it, the first certificate.
    pub default_certificate: Option<String>,
    /// Whether names without a certificate are offered to the agent.
    pub on_demand: bool,
    /// TLS versions, groups, ALPN and what happens to unknown names; not yet whose certificates
    /// clients are asked for, which takes files.
    pub policy: Policy,
    /// The demand for client certificates.
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

pub(crate) fn listener(
    table: &Table<'_>,
    at: &Value<'_>,
    shared: Shared<'_>,
    claims: &mut Claims,
) -> Option<Listener> {
    let name = table.value(&NAME);
    let accept_proxy = accept_proxy(table);
    let addresses = addresses(table, at, claims);
    let socket_mode = table.value(&SOCKET_MODE).map(|v| SOCKET_MODE.read(&v));
    let default_certificate = table.value(&DEFAULT_CERTIFICATE);
    let spoken = spoken(table);
    let acme_responder = acme_responder(spoken, table);
    let passthrough = table.get(&PASSTHROUGH);
    let policy = policy(table, at);
    let clients = table.subtable(&CLIENTS, |table| Some(clients(table))).flatten();
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
    let resolve = table.value(&RESOLVE).map(|v| RESOLVE.read(&v));
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

    let default_name = default_certificate.as_ref().and_then(|v| DEFAULT_CERTIFICATE.read(v));
    if let (Some(value), UnknownNames::Refuse) = (&default_certificate, policy.unknown_names) {
        value.wrong(Problem::new(
            "a default certificate is never served where unknown names are refused",
            "remove it, or say unknown_names = \"default\"",
        ));
    }
    let name = chosen_name(name.as_ref(), addresses.as_deref(), at, claims)?;
    let (certificates, served) = certificates?;
    let (acme_responder, answering) = acme_responder.unzip();
    Some(Listener {
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
    })
}

/// The routes of a listener, and its own destination.
fn leading(
    table: &Table<'_>,
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
        Some(written) => NAME.read(written)?,
        None => addresses?.first()?.to_string(),
    };
    claims.name(&name, written.unwrap_or(at))?;
    Some(name)
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

const LISTENER_NAME_BYTES_MAX: usize = 64;

pub(crate) static GROUP: Group = Group::new(
    "listener",
    "A listener: addresses that share certificates, TLS settings and backends. Each begins with \
     [[listener]].",
    &[
        &NAME,
        &ADDRESS,
        &ADDRESSES,
        &SOCKET_MODE,
        &CERTIFICATES,
        &UNKNOWN_NAMES,
        &DEFAULT_CERTIFICATE,
        &ON_DEMAND,
        &ACCEPT_PROXY,
        &PROXY_FROM,
        &ALLOW_ANYBODY,
        &PROXY_PASS_TLVS,
        &VERSIONS,
        &GROUPS,
        &SUITES,
        &SCHEMES,
        &REQUIRE_EXTENDED_MASTER_SECRET,
        &ALPN,
        &ALPN_MISMATCH,
        &BACKENDS,
        &RESOLVE,
        &BALANCE,
        &PROXY_HEADER,
        &PROXY_TLVS,
        &CONNECTIONS,
        &KEEPALIVE,
        &USER_TIMEOUT,
        &ALLOW,
        &DENY,
        &CONNECTIONS_PER_CLIENT,
        &HANDSHAKES_PER_CLIENT,
        &STEER,
        &PASSTHROUGH,
        &PLAIN,
        &ACME_RESPONDER,
        &ALLOW_REMOTE,
        &STARTTLS,
        &ROUTE,
        &CHECK,
        &CLIENTS,
        &BACKEND_TLS,
    ],
)
.shared(SharedKeys {
    from: "limits",
    doc: "The timeouts of [limits], for this listener alone.",
    keys: &TIMEOUT_KEYS,
});

static NAME: Key<Text<String>> = Key::new(
    "name",
    Text("letters, digits, \"-\", \"_\", \".\", \":\" and brackets, at most 64", listener_name),
    "The name in logs and metrics.",
)
.examples(&["\"web\""])
.without("the first address");
