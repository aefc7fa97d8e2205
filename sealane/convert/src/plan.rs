//! The common form that all dialects are read into, and from which the result is written: [`Plan`],
//! with its [`Listener`]s.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

use sealane_config::BACKENDS_MAX;
use sealane_config::value;

use super::remark::{Line, Remarks};
use super::tls::Tls;

/// A configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) connect_timeout: Option<Duration>,
    pub(super) connections: Option<usize>,
    pub(super) lanes: Option<usize>,
    pub(super) listeners: Vec<Listener>,
    pub(super) remarks: Remarks,
}

/// Addresses with the service for their clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Listener {
    pub(super) name: Option<String>,
    pub(super) addresses: Vec<String>,
    /// The first is served for names that no other covers.
    pub(super) certificates: Vec<Certificate>,
    /// Networks that may announce clients by a PROXY header; an empty list is everybody.
    pub(super) accept_proxy: Option<Vec<String>>,
    pub(super) refuses_unknown_names: bool,
    pub(super) tls: Tls,
    pub(super) alpn: Vec<String>,
    /// Whether a session goes on without a protocol where none is common.
    pub(super) goes_on_without_alpn: bool,
    pub(super) clients: Option<Clients>,
    pub(super) destination: Destination,
    pub(super) spoken: Spoken,
    pub(super) routes: Vec<Route>,
    /// By their key.
    pub(super) timeouts: BTreeMap<&'static str, Duration>,
    pub(super) connections: Option<usize>,
    pub(super) connections_per_client: Option<usize>,
    pub(super) keepalive: Option<KeepAlive>,
    pub(super) check: Option<Check>,
    pub(super) allow: Vec<String>,
    pub(super) deny: Vec<String>,
    pub(super) remarks: Remarks,
}

/// The protocol of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Spoken {
    /// Plain bytes, which backends get in TLS.
    Plain,
    /// PostgreSQL's request for TLS, then TLS.
    Postgres,
    #[default]
    Tls,
    /// TLS that is passed on as it is.
    TlsPassedOn,
}

/// A chain and its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Certificate {
    /// A file with both, or a folder.
    Path(String),
    Pair {
        chain: String,
        key: String,
    },
}

/// The requirements for clients' certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clients {
    /// Whether clients of names with a looser demand may reach the same backend.
    pub(super) allows_other_names: bool,
    pub(super) is_required: bool,
    pub(super) roots: Vec<String>,
    pub(super) crls: Vec<String>,
    pub(super) names: Vec<String>,
}

/// The destination of plaintext.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) backends: Vec<Backend>,
    pub(super) least_connections: bool,
    pub(super) proxy_header: Option<ProxyHeader>,
    /// None where backends get plain bytes.
    pub(super) tls: Option<BackendTls>,
}

/// A backend and its share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Backend {
    pub(super) address: String,
    pub(super) is_backup: bool,
    pub(super) weight: Option<usize>,
}

impl Backend {
    /// A backend with the share that each has unless more is written.
    pub(super) fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), ..Self::default() }
    }
}

/// Health checks of backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) every: Duration,
    pub(super) fall: usize,
    /// Whether a check completes a TLS handshake.
    pub(super) in_tls: bool,
    pub(super) rise: usize,
    pub(super) slow_start: Option<Duration>,
    pub(super) timeout: Duration,
}

/// The PROXY header for backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProxyHeader {
    Pass,
    V1,
    /// With these values.
    V2(Vec<&'static str>),
}

/// The TLS settings for backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BackendTls {
    pub(super) accepts_anybody: bool,
    pub(super) alpn: Vec<String>,
    pub(super) client_certificate: Option<Certificate>,
    pub(super) roots: Vec<String>,
    pub(super) server_name: Option<String>,
    pub(super) versions: Option<[bool; 2]>,
}

/// The service for clients that ask for certain names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) names: Vec<String>,
    pub(super) alpn: Vec<String>,
    pub(super) clients: Option<Clients>,
    pub(super) destination: Destination,
}

/// The probes by which the kernel checks a silent peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeepAlive {
    pub(super) idle_s: u64,
    pub(super) every_s: u64,
    pub(super) count: u64,
}

impl KeepAlive {
    /// Linux's own interval and count, after so long.
    pub(super) fn after(idle_s: u64) -> Self {
        Self { idle_s: idle_s.clamp(1, KEEPALIVE_S_MAX), every_s: 75, count: 9 }
    }
}

impl Plan {
    /// Reconciles settings from several places, and adds a remark if that changes something.
    pub(super) fn settle(&mut self) {
        for listener in &mut self.listeners {
            if listener.spoken == Spoken::Tls || listener.spoken == Spoken::Postgres {
                listener.tls.settle(&mut listener.remarks);
            }
            for list in [&mut listener.addresses, &mut listener.allow, &mut listener.deny] {
                remove_repetitions(list);
            }
            remove_repetitions(&mut listener.certificates);
            remove_repetitions(&mut listener.alpn);
            let of_routes = listener.routes.iter_mut().map(|route| &mut route.destination);
            for destination in of_routes.chain([&mut listener.destination]) {
                let mut seen = HashSet::new();
                destination.backends.retain(|each| seen.insert(each.address.clone()));
            }
        }
    }

    /// Takes the time of all listeners for one attempt to connect. The file may set it for each.
    pub(super) fn set_connect_timeout(&mut self, written: Duration, line: &Line) {
        let key = "limits.connect_timeout";
        let timeout = within(written, CONNECT_TIMEOUT, line, key, &mut self.remarks);
        match self.connect_timeout {
            Some(first) if first != timeout => {
                let first = value::duration_text(first);
                let why = format!("one value holds for all listeners, and {first} came first");
                self.remarks.left_out(line, key, why);
            }
            _ => self.connect_timeout = Some(timeout),
        }
    }
}

impl Listener {
    /// Whether two differ in their addresses alone.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        self.spoken == other.spoken
            && self.tls == other.tls
            && self.certificates == other.certificates
            && self.clients == other.clients
            && self.alpn == other.alpn
            && self.accept_proxy == other.accept_proxy
            && self.refuses_unknown_names == other.refuses_unknown_names
            && self.routes == other.routes
    }

    /// Takes an address to listen on, as Sealane spells it.
    pub(super) fn listen(&mut self, address: &str, line: &Line) {
        match value::listen_addresses(address) {
            Ok(_) => self.addresses.push(address.to_owned()),
            Err(problem) => self.remarks.left_out(line, "address", problem.to_string()),
        }
    }

    /// Takes a timeout, within Sealane's bounds.
    pub(super) fn set_timeout(&mut self, key: &'static str, written: Duration, line: &Line) {
        let range = if key == "handshake_timeout" { HANDSHAKE_TIMEOUT } else { SILENCE };
        let timeout = within(written, range, line, key, &mut self.remarks);
        self.timeouts.insert(key, timeout);
    }

    /// Takes `timeout` for idle connections, where the file leaves it to its program's default.
    pub(super) fn default_idle_timeout(&mut self, timeout: Duration, why: &str) {
        if !self.timeouts.contains_key("idle_timeout") {
            self.timeouts.insert("idle_timeout", timeout);
            self.remarks.about_default("idle_timeout", why);
        }
    }
}

impl Destination {
    /// Takes a backend, as Sealane spells it.
    pub(super) fn add_backend(&mut self, backend: Backend, line: &Line, remarks: &mut Remarks) {
        match value::backend(&backend.address) {
            Ok(_) if self.backends.len() < BACKENDS_MAX => self.backends.push(backend),
            Ok(_) => {
                let why = format!("at most {BACKENDS_MAX} backends can be named");
                remarks.left_out(line, "backends", why);
            }
            Err(problem) => remarks.left_out(line, "backends", problem.to_string()),
        }
    }

    /// Makes Sealane use TLS to these backends.
    pub(super) fn speak_tls(&mut self) {
        for backend in &mut self.backends {
            backend.address.insert_str(0, "tls://");
        }
    }
}

/// The remark where plain bytes become TLS that is forwarded.
pub(super) const TLS_ONLY: &str = "all bytes are forwarded there; by its port or check this is \
                                   TLS, and Sealane forwards nothing else";

/// Whether TLS is spoken at this port by convention.
pub(super) fn is_tls_port(port: &str) -> bool {
    TLS_PORTS.contains(&port)
}

/// A host, which may be a numeric address of version 6, and a port.
pub(super) fn endpoint(host: &str, port: &str) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// `HOST:PORT`, `[HOST]:PORT` or a port alone, in two; the host may be empty.
pub(super) fn host_and_port(text: &str) -> (&str, &str) {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    (bare.unwrap_or(host), port)
}

/// Whether a host is every address of IPv6, which accepts IPv4 as well by default.
pub(super) fn is_every_address_of_six(host: &str) -> bool {
    host.parse().is_ok_and(|address: Ipv6Addr| address.is_unspecified())
}

/// Every address of IPv6 and of IPv4.
pub(super) fn both_families(port: &str) -> Vec<String> {
    vec![format!("[::]:{port}"), format!("0.0.0.0:{port}")]
}

/// Reads whether a switch is on.
pub(super) fn is_on(text: &str) -> bool {
    ["1", "on", "true", "yes"].contains(&text.to_ascii_lowercase().as_str())
}

/// Reads a number that must be in `range`. `None` if not: then the line is left out, with a remark.
pub(super) fn number(
    text: &str,
    range: RangeInclusive<usize>,
    line: &Line,
    key: &'static str,
    remarks: &mut Remarks,
) -> Option<usize> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    if number.is_none() {
        let why = format!("{text:?} is no number from {} to {}", range.start(), range.end());
        remarks.left_out(line, key, why);
    }
    number
}

fn within(
    written: Duration,
    range: RangeInclusive<Duration>,
    line: &Line,
    key: &'static str,
    remarks: &mut Remarks,
) -> Duration {
    let taken = written.clamp(*range.start(), *range.end());
    if taken != written {
        let [taken, from, to] = [taken, *range.start(), *range.end()].map(value::duration_text);
        let why = format!("Sealane takes {from} to {to}; {taken} it is");
        remarks.left_out(line, key, why);
    }
    taken
}

fn remove_repetitions<T: Clone + Eq + Hash>(list: &mut Vec<T>) {
    let mut seen = HashSet::with_capacity(list.len());
    list.retain(|each| seen.insert(each.clone()));
}

/// For ever, as far as Sealane has it.
pub(super) const LONGEST: Duration = Duration::from_hours(7 * 24);
/// The remark where clients without a route reach no backend in the other program.
pub(super) const NO_DEFAULT: &str = "clients that no rule names reach no backend there; a listener \
                                     needs one: add backends = [...] for them";
/// Ports of HTTPS, of the Kubernetes and OpenShift APIs, and of others that begin with TLS.
const TLS_PORTS: [&str; 20] = [
    "443", "465", "563", "636", "853", "989", "990", "992", "993", "995", "2376", "5061", "5671",
    "5986", "6443", "6514", "6697", "8443", "8883", "22623",
];
/// Open connections that a configuration may allow.
pub(super) const CONNECTIONS: RangeInclusive<usize> = 1..=10_000_000;

const CONNECT_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_mins(5);
const HANDSHAKE_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_mins(5);
const SILENCE: RangeInclusive<Duration> = Duration::from_secs(1)..=LONGEST;
const KEEPALIVE_S_MAX: u64 = 32_767;
