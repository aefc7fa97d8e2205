//! `use_backend` as routes by server name, of which HAProxy takes the first that holds: [`Routes`].

use std::collections::{HashMap, HashSet};

use super::super::plan::{Listener, Route};
use super::super::remark::{Line, ONE_LABEL, Remarks};
use super::backend::{Backend, Timeouts};
use super::condition::{self, Test};
use super::syntax::Statement;

/// What the rules of a listener have taken so far.
pub(super) struct Routes {
    /// Whether they decide by the ClientHello, and TLS is passed on.
    passes_on: bool,
    /// What the listener has of its first backend.
    pub(super) timeouts: Option<Timeouts>,
    /// Protocols by name; an empty one is all of them.
    taken: HashMap<String, HashSet<String>>,
}

/// What a rule decides by.
pub(super) struct Rule {
    alpn: Vec<String>,
    names: Vec<String>,
}

impl Routes {
    pub(super) fn new(passes_on: bool) -> Self {
        Self { passes_on, timeouts: None, taken: HashMap::new() }
    }

    /// What a rule decides by, if that is the server name.
    pub(super) fn rule(
        &self,
        statement: &Statement,
        acls: &[&Statement],
        remarks: &mut Remarks,
    ) -> Option<Rule> {
        let read = condition::read(statement.words.get(2..).unwrap_or_default(), acls);
        let named = read.and_then(|alternatives| by_name(alternatives, self.passes_on));
        let Some((rule, is_deeper)) = named else {
            let why = "routes are by server name, and by the protocol that was agreed on for it";
            remarks.left_out(&statement.line, "route.names", why);
            return None;
        };
        if is_deeper {
            remarks.left_out(&statement.line, "route.names", ONE_LABEL);
        }
        Some(rule)
    }

    /// Leads what a rule decides about, and none before it does, to a backend.
    pub(super) fn add(
        &mut self,
        Rule { alpn, mut names }: Rule,
        backend: Backend,
        line: &Line,
        listener: &mut Listener,
    ) {
        match &self.timeouts {
            Some(first) => backend.timeouts.tell_unlike(first, line, &mut listener.remarks),
            None => {
                backend.timeouts.put_into(listener);
                self.timeouts = Some(backend.timeouts);
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

/// Wildcards that stand for a name among others, and for those that are deeper.
fn wildcards(name: &str) -> impl Iterator<Item = String> {
    let parents = name.match_indices('.').map(|(at, _)| format!("*{}", &name[at..]));
    parents.filter(move |wildcard| wildcard != name)
}

/// What a condition decides by, and whether names have ends of any depth.
fn by_name(alternatives: Vec<Vec<Test>>, passes_on: bool) -> Option<(Rule, bool)> {
    let mut parts = Vec::new();
    for tests in alternatives {
        let (mut names, mut alpn) = (None, Vec::new());
        for test in tests {
            match test {
                Test::Alpn(protocols) => alpn.extend(protocols),
                Test::Hello => {}
                Test::Names { passes_on: of_hello, .. } if of_hello == passes_on => {
                    names = Some(test);
                }
                Test::Names { .. } | Test::Source(_) => return None,
            }
        }
        parts.push((names?, alpn));
    }
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
