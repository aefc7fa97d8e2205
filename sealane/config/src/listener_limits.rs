//! The keys of a listener that bound what it takes: from whom, how many, and for how long.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use sealane_lanes::liveness::{KeepAlive, Liveness};
use sealane_lanes::timeouts::Timeouts;
use sealane_operator::key::{
    Choice, Count, Either, Group, Key, List, Or, Span, TableKind, Text, Word,
};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::limits::{CONNECTIONS_RANGE, Shared};
use crate::network::{Network, network};
use crate::timeouts::timeouts;
use crate::value::duration_text;

/// The limits of one listener. What is counted in all is divided among the lanes, as that of the
/// process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Networks from which clients may come, and nobody else; everybody if there are none.
    pub allow: Vec<NetworkSource>,
    /// Open client connections; without it, as many as the process may have.
    pub connections_max: Option<NonZeroUsize>,
    /// Networks that are refused, even if `allow` has them.
    pub deny: Vec<NetworkSource>,
    /// How the kernel finds out that clients and backends are gone.
    pub liveness: Liveness,
    /// What one client may take of it.
    pub per_client: PerClient,
    /// Where a connection falls.
    pub steering: Steering,
    /// How long a connection may take, and be still.
    pub timeouts: Timeouts,
}

/// Which lane a connection falls to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// All of one client to one.
    Client,
    /// Any.
    #[default]
    Connection,
    /// One that is tied to the processor at which it arrives.
    Core,
}

/// Where networks are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkSource {
    /// A file with one on each line.
    File(PathBuf),
    /// In the configuration itself.
    Network(Network),
}

impl NetworkSource {
    /// The file, if it is one.
    pub fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::File(path) => Some(path),
            Self::Network(_) => None,
        }
    }
}

impl fmt::Display for NetworkSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Network(network) => network.fmt(f),
        }
    }
}

/// What one client may take: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerClient {
    /// Open connections.
    pub connections_max: Option<NonZeroUsize>,
    /// Handshakes begun in a second; twice as many at once.
    pub handshakes_per_s: Option<NonZeroUsize>,
}

impl PerClient {
    /// Whether anything is limited.
    pub fn is_limited(self) -> bool {
        self != Self::default()
    }

    /// What each of `lanes` gives a client. A client's connections fall to lanes by chance, and no
    /// lane knows what it has on the others, so it has between one share and `lanes` of them: this
    /// is the least share with which all lanes together give what is asked for.
    pub fn per_lane(self, lanes: NonZeroUsize) -> Self {
        let share = |whole: NonZeroUsize| {
            NonZeroUsize::new(whole.get().div_ceil(lanes.get())).unwrap_or(NonZeroUsize::MIN)
        };
        Self {
            connections_max: self.connections_max.map(share),
            handshakes_per_s: self.handshakes_per_s.map(share),
        }
    }
}

impl ListenerLimits {
    /// A lane's share of the listener's connections. All lanes together never have more than the
    /// whole.
    pub fn connections_per_lane(&self, lanes: NonZeroUsize) -> Option<usize> {
        self.connections_max.map(|whole| whole.get() / lanes)
    }

    /// What each lane gives a client: all that is asked for, if a client has but one lane.
    pub fn per_client_on_lane(&self, lanes: NonZeroUsize) -> PerClient {
        match self.steering {
            Steering::Client => self.per_client,
            Steering::Connection | Steering::Core => self.per_client.per_lane(lanes),
        }
    }

    /// Those that are not as they are by default, by their keys and about as they are written.
    pub fn chosen(&self) -> BTreeMap<&'static str, String> {
        let default = Self::default().timeouts;
        let Timeouts { backend, client, half_closed, handshake, idle } = self.timeouts;
        let unless = |time, default| (time != default).then_some(time);
        let times = [
            ("backend_timeout", backend),
            ("client_timeout", client),
            ("half_closed_timeout", unless(half_closed, default.half_closed)),
            ("handshake_timeout", unless(handshake, default.handshake)),
            ("idle_timeout", unless(idle, default.idle)),
            ("user_timeout", self.liveness.user_timeout),
        ];
        let counts = [
            ("connections", self.connections_max, ""),
            ("connections_per_client", self.per_client.connections_max, ""),
            ("handshakes_per_client", self.per_client.handshakes_per_s, "/s"),
        ];
        let steering = match self.steering {
            Steering::Client => Some("client"),
            Steering::Connection => None,
            Steering::Core => Some("core"),
        };
        let rest = [
            ("allow", networks_text(&self.allow)),
            ("deny", networks_text(&self.deny)),
            ("keepalive", self.liveness.keep_alive.map(keep_alive_text)),
            ("steer", steering.map(str::to_owned)),
        ];
        let times = times.map(|(key, time)| (key, time.map(duration_text)));
        let counts = counts.map(|(key, n, unit)| (key, n.map(|n| format!("{n}{unit}"))));
        let all = times.into_iter().chain(counts).chain(rest);
        all.filter_map(|(key, text)| Some((key, text?))).collect()
    }

    /// The files that networks are read from.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.allow.iter().chain(&self.deny).filter_map(NetworkSource::file)
    }
}

/// The first few of them, if there are any.
fn networks_text(sources: &[NetworkSource]) -> Option<String> {
    let shown = sources.iter().take(SOURCES_SHOWN_MAX).map(ToString::to_string);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match sources.len().saturating_sub(SOURCES_SHOWN_MAX) {
        0 => (!sources.is_empty()).then_some(shown),
        more => Some(format!("{shown} and {more} more")),
    }
}

fn keep_alive_text(KeepAlive { idle, every, count }: KeepAlive) -> String {
    format!("idle {}, every {}, count {count}", duration_text(idle), duration_text(every))
}

/// The limits of a listener.
pub(crate) fn listener_limits(table: &Table<'_>, shared: Shared<'_>) -> ListenerLimits {
    let timeouts = timeouts(table, shared.limits.timeouts);
    let connections_max =
        table.value(&CONNECTIONS).and_then(|v| shared.lanes.count(&v, CONNECTIONS.kind.0.clone()));
    let keep_alive = table.value(&KEEPALIVE).and_then(|v| keep_alive(&v));
    let user_timeout = table.get(&USER_TIMEOUT);
    let allow = table.value(&ALLOW).and_then(|v| networks(&v));
    let deny = table.value(&DENY).and_then(|v| networks(&v));
    let per_client = PerClient {
        connections_max: NonZeroUsize::new(table.get(&CONNECTIONS_PER_CLIENT)),
        handshakes_per_s: table.read(&HANDSHAKES_PER_CLIENT).flatten(),
    };
    let steering = table.get(&STEER);
    ListenerLimits {
        allow: allow.unwrap_or_default(),
        connections_max,
        deny: deny.unwrap_or_default(),
        liveness: Liveness { keep_alive, user_timeout },
        per_client,
        steering,
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
    written.table(&KEEPALIVE_GROUP, |table| {
        let seconds = |key: &'static Key<Or<Span>>| match table.value(key) {
            Some(v) => key.read(&v).filter(|read| is_whole(&v, *read)),
            None => Some(key.default()),
        };
        let (idle, every) = (seconds(&KEEPALIVE_IDLE), seconds(&KEEPALIVE_EVERY));
        let count = match table.value(&KEEPALIVE_COUNT) {
            Some(v) => KEEPALIVE_COUNT.read(&v)?,
            None => KEEPALIVE_COUNT.default(),
        };
        let count = u32::try_from(count).ok()?;
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

fn networks(written: &Value<'_>) -> Option<Vec<NetworkSource>> {
    written.list(NETWORKS_MAX, |v| network_source(&v))
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

/// Networks and files of one list that are shown.
const SOURCES_SHOWN_MAX: usize = 5;

/// Networks of one list, those of files included.
pub const NETWORKS_MAX: usize = 100_000;

/// More is no limit, and twice as many thousandths fit in 32 bits.
const HANDSHAKES_PER_S: RangeInclusive<usize> = 1..=1_000_000;

const KEEPALIVE_REMEDY: &str = "write \"off\" or { idle = \"60s\", every = \"10s\", count = 6 }";

pub(crate) static CONNECTIONS: Key<Count> = Key::new(
    "connections",
    Count(CONNECTIONS_RANGE),
    "Open client connections of this listener, divided among the lanes and rounded down.",
)
.examples(&["20000"])
.without("limits.connections")
.see(&["limits.connections"]);

pub(crate) static KEEPALIVE: Key<Either<Word, TableKind>> = Key::new(
    "keepalive",
    Either(Word("off"), TableKind(&KEEPALIVE_GROUP)),
    "TCP keep-alive: whether the kernel probes silent clients and backends.",
)
.examples(&["\"off\"", "{ idle = \"60s\", every = \"10s\", count = 6 }"])
.without("\"off\"");

static KEEPALIVE_GROUP: Group = Group::new(
    "listener.keepalive",
    "TCP keep-alive probes.",
    &[&KEEPALIVE_IDLE, &KEEPALIVE_EVERY, &KEEPALIVE_COUNT],
);

static KEEPALIVE_IDLE: Key<Or<Span>> = Key::new(
    "idle",
    Or(Span(KEEPALIVE_TIME), Duration::from_secs(60)),
    "Silence before the first probe, in whole seconds.",
);

static KEEPALIVE_EVERY: Key<Or<Span>> = Key::new(
    "every",
    Or(Span(KEEPALIVE_TIME), Duration::from_secs(10)),
    "The time between two probes, in whole seconds.",
);

static KEEPALIVE_COUNT: Key<Or<Count>> = Key::new(
    "count",
    Or(Count(1..=127), 6),
    "Unanswered probes after which the connection is closed.",
);

/// The kernel's bounds.
const KEEPALIVE_TIME: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(32_767);

pub(crate) static USER_TIMEOUT: Key<Or<Either<Word, Span>>> = Key::new(
    "user_timeout",
    Or(Either(Word("off"), Span(Duration::from_secs(1)..=Duration::from_secs(3_600))), None),
    "How long the kernel waits for sent bytes to be acknowledged before it closes a connection to \
     a client or a backend. \"off\" is as long as the system's retransmissions take.",
);

pub(crate) static ALLOW: Key<List<Text<Network>>> = Key::new(
    "allow",
    List(Text(NETWORK, network), NETWORKS_MAX),
    "Networks and addresses from which clients may connect. \"file:/PATH\" has one on each line; \
     text behind a # is a comment. A change of a file reloads.",
)
.examples(&["[\"10.0.0.0/8\", \"2001:db8::/32\", \"192.0.2.7\"]"])
.without("all clients may connect")
.see(&["listener.deny"]);

pub(crate) static DENY: Key<List<Text<Network>>> = Key::new(
    "deny",
    List(Text(NETWORK, network), NETWORKS_MAX),
    "Networks and addresses from which clients may not connect, whatever allow has. They are reset \
     at once. Files as in allow.",
)
.examples(&["[\"10.9.0.0/16\", \"file:/etc/sealane/deny.txt\"]"])
.without("no network")
.see(&["listener.allow"]);

const NETWORK: &str = "network, single address or \"file:/PATH\"";

pub(crate) static CONNECTIONS_PER_CLIENT: Key<Or<Count>> = Key::new(
    "connections_per_client",
    Or(Count(0..=*CONNECTIONS_RANGE.end()), 0),
    "Open connections of one client: an IPv4 address, or an IPv6 network of 64 bits. 0 is no \
     limit. At the limit the client's newest connection is reset. Each lane counts alone and gives \
     a client limit / lanes, rounded up. With 8 lanes and a limit of 20, a client is refused from \
     3 connections on one lane up to 24 on all.",
)
.see(&["listener.steer"]);

pub(crate) static HANDSHAKES_PER_CLIENT: Key<Text<Option<NonZeroUsize>>> = Key::new(
    "handshakes_per_client",
    Text("\"off\", or \"1/s\" to \"1000000/s\"", handshake_rate),
    "Rate limit: handshakes that one client may begin in a second, and twice as many at once. \
     Divided among the lanes as connections_per_client.",
)
.examples(&["\"off\"", "\"20/s\""])
.without("\"off\"");

pub(crate) static STEER: Key<Or<Choice<Steering>>> = Key::new(
    "steer",
    Or(
        Choice(&[
            ("client", Steering::Client),
            ("connection", Steering::Connection),
            ("core", Steering::Core),
        ]),
        Steering::Connection,
    ),
    "Which lane gets a connection. \"connection\" is any lane, by a hash of addresses and ports. \
     With \"client\" one lane gets all connections of a client, so that limits per client are \
     exact; an address that many clients share then keeps one lane busy alone. \"core\" needs \
     pin_lanes: the connection goes to a lane of the core that gets the network card's interrupt. \
     Try it where the card spreads connections over as many queues as there are lanes; elsewhere \
     lanes are idle.",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LANES_MAX;

    #[test]
    fn lanes_together_have_never_more_than_the_listener_may_have() {
        for whole in [1, 7, 1_024, 10_007].map(|whole| NonZeroUsize::new(whole).unwrap()) {
            let limits =
                ListenerLimits { connections_max: Some(whole), ..ListenerLimits::default() };
            for lanes in (1..=LANES_MAX).map(|lanes| NonZeroUsize::new(lanes).unwrap()) {
                let together = limits.connections_per_lane(lanes).unwrap() * lanes.get();
                assert!(together <= whole.get() && together + lanes.get() > whole.get());
            }
        }
        let unlimited = ListenerLimits::default();
        assert_eq!(unlimited.connections_per_lane(NonZeroUsize::MIN), None);
    }

    /// What is documented: from the limit up to one less than a connection more on each lane.
    #[test]
    fn a_client_gets_what_is_asked_for_and_less_than_one_more_on_each_lane() {
        for whole in [1, 3, 20, 1_024, 10_007].map(|whole| NonZeroUsize::new(whole).unwrap()) {
            let asked = PerClient { connections_max: Some(whole), handshakes_per_s: Some(whole) };
            for lanes in (1..=LANES_MAX).map(|lanes| NonZeroUsize::new(lanes).unwrap()) {
                let PerClient { connections_max, handshakes_per_s } = asked.per_lane(lanes);
                for share in [connections_max, handshakes_per_s] {
                    let together = share.unwrap().get() * lanes.get();
                    assert!((whole.get()..whole.get() + lanes.get()).contains(&together));
                }
            }
        }
    }
}
