//! The keys of a route: names, protocols, and what clients get who ask for them.

use std::collections::HashMap;

use sealane_engine::policy::Policy;

use super::super::mistake::Problem;
use super::super::reader::{Table, Value};
use super::super::route::{base_of, unconditional};
use super::super::{ClientTrust, Destination, Route, value};
use super::clients::clients;
use super::destination::{DESTINATION_KEYS, destination};
use super::policy::{HANDSHAKE_KEYS, alpn, handshake};
use super::shared::Lanes;

/// The routes of a listener whose own policy is `base`, and that asks for `clients`.
pub(super) fn routes(
    table: &mut Table<'_>,
    base: &Policy,
    clients: Option<&ClientTrust>,
    lanes: Lanes,
) -> Option<Vec<Route>> {
    let Some(written) = table.value("route") else { return Some(Vec::new()) };
    if written.is_table() {
        written.wrong(Problem::new(
            "expected a list of tables, found one table",
            "write [[listener.route]] in double brackets above each route",
        ));
        return None;
    }
    let mut taken = Taken::default();
    let routes = written.list(ROUTES_MAX, |v| {
        v.table(|table| route(table, &v, (base, clients, lanes), &mut taken))
    })?;
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
                let what = format!(
                    "{name:?}{} is also in the route of line {line}",
                    with.unwrap_or_default()
                );
                written
                    .wrong(Problem::new(what, "a name belongs to one: remove it from the other"));
            }
        }
    }
}

fn route<'d>(
    table: &mut Table<'d>,
    at: &Value<'d>,
    (base, asked, lanes): (&Policy, Option<&ClientTrust>, Lanes),
    taken: &mut Taken<'d>,
) -> Option<Route> {
    taken.routes.push(at.clone());
    let passes_on = table.boolean("passthrough").unwrap_or(false);
    let alpn = alpn(table);
    let names = table.required("names", "names = [\"api.example.com\"]").and_then(|written| {
        written.set(ROUTE_NAMES_MAX, |v| {
            let name = v.parsed(value::host_name)?;
            taken.take(&name, alpn.as_deref().unwrap_or_default(), v);
            Some(name)
        })
    });
    if passes_on {
        let remedy = "remove it, or passthrough";
        table.refuse(&HANDSHAKE_KEYS, "means nothing where TLS is passed on", remedy);
        table.refuse(&["clients"], "cannot be asked for where TLS is passed on", remedy);
        table.refuse(&["alpn"], "cannot be known where TLS is passed on", remedy);
    } else if alpn.is_some() {
        let remedy = "put it into a route of these names without alpn";
        table.refuse(&HANDSHAKE_KEYS, "is settled before a protocol is agreed on", remedy);
        table.refuse(&["clients"], "is settled before a protocol is agreed on", remedy);
    }
    let policy = handshake(table, at, base.clone());
    let clients = match table.value("clients") {
        Some(written) => written.table(|table| Some(clients(table))).flatten(),
        None => asked.filter(|_| !passes_on).cloned(),
    };
    let destination = destination_of_route(table, passes_on, lanes);
    Some(Route {
        alpn: alpn.unwrap_or_default(),
        clients,
        destination: destination?,
        names: names?,
        policy: (!passes_on).then_some(policy),
    })
}

/// The outer none for a mistake.
fn destination_of_route(
    table: &mut Table<'_>,
    passes_on: bool,
    lanes: Lanes,
) -> Option<Option<Destination>> {
    if !DESTINATION_KEYS.iter().any(|key| table.value(key).is_some()) {
        return Some(None);
    }
    let destination = destination(table, lanes).filter(|d| may_get_tls(passes_on, d, table))?;
    Some(Some(destination))
}

/// Whether backends can get what is passed on, if it is: the client's own TLS is not wrapped into
/// another.
pub(super) fn may_get_tls(
    passes_on: bool,
    destination: &Destination,
    table: &mut Table<'_>,
) -> bool {
    let is_wrapped = passes_on && destination.backend_tls.is_some();
    if let Some(written) = table.value("backends").filter(|_| is_wrapped) {
        written.wrong(Problem::new(
            "backends get the client's own TLS where it is passed on",
            "write them without tls://",
        ));
    }
    !is_wrapped
}

/// Routes of one listener.
const ROUTES_MAX: usize = 10_000;
/// Names of one route.
const ROUTE_NAMES_MAX: usize = 1_000;
