//! The keys of a configuration file: what each is called, what it may be, and its default.

mod admin;
mod check;
mod claims;
mod clients;
mod demand;
mod destination;
mod include;
mod listener;
mod listener_limits;
mod policy;
mod process;
mod proxy;
mod proxy_header;
mod route;
mod shared;
mod spoken;
mod timeouts;

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use sealane_engine::certificates::CERTIFICATES_MAX;
use sealane_engine::context::TICKETS_MAX;
use sealane_engine::provider::ProviderChoice;
use sealane_engine::tickets::{LIFETIME_S_MAX, LIFETIME_S_MIN};

use super::mistake::{Mistake, Problem};
use super::reader::{self, Table, Value};
use super::value;
use super::{
    AccessLog, AccessLogDestination, Config, Limits, Listener, LoggedEnds, RootPlace, Tickets,
    default_lanes,
};
use admin::admin;
use claims::Claims;
use include::Included;
use listener::{check_number_of_addresses, listener_list, store_path};
pub use policy::{HANDSHAKE_KEYS, chosen_policy};
use process::process;
use shared::{Lanes, Shared};
use timeouts::timeouts;

/// Reads the text of a configuration file; `file` names it in messages, and relative paths start
/// beside it.
pub(super) fn parse(file: &Path, text: &str) -> (Option<Config>, Vec<Mistake>) {
    reader::read(file, text, |top| config(top, None, |_, _, _| Included::default()))
}

/// The same, with the files that it includes; `running` lanes are there already if a process is to
/// go on with it.
pub(super) fn parse_all(
    file: &Path,
    text: &str,
    running: Option<NonZeroUsize>,
) -> (Option<Config>, Vec<Mistake>) {
    let mut more = Vec::new();
    let (config, mut mistakes) = reader::read(file, text, |top| {
        config(top, running, |written, shared, claims| {
            let mut included = Included::read(file, written, shared, claims);
            more.append(&mut included.mistakes);
            included
        })
    });
    mistakes.append(&mut more);
    (config, mistakes)
}

fn config(
    top: &mut Table<'_>,
    running: Option<NonZeroUsize>,
    include: impl FnOnce(&Value<'_>, Shared<'_>, &mut Claims) -> Included,
) -> Option<Config> {
    let lanes = top.count("lanes", 1..=LANES_MAX).and_then(NonZeroUsize::new);
    let pin_lanes = top.boolean("pin_lanes").unwrap_or(false);
    let watch = top.boolean("watch").unwrap_or(true);
    let crypto = top.value("crypto").and_then(|v| v.choice(&CRYPTO)).unwrap_or_default();
    let lanes = Lanes { running, written: lanes.unwrap_or_else(default_lanes) };
    let limits = top.table("limits", |t| Some(limits(t, lanes))).unwrap_or_default();
    let shared = Shared { lanes, limits: &limits };
    let mut claims = Claims::default();
    let admin = top.table("admin", |t| admin(t, &mut claims)).unwrap_or_default();
    let process = top.table("process", |t| Some(process(t))).unwrap_or_default();
    let access_log = top.table("access_log", access_log);
    let tickets = top.table("tickets", |t| Some(tickets(t))).unwrap_or_default();
    let store_key = top.table("store_key", sealane_operator::store_key);
    let written_include = top.value("include");
    let written = match written_include {
        None => top.required("listener", LISTENER_EXAMPLE),
        Some(_) => top.value("listener"),
    };
    let own = written.as_ref().map(|v| listener_list(v, shared, &mut claims));
    let included = written_include.as_ref().map(|v| include(v, shared, &mut claims));
    let Included { listeners: more, sources, .. } = included.unwrap_or_default();
    let listeners = own.unwrap_or_default().or_else(|| written_include.as_ref().map(|_| vec![]));
    let listeners = listeners.map(|own| [own, more].concat());
    if let (Some(at), Some([])) = (&written_include, listeners.as_deref())
        && sources.iter().all(|source| source.is_dir())
    {
        let what = "no file is there, and without one there is no listener";
        at.wrong(Problem::new(what, "put a file with a [[listener]] there"));
    }
    if let (Some(at), Some(listeners)) = (written.or(written_include), &listeners) {
        check_number_of_addresses(listeners, &limits, &at);
    }
    let has_store = |listeners: &Vec<Listener>| listeners.iter().any(|l| l.store.is_some());
    let is_in_store = tickets.root.as_ref().is_some_and(|root| root.store().is_some());
    if store_key.is_none() && (is_in_store || listeners.as_ref().is_some_and(has_store)) {
        top.required("store_key", STORE_KEY_EXAMPLE);
    }
    Some(Config {
        access_log,
        admin,
        crypto,
        included: sources,
        lanes: lanes.written,
        limits,
        listeners: listeners?,
        pin_lanes,
        process,
        store_key,
        tickets,
        watch,
    })
}

fn limits(table: &mut Table<'_>, lanes: Lanes) -> Limits {
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
    let drain_delay = table.duration("drain_delay", DRAIN_DELAY).unwrap_or(default.drain_delay);
    // Only what was written can be too little: the defaults are enough for every number of lanes.
    for (written, whole) in [(connections, connections_max), (handshakes, handshakes_max)] {
        if let Some(written) = written {
            lanes.check(whole, &written);
        }
    }
    Limits {
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
        drain_delay,
        drain_timeout: table
            .duration("drain_timeout", DRAIN_TIMEOUT)
            .unwrap_or(default.drain_timeout),
        handshakes_max,
        health_delay: health_delay(table, drain_delay).unwrap_or(default.health_delay),
        hello_bytes_max: table
            .size_bytes("hello_bytes", HELLO_BYTES)
            .unwrap_or(default.hello_bytes_max),
        listeners_max: table.count("listeners", 1..=LISTENERS_MAX).unwrap_or(default.listeners_max),
        proxy_timeout: table
            .duration("proxy_timeout", PROXY_TIMEOUT)
            .unwrap_or(default.proxy_timeout),
        names_max: table.count("names", 1..=NAMES_MAX).unwrap_or(default.names_max),
        timeouts: timeouts(table, default.timeouts),
        unfinished_bytes_per_lane_max: table
            .size_bytes("unfinished_bytes_per_lane", UNFINISHED_BYTES)
            .unwrap_or(default.unfinished_bytes_per_lane_max),
    }
}

/// How long the process still calls itself healthy: not longer than it accepts.
fn health_delay(table: &mut Table<'_>, drain_delay: Duration) -> Option<Duration> {
    let value = table.value("health_delay")?;
    let delay = value.duration(DRAIN_DELAY)?;
    if delay <= drain_delay {
        return Some(delay);
    }
    let [longer, delay] = [delay, drain_delay].map(value::duration_text);
    let what = format!(
        "{longer} is longer than drain_delay, {delay}: /healthz would praise a process that \
         accepts nothing"
    );
    value.wrong(Problem::new(what, "lower it, or raise limits.drain_delay"));
    None
}

fn access_log(table: &mut Table<'_>) -> Option<AccessLog> {
    let path = table.required("path", "path = \"stderr\"");
    let buffer_bytes =
        table.size_bytes("buffer", ACCESS_LOG_BUFFER_BYTES).unwrap_or(ACCESS_LOG_BUFFER_DEFAULT);
    let health_checks = table.boolean("health_checks").unwrap_or(false);
    let ja4 = table.boolean("ja4").unwrap_or(false);
    let only = table.value("only").and_then(|v| v.choice(&LOGGED_ENDS)).unwrap_or_default();
    let path = path?;
    let destination = match path.parsed(|text| Ok(text.to_owned()))?.as_str() {
        "stderr" => AccessLogDestination::Stderr,
        "stdout" => AccessLogDestination::Stdout,
        _ => AccessLogDestination::File(path.path()?),
    };
    Some(AccessLog { destination, buffer_bytes, health_checks, ja4, only })
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
        root: table.value("root").and_then(|v| root_place(&v)),
    }
}

fn root_place(written: &Value<'_>) -> Option<RootPlace> {
    match store_path(written) {
        Some(store) => Some(RootPlace::Store(store?)),
        None => written.path().map(RootPlace::File),
    }
}

/// Most lanes that can be asked for.
pub const LANES_MAX: usize = 1024;
/// Addresses over all listeners.
pub(super) const LISTENERS_MAX: usize = 1024;

const ACCESS_LOG_BUFFER_BYTES: RangeInclusive<usize> = 4 * 1024..=64 * 1024 * 1024;
const ACCESS_LOG_BUFFER_DEFAULT: usize = 1024 * 1024;
const CONNECTIONS: RangeInclusive<usize> = 1..=10_000_000;
const CONNECTION_AGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
const CONNECT_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(300);
const DRAIN_DELAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3_600);
const DRAIN_TIMEOUT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);
/// A hello with a post-quantum key share has about 2 KiB; rustls refuses more than 64 KiB.
const HELLO_BYTES: RangeInclusive<usize> = 4 * 1024..=64 * 1024;
const PROXY_TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
const NAMES_MAX: usize = 10_000_000;
/// A lane must be able to keep what the longest message takes, for a client and for its backend.
const UNFINISHED_BYTES: RangeInclusive<usize> = 1024 * 1024..=64 * 1024 * 1024 * 1024;
const TICKET_LIFETIME: RangeInclusive<Duration> =
    Duration::from_secs(LIFETIME_S_MIN as u64)..=Duration::from_secs(LIFETIME_S_MAX as u64);

const CRYPTO: [(&str, ProviderChoice); 3] = [
    ("auto", ProviderChoice::Auto),
    ("aws-lc", ProviderChoice::AwsLc),
    ("graviola", ProviderChoice::Graviola),
];
const LOGGED_ENDS: [(&str, LoggedEnds); 2] =
    [("all", LoggedEnds::All), ("failures", LoggedEnds::Failures)];
const STORE_KEY_EXAMPLE: &str =
    "[store_key] with file, credential or command: it opens the store of a listener";
const FILE_LISTENER_EXAMPLE: &str = "a [[listener]]: a file that is included has nothing else";
const LISTENER_EXAMPLE: &str = "a [[listener]] with address, certificates and backends";
