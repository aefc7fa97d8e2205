//! A frontend, or a `listen` section, as listeners: one for all bindings that speak alike.

use std::collections::HashMap;
use std::time::Duration;

use super::super::files::Files;
use super::super::plan::{
    BackendTls, CONNECTIONS, LONGEST, Listener, NO_DEFAULT, Plan, Spoken, TLS_ONLY, host_and_port,
    is_tls_port, number,
};
use super::super::remark::{Remarks, believes_everybody};
use super::super::tls::Tls;
use super::access::Access;
use super::backend::{self, Backend};
use super::bind::Binding;
use super::condition::{self, Acls, Condition, Test};
use super::routes::Routes;
use super::syntax::{Section, Statement, tell_without_key};
use super::{
    World, disabled, http_mode, in_front, is_keepalive, is_own, no_time, take_keepalive, time,
    with_defaults,
};

/// Reads it into the plan.
pub(super) fn read(
    section: &Section,
    sections: &[Section],
    world: &mut World<'_>,
    plan: &mut Plan,
) {
    let statements = with_defaults(section, sections, world.files);
    if let Some(disabled) = disabled(&statements) {
        let why = format!("{} {} is disabled", section.kind, section.name);
        plan.remarks.left_out(&disabled.line, "", why);
        return;
    }
    if let Some(http) = http_mode(&statements) {
        in_front::read(section, &statements, http, world, plan);
        return;
    }
    let mut frontend = Frontend { sections, ..Frontend::default() };
    frontend.listener.name = Some(section.name.clone());
    for acl in statements.iter().copied().filter(|each| each.name() == "acl") {
        frontend.acls.entry(acl.word(1)).or_default().push(acl);
    }
    for statement in &statements {
        frontend.take(statement, section, world);
    }
    if section.kind == "listen" {
        let remarks = &mut frontend.listener.remarks;
        frontend.own_backend = Some(backend::read(section, sections, world, plan, remarks));
    }
    frontend.finish(section, world, plan);
}

#[derive(Default)]
struct Frontend<'s> {
    access: Access,
    acls: Acls<'s>,
    /// Those that rules lead to.
    backends: HashMap<&'s str, Backend>,
    bindings: Vec<(Binding, &'s Statement)>,
    default_backend: Option<&'s Statement>,
    fin: Option<Duration>,
    listener: Listener,
    own_backend: Option<Backend>,
    sections: &'s [Section],
    uses: Vec<&'s Statement>,
    /// Whether rules look at the ClientHello.
    inspects: bool,
    /// Whether a rule by protocol was left out.
    leaves_protocols_out: bool,
    /// Whether the default backend's servers are checked as servers of TLS.
    looks_like_tls: bool,
}

impl<'s> Frontend<'s> {
    fn take(&mut self, statement: &'s Statement, section: &Section, world: &mut World<'_>) {
        let line = &statement.line;
        let remarks = &mut self.listener.remarks;
        match statement.name() {
            "acl" | "enabled" | "mode" => {}
            "bind" => {
                let binding = Binding::read(statement, world, remarks);
                self.bindings.push((binding, statement));
            }
            "default_backend" => self.default_backend = Some(statement),
            "maxconn" => {
                let count = statement.word(1);
                self.listener.connections =
                    number(count, CONNECTIONS, line, "connections", remarks);
            }
            _ if is_keepalive(statement) => {
                if statement.word(1) == "clitcpka" {
                    let text = "keepalive is of clients and backends alike";
                    remarks.note(line, "keepalive", text);
                }
                take_keepalive(statement, "cli", &mut self.listener.keepalive);
            }
            "tcp-request" => self.take_rule(statement, world.files),
            "timeout" => self.take_timeout(statement),
            "use_backend" => self.uses.push(statement),
            name if section.kind == "listen" && backend::STATEMENTS.contains(&name) => {}
            "option" if section.kind == "listen" && backend::is_check(statement) => {}
            // Other statements of defaults get their remark there.
            _ if is_own(statement, section) => tell_without_key(statement, "", remarks),
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
        let before = self.fin.replace(timeout.max(self.fin.unwrap_or_default()));
        self.listener.set_timeout(key, timeout.max(before.unwrap_or_default()), line);
        if before.is_some_and(|before| before != timeout) {
            let text = "one time holds for both sides: the longer";
            self.listener.remarks.note(line, key, text);
        }
    }

    fn take_rule(&mut self, statement: &'s Statement, files: &Files) {
        let (line, listener) = (&statement.line, &mut self.listener);
        let (moment, action) = (statement.word(1), statement.word(2));
        self.inspects |= condition::looks_at(&statement.words, &self.acls, &OF_HELLO, files);
        let behind = if action == "expect-proxy" { 4 } else { 3 };
        let words = statement.words.get(behind..).unwrap_or_default();
        let condition = condition::single(words, &self.acls, files);
        match (moment, action, condition) {
            ("inspect-delay", _, _) => {}
            (
                "connection",
                "expect-proxy",
                Some(Condition { is_negated: false, test: Test::Source(networks) }),
            ) => {
                listener.accept_proxy.get_or_insert_default().extend(networks);
                let text = "who is from elsewhere is refused here, and is let in without a header \
                            by HAProxy";
                listener.remarks.left_out(line, "accept_proxy", text);
            }
            (
                "connection",
                "expect-proxy",
                Some(Condition { is_negated: false, test: Test::Always }),
            ) => listener.accept_proxy = Some(Vec::new()),
            (_, _, condition) => {
                if !self.access.add([moment, action], condition, line) {
                    listener.remarks.left_out(line, "", RULES);
                }
            }
        }
    }

    fn finish(mut self, section: &Section, world: &World<'_>, plan: &mut Plan) {
        let mut listener = std::mem::take(&mut self.listener);
        let looks = |each: &&Statement| {
            condition::looks_at(&each.words, &self.acls, &OF_HELLO, world.files)
        };
        self.inspects |= self.uses.iter().any(looks);
        let passes_on = self.inspects && self.bindings.iter().all(|(each, _)| !each.is_tls);
        if passes_on {
            listener.spoken = Spoken::TlsPassedOn;
        }
        let default = match (self.own_backend.take(), self.default_backend) {
            (Some(own), None) => Some(own),
            (_, Some(statement)) => self.backend(statement, world, plan, &mut listener.remarks),
            (None, None) => None,
        };
        let mut routes = Routes::new(passes_on);
        if let Some(default) = default {
            default.timeouts.put_into(&mut listener);
            default.put_check_into(&mut listener, true);
            listener.keepalive = listener.keepalive.or(default.keepalive);
            self.looks_like_tls = default.looks_like_tls;
            routes.timeouts = Some(default.timeouts);
            listener.destination = default.destination;
        }
        for statement in std::mem::take(&mut self.uses) {
            let rule = routes.rule(statement, &self.acls, world.files, &mut listener.remarks);
            let Some(rule) = rule else {
                self.leaves_protocols_out |=
                    condition::looks_at(&statement.words, &self.acls, &OF_ALPN, world.files);
                continue;
            };
            if let Some(backend) = self.backend(statement, world, plan, &mut listener.remarks) {
                let copies = routes.copies(&rule) + backend.destination.backends.len();
                if !world.files.spend_on_copies(copies) {
                    return;
                }
                routes.add(rule, backend, &statement.line, &mut listener);
            }
        }
        if listener.destination.backends.is_empty() {
            listener.remarks.left_out(&section.line, "backends", NO_DEFAULT);
        }
        set_idle_timeout(&mut listener);
        self.split(section, &listener, world, plan);
    }

    fn backend(
        &mut self,
        statement: &'s Statement,
        world: &World<'_>,
        plan: &mut Plan,
        remarks: &mut Remarks,
    ) -> Option<Backend> {
        let name = statement.word(1);
        if let Some(known) = self.backends.get(name) {
            return Some(known.clone());
        }
        match world.named.get(name) {
            Some(found) => {
                let read = backend::read(found, self.sections, world, plan, remarks);
                self.backends.insert(name, read.clone());
                Some(read)
            }
            None => {
                remarks.left_out(&statement.line, "backends", format!("no backend {name:?}"));
                None
            }
        }
    }

    /// A listener for all bindings that speak alike.
    fn split(self, section: &Section, listener: &Listener, world: &World<'_>, plan: &mut Plan) {
        let mut listeners: Vec<Listener> = Vec::new();
        let size = listener.routes.iter().map(|route| route.names.len() + 2).sum::<usize>()
            + listener.remarks.0.len()
            + self.access.len();
        for (binding, statement) in self.bindings {
            if !world.files.spend_on_copies(size + listeners.len() + 1) {
                return;
            }
            let mut own = listener.clone();
            if binding.is_tls {
                binding.put_tls_into(&mut own);
                if self.leaves_protocols_out && !own.alpn.is_empty() {
                    own.remarks.left_out(&statement.line, "alpn", NO_ALPN);
                    own.alpn.clear();
                }
                binding.put_names_into(&mut own, world.files);
            } else if own.spoken != Spoken::TlsPassedOn
                && own.destination.tls.is_none()
                && own.routes.is_empty()
                && (self.looks_like_tls || has_tls_port(&binding, &own))
            {
                own.spoken = Spoken::TlsPassedOn;
                own.remarks.left_out(&statement.line, "passthrough", TLS_ONLY);
            } else if own.spoken != Spoken::TlsPassedOn {
                own.spoken = Spoken::Plain;
                own.tls = Tls::default();
                if own.destination.tls.is_none() {
                    let why = "bytes in the clear on both sides: keep HAProxy for it";
                    plan.remarks.left_out(&statement.line, "", why);
                    continue;
                }
            }
            let before = own.remarks.0.len();
            if binding.accepts_proxy {
                own.accept_proxy.get_or_insert_default();
            }
            for address in &binding.addresses {
                own.listen(address, &statement.line);
            }
            self.access.put_into(&mut own);
            if own.accept_proxy.as_ref().is_some_and(Vec::is_empty) {
                let text = believes_everybody("HAProxy");
                own.remarks.note(&statement.line, "accept_proxy", text);
            }
            match listeners.iter_mut().find(|each| each.is_alike(&own)) {
                Some(each) => {
                    each.addresses.append(&mut own.addresses);
                    each.remarks.0.extend(own.remarks.0.drain(before..));
                }
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

/// Whether the ports of plain bytes on both sides are those of TLS.
fn has_tls_port(binding: &Binding, listener: &Listener) -> bool {
    let backends = listener.destination.backends.iter().map(|each| &each.address);
    binding.addresses.iter().chain(backends).any(|at| is_tls_port(host_and_port(at).1))
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
    // A listener for plaintext has to relay it over TLS.
    if listener.spoken == Spoken::Plain && listener.destination.tls.is_none() {
        listener.destination.tls = Some(BackendTls::default());
    }
}

const NO_ALPN: &str = "a rule by protocol was left out, so no protocol is offered: it could reach \
                       the wrong backend";
/// Fetches of conditions that read a ClientHello.
const OF_HELLO: [&str; 2] = ["req.ssl_", "req_ssl_"];
/// Fetches of conditions that read the negotiated protocol.
const OF_ALPN: [&str; 2] = ["ssl_fc_alpn", "ssl_fc_npn"];
const RULES: &str = "of rules Sealane has allow, deny, accept_proxy, connections_per_client and \
                     handshakes_per_client";
