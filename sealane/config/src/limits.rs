//! The table `limits`: what is bounded, by name, and how the whole is divided among lanes.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use sealane_engine::certificates::CERTIFICATES_MAX;
use sealane_lanes::timeouts::Timeouts;
use sealane_operator::key::{Bytes, Count, Either, Group, Key, Or, Span, Word};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::lanes::Lanes;
use crate::timeouts::{
    BACKEND_TIMEOUT, CLIENT_TIMEOUT, HALF_CLOSED_TIMEOUT, HANDSHAKE_TIMEOUT, IDLE_TIMEOUT,
    default_timeouts, timeouts,
};
use crate::value;

/// The limits of a whole process; see [`Limits::per_lane`] for those of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Certificates of one listener.
    pub certificates_max: usize,
    /// One attempt to connect to a backend.
    pub connect_timeout: Duration,
    /// From accept to the end of an established connection; none unless asked for.
    pub connection_age_max: Option<Duration>,
    /// Open client connections in all.
    pub connections_max: usize,
    /// Open client connections of one lane; without it, its share of `connections_max`.
    pub connections_per_lane_max: Option<usize>,
    /// Private keys that a lane keeps decoded; the least recently used goes first.
    pub decoded_keys_per_lane_max: usize,
    /// From the first signal to the closing of the listeners; new clients are served until then.
    pub drain_delay: Duration,
    /// From the closing of the listeners to the end of the last connection.
    pub drain_timeout: Duration,
    /// Handshakes in flight in all.
    pub handshakes_max: usize,
    /// From the first signal to the moment when the admin address calls the process unhealthy; at
    /// most `drain_delay`.
    pub health_delay: Duration,
    /// Bytes of a ClientHello.
    pub hello_bytes_max: usize,
    /// Addresses listened on, over all listeners.
    pub listeners_max: usize,
    /// Server names of one listener.
    pub names_max: usize,
    /// From accept to the end of the PROXY header, where one is required.
    pub proxy_timeout: Duration,
    /// How long a connection may take, and be still, unless its listener says otherwise.
    pub timeouts: Timeouts,
    /// Bytes of unfinished hellos, messages and records that a lane keeps.
    pub unfinished_bytes_per_lane_max: usize,
}

impl Limits {
    /// The limits of each of `lanes`: what is counted in all is divided, because a shared counter
    /// would be a cache line that every lane writes. All lanes together never have more than the
    /// whole, so up to `lanes` - 1 of it are nobody's.
    pub fn per_lane(&self, lanes: NonZeroUsize) -> sealane_lanes::limits::Limits {
        let share = self.connections_max / lanes;
        let connections_max = self.connections_per_lane_max.unwrap_or(share);
        sealane_lanes::limits::Limits {
            connection_age_max: self.connection_age_max,
            connections_max,
            handshakes_max: (self.handshakes_max / lanes).min(connections_max),
            hello_bytes_max: self.hello_bytes_max,
            unfinished_bytes_max: self.unfinished_bytes_per_lane_max,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            certificates_max: CERTIFICATES.default(),
            connect_timeout: CONNECT_TIMEOUT.default(),
            connection_age_max: CONNECTION_AGE.default(),
            connections_max: CONNECTIONS.default(),
            connections_per_lane_max: None,
            decoded_keys_per_lane_max: DECODED_KEYS_PER_LANE.default(),
            drain_delay: DRAIN_DELAY.default(),
            drain_timeout: DRAIN_TIMEOUT.default(),
            handshakes_max: HANDSHAKES_IN_FLIGHT.default(),
            health_delay: HEALTH_DELAY.default(),
            hello_bytes_max: HELLO_BYTES.default(),
            listeners_max: LISTENERS.default(),
            names_max: NAMES.default(),
            proxy_timeout: PROXY_TIMEOUT.default(),
            timeouts: default_timeouts(),
            unfinished_bytes_per_lane_max: UNFINISHED_BYTES_PER_LANE.default(),
        }
    }
}

/// The limits of all listeners together.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'l> {
    pub(crate) lanes: Lanes,
    pub(crate) limits: &'l Limits,
}

pub(crate) fn limits(table: &Table<'_>, lanes: Lanes) -> Limits {
    let connections = table.value(&CONNECTIONS);
    let handshakes = table.value(&HANDSHAKES_IN_FLIGHT);
    let per_lane = table.value(&CONNECTIONS_PER_LANE);
    let read = |key: &Key<Or<Count>>, written: &Option<Value<'_>>| {
        written.as_ref().and_then(|v| key.read(v)).unwrap_or_else(|| key.default())
    };
    let connections_max = read(&CONNECTIONS, &connections);
    let handshakes_max = read(&HANDSHAKES_IN_FLIGHT, &handshakes);
    let connections_per_lane_max = per_lane.as_ref().and_then(|v| CONNECTIONS_PER_LANE.read(v));
    if let (Some(value), Some(per_lane)) = (per_lane, connections_per_lane_max)
        && per_lane > connections_max
    {
        let what = format!("{per_lane} on one lane is more than {connections_max} in all");
        value.wrong(Problem::new(what, "lower it, or raise limits.connections"));
    }
    let drain_delay = table.get(&DRAIN_DELAY);
    // Only what was written can be too little: the defaults are enough for every number of lanes.
    for (written, whole) in [(connections, connections_max), (handshakes, handshakes_max)] {
        if let Some(written) = written {
            lanes.check(whole, &written);
        }
    }
    Limits {
        certificates_max: table.get(&CERTIFICATES),
        connect_timeout: table.get(&CONNECT_TIMEOUT),
        connection_age_max: table.get(&CONNECTION_AGE),
        connections_max,
        connections_per_lane_max,
        decoded_keys_per_lane_max: table.get(&DECODED_KEYS_PER_LANE),
        drain_delay,
        drain_timeout: table.get(&DRAIN_TIMEOUT),
        handshakes_max,
        health_delay: health_delay(table, drain_delay).unwrap_or_else(|| HEALTH_DELAY.default()),
        hello_bytes_max: table.get(&HELLO_BYTES),
        listeners_max: table.get(&LISTENERS),
        proxy_timeout: table.get(&PROXY_TIMEOUT),
        names_max: table.get(&NAMES),
        timeouts: timeouts(table, default_timeouts()),
        unfinished_bytes_per_lane_max: table.get(&UNFINISHED_BYTES_PER_LANE),
    }
}

/// How long the process still calls itself healthy: not longer than it accepts.
fn health_delay(table: &Table<'_>, drain_delay: Duration) -> Option<Duration> {
    let value = table.value(&HEALTH_DELAY)?;
    let delay = HEALTH_DELAY.read(&value)?;
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

/// Addresses over all listeners.
pub(crate) const LISTENERS_MAX: usize = 1024;

/// What can be asked for of connections.
pub(crate) const CONNECTIONS_RANGE: RangeInclusive<usize> = 1..=10_000_000;

const DELAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3_600);

pub(crate) static GROUP: Group = Group::new(
    "limits",
    "What is bounded, and by how much. Each key says what happens at its limit. It is counted, and \
     other connections are served as before.",
    &[
        &CONNECTIONS,
        &CONNECTIONS_PER_LANE,
        &HANDSHAKES_IN_FLIGHT,
        &HANDSHAKE_TIMEOUT,
        &PROXY_TIMEOUT,
        &CONNECT_TIMEOUT,
        &IDLE_TIMEOUT,
        &HALF_CLOSED_TIMEOUT,
        &CLIENT_TIMEOUT,
        &BACKEND_TIMEOUT,
        &CONNECTION_AGE,
        &DRAIN_DELAY,
        &HEALTH_DELAY,
        &DRAIN_TIMEOUT,
        &HELLO_BYTES,
        &UNFINISHED_BYTES_PER_LANE,
        &DECODED_KEYS_PER_LANE,
        &CERTIFICATES,
        &NAMES,
        &LISTENERS,
    ],
);

static CONNECTIONS: Key<Or<Count>> = Key::new(
    "connections",
    Or(Count(CONNECTIONS_RANGE), 100_000),
    "Open client connections in all, divided among the lanes and rounded down. At the limit the \
     newest is reset.",
)
.see(&["listener.connections"]);

static CONNECTIONS_PER_LANE: Key<Count> = Key::new(
    "connections_per_lane",
    Count(CONNECTIONS_RANGE),
    "Open client connections of each lane, instead of its share of connections.",
)
.examples(&["25000"])
.without("the lane's share of connections");

static HANDSHAKES_IN_FLIGHT: Key<Or<Count>> = Key::new(
    "handshakes_in_flight",
    Or(Count(CONNECTIONS_RANGE), 16_384),
    "Handshakes in progress in all, divided among the lanes. At the limit the oldest is reset. An \
     overloaded lane also resets clients that never complete their handshakes: those that it \
     cannot serve in 200 ms.",
);

static PROXY_TIMEOUT: Key<Or<Span>> = Key::new(
    "proxy_timeout",
    Or(Span(Duration::from_millis(10)..=Duration::from_secs(60)), Duration::from_secs(3)),
    "The PROXY header must arrive within this time after accept, where one is required. With plain \
     = \"redirect\" or starttls, handshake_timeout applies to the header and what follows it.",
)
.see(&["listener.accept_proxy"]);

static CONNECT_TIMEOUT: Key<Or<Span>> = Key::new(
    "connect_timeout",
    Or(Span(Duration::from_millis(10)..=Duration::from_secs(300)), Duration::from_secs(5)),
    "An attempt to connect to a backend may take this long. Then Sealane tries the next backend.",
);

static CONNECTION_AGE: Key<Or<Either<Word, Span>>> = Key::new(
    "connection_age",
    Or(Either(Word("off"), Span(Duration::from_secs(1)..=Duration::from_secs(30 * 86_400))), None),
    "An established connection is closed this long after accept, however busy it is. The client is \
     notified in TLS, the backend is reset: an answer may be cut.",
);

static DRAIN_DELAY: Key<Or<Span>> = Key::new(
    "drain_delay",
    Or(Span(DELAY), Duration::ZERO),
    "The listeners are closed this long after the first SIGTERM. Until then clients are served as \
     before, so that a load balancer or a service registry can send clients elsewhere first. A \
     second SIGTERM ends the delay.",
);

static HEALTH_DELAY: Key<Or<Span>> = Key::new(
    "health_delay",
    Or(Span(DELAY), Duration::ZERO),
    "/healthz answers 503 this long after the first SIGTERM, and from then on. At most \
     drain_delay. Leave it at \"0s\" if a load balancer asks /healthz. Set it if the balancer \
     learns of the shutdown in another way and must not remove the machine early.",
);

static DRAIN_TIMEOUT: Key<Or<Span>> = Key::new(
    "drain_timeout",
    Or(Span(Duration::ZERO..=Duration::from_secs(86_400)), Duration::from_secs(30)),
    "Open connections may finish within this time after the listeners are closed, which SIGTERM \
     does after drain_delay. Connections that are open at the end are cut.",
);

static HELLO_BYTES: Key<Or<Bytes>> = Key::new(
    "hello_bytes",
    // One with a post-quantum key share has about 2 KiB; rustls refuses more than 64 KiB.
    Or(Bytes(4 * 1024..=64 * 1024), 64 * 1024),
    "The size of a ClientHello. A longer one is refused with the alert illegal_parameter.",
);

static UNFINISHED_BYTES_PER_LANE: Key<Or<Bytes>> = Key::new(
    "unfinished_bytes_per_lane",
    // Enough for the longest message of a client and of its backend.
    Or(Bytes(1024 * 1024..=64 * 1024 * 1024 * 1024), 64 * 1024 * 1024),
    "How much a lane keeps of incomplete hellos, messages and records. At the limit the connection \
     that has waited longest is reset.",
);

static DECODED_KEYS_PER_LANE: Key<Or<Count>> = Key::new(
    "decoded_keys_per_lane",
    Or(Count(1..=CERTIFICATES_MAX), 1_024),
    "Private keys that a lane keeps decoded. The least recently used is dropped first.",
);

static CERTIFICATES: Key<Or<Count>> = Key::new(
    "certificates",
    Or(Count(1..=CERTIFICATES_MAX), CERTIFICATES_MAX),
    "Certificates of one listener.",
);

static NAMES: Key<Or<Count>> = Key::new(
    "names",
    Or(Count(1..=10_000_000), 1_000_000),
    "Names in the certificates of one listener.",
);

static LISTENERS: Key<Or<Count>> = Key::new(
    "listeners",
    Or(Count(1..=LISTENERS_MAX), 256),
    "Addresses of all listeners together.",
);
