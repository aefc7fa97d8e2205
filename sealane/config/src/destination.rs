//! Where the plaintext of a listener goes, or of some of its clients: backends, and how one is
//! chosen.

use std::num::NonZeroUsize;
use std::time::Duration;

use sealane_operator::key::{
    Bool, Choice, Count, Either, Group, Key, Or, Set, Span, TableKind, Text, Word,
};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::backend::{BackendAddress, WrittenBackend, share_tls};
use crate::backend_tls::{BACKEND_TLS, BackendTls, backend_tls};
use crate::lanes::Lanes;
use crate::limits::CONNECTIONS_RANGE;
use crate::proxy_header::{PROXY_HEADER, PROXY_TLVS, ProxyHeader, proxy_header};
use crate::value;

/// Where plaintext goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// None twice; at least one, but where no plaintext goes anywhere.
    pub backends: Vec<(BackendAddress, Share)>,
    /// How TLS is spoken to all of them; without it they get plain bytes.
    pub backend_tls: Option<BackendTls>,
    /// How a backend is chosen for a connection.
    pub balance: Balance,
    /// The PROXY header for a backend.
    pub proxy_header: ProxyHeader,
}

impl Destination {
    /// No place for plaintext.
    pub fn nowhere() -> Self {
        Self {
            backends: Vec::new(),
            backend_tls: None,
            balance: Balance::default(),
            proxy_header: ProxyHeader::Off,
        }
    }

    /// The backends as they are written, for people.
    pub fn labels(&self) -> impl Iterator<Item = String> {
        self.backends.iter().map(|(address, _)| self.label(address))
    }

    /// The backend at `address` as it is written.
    pub fn label(&self, address: &BackendAddress) -> String {
        WrittenBackend { address: address.clone(), tls: self.backend_tls.is_some() }.to_string()
    }
}

/// How a backend is chosen for a connection. Each lane counts for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The one with the fewest open connections of this lane.
    LeastConnections,
    /// One after the other.
    #[default]
    RoundRobin,
}

impl Balance {
    /// The order as written in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeastConnections => "least-connections",
            Self::RoundRobin => "round-robin",
        }
    }
}

/// How much of what a destination gets is a backend's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Connections that it may have of all lanes together; no limit without it.
    pub connections_max: Option<NonZeroUsize>,
    /// Whether it is for when all others are away.
    pub is_backup: bool,
    /// The backend's share beside the weights of others; 0: it gets nothing new.
    pub weight: u16,
}

impl Share {
    /// The connections that each of `lanes` may have to it. All lanes together never have more than
    /// the whole.
    pub fn connections_per_lane(self, lanes: NonZeroUsize) -> Option<usize> {
        self.connections_max.map(|whole| whole.get() / lanes)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self { connections_max: None, is_backup: false, weight: 1 }
    }
}

/// How backends are spoken to: the keys of a destination except its backends. Those of a listener
/// hold for its routes as well, unless a route writes its own.
#[derive(Clone)]
pub(crate) struct Manner<'d> {
    balance: Balance,
    proxy_header: ProxyHeader,
    /// For backends that are written with `tls://`; none after a mistake in it.
    tls: Option<BackendTls>,
    /// Where `backend_tls` is written, if it is.
    tls_at: Option<Value<'d>>,
}

impl<'d> Manner<'d> {
    /// The keys of a listener.
    pub(crate) fn of_listener(table: &Table<'d>) -> Self {
        let default = Self {
            balance: Balance::default(),
            proxy_header: ProxyHeader::default(),
            tls: Some(BackendTls::default()),
            tls_at: None,
        };
        default.or_written(table)
    }

    /// The keys that `table` writes in place of these. Each key counts alone, and the table
    /// `backend_tls` is one of them.
    fn or_written(&self, table: &Table<'d>) -> Self {
        let balance = table.read(&BALANCE);
        let tls_at = table.value(&BACKEND_TLS);
        let tls = match &tls_at {
            Some(written) => written.table(BACKEND_TLS.kind.0, |table| Some(backend_tls(table))),
            None => self.tls.clone(),
        };
        Self {
            balance: balance.unwrap_or(self.balance),
            proxy_header: proxy_header(table, self.proxy_header),
            tls,
            tls_at,
        }
    }

    /// The destination of a route that writes `table`.
    pub(crate) fn of_route(&self, table: &Table<'d>, lanes: Lanes) -> Option<Destination> {
        let own = self.or_written(table);
        let destination = own.destination(table, lanes)?;
        own.check_tls(&[&destination]);
        Some(destination)
    }

    /// The backends of `table`, spoken to in this manner.
    pub(crate) fn destination(&self, table: &Table<'_>, lanes: Lanes) -> Option<Destination> {
        let (backends, backend_tls) = backends(table, self.tls.as_ref(), lanes)?;
        let (balance, proxy_header) = (self.balance, self.proxy_header);
        Some(Destination { backends, backend_tls, balance, proxy_header })
    }

    /// Notes that `backend_tls` is written although none of `destinations` is spoken to in TLS.
    pub(crate) fn check_tls(&self, destinations: &[&Destination]) {
        let is_used = self.tls.is_none()
            || destinations.iter().any(|to| to.backend_tls.is_some() || to.backends.is_empty());
        if let Some(written) = self.tls_at.as_ref().filter(|_| !is_used) {
            written.wrong(Problem::new(
                "no backend of this listener is spoken to in TLS",
                "write \"tls://HOST:PORT\" for them, or remove the table",
            ));
        }
    }
}

fn backends(
    table: &Table<'_>,
    tls: Option<&BackendTls>,
    lanes: Lanes,
) -> Option<(Backends, Option<BackendTls>)> {
    let written = table.required(&BACKENDS, "backends = [\"127.0.0.1:8080\"]")?;
    let listed = written.set(BACKENDS_MAX, |value| {
        let (at, share) = match value.is_table() {
            true => value.table(&BACKEND, |table| Some((address(table)?, share(table, lanes)?)))?,
            false => (value.clone(), Share::default()),
        };
        let backend = ADDRESS.read(&at)?;
        if let Some(tls) = tls.filter(|_| backend.tls) {
            at.parsed(|_| tls.server_name_of(&backend.address))?;
        }
        Some(Listed { backend, share })
    })?;
    check_shares(&listed, &written);
    let backends: Vec<_> = listed.iter().map(|each| each.backend.clone()).collect();
    let speak_tls = share_tls(&backends).map_err(|problem| written.wrong(problem)).ok()?;
    let shares = listed.into_iter().map(|each| (each.backend.address, each.share)).collect();
    Some((shares, tls.filter(|_| speak_tls).cloned()))
}

type Backends = Vec<(BackendAddress, Share)>;

/// A backend of a list, in which no other may be equal, whatever their shares.
struct Listed {
    backend: WrittenBackend,
    share: Share,
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.backend == other.backend
    }
}

fn address<'d>(table: &Table<'d>) -> Option<Value<'d>> {
    table.required(&ADDRESS, "address = \"127.0.0.1:8080\"")
}

fn share(table: &Table<'_>, lanes: Lanes) -> Option<Share> {
    let default = Share::default();
    let range = CONNECTIONS.kind.0.clone();
    let connections = table.value(&CONNECTIONS).map(|v| lanes.count(&v, range));
    let weight = table.value(&WEIGHT).map(|v| WEIGHT.read(&v));
    let is_backup = table.value(&BACKUP).map(|v| BACKUP.read(&v));
    let weight = weight.map_or(Some(default.weight), |weight| u16::try_from(weight?).ok())?;
    let connections_max = connections.map_or(Some(None), |most| Some(Some(most?)))?;
    Some(Share {
        connections_max,
        is_backup: is_backup.unwrap_or(Some(default.is_backup))?,
        weight,
    })
}

/// Reports a destination whose backends have no weight, or are backups only.
fn check_shares(listed: &[Listed], written: &Value<'_>) {
    if listed.is_empty() {
        return;
    }
    if listed.iter().all(|each| each.share.weight == 0) {
        let what = "no backend gets a connection: all weights are 0";
        written.wrong(Problem::new(what, "give one a weight, or remove it"));
    }
    if listed.iter().all(|each| each.share.is_backup) {
        let what = "all backends are backups, and there is nothing that they stand in for";
        written.wrong(Problem::new(what, "remove backup = true from one"));
    }
}

/// Backends of one destination: a connection keeps those that it has tried in 64 bits.
pub const BACKENDS_MAX: usize = 64;

/// How often names of backends are looked up unless something else is written.
pub const RESOLVE_DEFAULT: Option<Duration> = Some(Duration::from_secs(30));

/// The names of the keys of a destination: its backends and their [`Manner`].
pub(crate) static DESTINATION_KEYS: [&str; 5] =
    [BACKEND_TLS.name, BACKENDS.name, BALANCE.name, PROXY_HEADER.name, PROXY_TLVS.name];

pub(crate) static BACKENDS: Key<Set<Either<Text<WrittenBackend>, TableKind>>> = Key::new(
    "backends",
    Set(Either(Text(BACKEND_TEXT, value::backend), TableKind(&BACKEND)), BACKENDS_MAX),
    "Where plaintext goes. With \"tls://\" before each of them Sealane speaks TLS to the backends, \
     and verifies that each has the name (or the address) in its address; if not, the connection \
     goes to the next one. A table gives a backend a weight, a limit of connections, or the role \
     of a backup.",
)
.examples(&[
    "[\"127.0.0.1:8080\", \"unix:/run/app.sock\"]",
    "[{ address = \"127.0.0.1:8080\", weight = 10, connections = 500, backup = false }]",
])
.see(&["listener.balance", "listener.backend_tls", "listener.check"]);

static BACKEND: Group = Group::new(
    "listener.backends",
    "One backend. Each address of a host name has the weight and the limit for itself.",
    &[&ADDRESS, &WEIGHT, &CONNECTIONS, &BACKUP],
);

static ADDRESS: Key<Text<WrittenBackend>> =
    Key::new("address", Text(BACKEND_TEXT, value::backend), "The address of the backend.")
        .examples(&["\"127.0.0.1:8080\""])
        .required();

static WEIGHT: Key<Or<Count>> = Key::new(
    "weight",
    Or(Count(0..=256), 1),
    "The backend's share of connections, compared with the weights of the others. With 0 it gets \
     none.",
);

static CONNECTIONS: Key<Count> = Key::new(
    "connections",
    Count(CONNECTIONS_RANGE),
    "How many connections it may have, divided among the lanes and rounded down. At the limit the \
     next backend is tried. If all are full, the client is reset.",
)
.examples(&["500"])
.without("no limit");

static BACKUP: Key<Or<Bool>> = Key::new(
    "backup",
    Or(Bool, false),
    "Whether it gets connections only when all other backends are down.",
);

pub(crate) static RESOLVE: Key<Or<Either<Word, Span>>> = Key::new(
    "resolve",
    Or(
        Either(Word("off"), Span(Duration::from_secs(1)..=Duration::from_secs(86_400))),
        RESOLVE_DEFAULT,
    ),
    "How often host names of backends are looked up. With \"off\" they are looked up at a start \
     and a reload alone, and then each must have an address. Every address of a name is a backend, \
     up to 64 in all. While a lookup fails, the last addresses stay in use.",
);

pub(crate) static BALANCE: Key<Or<Choice<Balance>>> = Key::new(
    "balance",
    Or(
        Choice(&[
            (Balance::LeastConnections.name(), Balance::LeastConnections),
            (Balance::RoundRobin.name(), Balance::RoundRobin),
        ]),
        Balance::RoundRobin,
    ),
    "How a backend is chosen for a connection. Each lane counts for itself.",
);

const BACKEND_TEXT: &str =
    "\"ADDRESS:PORT\", \"HOST:PORT\" or \"unix:/PATH\", with or without \"tls://\" before it";
