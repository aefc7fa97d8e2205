//! A server of nginx's stream module as a listener, or as several where its addresses differ.

use std::time::Duration;

use sealane_config::value::host_name;

use super::super::plan::{
    Backend, BackendTls, CONNECTIONS, Certificate, Clients, Destination, KeepAlive, Listener, Plan,
    ProxyHeader, Spoken, TLS_ONLY, endpoint, host_and_port, is_tls_port, number,
};
use super::super::remark::{ASKED, Line, Remarks};
use super::super::tls;

use super::access::Access;
use super::routes::{lead, read_group};
use super::syntax::{Directive, tell_without_key};
use super::{Shared, backend, broken, time_ms};

/// The directives of a server, merged.
#[derive(Default)]
pub(super) struct Server {
    access: Access,
    addresses: Vec<Listen>,
    backend_certificate: (Option<String>, Option<String>),
    certificates: Vec<String>,
    clients: Clients,
    keys: Vec<String>,
    listener: Listener,
    /// Whether the server name that backends must prove is sent to them.
    names_backends: bool,
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
        // By nginx's default.
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
                // The limit of work is reached: nothing of the plan is used.
                Some(group) if !shared.files.spend_on_copies(group.block.len()) => {}
                Some(group) => {
                    read_group(group, &mut destination, remarks);
                    self.name_group(target, line, &mut destination, remarks);
                }
                None => {
                    destination.add_backend(Backend::at(backend(target)), line, remarks);
                }
            }
            if self.speaks_tls_to_backends {
                destination.speak_tls();
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

    /// Without a name of the backend to verify, it is the one in `proxy_pass`: a group's own.
    fn name_group(
        &self,
        group: &str,
        line: &Line,
        destination: &mut Destination,
        remarks: &mut Remarks,
    ) {
        let Some(tls) = &mut destination.tls else { return };
        if tls.server_name.is_some() || !(self.verifies_backends || self.names_backends) {
            return;
        }
        if host_name(group).is_ok() {
            tls.server_name = Some(group.to_owned());
        } else if self.verifies_backends {
            let why = format!(
                "backends prove the name of their group there, {group:?}, which is none; here \
                 each proves its own"
            );
            remarks.left_out(line, "backend_tls.server_name", why);
        }
    }

    /// A listener for each kind of address.
    fn split(self, plan: &mut Plan, listener: &Listener) {
        for is_tls in [true, false] {
            for has_proxy in [false, true] {
                let of_kind = |each: &&Listen| each.is_tls == is_tls && each.has_proxy == has_proxy;
                let addresses: Vec<_> = self.addresses.iter().filter(of_kind).collect();
                let Some(first) = addresses.first() else { continue };
                let mut listener = listener.clone();
                let is_plain = !is_tls && !self.prereads && !self.speaks_tls_to_backends;
                let forwards = is_plain && self.forwards_tls(&addresses, &listener);
                if forwards {
                    listener.remarks.left_out(&first.line, "passthrough", TLS_ONLY);
                } else if is_plain {
                    let why = "bytes in the clear on both sides: keep nginx for it";
                    plan.remarks.left_out(&first.line, "", why);
                    continue;
                }
                listener.spoken = match (is_tls, self.prereads || forwards) {
                    (true, _) => Spoken::Tls,
                    (false, true) => Spoken::TlsPassedOn,
                    (false, false) => Spoken::Plain,
                };
                if listener.spoken != Spoken::Tls {
                    listener.certificates.clear();
                    listener.clients = None;
                    listener.tls = tls::Tls::default();
                    listener.alpn.clear();
                }
                let of_clients = addresses.iter().find_map(|each| each.keepalive);
                listener.keepalive = of_clients.or(listener.keepalive);
                for each in &addresses {
                    listener.listen(&each.address, &each.line);
                }
                self.access.put_into(&mut listener, has_proxy.then_some(&first.line));
                plan.listeners.push(listener);
            }
        }
    }

    /// Whether forwarded plain bytes are TLS, judged by their ports.
    fn forwards_tls(&self, addresses: &[&Listen], listener: &Listener) -> bool {
        let ports = addresses.iter().map(|each| each.address.as_str());
        let backends = listener.destination.backends.iter().map(|each| each.address.as_str());
        listener.routes.is_empty()
            && ports.chain(backends).any(|at| is_tls_port(host_and_port(at).1))
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
            "ssl_verify_depth" if first.parse().is_ok_and(|depth: usize| depth < DEPTH_MAX) => {
                let why = "a chain of a client may have 8 certificates";
                remarks.admits_more(line, "clients.roots", why);
            }
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
            "proxy_next_upstream" | "proxy_ssl_session_reuse" if first == "on" => {}
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
            "proxy_ssl_server_name" if first == "on" => self.names_backends = true,
            "proxy_ssl_server_name" => {
                remarks.note(line, "backends", "backends are told the name that they must prove");
            }
            "proxy_ssl_trusted_certificate" => tls.roots = vec![first.to_owned()],
            "proxy_ssl_verify" => self.verifies_backends = first == "on",
            "proxy_socket_keepalive" => {
                self.listener.keepalive = Some(KeepAlive::after(LINUX_KEEPALIVE_S));
                remarks.note(line, "keepalive", "keepalive is of clients and backends alike");
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
            "allow" | "deny" => self.access.add(directive.name() == "allow", first, line),
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
            "set_real_ip_from" => self.access.believe(first, line),
            "tcp_nodelay" if first == "on" => {}
            _ => tell_without_key(directive, remarks),
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

    /// Merges several directives.
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
                        remarks.admits_more(line, "clients.certificates", ASKED);
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

/// Authorities between a root and a client in the longest chain.
const DEPTH_MAX: usize = 7;
/// Linux's default of TCP_KEEPIDLE.
const LINUX_KEEPALIVE_S: u64 = 7_200;
