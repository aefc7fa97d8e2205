//! A frontend, or a `listen` section, as listeners: one for all bindings that speak alike.

use std::time::Duration;

use super::super::plan::{BackendTls, CONNECTIONS, LONGEST, Listener, Plan, Route, Spoken, number};
use super::super::remark::Remarks;
use super::super::tls::Tls;
use super::backend::{self, Backend};
use super::bind::Binding;
use super::condition::{self, Test};
use super::syntax::{Section, Statement, reason};
use super::{World, http_mode, is_own, no_time, section, time, with_defaults};

/// Reads it into the plan.
pub(super) fn read(
    section: &Section,
    sections: &[Section],
    world: &mut World<'_>,
    plan: &mut Plan,
) {
    let statements = with_defaults(section, sections);
    if let Some(http) = http_mode(&statements) {
        let why = format!(
            "mode http (line {}) rewrites requests; Sealane relays bytes, keep HAProxy behind it",
            http.line.number
        );
        plan.remarks.left_out(&section.line, "", why);
        return;
    }
    let mut frontend = Frontend { sections, ..Frontend::default() };
    frontend.listener.name = Some(section.name.clone());
    frontend.acls = statements.iter().copied().filter(|each| each.name() == "acl").collect();
    for statement in &statements {
        frontend.take(statement, section, world);
    }
    if section.kind == "listen" {
        let own = backend::read(section, sections, plan, &mut frontend.listener.remarks);
        frontend.own_backend = Some(own);
    }
    frontend.finish(section, plan);
}

#[derive(Default)]
struct Frontend<'s> {
    acls: Vec<&'s Statement>,
    bindings: Vec<(Binding, &'s Statement)>,
    default_backend: Option<&'s Statement>,
    fins: Vec<Duration>,
    listener: Listener,
    own_backend: Option<Backend>,
    sections: &'s [Section],
    uses: Vec<&'s Statement>,
    /// Whether rules look at the ClientHello.
    inspects: bool,
}

impl<'s> Frontend<'s> {
    fn take(&mut self, statement: &'s Statement, section: &Section, world: &mut World<'_>) {
        let line = &statement.line;
        let remarks = &mut self.listener.remarks;
        match statement.name() {
            "acl" | "mode" => {}
            "bind" => {
                let bases = &world.bases;
                let binding = Binding::read(statement, &world.common, bases, world.files, remarks);
                self.bindings.push((binding, statement));
            }
            "default_backend" => self.default_backend = Some(statement),
            "maxconn" => {
                let count = statement.word(1);
                self.listener.connections =
                    number(count, CONNECTIONS, line, "connections", remarks);
            }
            "option" if statement.word(1) == "clitcpka" => {
                let text = "option clitcpka: keepalive = { ... } says after how long";
                remarks.left_out(line, "keepalive", text);
            }
            "option" if NEEDLESS_OPTIONS.contains(&statement.word(1)) => {}
            "tcp-request" => self.take_rule(statement),
            "timeout" => self.take_timeout(statement),
            "use_backend" => self.uses.push(statement),
            name if section.kind == "listen" && backend::STATEMENTS.contains(&name) => {}
            // What defaults say of others is told of there.
            name if is_own(statement, section) => {
                remarks.left_out(line, "", reason(name, &[]).unwrap_or_default());
            }
            _ => {}
        }
    }

    fn take_timeout(&mut self, statement: &Statement) {
        let line = &statement.line;
        let (which, text) = (statement.word(1), statement.word(2));
        let key = match which {
            "client" => "client_timeout",
            "client-fin" | "server-fin" => "half_closed_timeout",
            "client-hs" => "handshake_timeout",
            "server" => "backend_timeout",
            "tunnel" => "idle_timeout",
            // Of the backend, or of HTTP.
            _ => return,
        };
        let Some(timeout) = time(text) else {
            no_time(line, key, text, &mut self.listener.remarks);
            return;
        };
        if key != "half_closed_timeout" {
            self.listener.set_timeout(key, timeout, line);
            return;
        }
        self.fins.push(timeout);
        let longest = self.fins.iter().copied().max().unwrap_or_default();
        self.listener.set_timeout(key, longest, line);
        if self.fins.iter().any(|each| *each != longest) {
            let text = "one time holds for both sides: the longer";
            self.listener.remarks.note(line, key, text);
        }
    }

    fn take_rule(&mut self, statement: &Statement) {
        let (line, listener) = (&statement.line, &mut self.listener);
        let at = |word: &str| statement.words.iter().position(|each| each == word);
        let condition = at("if").and_then(|at| {
            let read = condition::read(statement.words.get(at..)?, &self.acls)?;
            match read.as_slice() {
                [tests] if tests.len() == 1 => tests.first().cloned(),
                _ => None,
            }
        });
        match (statement.word(1), statement.word(2), condition) {
            ("inspect-delay", _, _) | ("content", "accept", Some(Test::Hello)) => {
                self.inspects = true;
            }
            ("connection", "reject", Some(Test::Source(networks))) => {
                listener.deny.extend(networks);
            }
            ("connection", "expect-proxy", Some(Test::Source(networks))) => {
                listener.accept_proxy.get_or_insert_default().extend(networks);
                let text = "who is from elsewhere is refused here, and is let in without a header \
                            by HAProxy";
                listener.remarks.left_out(line, "accept_proxy", text);
            }
            ("connection", "expect-proxy", None) if at("if").is_none() => {
                listener.accept_proxy = Some(Vec::new());
            }
            _ => {
                let why = "of rules Sealane has allow, deny, accept_proxy, connections_per_client \
                           and handshakes_per_client";
                listener.remarks.left_out(line, "", why);
            }
        }
    }

    fn finish(mut self, section: &Section, plan: &mut Plan) {
        let mut listener = std::mem::take(&mut self.listener);
        let passes_on = self.inspects && self.bindings.iter().all(|(each, _)| !each.is_tls);
        if passes_on {
            listener.spoken = Spoken::TlsPassedOn;
        }
        let default = match (self.own_backend.take(), self.default_backend) {
            (Some(own), None) => Some(own),
            (_, Some(statement)) => self.backend(statement, plan, &mut listener.remarks),
            (None, None) => None,
        };
        if let Some(default) = default {
            default.timeouts(&mut listener);
            listener.destination = default.destination;
        }
        for statement in std::mem::take(&mut self.uses) {
            self.route(statement, passes_on, &mut listener, plan);
        }
        if listener.destination.backends.is_empty() && !listener.routes.is_empty() {
            let text = "there is no default_backend: who has none of the names meets a port at \
                        which nobody listens";
            listener.remarks.note(&section.line, "backends", text);
            listener.destination.backends.push(NOBODY.into());
        }
        set_idle_timeout(&mut listener);
        self.split(section, &listener, plan);
    }

    fn backend(
        &self,
        statement: &Statement,
        plan: &mut Plan,
        remarks: &mut Remarks,
    ) -> Option<Backend> {
        let name = statement.word(1);
        match section(self.sections, &["backend", "listen"], name) {
            Some(found) => Some(backend::read(found, self.sections, plan, remarks)),
            None => {
                remarks.left_out(&statement.line, "backends", format!("no backend {name:?}"));
                None
            }
        }
    }

    /// Takes `use_backend` as a route, if it decides by the server name.
    fn route(
        &self,
        statement: &Statement,
        passes_on: bool,
        listener: &mut Listener,
        plan: &mut Plan,
    ) {
        let line = &statement.line;
        let read = condition::read(statement.words.get(2..).unwrap_or_default(), &self.acls);
        let named = read.and_then(|alternatives| by_name(alternatives, passes_on));
        let Some((names, alpn, is_deeper)) = named else {
            let why = "routes are by server name, and by the protocol that was agreed on for it";
            listener.remarks.left_out(line, "route.names", why);
            return;
        };
        let Some(backend) = self.backend(statement, plan, &mut listener.remarks) else { return };
        if is_deeper {
            let why = "a wildcard stands for one label: name others";
            listener.remarks.left_out(line, "route.names", why);
        }
        // The first rule for a name decides.
        let is_taken = |name: &String| {
            let mut routes = listener.routes.iter();
            routes.any(|route| route.names.contains(name) && route.alpn == alpn)
        };
        let names: Vec<_> = names.into_iter().filter(|name| !is_taken(name)).collect();
        if !names.is_empty() {
            let destination = backend.destination;
            listener.routes.push(Route { names, alpn, destination, ..Route::default() });
        }
    }

    /// A listener for all bindings that speak alike.
    fn split(self, section: &Section, listener: &Listener, plan: &mut Plan) {
        let mut listeners: Vec<Listener> = Vec::new();
        for (binding, statement) in self.bindings {
            let mut own = listener.clone();
            if binding.is_tls {
                own.clients = binding.clients();
                own.certificates.clone_from(&binding.certificates);
                own.refuses_unknown_names = binding.is_strict;
                own.alpn.clone_from(&binding.alpn);
                own.goes_on_without_alpn = true;
                own.tls.clone_from(&binding.tls);
                own.spoken = Spoken::Tls;
            } else if own.spoken != Spoken::TlsPassedOn {
                own.spoken = Spoken::Plain;
                own.tls = Tls::default();
                if own.destination.tls.is_none() {
                    let why = "bytes in the clear on both sides: keep HAProxy for it";
                    plan.remarks.left_out(&statement.line, "", why);
                    continue;
                }
            }
            if binding.accepts_proxy && own.accept_proxy.is_none() {
                own.accept_proxy = Some(Vec::new());
                own.remarks.note(&statement.line, "accept_proxy", BELIEVES_EVERYBODY);
            }
            for address in &binding.addresses {
                own.listen(address, &statement.line);
            }
            match listeners.iter_mut().find(|each| is_alike(each, &own)) {
                Some(each) => each.addresses.append(&mut own.addresses),
                None => {
                    if !listeners.is_empty() {
                        own.name = Some(format!("{}-{}", section.name, listeners.len() + 1));
                    }
                    listeners.push(own);
                }
            }
        }
        plan.listeners.append(&mut listeners);
    }
}

/// Names and protocols that a condition decides by, and whether names have ends of any depth.
fn by_name(
    alternatives: Vec<Vec<Test>>,
    passes_on: bool,
) -> Option<(Vec<String>, Vec<String>, bool)> {
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
        Test::Names { names, is_deeper, .. } => Some((names, alpn, is_deeper)),
        _ => None,
    }
}

/// Whether two differ in their addresses alone.
fn is_alike(one: &Listener, other: &Listener) -> bool {
    one.spoken == other.spoken
        && one.tls == other.tls
        && one.certificates == other.certificates
        && one.clients == other.clients
        && one.alpn == other.alpn
        && one.accept_proxy == other.accept_proxy
        && one.refuses_unknown_names == other.refuses_unknown_names
}

/// An idle connection ends where HAProxy ends it: by `timeout tunnel`, or when either side has been
/// silent for too long.
fn set_idle_timeout(listener: &mut Listener) {
    let of = |key: &str| listener.timeouts.get(key).copied();
    let silence = of("client_timeout").max(of("backend_timeout"));
    match (of("idle_timeout"), silence) {
        (Some(_), _) => {
            // A tunnel has no other timeout, and in TCP mode every connection is one.
            listener.timeouts.remove("client_timeout");
            listener.timeouts.remove("backend_timeout");
        }
        (None, Some(silence)) => {
            listener.timeouts.insert("idle_timeout", silence);
        }
        (None, None) => {
            let why = "no timeout is written, so HAProxy has none; Sealane's own default is 5m";
            listener.default_idle_timeout(LONGEST, why);
        }
    }
    // Whoever comes in the clear must get TLS from us.
    if listener.spoken == Spoken::Plain && listener.destination.tls.is_none() {
        listener.destination.tls = Some(BackendTls::default());
    }
}

const BELIEVES_EVERYBODY: &str =
    "everybody is believed, as HAProxy does; better name the networks of your balancers";
/// Where nobody listens: tcpmux, which no system has had for decades.
pub(super) const NOBODY: &str = "127.0.0.1:1";
/// Options that say what is so anyway.
const NEEDLESS_OPTIONS: [&str; 3] = ["dontlognull", "tcp-smart-accept", "tcp-smart-connect"];
