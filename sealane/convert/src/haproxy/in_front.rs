//! Conversion of a proxy that reads requests and terminates TLS: Sealane terminates TLS before it.

use super::super::plan::{Backend, LONGEST, Listener, Plan, ProxyHeader, host_and_port};
use super::super::remark::{Remarks, believes_everybody};
use super::World;
use super::bind::Binding;
use super::syntax::{Section, Statement};

/// Makes listeners of the addresses where a proxy in mode http terminates TLS. The proxy itself
/// stays, behind a PROXY header; comments name its lines that change.
pub(super) fn read(
    section: &Section,
    statements: &[&Statement],
    http: &Statement,
    world: &mut World<'_>,
    plan: &mut Plan,
) {
    let mut remarks = Remarks::default();
    tell_plain(statements, plan, world);
    let mut listeners: Vec<(Listener, u16)> = Vec::new();
    for statement in statements.iter().filter(|each| each.name() == "bind") {
        let mut of_binding = Remarks::default();
        let binding = Binding::read(statement, world, &mut of_binding);
        if !binding.is_tls {
            remarks.note(&statement.line, "", PLAIN_STAYS);
            continue;
        }
        if !world.files.spend(listeners.len() + 1) {
            continue;
        }
        let mut own = Listener { name: Some(section.name.clone()), ..Listener::default() };
        own.remarks = of_binding;
        binding.put_tls_into(&mut own);
        binding.put_names_into(&mut own, world.files);
        if binding.accepts_proxy {
            own.accept_proxy = Some(Vec::new());
            own.remarks.note(&statement.line, "accept_proxy", believes_everybody("HAProxy"));
        }
        for address in &binding.addresses {
            own.listen(address, &statement.line);
        }
        if let Some((each, port)) = listeners.iter_mut().find(|(each, _)| each.is_alike(&own)) {
            let why = format!("remove this line from HAProxy: {}", behind(*port));
            own.remarks.left_out(&statement.line, "backends", why);
            each.addresses.append(&mut own.addresses);
            each.remarks.0.append(&mut own.remarks.0);
            continue;
        }
        let port = world.free_port(own.addresses.first().map_or("", String::as_str));
        let why = format!("HAProxy stays, behind Sealane: {}", behind(port));
        own.remarks.left_out(&statement.line, "backends", why);
        own.destination.backends.push(Backend::at(format!("127.0.0.1:{port}")));
        own.destination.proxy_header = Some(ProxyHeader::V2(vec!["alpn", "authority", "ssl"]));
        for route in &mut own.routes {
            route.destination.clone_from(&own.destination);
        }
        own.default_idle_timeout(LONGEST, "HAProxy behind it ends idle connections");
        if !listeners.is_empty() {
            own.name = Some(format!("{}-{}", section.name, listeners.len() + 1));
        }
        listeners.push((own, port));
    }
    let Some((first, _)) = listeners.first_mut() else {
        let why = format!(
            "mode http (line {}) reads requests, and there is no TLS: it stays with HAProxy",
            http.line.number
        );
        if statements.iter().any(|each| each.name() == "stats") {
            plan.remarks.note(&section.line, "", "[admin] serves metrics, health and state");
        } else {
            plan.remarks.left_out(&section.line, "", why);
        }
        return;
    };
    for statement in statements {
        if statement.name() == "tcp-request" && statement.word(1) == "connection" {
            remarks.admits_more(&statement.line, "backends", SENDERS);
        }
        if statement.words.iter().any(|word| word.contains("ssl_fc") || word.contains("ssl_c_")) {
            remarks.left_out(&statement.line, "backends", NO_TLS_THERE);
        }
    }
    first.remarks.0.append(&mut remarks.0);
    plan.listeners.extend(listeners.into_iter().map(|(listener, _)| listener));
}

/// Reports that addresses without TLS stay, if others of the proxy do not.
fn tell_plain(statements: &[&Statement], plan: &mut Plan, world: &World<'_>) {
    let has_tls = |each: &Statement| each.words.iter().skip(2).any(|word| word == "ssl");
    let (tls, plain): (Vec<&Statement>, Vec<&Statement>) =
        statements.iter().filter(|each| each.name() == "bind").partition(|each| has_tls(each));
    if tls.is_empty() || !world.files.spend(plain.len()) {
        return;
    }
    for statement in plain {
        plan.remarks.left_out(&statement.line, "", PLAIN);
    }
}

/// The line of HAProxy behind Sealane.
fn behind(port: u16) -> String {
    format!("its line is \"bind 127.0.0.1:{port} accept-proxy\"")
}

impl World<'_> {
    /// A port of this machine that the file does not name, for the proxy behind `address`.
    fn free_port(&mut self, address: &str) -> u16 {
        let port: u16 = host_and_port(address).1.parse().unwrap_or(443);
        let mut behind =
            port.checked_add(PORTS_AWAY).unwrap_or_else(|| port.saturating_sub(PORTS_AWAY));
        while !self.ports.insert(behind) {
            behind = behind.wrapping_add(1).max(1_024);
            if !self.files.spend(1) {
                break;
            }
        }
        behind
    }
}

const PLAIN_STAYS: &str = "this address stays with HAProxy; if it only redirects to HTTPS, a \
                           listener with plain = \"redirect\" can take it";
/// From the port of Sealane to that of the proxy behind it.
const PORTS_AWAY: u16 = 10_000;
const PLAIN: &str = "this address without TLS stays with HAProxy; to send its clients to https \
                     alone, write a listener with plain = \"redirect\"";
const SENDERS: &str = "if HAProxy keeps this line, it sees the address of Sealane here: write \
                       \"session\" in place of \"connection\" there, which sees the client";
const NO_TLS_THERE: &str = "behind Sealane HAProxy sees plain bytes with a PROXY header: write \
                            { dst_port 443 } for ssl_fc, and fc_pp_authority for ssl_fc_sni";
