//! What clients do, [`Case`], and how much of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sealane_lab_harness::programs::on_path;
use sealane_lab_model::{error::Error, scenario::Key};
use serde::{Deserialize, Serialize};

/// One kind of load; in the order of the table.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// A connection per request, full handshake with ECDSA P-256
    Full,
    /// The same with RSA-2048
    FullRsa,
    /// A connection per request, resumed by a ticket; ECDSA P-256
    Resumed,
    /// The same with RSA-2048
    ResumedRsa,
    /// Requests on connections that stand
    KeepAlive,
    /// Full handshakes by requests under way, bodies of 3,069 bytes
    Sweep,
    /// Requests on connections that stand by requests under way, bodies of 3,069 bytes
    KeepAliveSweep,
    /// Memory of connections that have answered one request and stay
    Idle,
    /// Handshakes while the main thread computes for 50 ms of each 100
    Blocked,
    /// HTTP/2 by h2load
    H2,
}

/// One variant of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Bytes of each answer.
    pub body_bytes: u64,
    /// Requests under way at any time; in HTTP/2 connections, each with
    /// [`STREAMS`](super::h2::STREAMS) of them.
    pub concurrency: usize,
}

/// How much of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// How long requests come.
    pub window_ms: u64,
    /// Connections that stand, in the case `idle`.
    pub connections: u64,
}

impl Case {
    pub(super) const ALL: [Self; 10] = [
        Self::Full,
        Self::FullRsa,
        Self::Resumed,
        Self::ResumedRsa,
        Self::KeepAlive,
        Self::Sweep,
        Self::KeepAliveSweep,
        Self::Idle,
        Self::Blocked,
        Self::H2,
    ];

    /// The name on the command line.
    pub(super) fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The type of the server's key.
    pub(super) fn key(self) -> Key {
        match self {
            Self::FullRsa | Self::ResumedRsa => Key::Rsa2048,
            _ => Key::P256,
        }
    }

    pub(super) fn resumes(self) -> bool {
        matches!(self, Self::Resumed | Self::ResumedRsa)
    }

    /// What this machine lacks for it.
    pub(super) fn lacks(self) -> Option<Error> {
        let lacks = self == Self::H2 && on_path("h2load").is_none();
        lacks.then(|| Error::Missing {
            program: "h2load".into(),
            remedy: "apt-get install --no-install-recommends nghttp2-client".into(),
        })
    }

    /// The case's variants; `connections` that stand, where that is what they are for.
    pub(super) fn loads(self, sweep: &BTreeSet<usize>, connections: u64) -> Vec<Load> {
        let load = |body_bytes, concurrency| Load { body_bytes, concurrency };
        let connections = usize::try_from(connections).unwrap_or(usize::MAX);
        match self {
            Self::Full | Self::KeepAlive => BODIES.map(|body| load(body, CONCURRENCY)).into(),
            Self::FullRsa | Self::Resumed | Self::ResumedRsa => vec![load(TINY, CONCURRENCY)],
            Self::Sweep | Self::KeepAliveSweep => {
                sweep.iter().map(|concurrency| load(BIG, *concurrency)).collect()
            }
            Self::Idle => vec![load(TINY, connections)],
            Self::Blocked => vec![load(TINY, BLOCKED_PER_SECOND)],
            Self::H2 => vec![load(TINY, H2_CONNECTIONS)],
        }
    }
}

impl Load {
    /// What tells a row of this load from others.
    pub(super) fn variant(&self, case: Case) -> BTreeMap<String, String> {
        let concurrency = match case {
            Case::Idle => "connections",
            Case::Blocked => "per second",
            _ => "concurrency",
        };
        let variant = [
            ("case", case.name()),
            ("body", self.body_bytes.to_string()),
            (concurrency, self.concurrency.to_string()),
        ];
        variant.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

impl Amount {
    pub(super) const QUICK: Self = Self { window_ms: 60, connections: 20 };

    pub(super) fn window(self) -> Duration {
        Duration::from_millis(self.window_ms)
    }

    pub(super) fn warm_up(self) -> Duration {
        self.window() / 2
    }

    /// A trial that takes longer hangs.
    pub(super) fn time_max(self) -> Duration {
        let per_connection = u32::try_from(self.connections).unwrap_or(u32::MAX);
        self.window() * 4 + CONNECTION_TIME_MAX.saturating_mul(per_connection) + TIME_MAX
    }
}

/// The sizes of TLSnappy's `/`, `/big` and `/verybig`.
pub(super) const BODIES: [u64; 3] = [TINY, BIG, 100_000];
const TINY: u64 = 11;
const BIG: u64 = 3_069;
const CONCURRENCY: usize = 32;
/// Far below what any mode can do, and no divisor of the pauses' rhythm: all phases of it are met.
const BLOCKED_PER_SECOND: usize = 197;
const H2_CONNECTIONS: usize = 16;
const CONNECTION_TIME_MAX: Duration = Duration::from_millis(20);
/// Beside what was asked for: starts, warm-up, and a machine under load.
const TIME_MAX: Duration = Duration::from_secs(60);
