//! A server of nginx's stream module as a listener, or as several where its addresses differ.

use std::time::Duration;

use super::super::plan::{
    BackendTls, CONNECTIONS, Certificate, Clients, Destination, KeepAlive, Listener, Plan,
    ProxyHeader, Spoken, endpoint, host_and_port, number,
};
use super::super::remark::{Line, Remarks};
use super::super::tls;
use super::syntax::{Directive, reason};
use super::{Mapped, Shared, backend, broken, routes, time_ms};

/// What the directives of a server say.
#[derive(Default)]
pub(super) struct Server {
    addresses: Vec<Listen>,
    backend_certificate: (Option<String>, Option<String>),
    certificates: Vec<String>,
    clients: Clients,
    keys: Vec<String>,
    listener: Listener,
    pass: Option<(String, Line)>,
    prereads: bool,
    speaks_tls_to_backends: bool,
    tls_to_backends: BackendTls,
    trusts: Vec<String>,
    verifies_backends: bool,
    verify: Option<(String, Line)>,
}

struct Listen {
    address: String,
    has_proxy: bool,
    is_tls: bool,
    keepalive: Option<KeepAlive>,
    line: Line,
}

impl Server {
    /// Makes listeners of its directives.
    pub(super) fn put_into<'d>(
        mut self,
        plan: &mut Plan,
        directives: impl Iterator<Item = &'d Directive>,
        shared: &Shared<'_>,
        line: &Line,
    ) {
        // Unless it is told otherwise.
        self.listener.tls.client_order = true;
        for directive in directives {
            if !self.set_tls(directive) && !self.set_backend(directive, plan) {
                self.set_listener(directive, shared);
            }
        }
        self.finish();
        let destination = |target: &str, remarks: &mut Remarks| {
            let mut destination = self.listener.destination.clone();
            match shared.groups.get(target) {
                Some(group) => read_group(group, &mut destination, remarks),
                None => destination.add_backend(&backend(target), line, remarks),
            }
            for backend in &mut destination.backends {
                if self.speaks_tls_to_backends {
                    backend.insert_str(0, "tls://");
                }
            }
            destination
        };
        let mut listener = self.listener.clone();
        match &self.pass {
            Some((target, line)) if target.starts_with('$') => {
                lead(target, line, shared, destination, &mut listener);
            }
            Some((target, _)) => {
                listener.destination = destination(target, &mut listener.remarks);
            }
            None => {
                let why = "a server without proxy_pass answers itself: keep nginx for it";
                listener.remarks.left_out(line, "", why);
            }
        }
        self.split(plan, &listener);
    }

    /// A listener for each kind of address.
    fn split(self, plan: &mut Plan, listener: &Listener) {
        for is_tls in [true, false] {
            for has_proxy in [false, true] {
                let of_kind = |each: &&Listen| each.is_tls == is_tls && each.has_proxy == has_proxy;
                let addresses: Vec<_> = self.addresses.iter().filter(of_kind).collect();
                let Some(first) = addresses.first() else { continue };
                let mut listener = listener.clone();
                if !is_tls && !self.prereads && !self.speaks_tls_to_backends {
                    let why = "bytes in the clear on both sides: keep nginx for it";
                    plan.remarks.left_out(&first.line, "", why);
                    continue;
                }
                listener.spoken = match (is_tls, self.prereads) {
                    (true, _) => Spoken::Tls,
                    (false, true) => Spoken::TlsPassedOn,
                    (false, false) => Spoken::Plain,
                };
                if !has_proxy {
                    listener.accept_proxy = None;
                } else if listener.accept_proxy.is_none() {
                    listener.accept_proxy = Some(Vec::new());
                    listener.remarks.note(&first.line, "accept_proxy", BELIEVES_EVERYBODY);
                }
                if listener.spoken != Spoken::Tls {
                    listener.certificates.clear();
                    listener.clients = None;
                    listener.tls = tls::Tls::default();
                    listener.alpn.clear();
                }
                listener.keepalive = addresses.iter().find_map(|each| each.keepalive);
                for each in addresses {
                    listener.listen(&each.address, &each.line);
                }
                plan.listeners.push(listener);
            }
        }
    }

    /// Takes a directive about TLS to clients, if it is one.
    fn set_tls(&mut self, directive: &Directive) -> bool {
        let (line, words) = (&directive.line, directive.words.as_slice());
        let first = words.get(1).map_or("", String::as_str);
        let (listener, remarks) = (&mut self.listener.tls, &mut self.listener.remarks);
        match directive.name() {
            "ssl_alpn" => self.listener.alpn = words[1..].to_vec(),
            "ssl_certificate" => self.certificates.push(first.to_owned()),
            "ssl_certificate_key" => self.keys.push(first.to_owned()),
            "ssl_ciphers" => listener.set_ciphers(first, line, remarks),
            "ssl_client_certificate" => self.clients.roots = vec![first.to_owned()],
            "ssl_conf_command" if first == "Ciphersuites" => {
                listener.set_ciphersuites(words.get(2).map_or("", String::as_str), line, remarks);
            }
            "ssl_crl" => self.clients.crls = vec![first.to_owned()],
            "ssl_ecdh_curve" => listener.set_groups(first, line, remarks),
            "ssl_handshake_timeout" => match time_ms(first) {
                Some(ms) => {
                    let timeout = Duration::from_millis(ms);
                    self.listener.set_timeout("handshake_timeout", timeout, line);
                }
                None => broken(line, "handshake_timeout", first, remarks),
            },
            "ssl_prefer_server_ciphers" => listener.client_order = first != "on",
            "ssl_preread" => self.prereads = first == "on",
            "ssl_protocols" => listener.versions = versions(words, "versions", line, remarks),
            "ssl_session_cache" if ["none", "off"].contains(&first) => {}
            "ssl_session_tickets" if first == "on" => {}
            "ssl_session_tickets" => {
                let why = "[tickets] with count = 0 turns resumption off, for all listeners";
                remarks.left_out(line, "", why);
            }
            "ssl_trusted_certificate" => self.trusts.push(first.to_owned()),
            "ssl_verify_client" => self.verify = Some((first.to_owned(), line.clone())),
            "ssl_verify_depth" => {
                remarks.note(line, "clients.roots", "a chain may have 8 certificates");
            }
            _ => return false,
        }
        true
    }

    /// Takes a directive about backends, if it is one.
    fn set_backend(&mut self, directive: &Directive, plan: &mut Plan) -> bool {
        let (line, words) = (&directive.line, directive.words.as_slice());
        let first = words.get(1).map_or("", String::as_str);
        let remarks = &mut self.listener.remarks;
        let tls = &mut self.tls_to_backends;
        match directive.name() {
            "proxy_connect_timeout" => match time_ms(first) {
                Some(ms) => plan.set_connect_timeout(Duration::from_millis(ms), line),
                None => broken(line, "limits.connect_timeout", first, remarks),
            },
            "proxy_next_upstream" | "proxy_ssl_server_name" | "proxy_ssl_session_reuse"
                if first == "on" => {}
            "proxy_pass" => self.pass = Some((first.to_owned(), line.clone())),
            "proxy_protocol" | "proxy_socket_keepalive" if first == "off" => {}
            "proxy_protocol" => self.listener.destination.proxy_header = Some(ProxyHeader::V1),
            "proxy_ssl" => self.speaks_tls_to_backends = first == "on",
            "proxy_ssl_certificate" => self.backend_certificate.0 = Some(first.to_owned()),
            "proxy_ssl_certificate_key" => self.backend_certificate.1 = Some(first.to_owned()),
            "proxy_ssl_name" if first.starts_with('$') => {
                let why = "a variable: name the one that backends prove in server_name";
                remarks.left_out(line, "backend_tls.server_name", why);
            }
            "proxy_ssl_name" => tls.server_name = Some(first.to_owned()),
            "proxy_ssl_protocols" => {
                tls.versions = versions(words, "backend_tls.versions", line, remarks);
            }
            "proxy_ssl_server_name" => {
                remarks.note(line, "backends", "backends are told the name that they must prove");
            }
            "proxy_ssl_trusted_certificate" => tls.roots = vec![first.to_owned()],
            "proxy_ssl_verify" => self.verifies_backends = first == "on",
            "proxy_socket_keepalive" => {
                remarks.left_out(line, "keepalive", "keepalive is of clients and backends alike");
            }
            "proxy_timeout" => match time_ms(first) {
                Some(ms) => {
                    self.listener.set_timeout("idle_timeout", Duration::from_millis(ms), line);
                }
                None => broken(line, "idle_timeout", first, remarks),
            },
            _ => return false,
        }
        true
    }

    fn set_listener(&mut self, directive: &Directive, shared: &Shared<'_>) {
        let (line, words) = (&directive.line, directive.words.as_slice());
        let first = words.get(1).map_or("", String::as_str);
        let remarks = &mut self.listener.remarks;
        match directive.name() {
            "allow" | "deny" => self.set_network(directive.name() == "allow", first, line),
            "limit_conn" if shared.zones.get(first) == Some(&true) => {
                let count = words.get(2).map_or("", String::as_str);
                let key = "connections_per_client";
                self.listener.connections_per_client =
                    number(count, CONNECTIONS, line, key, remarks);
            }
            "limit_conn" => {
                let why = "connections are limited for each client, and for a listener in all";
                remarks.left_out(line, "connections", why);
            }
            "listen" => self.set_address(directive),
            "preread_timeout" => match time_ms(first) {
                Some(ms) => {
                    let timeout = Duration::from_millis(ms);
                    self.listener.set_timeout("handshake_timeout", timeout, line);
                }
                None => broken(line, "handshake_timeout", first, remarks),
            },
            "set_real_ip_from" => {
                let network = if first == "unix:" { "unix" } else { first };
                let from = self.listener.accept_proxy.get_or_insert_with(Vec::new);
                from.push(network.to_owned());
                let text = "others are refused here; nginx lets them in by their own address";
                remarks.note(line, "proxy_from", text);
            }
            "tcp_nodelay" if first == "on" => {}
            name => remarks.left_out(line, "", reason(name)),
        }
    }

    /// Takes a network; here what is denied is denied, whatever comes first.
    fn set_network(&mut self, is_allowed: bool, network: &str, line: &Line) {
        let listener = &mut self.listener;
        match (is_allowed, network) {
            (false, "all") if listener.allow.is_empty() => {
                let why = "nobody may come: remove the listener";
                listener.remarks.left_out(line, "deny", why);
            }
            // Whoever is not allowed, where some are, is denied.
            (_, "all") => {}
            (true, network) => listener.allow.push(network.to_owned()),
            (false, network) => {
                if !listener.allow.is_empty() {
                    let why = "what is denied is denied here, also where allow came first";
                    listener.remarks.left_out(line, "deny", why);
                }
                listener.deny.push(network.to_owned());
            }
        }
    }

    fn set_address(&mut self, directive: &Directive) {
        let line = directive.line.clone();
        let mut words = directive.words.iter().skip(1).map(String::as_str);
        let address = words.next().unwrap_or_default();
        let mut listen = Listen {
            address: listen_address(address),
            has_proxy: false,
            is_tls: false,
            keepalive: None,
            line,
        };
        for word in words {
            let remarks = &mut self.listener.remarks;
            match word.split('=').next().unwrap_or_default() {
                "deferred" | "ipv6only" | "reuseport" if word != "ipv6only=off" => {}
                "proxy_protocol" => listen.has_proxy = true,
                "so_keepalive" => listen.keepalive = keepalive(word, &listen.line, remarks),
                "ssl" => listen.is_tls = true,
                "backlog" => {
                    let why = "backlog: the kernel's own limit holds, net.core.somaxconn";
                    remarks.left_out(&listen.line, "address", why);
                }
                "ipv6only" => {
                    let why = "ipv6only=off: write \":PORT\" for IPv4 and IPv6";
                    remarks.left_out(&listen.line, "address", why);
                }
                option => {
                    let why = format!("{option}: there is nothing like it");
                    remarks.left_out(&listen.line, "address", why);
                }
            }
        }
        self.addresses.push(listen);
    }

    /// Puts together what several directives say.
    fn finish(&mut self) {
        let keys = self.keys.drain(..).chain(std::iter::repeat(String::new()));
        let pairs = self.certificates.drain(..).zip(keys);
        self.listener.certificates = pairs
            .map(|(chain, key)| match key.is_empty() || key == chain {
                true => Certificate::Path(chain),
                false => Certificate::Pair { chain, key },
            })
            .collect();
        let remarks = &mut self.listener.remarks;
        if let Some((verify, line)) = &self.verify {
            match verify.as_str() {
                "off" => {}
                "optional" | "optional_no_ca" => {
                    if verify == "optional" {
                        remarks.left_out(line, "clients.certificates", ASKED);
                    }
                    self.clients.roots.append(&mut self.trusts);
                    self.listener.clients = Some(self.clients.clone());
                }
                _ => {
                    self.clients.is_required = true;
                    self.clients.roots.append(&mut self.trusts);
                    self.listener.clients = Some(self.clients.clone());
                }
            }
        }
        if self.speaks_tls_to_backends {
            let tls = &mut self.tls_to_backends;
            tls.accepts_anybody = !self.verifies_backends;
            if tls.accepts_anybody {
                let text = "nginx verifies no backend unless it is told to; better name roots";
                remarks.about_default("backend_tls.insecure_accept_any_certificate", text);
            }
            tls.client_certificate = match self.backend_certificate.clone() {
                (Some(chain), Some(key)) if chain != key => Some(Certificate::Pair { chain, key }),
                (Some(chain), _) => Some(Certificate::Path(chain)),
                (None, _) => None,
            };
            self.listener.destination.tls = Some(self.tls_to_backends.clone());
        }
        if self.listener.tls.versions.is_none() && self.addresses.iter().any(|each| each.is_tls) {
            let text = "nginx before 1.23.4 speaks TLS up to 1.2 unless it is told to speak 1.3; \
                        here are 1.2 and 1.3";
            remarks.about_default("certificates", text);
        }
        let why = "what nginx has where nobody says anything; Sealane's own default is 5m";
        self.listener.default_idle_timeout(Duration::from_mins(10), why);
    }
}

/// Routes by name where a map leads, and who has none of its names.
fn lead(
    target: &str,
    line: &Line,
    shared: &Shared<'_>,
    destination: impl Fn(&str, &mut Remarks) -> Destination,
    listener: &mut Listener,
) {
    let Some(map) = shared.maps.get(target) else {
        let why = "Sealane knows of no variables but what a map makes of the server name";
        listener.remarks.left_out(line, "backends", why);
        return;
    };
    let mapped = Mapped::read(map, &mut listener.remarks);
    if !["$ssl_preread_server_name", "$ssl_server_name"].contains(&mapped.source) {
        let why = format!("a map of {}: routes are by server name", mapped.source);
        listener.remarks.left_out(&map.line, "backends", why);
        return;
    }
    listener.routes = routes(&mapped, &destination, &mut listener.remarks);
    listener.destination = match mapped.default {
        Some(target) => destination(target, &mut listener.remarks),
        None => {
            let text = "the map has no default: who has none of its names meets a port at which \
                        nobody listens";
            listener.remarks.note(&map.line, "backends", text);
            destination(NOBODY, &mut Remarks::default())
        }
    };
}

fn read_group(group: &Directive, destination: &mut Destination, remarks: &mut Remarks) {
    for directive in &group.block {
        let (line, words) = (&directive.line, directive.words.as_slice());
        match directive.name() {
            "least_conn" => destination.least_connections = true,
            "server" if words.iter().any(|word| word == "down") => {}
            "server" => {
                let address = words.get(1).map_or("", String::as_str);
                destination.add_backend(&backend(address), line, remarks);
                let options = words.iter().skip(2).map(String::as_str);
                for option in options {
                    remarks.left_out(line, "backends", format!("{option}: {SERVER_OPTION}"));
                }
            }
            "zone" => {}
            name => {
                let why = format!("{name}: balance is \"round-robin\" or \"least-connections\"");
                remarks.left_out(line, "balance", why);
            }
        }
    }
}

fn versions(
    words: &[String],
    key: &'static str,
    line: &Line,
    remarks: &mut Remarks,
) -> Option<[bool; 2]> {
    let mut spoken = tls::Spoken::default();
    for word in words.iter().skip(1) {
        if let Some(version) = tls::version(word) {
            spoken[version] = true;
        }
    }
    tls::versions(spoken, key, line, remarks)
}

/// An address as Sealane spells it; a port alone is every address of IPv4.
fn listen_address(text: &str) -> String {
    if text.starts_with("unix:") {
        return text.to_owned();
    }
    match host_and_port(text) {
        ("" | "*", port) => format!("0.0.0.0:{port}"),
        (host, port) => endpoint(host, port),
    }
}

/// `on`, `off`, or times and a number, each of which may be missing.
fn keepalive(word: &str, line: &Line, remarks: &mut Remarks) -> Option<KeepAlive> {
    let value = word.strip_prefix("so_keepalive=").unwrap_or("on");
    let after = KeepAlive::after(LINUX_KEEPALIVE_S);
    match value {
        "off" => return None,
        "on" => return Some(after),
        _ => {}
    }
    let mut parts = value.split(':');
    let mut seconds = |default: u64| match parts.next().unwrap_or_default() {
        "" => Some(default),
        text => time_ms(text).map(|ms| ms / 1_000).filter(|s| (1..=32_767).contains(s)),
    };
    let read = (seconds(after.idle_s), seconds(after.every_s));
    let count = match parts.next().unwrap_or_default() {
        "" => Some(after.count),
        text => text.parse().ok().filter(|count| (1..=127).contains(count)),
    };
    let ((Some(idle_s), Some(every_s)), Some(count)) = (read, count) else {
        broken(line, "keepalive", value, remarks);
        return None;
    };
    Some(KeepAlive { idle_s, every_s, count })
}

const ASKED: &str = "a client whose certificate is bad is let in here, and the PROXY header tells \
                     that; say \"required\" where nobody comes without one";
const BELIEVES_EVERYBODY: &str =
    "everybody is believed, as nginx does; better name the networks of your balancers";
/// What Linux has for TCP_KEEPIDLE.
const LINUX_KEEPALIVE_S: u64 = 7_200;
/// Where nobody listens: tcpmux, which no system has had for decades.
const NOBODY: &str = "127.0.0.1:1";
const SERVER_OPTION: &str = "every backend has the same weight; one that fails rests for 1s to 32s";
