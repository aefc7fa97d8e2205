//! The table `limits`: what is bounded, by name, and how the whole is divided among lanes.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use sealane_engine::certificates::CERTIFICATES_MAX;
use sealane_lanes::timeouts::Timeouts;
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::lanes::Lanes;
use crate::timeouts::timeouts;
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
    /// From the first signal to the closing of the listeners; who comes meanwhile is served.
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
    /// What lanes keep to themselves is by default what the lanes crate says.
    fn default() -> Self {
        let lane = sealane_lanes::limits::Limits::default();
        Self {
            certificates_max: CERTIFICATES_MAX,
            connect_timeout: Duration::from_secs(5),
            connection_age_max: lane.connection_age_max,
            connections_max: lane.connections_max,
            connections_per_lane_max: None,
            decoded_keys_per_lane_max: 1_024,
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            handshakes_max: 16_384,
            health_delay: Duration::ZERO,
            hello_bytes_max: lane.hello_bytes_max,
            listeners_max: 256,
            names_max: 1_000_000,
            proxy_timeout: Duration::from_secs(3),
            timeouts: Timeouts::default(),
            unfinished_bytes_per_lane_max: lane.unfinished_bytes_max,
        }
    }
}

/// The limits of all listeners together, and who shares what one has.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'l> {
    pub(crate) lanes: Lanes,
    pub(crate) limits: &'l Limits,
}

pub(crate) fn limits(table: &mut Table<'_>, lanes: Lanes) -> Limits {
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

/// Addresses over all listeners.
pub(crate) const LISTENERS_MAX: usize = 1024;

pub(crate) const CONNECTIONS: RangeInclusive<usize> = 1..=10_000_000;

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
