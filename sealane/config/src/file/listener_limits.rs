//! The keys of a listener that say from whom it takes how much, and when a silent peer is given up.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use sealane_lanes::liveness::{KeepAlive, Liveness};

use super::super::listener_limits::{
    ListenerLimits, NETWORKS_MAX, NetworkSource, PerClient, Steering,
};
use super::super::mistake::Problem;
use super::super::network::network;
use super::super::reader::{Table, Value};
use super::CONNECTIONS;
use super::shared::Shared;
use super::timeouts::timeouts;

/// The limits of a listener.
pub(super) fn listener_limits(table: &mut Table<'_>, shared: Shared<'_>) -> ListenerLimits {
    let timeouts = timeouts(table, shared.limits.timeouts);
    let connections_max =
        table.value("connections").and_then(|v| shared.lanes.count(&v, CONNECTIONS));
    let keep_alive = table.value("keepalive").and_then(|v| keep_alive(&v));
    let user_timeout = table.value("user_timeout");
    let user_timeout = user_timeout.and_then(|v| v.duration_or_off(USER_TIMEOUT)).flatten();
    let mut networks =
        |key| table.value(key).and_then(|v| v.list(NETWORKS_MAX, |v| network_source(&v)));
    let (allow, deny) = (networks("allow"), networks("deny"));
    let per_client = PerClient {
        connections_max: table
            .count("connections_per_client", PER_CLIENT_CONNECTIONS)
            .and_then(NonZeroUsize::new),
        handshakes_per_s: table
            .value("handshakes_per_client")
            .and_then(|v| v.parsed(handshake_rate))
            .flatten(),
    };
    let steering = table.value("steer").and_then(|v| v.choice(&STEER));
    ListenerLimits {
        allow: allow.unwrap_or_default(),
        connections_max,
        deny: deny.unwrap_or_default(),
        liveness: Liveness { keep_alive, user_timeout },
        per_client,
        steering: steering.unwrap_or_default(),
        timeouts,
    }
}

/// "off", or a table.
fn keep_alive(written: &Value<'_>) -> Option<KeepAlive> {
    match written.as_text() {
        Some("off") => return None,
        Some(text) => {
            let what = format!("{text:?} says neither that nor how");
            written.wrong(Problem::new(what, KEEPALIVE_REMEDY));
            return None;
        }
        None => {}
    }
    written.table(|table| {
        let mut seconds = |key: &'static str, default| match table.value(key) {
            Some(v) => v.duration(KEEPALIVE_TIME).filter(|read| is_whole(&v, *read)),
            None => Some(default),
        };
        let (idle, every) = (seconds("idle", KEEPALIVE_IDLE), seconds("every", KEEPALIVE_EVERY));
        let count = table.value("count").map(|v| v.count(KEEPALIVE_COUNT));
        let count = u32::try_from(count.unwrap_or(Some(KEEPALIVE_COUNT_DEFAULT))?).ok()?;
        Some(KeepAlive { idle: idle?, every: every?, count })
    })
}

fn is_whole(written: &Value<'_>, duration: Duration) -> bool {
    let is_whole = duration.subsec_nanos() == 0;
    if !is_whole {
        written.wrong(Problem::new("a fraction of a second", "write whole seconds"));
    }
    is_whole
}

/// A network, or `file:PATH` with one on each line.
fn network_source(written: &Value<'_>) -> Option<NetworkSource> {
    match written.as_text().and_then(|text| text.strip_prefix("file:")) {
        Some(path) => written.path_of(path).map(NetworkSource::File),
        None => written.parsed(network).map(NetworkSource::Network),
    }
}

/// "off", or how many in a second.
fn handshake_rate(text: &str) -> Result<Option<NonZeroUsize>, Problem> {
    if text == "off" {
        return Ok(None);
    }
    let is_number = |number: &str| number.bytes().all(|b| b.is_ascii_digit());
    let number = text.strip_suffix("/s").filter(|number| is_number(number));
    match number.and_then(|number| number.parse().ok()) {
        Some(rate) if HANDSHAKES_PER_S.contains(&rate) => Ok(NonZeroUsize::new(rate)),
        _ => Err(Problem::new(
            format!("{text:?} is not a rate of handshakes"),
            format!(
                "write \"off\" or \"{}/s\" to \"{}/s\", such as \"20/s\"",
                HANDSHAKES_PER_S.start(),
                HANDSHAKES_PER_S.end()
            ),
        )),
    }
}

/// What one client can have at most of [`CONNECTIONS`]; 0 is no limit.
const PER_CLIENT_CONNECTIONS: RangeInclusive<usize> = 0..=*CONNECTIONS.end();
/// More is no limit, and twice as many thousandths fit in 32 bits.
const HANDSHAKES_PER_S: RangeInclusive<usize> = 1..=1_000_000;
const KEEPALIVE_REMEDY: &str = "write \"off\" or { idle = \"60s\", every = \"10s\", count = 6 }";
const KEEPALIVE_COUNT_DEFAULT: usize = 6;
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// The kernel's bounds of keep-alive probes.
const KEEPALIVE_COUNT: RangeInclusive<usize> = 1..=127;
const KEEPALIVE_TIME: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(32_767);
const STEER: [(&str, Steering); 3] =
    [("client", Steering::Client), ("connection", Steering::Connection), ("core", Steering::Core)];
const USER_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);
