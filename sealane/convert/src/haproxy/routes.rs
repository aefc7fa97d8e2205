//! `use_backend` as routes by server name, of which HAProxy takes the first that holds: [`Routes`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::super::files::Files;
use super::super::plan::{Listener, Route};
use super::super::remark::{Line, ONE_LABEL, Remarks};
use super::backend::{Backend, Timeouts};
use super::condition::{self, Acls, Test};
use super::syntax::Statement;

/// The destinations that the rules of a listener have set so far.
pub(super) struct Routes {
    /// Whether they decide by the ClientHello, and TLS is passed on.
    passes_on: bool,
    /// The timeouts that the listener has from its first backend.
    pub(super) timeouts: Option<Timeouts>,
    /// Protocols by name; an empty one is all of them. An empty name is all names.
    taken: HashMap<String, HashSet<String>>,
    /// Routes of all names with a protocol, which come before later ones of a name.
    of_all_names: Vec<Route>,
    /// Names that have a copy of one of these, by its position.
    copied: HashSet<(String, usize)>,
}

/// The server names and protocols that a rule matches; without names, protocols alone.
pub(super) struct Rule {
    alpn: Vec<String>,
    names: Vec<String>,
}

impl Routes {
    pub(super) fn new(passes_on: bool) -> Self {
        Self {
            passes_on,
            timeouts: None,
            taken: HashMap::new(),
            of_all_names: Vec::new(),
            copied: HashSet::new(),
        }
    }

    /// The match of a rule, if it is by the server name.
    pub(super) fn rule(
        &self,
        statement: &Statement,
        acls: &Acls<'_>,
        files: &Files,
        remarks: &mut Remarks,
    ) -> Option<Rule> {
        let read = condition::read(statement.words.get(2..).unwrap_or_default(), acls, files);
        let named = read.and_then(|alternatives| by_name(alternatives, self.passes_on));
        let Some((rule, is_deeper)) = named else {
            let why = "other rules decide about these clients; routes are by server name, and by \
                       the protocol that was agreed on for it";
            remarks.admits_more(&statement.line, "route.names", why);
            return None;
        };
        if is_deeper {
            remarks.left_out(&statement.line, "route.names", ONE_LABEL);
        }
        Some(rule)
    }

    /// The count of names that a rule would give to routes.
    pub(super) fn copies(&self, rule: &Rule) -> usize {
        (rule.names.len() + 1) * (self.of_all_names.len() + 1)
    }

    /// Leads clients that match a rule, and none before it, to a backend.
    pub(super) fn add(
        &mut self,
        Rule { mut alpn, mut names }: Rule,
        backend: Backend,
        line: &Line,
        listener: &mut Listener,
    ) {
        backend.put_check_into(listener, self.timeouts.is_none());
        match &self.timeouts {
            Some(first) => backend.timeouts.tell_unlike(first, line, &mut listener.remarks),
            None => {
                backend.timeouts.put_into(listener);
                self.timeouts = Some(backend.timeouts);
            }
        }
        if backend.destination.backends.is_empty() {
            let why = "the backend has no server that clients could reach";
            listener.remarks.left_out(line, "route.names", why);
            return;
        }
        if names.is_empty() {
            let taken = self.taken.entry(String::new()).or_default();
            let alpn: Vec<_> = alpn.into_iter().filter(|each| taken.insert(each.clone())).collect();
            if !alpn.is_empty() {
                let route = Route { alpn, destination: backend.destination, ..Route::default() };
                self.of_all_names.push(route.clone());
                listener.routes.push(route);
            }
            return;
        }
        if let Some(all) = self.taken.get("").filter(|_| !alpn.is_empty()) {
            alpn.retain(|each| !all.contains(each));
            if alpn.is_empty() {
                return;
            }
        }
        names.retain(|name| {
            let before: Vec<_> =
                wildcards(name).filter(|each| self.taken.contains_key(each)).collect();
            if !before.is_empty() {
                let why = format!("{name}: a rule before it has a wildcard that covers the name");
                listener.remarks.left_out(line, "route.names", why);
            }
            !before.iter().chain([name]).any(|each| self.is_taken(each, &alpn))
        });
        for name in &names {
            let taken = self.taken.entry(name.clone()).or_default();
            match alpn.as_slice() {
                [] => taken.extend([String::new()]),
                protocols => taken.extend(protocols.iter().cloned()),
            }
        }
        if !names.is_empty() {
            // A name with a route has none of the routes of all names, so it gets a copy of each.
            for (index, route) in self.of_all_names.iter().enumerate() {
                let is_new = |name: &&String| {
                    let has_own =
                        |each| self.taken.get(*name).is_some_and(|its| its.contains(each));
                    !route.alpn.iter().any(has_own) && self.copied.insert(((*name).clone(), index))
                };
                let names: Vec<_> = names.iter().filter(is_new).cloned().collect();
                if !names.is_empty() {
                    listener.routes.push(Route { names, ..route.clone() });
                }
            }
            let destination = backend.destination;
            listener.routes.push(Route { names, alpn, destination, ..Route::default() });
        }
    }

    fn is_taken(&self, name: &str, alpn: &[String]) -> bool {
        let Some(taken) = self.taken.get(name) else { return false };
        let is_of_all = !alpn.is_empty() && alpn.iter().all(|each| taken.contains(each));
        taken.contains("") || is_of_all
    }
}

/// The route that a name has for protocols without one: its own, or that of its wildcard.
pub(super) fn base<'r>(routes: &'r [Route], name: &str) -> Option<&'r Route> {
    let of = |name: &str| {
        let has_name = |route: &&Route| route.names.iter().any(|own| own == name);
        routes.iter().filter(|route| route.alpn.is_empty()).find(has_name)
    };
    of(name).or_else(|| of(&format!("*.{}", name.split_once('.')?.1)))
}

/// Makes the order of protocols that of the address, as in HAProxy. Sealane offers those of routes
/// first, in the order of the routes.
pub(super) fn keep_order(listener: &mut Listener, files: &Files) {
    let mut alpn = listener.alpn.clone();
    let mut seen = HashSet::new();
    alpn.retain(|protocol| seen.insert(protocol.clone()));
    // A rule about a protocol that HAProxy does not offer never holds.
    listener.routes.retain_mut(|route| {
        let is_of_all = route.alpn.is_empty();
        route.alpn.retain(|protocol| seen.contains(protocol));
        is_of_all || !route.alpn.is_empty()
    });
    // An empty name is all names.
    let mut offered: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for route in listener.routes.iter().filter(|route| !route.alpn.is_empty()) {
        let all = [String::new()];
        let names = if route.names.is_empty() { &all[..] } else { &route.names };
        for name in names {
            offered.entry(name.clone()).or_default().extend(&route.alpn);
        }
    }
    let is_kept = |order: &Vec<&String>| {
        let mut seen = HashSet::new();
        order.iter().copied().chain(&alpn).filter(|each| seen.insert(*each)).eq(&alpn)
    };
    if offered.values().all(is_kept) {
        return;
    }
    let names: Vec<String> = offered.into_keys().collect();
    let copies = (names.len() + listener.routes.len()).saturating_mul(alpn.len());
    if !files.spend_on_copies(copies) {
        return;
    }
    let routes = std::mem::take(&mut listener.routes);
    let (by_protocol, mut ordered): (Vec<_>, Vec<_>) =
        routes.into_iter().partition(|route| !route.alpn.is_empty());
    let unconditional = ordered.clone();
    let last = alpn.iter().rposition(|each| by_protocol.iter().any(|r| r.alpn.contains(each)));
    for protocol in alpn.iter().take(last.map_or(0, |last| last + 1)) {
        let mut others: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        for route in by_protocol.iter().filter(|route| route.alpn.contains(protocol)) {
            if route.names.is_empty() {
                others.remove("");
            }
            for name in &route.names {
                others.remove(name.as_str());
            }
            ordered.push(Route { alpn: vec![protocol.clone()], ..route.clone() });
        }
        for name in others {
            let above = base(&unconditional, name).map(|route| &route.destination);
            ordered.push(Route {
                names: if name.is_empty() { Vec::new() } else { vec![name.to_owned()] },
                alpn: vec![protocol.clone()],
                destination: above.unwrap_or(&listener.destination).clone(),
                ..Route::default()
            });
        }
    }
    listener.routes = ordered;
}

/// Wildcards that stand for a name among others, and for those that are deeper.
fn wildcards(name: &str) -> impl Iterator<Item = String> {
    let parents = name.match_indices('.').map(|(at, _)| format!("*{}", &name[at..]));
    parents.filter(move |wildcard| wildcard != name)
}

/// The rule that a condition makes, and whether its names match ends of any depth.
fn by_name(alternatives: Vec<Vec<Test>>, passes_on: bool) -> Option<(Rule, bool)> {
    let mut parts = Vec::new();
    for tests in alternatives {
        let (mut names, mut alpn) = (None, Vec::new());
        for test in tests {
            match test {
                // No protocol is known where TLS is forwarded, and there is one at most.
                Test::Alpn(_) if passes_on || !alpn.is_empty() => return None,
                Test::Alpn(protocols) => alpn = protocols,
                Test::Hello => {}
                Test::Names { passes_on: of_hello, .. } if of_hello == passes_on => {
                    names = Some(test);
                }
                Test::Always | Test::Names { .. } | Test::Source(_) => return None,
            }
        }
        if names.is_none() && alpn.is_empty() {
            return None;
        }
        parts.push((names, alpn));
    }
    if parts.iter().all(|(names, _)| names.is_none()) {
        let alpn = parts.into_iter().flat_map(|(_, alpn)| alpn).collect();
        return Some((Rule { alpn, names: Vec::new() }, false));
    }
    let named = parts.into_iter().map(|(names, alpn)| Some((names?, alpn)));
    let parts: Vec<_> = named.collect::<Option<_>>()?;
    let mut parts = parts.into_iter();
    let first = parts.next()?;
    let (test, alpn) = parts.try_fold(first, |(test, alpn), (other, same)| {
        Some((condition::joined(test, other)?, alpn)).filter(|(_, alpn)| *alpn == same)
    })?;
    match test {
        Test::Names { names, is_deeper, .. } => Some((Rule { alpn, names }, is_deeper)),
        _ => None,
    }
}
