//! The table `tickets`: how sessions are resumed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealane_engine::context::TICKETS_MAX;
use sealane_engine::tickets::{LIFETIME_DEFAULT_S, LIFETIME_S_MAX, LIFETIME_S_MIN};
use sealane_operator::key::{Count, Group, Key, Or, PathKind, Span};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::certificates::store_path;

/// How sessions are resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tickets {
    /// Tickets sent after a full TLS 1.3 handshake; 0 turns tickets off in TLS 1.2 too.
    pub count: usize,
    /// How long one key seals tickets; they are accepted for as long again.
    pub lifetime: Duration,
    /// Where the root of all keys is kept, shared by restarts and machines; without it, a root of
    /// this process's own.
    pub root: Option<RootPlace>,
}

/// Where the root of all ticket keys is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootPlace {
    /// A file, made if it is not there.
    File(PathBuf),
    /// The certificate store in this folder, for whoever fills it.
    Store(PathBuf),
}

impl RootPlace {
    /// The store's folder, if it is one.
    pub fn store(&self) -> Option<&Path> {
        match self {
            Self::File(_) => None,
            Self::Store(path) => Some(path),
        }
    }
}

/// The text that the file has for it.
impl fmt::Display for RootPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Store(path) => write!(f, "store:{}", path.display()),
        }
    }
}

impl Default for Tickets {
    fn default() -> Self {
        Self { count: 2, lifetime: Duration::from_secs(LIFETIME_DEFAULT_S.into()), root: None }
    }
}

pub(crate) fn tickets(table: &Table<'_>) -> Tickets {
    let written = table.value(&LIFETIME);
    let lifetime = written.as_ref().and_then(|v| LIFETIME.read(v));
    if let (Some(value), Some(lifetime)) = (written, lifetime)
        && lifetime.subsec_nanos() != 0
    {
        value.wrong(Problem::new("a fraction of a second", "write whole seconds"));
    }
    Tickets {
        count: table.get(&COUNT),
        lifetime: lifetime.unwrap_or_else(|| LIFETIME.default()),
        root: table.value(&ROOT).and_then(|v| root_place(&v)),
    }
}

fn root_place(written: &Value<'_>) -> Option<RootPlace> {
    match store_path(written) {
        Some(store) => Some(RootPlace::Store(store?)),
        None => written.path().map(RootPlace::File),
    }
}

pub(crate) static GROUP: Group = Group::new(
    "tickets",
    "Session resumption by tickets, on every lane.",
    &[&LIFETIME, &COUNT, &ROOT],
);

static LIFETIME: Key<Or<Span>> = Key::new(
    "lifetime",
    Or(
        Span(
            Duration::from_secs(LIFETIME_S_MIN as u64)..=Duration::from_secs(LIFETIME_S_MAX as u64),
        ),
        Duration::from_secs(LIFETIME_DEFAULT_S as u64),
    ),
    "How long one key seals tickets. They are accepted for as long again. Whole seconds.",
)
.restart();

static COUNT: Key<Or<Count>> = Key::new(
    "count",
    Or(Count(0..=TICKETS_MAX), 2),
    "Tickets after a full TLS 1.3 handshake. 0 turns resumption off.",
);

static ROOT: Key<PathKind> = Key::new(
    "root",
    PathKind,
    "A file with the secret that all ticket keys are derived from. Machines that share it resume \
     each other's sessions where they serve the same certificate, and a restart loses no session. \
     Or \"store:PATH\": the certificate store that sealane-agent fills with the roots of its fleet \
     ([fleet] in agent.toml), a new one every week, which all machines use from the same second \
     on.",
)
.examples(&["\"/var/lib/sealane/ticket-root\"", "\"store:/var/lib/sealane/store\""])
.without("a secret in memory, which ends with the process")
.restart();
