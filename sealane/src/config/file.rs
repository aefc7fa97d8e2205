//! The keys of a configuration file: what each is called, what it may be, and its default.

mod backends;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealane_engine::certificates::CERTIFICATES_MAX;
use sealane_engine::context::TICKETS_MAX;
use sealane_engine::policy::{Group, Policy, UnknownNames, Versions};
use sealane_engine::provider::ProviderChoice;
use sealane_engine::tickets::{LIFETIME_S_MAX, LIFETIME_S_MIN};

use super::mistake::{Mistake, Problem};
use super::reader::{self, Table, Value};
use super::value;
use super::{
    AccessLog, AccessLogDestination, AdminAddress, Balance, CertificateSource, Config, KeySource,
    Limits, Listener, STORES_REMEDY, Tickets, default_lanes,
};

/// Reads the text of a configuration file; `file` names it in messages, and relative paths start
/// beside it.
pub(super) fn parse(file: &Path, text: &str) -> (Option<Config>, Vec<Mistake>) {
    reader::read(file, text, config)
}

fn config(top: &mut Table<'_>) -> Option<Config> {
    let lanes = top.count("lanes", 1..=LANES_MAX).and_then(NonZeroUsize::new);
    let pin_lanes = top.boolean("pin_lanes").unwrap_or(false);
    let crypto = top.value("crypto").and_then(|v| v.choice(&CRYPTO)).unwrap_or_default();
    let shared_by = lanes.unwrap_or_else(default_lanes);
    let limits = top.table("limits", |t| Some(limits(t, shared_by))).unwrap_or_default();
    let mut claims = Claims::default();
    let admin = top.table("admin", |t| admin(t, &mut claims));
    let (admin, admin_hosts) = admin.unzip();
    let access_log = top.table("access_log", access_log);
    let tickets = top.table("tickets", |t| Some(tickets(t))).unwrap_or_default();
    let store_key = top.table("store_key", store_key);
    let written = top.required("listener", LISTENER_EXAMPLE);
    let listeners = written.as_ref().and_then(|v| listener_list(v, &limits, &mut claims));
    let has_store = |listeners: &Vec<Listener>| listeners.iter().any(|l| l.store.is_some());
    if store_key.is_none() && listeners.as_ref().is_some_and(has_store) {
        top.required("store_key", STORE_KEY_EXAMPLE);
    }
    Some(Config {
        access_log,
        admin,
        admin_hosts: admin_hosts.unwrap_or_default(),
        crypto,
        lanes: shared_by,
        limits,
        listeners: listeners?,
        pin_lanes,
        store_key,
        tickets,
    })
}

/// One of `file`, `credential` and `command`.
fn store_key(table: &mut Table<'_>) -> Option<KeySource> {
    let (file, credential) = (table.value("file"), table.value("credential"));
    match (file, credential, table.value("command")) {
        (Some(file), None, None) => file.path().map(KeySource::File),
        (None, Some(name), None) => name.parsed(value::credential_name).map(KeySource::Credential),
        (None, None, Some(command)) => {
            command.list(COMMAND_WORDS_MAX, |word| word.parsed(value::word)).map(KeySource::Command)
        }
        (None, None, None) => {
            table.required("file", "file = \"/etc/sealane/store.key\"");
            None
        }
        (first, second, third) => {
            for extra in [first, second, third].into_iter().flatten().skip(1) {
                let what = "a second source of sealing keys";
                extra.wrong(Problem::new(what, "keep one of file, credential and command"));
            }
            None
        }
    }
}

fn limits(table: &mut Table<'_>, lanes: NonZeroUsize) -> Limits {
    let default = Limits::default();
    let connections = table.value("connections");
    let handshakes = table.value("handshakes_in_flight");
    let per_lane = table.value("connections_per_lane");
    let read = |v: &Value<'_>| v.count(CONNECTIONS);
    let connections_max = connections.as_ref().and_then(read).unwrap_or(default.connections_max);
    let handshakes_max = handshakes.as_ref().and_then(read).unwrap_or(default.handshakes_max);
    let connections_per_lane_max = per_lane.as_ref().and_then(read);
    if let (Some(value), Some(per_lane)) = (per_lane, connections_per_lane_max)
        && per_lane > connections_max
    {
        let what = format!("{per_lane} on one lane is more than {connections_max} in all");
        value.wrong(Problem::new(what, "lower it, or raise limits.connections"));
    }
    let age = table.value("connection_age");
    let limits = Limits {
        certificates_max: table
            .count("certificates", 1..=CERTIFICATES_MAX)
            .unwrap_or(default.certificates_max),
        connect_timeout: table
            .duration("connect_timeout", CONNECT_TIMEOUT)
            .unwrap_or(default.connect_timeout),
        connection_age_max: age.and_then(|v| v.duration_or_off(CONNECTION_AGE)).flatten(),
        connections_max,
        connections_per_lane_max,
        decoded_keys_per_lane_max: table
            .count("decoded_keys_per_lane", 1..=CERTIFICATES_MAX)
            .unwrap_or(default.decoded_keys_per_lane_max),
        drain_timeout: table
            .duration("drain_timeout", DRAIN_TIMEOUT)
            .unwrap_or(default.drain_timeout),
        handshake_timeout: table
            .duration("handshake_timeout", HANDSHAKE_TIMEOUT)
            .unwrap_or(default.handshake_timeout),
        handshakes_max,
        hello_bytes_max: table
            .size_bytes("hello_bytes", HELLO_BYTES)
            .unwrap_or(default.hello_bytes_max),
        idle_timeout: table.duration("idle_timeout", IDLE_TIMEOUT).unwrap_or(default.idle_timeout),
        listeners_max: table.count("listeners", 1..=LISTENERS_MAX).unwrap_or(default.listeners_max),
        names_max: table.count("names", 1..=NAMES_MAX).unwrap_or(default.names_max),
        unfinished_bytes_per_lane_max: table
            .size_bytes("unfinished_bytes_per_lane", UNFINISHED_BYTES)
            .unwrap_or(default.unfinished_bytes_per_lane_max),
    };
    // Only what was written can be too little: the defaults are enough for every number of lanes.
    if let Some((key, problem)) = limits.too_few_for(lanes)
        && let Some(written) = if key == "connections" { connections } else { handshakes }
    {
        written.wrong(problem);
    }
    limits
}

/// Where it is served, and the names by which it may be asked for there.
fn admin(table: &mut Table<'_>, claims: &mut Claims) -> Option<(AdminAddress, Vec<String>)> {
    let written = table.required("address", "address = \"127.0.0.1:9180\"");
    let allow_remote = table.boolean("allow_remote").unwrap_or(false);
    let hosts = table.value("hosts");
    let names = hosts.as_ref().and_then(|v| v.set(ADMIN_HOSTS_MAX, |v| v.parsed(admin_host)));
    let written = written?;
    let address = written.parsed(value::admin_address)?;
    if !allow_remote {
        let remedy = "use 127.0.0.1, [::1] or unix:PATH, or say allow_remote = true";
        written.parsed(|_| value::check_admin_is_local(&address, remedy))?;
    }
    if let AdminAddress::Tcp(tcp) = &address {
        claims.address(*tcp, "[admin]", &written)?;
    } else if let Some(hosts) = &hosts {
        let what = "nobody is asked for a host on a unix socket";
        hosts.wrong(Problem::new(what, "remove it, or serve on ADDRESS:PORT"));
    }
    Some((address, names.unwrap_or_default()))
}

fn admin_host(text: &str) -> Result<String, Problem> {
    match value::host_name(text) {
        Ok(name) if name.starts_with("*.") => Err(Problem::new(
            format!("{text:?} is every name under another"),
            "write each name in full, such as \"metrics.example.com\"",
        )),
        read => read,
    }
}

fn access_log(table: &mut Table<'_>) -> Option<AccessLog> {
    let path = table.required("path", "path = \"stderr\"");
    let buffer_bytes =
        table.size_bytes("buffer", ACCESS_LOG_BUFFER_BYTES).unwrap_or(ACCESS_LOG_BUFFER_DEFAULT);
    let path = path?;
    let destination = match path.parsed(|text| Ok(text.to_owned()))?.as_str() {
        "stderr" => AccessLogDestination::Stderr,
        "stdout" => AccessLogDestination::Stdout,
        _ => AccessLogDestination::File(path.path()?),
    };
    Some(AccessLog { destination, buffer_bytes })
}

fn tickets(table: &mut Table<'_>) -> Tickets {
    let default = Tickets::default();
    let written = table.value("lifetime");
    let lifetime = written.as_ref().and_then(|v| v.duration(TICKET_LIFETIME));
    if let (Some(value), Some(lifetime)) = (written, lifetime)
        && lifetime.subsec_nanos() != 0
    {
        value.wrong(Problem::new("a fraction of a second", "write whole seconds"));
    }
    Tickets {
        count: table.count("count", 0..=TICKETS_MAX).unwrap_or(default.count),
        lifetime: lifetime.unwrap_or(default.lifetime),
        root: table.value("root").and_then(|v| v.path()),
    }
}

fn listener_list(
    written: &Value<'_>,
    limits: &Limits,
    claims: &mut Claims,
) -> Option<Vec<Listener>> {
    if written.is_table() {
        written.wrong(Problem::new(
            "expected a list of tables, found one table",
            "write [[listener]] in double brackets above each listener",
        ));
        return None;
    }
    let listeners =
        written.list(limits.listeners_max, |v| v.table(|table| listener(table, &v, claims)))?;
    let addresses: usize = listeners.iter().map(|listener| listener.addresses.len()).sum();
    if addresses > limits.listeners_max {
        let what = format!("{addresses} addresses are listened on");
        let remedy = format!("limits.listeners allows {}: raise it", limits.listeners_max);
        written.wrong(Problem::new(what, remedy));
    }
    Some(listeners)
}

fn listener(table: &mut Table<'_>, at: &Value<'_>, claims: &mut Claims) -> Option<Listener> {
    let name = table.value("name");
    let addresses = addresses(table, at, claims);
    let certificates = table
        .required("certificates", "certificates = [\"/etc/sealane/certificates\"]")
        .and_then(|v| certificate_sources(&v));
    let default_certificate = table.value("default_certificate");
    let policy = policy(table, at);
    let backends = backends::backends(table);
    let balance = table.value("balance").and_then(|v| v.choice(&BALANCE)).unwrap_or_default();
    let proxy_header = table.boolean("proxy_header").unwrap_or(false);

    let default_name = default_certificate.as_ref().and_then(|v| v.parsed(value::host_name));
    if let (Some(value), UnknownNames::Refuse) = (&default_certificate, policy.unknown_names) {
        value.wrong(Problem::new(
            "a default certificate is never served where unknown names are refused",
            "remove it, or say unknown_names = \"default\"",
        ));
    }
    let name = match &name {
        Some(written) => {
            let read = written.parsed(listener_name)?;
            claims.name(&read, written)?;
            read
        }
        None => addresses.as_ref()?.first()?.to_string(),
    };
    let (certificates, store) = certificates?;
    let (backends, backend_tls) = backends?;
    Some(Listener {
        name,
        addresses: addresses?,
        certificates,
        store,
        default_certificate: default_name,
        policy,
        backends,
        backend_tls,
        balance,
        proxy_header,
    })
}

/// `address` for one, `addresses` for several.
fn addresses(
    table: &mut Table<'_>,
    at: &Value<'_>,
    claims: &mut Claims,
) -> Option<Vec<SocketAddr>> {
    let many = table.value("addresses");
    let one = match many {
        None => table.required("address", "address = \"0.0.0.0:443\""),
        Some(_) => table.value("address"),
    };
    let mut claimed = |v: &Value<'_>| {
        let address = v.parsed(value::listen_address)?;
        claims.address(address, &format!("the listener in line {}", at.line()), v)?;
        Some(address)
    };
    match (one, many) {
        (Some(one), Some(_)) => {
            one.wrong(Problem::new(
                "both address and addresses are given",
                "put all in addresses = [...]",
            ));
            None
        }
        (Some(one), None) => claimed(&one).map(|address| vec![address]),
        (None, Some(many)) => many.list(LISTENERS_MAX, |v| claimed(&v)),
        (None, None) => None,
    }
}

/// Files and directories, and a store if there is one.
fn certificate_sources(written: &Value<'_>) -> Option<(Vec<CertificateSource>, Option<PathBuf>)> {
    let mut store = None;
    let mut files = Vec::new();
    let sources = written.set(SOURCES_MAX, |v| match store_path(v) {
        None => certificate_source(v).map(|source| (Some(source), None)),
        Some(path) => Some((None, Some(path?))),
    })?;
    for (file, path) in sources {
        files.extend(file);
        if store.is_some() && path.is_some() {
            written.wrong(Problem::new("two stores are named", STORES_REMEDY));
        }
        store = store.or(path);
    }
    Some((files, store))
}

/// The folder in `store:PATH`; the outer none for what is no store, the inner one for a mistake.
fn store_path(written: &Value<'_>) -> Option<Option<PathBuf>> {
    let text = written.as_text()?.strip_prefix("store:")?;
    Some(written.path_of(text))
}

fn certificate_source(written: &Value<'_>) -> Option<CertificateSource> {
    if !written.is_table() {
        return written.path().map(CertificateSource::Path);
    }
    written.table(|table| {
        let chain = table.required("chain", "chain = \"FILE\"").and_then(|v| v.path());
        let key = table.required("key", "key = \"FILE\"").and_then(|v| v.path());
        Some(CertificateSource::Pair { chain: chain?, key: key? })
    })
}

fn policy(table: &mut Table<'_>, at: &Value<'_>) -> Policy {
    let default = Policy::default();
    let unknown_names = table.value("unknown_names").and_then(|v| v.choice(&UNKNOWN_NAMES));
    let versions = versions(table);
    let groups = table.value("groups");
    let alpn = alpn(table);
    let choices = Group::ALL.map(|group| (group.name(), group));
    let group_list = groups.as_ref().and_then(|v| v.set(choices.len(), |v| v.choice(&choices)));
    let policy = Policy {
        alpn: alpn.unwrap_or_default(),
        groups: group_list.unwrap_or(default.groups),
        unknown_names: unknown_names.unwrap_or(default.unknown_names),
        versions: versions.unwrap_or(default.versions),
        ..default
    };
    if policy.groups == [Group::X25519MlKem768] && policy.versions != Versions::Tls13 {
        groups.as_ref().unwrap_or(at).wrong(Problem::new(
            "TLS 1.2 has no group to use, X25519MLKEM768 is for TLS 1.3",
            "add \"X25519\", or say versions = [\"1.3\"]",
        ));
    }
    policy
}

fn versions(table: &mut Table<'_>) -> Option<Versions> {
    let versions = table.value("versions")?.set(2, |v| v.choice(&VERSIONS))?;
    Some(match versions.as_slice() {
        [Versions::Tls12] => Versions::Tls12,
        [Versions::Tls13] => Versions::Tls13,
        _ => Versions::Tls12AndTls13,
    })
}

fn alpn(table: &mut Table<'_>) -> Option<Vec<Vec<u8>>> {
    table.value("alpn")?.set(ALPN_MAX, |v| v.parsed(alpn_protocol))
}

fn listener_name(text: &str) -> Result<String, Problem> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    if (1..=LISTENER_NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_good) {
        return Ok(text.to_owned());
    }
    Err(Problem::new(
        format!("{text:?} is not a name for a listener"),
        format!("write 1 to {LISTENER_NAME_BYTES_MAX} letters, digits, \"-\", \"_\" or \".\""),
    ))
}

fn alpn_protocol(text: &str) -> Result<Vec<u8>, Problem> {
    match text.len() {
        1..=ALPN_BYTES_MAX => Ok(text.as_bytes().to_vec()),
        bytes => Err(Problem::new(
            format!("a protocol name of {bytes} bytes"),
            format!("write one of 1 to {ALPN_BYTES_MAX} bytes, such as \"http/1.1\""),
        )),
    }
}

/// What only one part of a configuration may have.
#[derive(Default)]
struct Claims {
    addresses: HashMap<SocketAddr, String>,
    names: HashMap<String, usize>,
}

impl Claims {
    fn address(&mut self, address: SocketAddr, owner: &str, written: &Value<'_>) -> Option<()> {
        if let Some(first) = self.addresses.get(&address) {
            let what = format!("{address} is already the address of {first}");
            written.wrong(Problem::new(what, "choose another or remove one of the two"));
            return None;
        }
        self.addresses.insert(address, owner.to_owned());
        Some(())
    }

    fn name(&mut self, name: &str, written: &Value<'_>) -> Option<()> {
        if let Some(line) = self.names.insert(name.to_owned(), written.line()) {
            let what = format!("line {line} has a listener of the name {name:?} already");
            written.wrong(Problem::new(what, "choose another name"));
            return None;
        }
        Some(())
    }
}

/// Most lanes that can be asked for.
pub(crate) const LANES_MAX: usize = 1024;
/// Addresses over all listeners.
pub(super) const LISTENERS_MAX: usize = 1024;
/// Files and directories with certificates of one listener.
pub(super) const SOURCES_MAX: usize = 10_000;

const ACCESS_LOG_BUFFER_BYTES: RangeInclusive<usize> = 4 * 1024..=64 * 1024 * 1024;
const ACCESS_LOG_BUFFER_DEFAULT: usize = 1024 * 1024;
const COMMAND_WORDS_MAX: usize = 64;
const ALPN_BYTES_MAX: usize = 255;
const ALPN_MAX: usize = 16;
/// Names by which the admin address may be asked for.
const ADMIN_HOSTS_MAX: usize = 64;
const CONNECTIONS: RangeInclusive<usize> = 1..=10_000_000;
const CONNECTION_AGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
const CONNECT_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(300);
const DRAIN_TIMEOUT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);
const HANDSHAKE_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(300);
/// A hello with a post-quantum key share has about 2 KiB; rustls refuses more than 64 KiB.
const HELLO_BYTES: RangeInclusive<usize> = 4 * 1024..=64 * 1024;
const IDLE_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
const LISTENER_NAME_BYTES_MAX: usize = 64;
const NAMES_MAX: usize = 10_000_000;
/// A lane must be able to keep what the longest message takes, for a client and for its backend.
const UNFINISHED_BYTES: RangeInclusive<usize> = 1024 * 1024..=64 * 1024 * 1024 * 1024;
const TICKET_LIFETIME: RangeInclusive<Duration> =
    Duration::from_secs(LIFETIME_S_MIN as u64)..=Duration::from_secs(LIFETIME_S_MAX as u64);

const BALANCE: [(&str, Balance); 2] = [
    (Balance::LeastConnections.name(), Balance::LeastConnections),
    (Balance::RoundRobin.name(), Balance::RoundRobin),
];
const CRYPTO: [(&str, ProviderChoice); 3] = [
    ("auto", ProviderChoice::Auto),
    ("aws-lc", ProviderChoice::AwsLc),
    ("graviola", ProviderChoice::Graviola),
];
const UNKNOWN_NAMES: [(&str, UnknownNames); 2] =
    [("default", UnknownNames::ServeDefault), ("refuse", UnknownNames::Refuse)];
const VERSIONS: [(&str, Versions); 2] = [("1.2", Versions::Tls12), ("1.3", Versions::Tls13)];

const STORE_KEY_EXAMPLE: &str =
    "[store_key] with file, credential or command: it opens the store of a listener";
const LISTENER_EXAMPLE: &str = "a [[listener]] with address, certificates and backends";
