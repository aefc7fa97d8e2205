//! The table `listener.route`: what clients get that ask for certain names.

use std::collections::HashMap;

use sealane_engine::policy::Policy;
use sealane_operator::key::{Bool, Group, Key, Or, Set, SharedKeys, TableList, Text};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Readable as _, Table, Value};

use crate::backend_tls::BACKEND_TLS;
use crate::client_trust::{CLIENTS, ClientTrust, clients};
use crate::destination::{BACKENDS, BALANCE, DESTINATION_KEYS, Destination, Manner};
use crate::lanes::Lanes;
use crate::policy::{
    ALPN_MISMATCH, GROUPS, HANDSHAKE_KEYS, PROTOCOL, PROTOCOLS_MAX, REQUIRE_EXTENDED_MASTER_SECRET,
    SCHEMES, SUITES, VERSIONS, alpn, handshake,
};
use crate::proxy_header::{PROXY_HEADER, PROXY_TLVS};
use crate::value::{self, AlpnProtocol};

/// What clients get that ask for certain names. It has no place in an order: an exact name counts
/// before a wildcard, and a wildcard before the listener itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Protocols of which one must be agreed on for the route to count; empty: it counts anyway.
    pub alpn: Vec<Vec<u8>>,
    /// Whose certificates they are asked for, if they are.
    pub clients: Option<ClientTrust>,
    /// Where their plaintext goes; without it, where that of their listener goes.
    pub destination: Option<Destination>,
    /// In lower case, or `*.` before a name for exactly one more label. Empty: all names for which
    /// no route without protocols is; then there are protocols.
    pub names: Vec<String>,
    /// How their TLS is ended; without it, it is passed on as it is.
    pub policy: Option<Policy>,
}

impl Route {
    /// The route in messages.
    pub fn label(&self) -> String {
        match self.names.first() {
            Some(name) => format!("route {name:?}"),
            None => {
                let protocols = self.alpn.iter().map(|each| each.escape_ascii().to_string());
                format!("route of all names with {}", protocols.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// The routes that count whatever was agreed on, by name.
pub fn unconditional(routes: &[Route]) -> HashMap<&str, usize> {
    let routes = routes.iter().enumerate().filter(|(_, route)| route.alpn.is_empty());
    routes.flat_map(|(index, route)| route.names.iter().map(move |n| (&**n, index))).collect()
}

/// The one of `unconditional` that counts for `name` where no protocol leads elsewhere: its own, or
/// that of the wildcard for it.
pub fn base_of(unconditional: &HashMap<&str, usize>, name: &str) -> Option<usize> {
    let wildcard = || unconditional.get(&*format!("*.{}", name.split_once('.')?.1));
    unconditional.get(name).or_else(wildcard).copied()
}

/// The keys of a listener that hold for a route which does not write them.
#[derive(Clone, Copy)]
pub(crate) struct Defaults<'l, 'd> {
    pub(crate) clients: Option<&'l ClientTrust>,
    pub(crate) lanes: Lanes,
    pub(crate) manner: &'l Manner<'d>,
    pub(crate) policy: &'l Policy,
}

/// The routes of a listener with the keys `defaults`.
pub(crate) fn routes<'d>(table: &Table<'d>, defaults: Defaults<'_, 'd>) -> Option<Vec<Route>> {
    let Some(written) = table.value(&ROUTE) else { return Some(Vec::new()) };
    if written.is_table() {
        written.wrong(Problem::new(
            "expected a list of tables, found one table",
            "write [[listener.route]] in double brackets above each route",
        ));
        return None;
    }
    let mut taken = Taken::default();
    let routes = written
        .list(ROUTES_MAX, |v| v.table(&GROUP, |table| route(table, &v, defaults, &mut taken)))?;
    let written = taken.routes;
    let unconditional = unconditional(&routes);
    for (index, route) in routes.iter().enumerate().filter(|(_, route)| !route.alpn.is_empty()) {
        let mut bases = route.names.iter().filter_map(|name| base_of(&unconditional, name));
        if let Some(base) = bases.find(|base| routes[*base].policy.is_none()) {
            let line = written[base].place().line.unwrap_or_default();
            let what = format!(
                "the route of line {line} passes TLS of a name here on, so no protocol is known"
            );
            written[index].wrong(Problem::new(what, "remove one of the two"));
        }
    }
    Some(routes)
}

/// A name and a protocol, or none, lead to one route.
#[derive(Default)]
struct Taken<'d> {
    by_name: HashMap<(String, Option<Vec<u8>>), usize>,
    routes: Vec<Value<'d>>,
}

impl<'d> Taken<'d> {
    /// Takes `name` for the last of the routes; that it is taken is a mistake.
    fn take(&mut self, name: &str, alpn: &[Vec<u8>], written: &Value<'d>) {
        let protocols = alpn.iter().cloned().map(Some);
        let every = protocols.chain(alpn.is_empty().then_some(None));
        for protocol in every.collect::<Vec<_>>() {
            let with =
                protocol.as_deref().map(|p| format!(" with {:?}", p.escape_ascii().to_string()));
            let key = (name.to_owned(), protocol);
            if let Some(first) = self.by_name.insert(key, self.routes.len() - 1) {
                let line = self.routes[first].place().line.unwrap_or_default();
                let (with, first) = (with.unwrap_or_default(), format!("route of line {line}"));
                let (what, remedy) = match name {
                    EVERY_NAME => (
                        format!("the {first} also has all names{with}"),
                        "a protocol belongs to one: remove it from the other",
                    ),
                    _ => (
                        format!("{name:?}{with} is also in the {first}"),
                        "a name belongs to one: remove it from the other",
                    ),
                };
                written.wrong(Problem::new(what, remedy));
            }
        }
    }
}

fn route<'d>(
    table: &Table<'d>,
    at: &Value<'d>,
    defaults: Defaults<'_, 'd>,
    taken: &mut Taken<'d>,
) -> Option<Route> {
    taken.routes.push(at.clone());
    let passes_on = table.get(&PASSTHROUGH);
    let alpn = table.value(&ALPN).and_then(|v| alpn(&v, &ALPN));
    let protocols = alpn.as_deref().unwrap_or_default();
    let written_names = match protocols {
        [] => table.required(&NAMES, "names = [\"api.example.com\"]"),
        _ => table.value(&NAMES),
    };
    let names = match written_names {
        Some(written) => written.set(NAMES.kind.1, |v| {
            let name = NAMES.kind.0.read(v)?;
            taken.take(&name, protocols, v);
            Some(name)
        }),
        None if protocols.is_empty() => None,
        None => {
            taken.take(EVERY_NAME, protocols, at);
            Some(Vec::new())
        }
    };
    if passes_on {
        let remedy = "remove it, or passthrough";
        table.refuse(&HANDSHAKE_KEYS, "means nothing where TLS is passed on", remedy);
        table.refuse(&[CLIENTS.name], "cannot be asked for where TLS is passed on", remedy);
        table.refuse(&[ALPN.name], "cannot be known where TLS is passed on", remedy);
    } else if alpn.is_some() {
        let remedy = "put it into a route of these names without alpn";
        table.refuse(&HANDSHAKE_KEYS, "is settled before a protocol is agreed on", remedy);
        table.refuse(&[CLIENTS.name], "is settled before a protocol is agreed on", remedy);
    }
    let policy = handshake(table, at, defaults.policy.clone());
    let clients = match table.value(&CLIENTS) {
        Some(written) => written.table(CLIENTS.kind.0, |table| Some(clients(table))).flatten(),
        None => defaults.clients.filter(|_| !passes_on).cloned(),
    };
    let destination = destination_of_route(table, passes_on, defaults);
    Some(Route {
        alpn: alpn.unwrap_or_default(),
        clients,
        destination: destination?,
        names: names?,
        policy: (!passes_on).then_some(policy),
    })
}

/// The outer none for a mistake.
fn destination_of_route<'d>(
    table: &Table<'d>,
    passes_on: bool,
    defaults: Defaults<'_, 'd>,
) -> Option<Option<Destination>> {
    if !DESTINATION_KEYS.iter().any(|key| table.has(key)) {
        return Some(None);
    }
    let destination = defaults.manner.of_route(table, defaults.lanes);
    Some(Some(destination.filter(|destination| may_get_tls(passes_on, destination, table))?))
}

/// Whether backends can get what is passed on, if it is: the client's own TLS is not wrapped into
/// another.
pub(crate) fn may_get_tls(passes_on: bool, destination: &Destination, table: &Table<'_>) -> bool {
    let is_wrapped = passes_on && destination.backend_tls.is_some();
    if let Some(written) = table.value(&BACKENDS).filter(|_| is_wrapped) {
        written.wrong(Problem::new(
            "backends get the client's own TLS where it is passed on",
            "write them without tls://",
        ));
    }
    !is_wrapped
}

pub(crate) fn ends_tls(routes: &[Route]) -> bool {
    routes.iter().any(|route| route.policy.is_some())
}

/// Each route as it is written.
pub(crate) fn written_routes<'d>(table: &Table<'d>) -> Vec<Value<'d>> {
    let written = table.value(&ROUTE).and_then(|v| v.list(usize::MAX, Some));
    written.unwrap_or_default()
}

/// In the place of a name: a route without names has all for which no other route is.
const EVERY_NAME: &str = "";

/// Routes of one listener.
const ROUTES_MAX: usize = 10_000;

pub(crate) static ROUTE: Key<TableList> = Key::new("route", TableList(&GROUP, ROUTES_MAX), "");

static GROUP: Group = Group::new(
    "listener.route",
    "Backends and settings for certain names or protocols, at most 10,000 in a listener. An exact \
     name counts before a wildcard, and a wildcard before the listener. The order of routes means \
     nothing.",
    &[&NAMES, &ALPN, &PASSTHROUGH],
)
.example(
    "[[listener]]\naddress = \"0.0.0.0:443\"\n\
     certificates = [\"/etc/sealane/certificates\"]\nbackends = [\"127.0.0.1:8080\"]\n\n\
     [[listener.route]]\nnames = [\"api.example.com\"]\nbackends = [\"127.0.0.1:8081\"]\n",
)
.shared(SharedKeys {
    from: "listener",
    doc: "Keys of the listener that a route can write too. A key that the route does not write is \
          the listener's; a table counts as one key. A route with alpn cannot have the first \
          seven; a route needs backends for balance, proxy_header, proxy_tlvs and backend_tls. \
          Every other key of the listener holds for all its routes.",
    keys: &[
        &VERSIONS,
        &GROUPS,
        &SUITES,
        &SCHEMES,
        &REQUIRE_EXTENDED_MASTER_SECRET,
        &ALPN_MISMATCH,
        &CLIENTS,
        &BACKENDS,
        &BALANCE,
        &PROXY_HEADER,
        &PROXY_TLVS,
        &BACKEND_TLS,
    ],
});

static NAMES: Key<Set<Text<String>>> = Key::new(
    "names",
    Set(Text("host name", value::host_name), 1_000),
    "Host names. \"*.example.com\" is every name with one label more. Required without alpn.",
)
.examples(&["[\"api.example.com\", \"*.api.example.com\"]"]);

static ALPN: Key<Set<Text<AlpnProtocol>>> = Key::new(
    "alpn",
    Set(Text(PROTOCOL, value::alpn_protocol), PROTOCOLS_MAX),
    "The route counts only if one of these protocols was negotiated. Sealane offers them to \
     clients that ask for these names, before those of the listener. A client that offers only \
     others is refused, unless the listener has one of them or alpn_mismatch is \"none\". Without \
     names, such a route counts for all clients that ask for a name which is in no route's names.",
)
.examples(&["[\"h2\"]"])
.without("the protocol means nothing");

static PASSTHROUGH: Key<Or<Bool>> = Key::new(
    "passthrough",
    Or(Bool, false),
    "TLS is not terminated: the backend gets the ClientHello and all that follows, and needs the \
     certificate. The name is the one in the ClientHello, also where that hides another (ECH).",
)
.examples(&["true"])
.see(&["listener.passthrough"]);
