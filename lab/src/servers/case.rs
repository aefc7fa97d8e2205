//! What is measured: a [`Case`], the settings of the servers in it, its [`Profile`], and how much
//! of it, the [`Amount`].

use serde::{Deserialize, Serialize};

use crate::{
    document::ServerCase,
    scenario::{Cipher, Group, Key, Scenario, Version},
};

/// One kind of load; one or more columns of figures come of it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// A connection per request, full handshake: ECDSA P-256, X25519
    Full,
    /// The same with an RSA-2048 certificate
    FullRsa,
    /// The same with X25519MLKEM768
    FullMlkem,
    /// The same in TLS 1.2, ECDHE-ECDSA-AES128-GCM-SHA256
    FullTls12,
    /// A connection per request, resumed by a TLS 1.3 ticket
    Resumed,
    /// Requests on standing connections, answers of 3 KB
    #[value(name = "keep-alive-3k")]
    #[serde(rename = "keep-alive-3k")]
    KeepAlive3k,
    /// Requests on standing connections, answers of 100 KB
    #[value(name = "keep-alive-100k")]
    #[serde(rename = "keep-alive-100k")]
    KeepAlive100k,
    /// Large answers
    Down,
    /// Large requests
    Up,
    /// Full handshakes at a fixed rate, latency from the intended time on
    Open,
    /// Connections that have answered one request and stay
    Idle,
    /// 10,000 certificates: start, memory, cold and warm handshake, reload
    Names,
}

/// The settings that a case needs of a server: these and no others are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Profile {
    pub(crate) key: Key,
    pub(crate) version: Version,
    pub(crate) group: Group,
}

/// How much of everything. One round, one server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Amount {
    pub(crate) handshakes: u64,
    pub(crate) handshakes_at_once: usize,
    pub(crate) requests_3k: u64,
    pub(crate) requests_100k: u64,
    pub(crate) keep_alive_connections: usize,
    pub(crate) transfers: u64,
    pub(crate) transfer_bytes: u64,
    pub(crate) transfer_connections: usize,
    pub(crate) idle_connections: u64,
    pub(crate) names: u64,
    pub(crate) names_asked: u64,
    pub(crate) open_seconds: f64,
    /// For servers to finish what they were left to do.
    pub(crate) settle_ms: u64,
    /// Connections before the first measurement.
    pub(crate) warm_up: u64,
}

/// One column of figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) case: Case,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    /// Digits after the point that mean something.
    pub(crate) decimals: usize,
}

impl Case {
    /// In the order they are measured: those of one profile together, idle memory from a server
    /// that has worked.
    pub(crate) const ALL: [Self; 12] = [
        Self::Full,
        Self::Resumed,
        Self::KeepAlive3k,
        Self::KeepAlive100k,
        Self::Down,
        Self::Up,
        Self::Open,
        Self::Idle,
        Self::FullRsa,
        Self::FullMlkem,
        Self::FullTls12,
        Self::Names,
    ];

    pub(crate) fn profile(self) -> Profile {
        let usual = Profile { key: Key::P256, version: Version::Tls13, group: Group::X25519 };
        match self {
            Self::FullRsa => Profile { key: Key::Rsa2048, ..usual },
            Self::FullMlkem => Profile { group: Group::X25519MlKem768, ..usual },
            Self::FullTls12 => Profile { version: Version::Tls12, ..usual },
            _ => usual,
        }
    }

    /// Whether a proxy without TLS does the same TCP work: then there is a floor.
    pub(crate) fn has_floor(self) -> bool {
        !matches!(self, Self::Idle | Self::Names | Self::Open)
    }

    pub(crate) fn columns(self, rates: &Rates) -> Vec<Column> {
        let column = |name: &str, title: &str, unit, decimals| Column {
            case: self,
            name: name.into(),
            title: title.into(),
            unit,
            decimals,
        };
        let (us, s_gb) = ("µs CPU", "s CPU/GB");
        match self {
            Self::Full => vec![column("full", "full handshake", us, 0)],
            Self::FullRsa => vec![column("full-rsa", "full, RSA-2048", us, 0)],
            Self::FullMlkem => vec![column("full-mlkem", "full, X25519MLKEM768", us, 0)],
            Self::FullTls12 => vec![column("full-tls12", "full, TLS 1.2", us, 0)],
            Self::Resumed => vec![column("resumed", "resumed", us, 0)],
            Self::KeepAlive3k => vec![column("keep-alive-3k", "request, 3 KB", us, 1)],
            Self::KeepAlive100k => vec![column("keep-alive-100k", "request, 100 KB", us, 0)],
            Self::Down => vec![column("down", "bulk down", s_gb, 3)],
            Self::Up => vec![column("up", "bulk up", s_gb, 3)],
            Self::Idle => vec![column("idle", "idle connection", "KiB", 1)],
            Self::Names => vec![
                column("names-start", "many names: start", "s until ready", 2),
                column("names-memory", "many names: memory", "MiB", 0),
                column("names-cold", "first handshake of a name", us, 0),
                column("names-warm", "second handshake of a name", us, 0),
                column("names-reload", "reload", "s until served", 2),
                column("names-reload-cpu", "reload", "s CPU", 2),
            ],
            Self::Open => rates
                .labels()
                .into_iter()
                .map(|(name, title)| column(&name, &title, "µs p99, intended", 0))
                .collect(),
        }
    }
}

/// The rates of the open loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Rates {
    /// Operations per second, the same for every server.
    Fixed(Vec<f64>),
    /// Percent of what the same server did in a closed loop just before.
    OfCapacity(Vec<u8>),
}

impl Rates {
    /// Name and title of each rate's column.
    fn labels(&self) -> Vec<(String, String)> {
        match self {
            Self::Fixed(rates) => rates
                .iter()
                .map(|rate| (format!("open-{rate}"), format!("open loop, {rate}/s")))
                .collect(),
            Self::OfCapacity(shares) => shares
                .iter()
                .map(|share| (format!("open-{share}%"), format!("open loop, {share}% of capacity")))
                .collect(),
        }
    }

    /// Operations per second for a server that can do `capacity`.
    pub(crate) fn of(&self, capacity: f64) -> Vec<f64> {
        match self {
            Self::Fixed(rates) => rates.clone(),
            Self::OfCapacity(shares) => {
                shares.iter().map(|share| capacity * f64::from(*share) / 100.0).collect()
            }
        }
    }
}

impl Profile {
    pub(crate) fn suite(self) -> String {
        let Self { key, version, group } = self;
        Scenario { key, version, group, cipher: Cipher::Aes128Gcm, ..Scenario::default() }.suite()
    }

    /// In OpenSSL's words, which all peers take.
    pub(crate) fn group_names(self) -> Vec<&'static str> {
        let first = match self.group {
            Group::X25519 => "X25519",
            Group::X25519MlKem768 => "X25519MLKEM768",
            Group::P256 => "P-256",
            Group::P384 => "P-384",
        };
        // In TLS 1.2 the curve of an ECDSA key must be among the groups. The first one counts.
        let older = self.version == Version::Tls12 && self.group != Group::P256;
        if older { vec![first, "P-256"] } else { vec![first] }
    }

    pub(crate) fn version_name(self) -> &'static str {
        match self.version {
            Version::Tls12 => "TLSv1.2",
            Version::Tls13 => "TLSv1.3",
        }
    }

    /// For a folder's name.
    pub(crate) fn label(self) -> String {
        format!("{:?}-{}-{:?}", self.key, self.version_name(), self.group)
    }
}

impl Column {
    /// As it stands in the document.
    pub(crate) fn document(&self) -> ServerCase {
        let (name, title) = (self.name.clone(), self.title.clone());
        ServerCase { name, title, unit: self.unit.into() }
    }
}

impl Amount {
    pub(crate) const FULL: Self = Self {
        handshakes: 3_000,
        handshakes_at_once: 16,
        requests_3k: 20_000,
        requests_100k: 3_000,
        keep_alive_connections: 64,
        transfers: 40,
        transfer_bytes: 10_000_000,
        transfer_connections: 4,
        idle_connections: 5_000,
        names: 10_000,
        names_asked: 500,
        open_seconds: 3.0,
        settle_ms: 150,
        warm_up: 100,
    };
    pub(crate) const QUICK: Self = Self {
        handshakes: 32,
        handshakes_at_once: 8,
        requests_3k: 100,
        requests_100k: 20,
        keep_alive_connections: 8,
        transfers: 4,
        transfer_bytes: 1_000_000,
        transfer_connections: 4,
        idle_connections: 50,
        names: 20,
        names_asked: 8,
        open_seconds: 0.2,
        settle_ms: 20,
        warm_up: 10,
    };
}
