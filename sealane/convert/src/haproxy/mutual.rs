//! Client certificates that a `crt-list` requires for some of its certificates: [`Guard`].

use sealane_config::value;

use super::super::files::Files;
use super::super::plan::{Clients, Destination, Listener, Route};
use super::super::remark::{ASKED, Line, Remarks};
use super::bases::Bases;
use super::routes::base;

/// The demand of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Guard {
    pub(super) clients: Clients,
    /// Whether its certificate is served for names that no other covers.
    pub(super) is_default: bool,
    line: Line,
    names: Vec<String>,
}

impl Guard {
    /// Reads the part of a line behind its certificate: `[OPTIONS] NAMES`.
    pub(super) fn read(
        words: &[String],
        bases: &Bases,
        line: &Line,
        remarks: &mut Remarks,
    ) -> Option<Self> {
        let mut words = words.iter().map(String::as_str);
        let (mut clients, mut is_demanded, mut names) = (Clients::default(), false, Vec::new());
        let mut in_options = false;
        while let Some(word) = words.next() {
            match word {
                "[" | "]" => in_options = word == "[",
                "ca-file" if in_options => clients.roots = vec![bases.authority(words.next()?)],
                "crl-file" if in_options => clients.crls = vec![bases.authority(words.next()?)],
                "verify" if in_options => {
                    let demand = words.next()?;
                    is_demanded = demand != "none";
                    clients.is_required = demand == "required";
                }
                _ if in_options => {}
                name => names.extend(value::host_name(name).ok()),
            }
        }
        if is_demanded && !clients.is_required {
            remarks.admits_more(line, "route.clients.certificates", ASKED);
        }
        let guard = Self { clients, is_default: false, line: line.clone(), names };
        is_demanded.then_some(guard)
    }

    /// Gives the routes of a listener this demand, for the names of the line.
    pub(super) fn put_into(&self, listener: &mut Listener, files: &Files) {
        let line = &self.line;
        if self.is_default && !listener.refuses_unknown_names {
            listener.refuses_unknown_names = true;
            listener.remarks.left_out(line, "unknown_names", UNKNOWN_NAMES);
        }
        if self.names.is_empty() {
            return listener.remarks.admits_more(line, "certificates", NO_NAMES);
        }
        let copies = listener.routes.len() + self.names.len() * (listener.routes.len() + 1);
        if !files.spend_on_copies(copies) {
            return;
        }
        if self.names.iter().any(|name| name.starts_with("*.")) {
            listener.remarks.left_out(line, "route.names", WILDCARD);
        }
        let clients =
            Clients { allows_other_names: self.clients.is_required, ..self.clients.clone() };
        let key = "route.clients.allow_other_names";
        listener.remarks.note(line, key, OTHER_NAMES);
        let names = self.names.iter().filter(|name| !is_base(&listener.routes, name));
        let mut own: Vec<(String, Destination)> = Vec::new();
        for name in names {
            let above = base(&listener.routes, name).map(|route| &route.destination);
            own.push((name.clone(), above.unwrap_or(&listener.destination).clone()));
        }
        for (name, destination) in own {
            let has_name = |route: &Route| route.names.contains(&name);
            if !listener.routes.iter().any(has_name) {
                // A name with a route has none of the routes of all names.
                let of_all: Vec<_> = listener
                    .routes
                    .iter()
                    .filter(|route| route.names.is_empty())
                    .cloned()
                    .collect();
                let named = |route: Route| Route { names: vec![name.clone()], ..route };
                listener.routes.extend(of_all.into_iter().map(named));
            }
            listener.routes.push(Route { names: vec![name], destination, ..Route::default() });
        }
        let routes = std::mem::take(&mut listener.routes);
        for route in routes {
            if !route.alpn.is_empty() || route.clients.is_some() {
                listener.routes.push(route);
                continue;
            }
            let names = route.names.iter().cloned();
            let (guarded, open): (Vec<_>, Vec<_>) = names.partition(|name| self.covers(name));
            if !open.is_empty() {
                listener.routes.push(Route { names: open, ..route.clone() });
            }
            if !guarded.is_empty() {
                let clients = Some(clients.clone());
                listener.routes.push(Route { names: guarded, clients, ..route });
            }
        }
    }

    fn covers(&self, name: &str) -> bool {
        let parent = name.split_once('.').map_or("", |(_, parent)| parent);
        self.names.iter().any(|own| own == name || own.strip_prefix("*.") == Some(parent))
    }
}

/// Whether a name has a route for all protocols.
fn is_base(routes: &[Route], name: &str) -> bool {
    routes.iter().any(|route| route.alpn.is_empty() && route.names.iter().any(|own| own == name))
}

const NO_NAMES: &str = "client certificates are required for the names of this certificate alone: \
                        add [[listener.route]] with its names and [listener.route.clients]";
const OTHER_NAMES: &str = "as in HAProxy, a client without a certificate can use another name, and \
                           ask for the Host of these";
const UNKNOWN_NAMES: &str = "for names that no certificate covers HAProxy requires a client \
                             certificate; here they are refused";
const WILDCARD: &str = "a client certificate is required for every name of the wildcard, also if \
                        another certificate has it";
