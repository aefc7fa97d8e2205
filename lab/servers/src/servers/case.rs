//! What is measured: a [`Case`], the settings of the servers in it, its [`Profile`], how much of
//! it, the [`Amount`], and the `Column`s of figures that come of it, each at its [`Level`] of
//! load.

use sealane_lab_model::{
    document::ServerCase,
    figures::servers::{LATENCY, Subject},
    scenario::{Cipher, Group, Key, Scenario, Version},
};
use serde::{Deserialize, Serialize};

use crate::servers::storm::settings::FIGURES;

/// One kind of work; one or more columns of figures come of it.
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
    /// Connections that have answered one request and stay
    Idle,
    /// 10,000 certificates: start, memory, cold and warm handshake, reload
    Names,
    /// More ClientHellos than the server can answer, RSA-2048; only with other storms
    Storm,
    /// The same with ECDSA P-256
    StormEcdsa,
}

/// The settings that a case needs of a server: these and no others are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Profile {
    /// The type of the certificate's key.
    pub key: Key,
    /// The only protocol version.
    pub version: Version,
    /// The only key-exchange group.
    pub group: Group,
}

/// How much of everything. One round, one server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// Handshakes of a case.
    pub handshakes: u64,
    /// Connections that shake hands at a time.
    pub handshakes_at_once: usize,
    /// Requests with small answers.
    pub requests_3k: u64,
    /// Requests with large answers.
    pub requests_100k: u64,
    /// Connections that requests go through.
    pub keep_alive_connections: usize,
    /// Answers of a transfer.
    pub transfers: u64,
    /// Bytes of each such answer.
    pub transfer_bytes: u64,
    /// Connections of a transfer.
    pub transfer_connections: usize,
    /// Connections that stay.
    pub idle_connections: u64,
    /// Certificates of the case with many.
    pub names: u64,
    /// Names of them that clients ask for.
    pub names_asked: u64,
    /// Seconds of an open loop.
    pub open_seconds: f64,
    /// For servers to finish what they were left to do.
    pub settle_ms: u64,
    /// Connections before the first measurement.
    pub warm_up: u64,
}

/// One column of figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    /// What clients do.
    pub case: Case,
    /// `None` where what is asked of the server is no load, as with memory.
    pub(crate) level: Option<Level>,
    /// What the figure is about.
    pub subject: Subject,
    /// The key in a document.
    pub name: String,
    /// The head in a table.
    pub(crate) title: String,
    /// The unit of figures.
    pub(crate) unit: &'static str,
    /// Digits after the point that mean something.
    pub(crate) decimals: usize,
}

/// How much is asked of a server at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// A closed loop: as much as it does beside client and backend.
    Full,
    /// An open loop of so many operations per second, the same for every server.
    Rate(f64),
    /// An open loop at so many percent of what the same server did in the closed loop just before.
    Share(u8),
}

impl Case {
    /// In the order they are measured: those of one profile together, idle memory from a server
    /// that has worked.
    pub(crate) const ALL: [Self; 13] = [
        Self::Full,
        Self::Resumed,
        Self::KeepAlive3k,
        Self::KeepAlive100k,
        Self::Down,
        Self::Up,
        Self::Idle,
        Self::FullRsa,
        Self::FullMlkem,
        Self::FullTls12,
        Self::Names,
        Self::Storm,
        Self::StormEcdsa,
    ];

    /// Whether it is a storm, for which a server has one processor, and nothing else is measured.
    pub(crate) fn is_storm(self) -> bool {
        matches!(self, Self::Storm | Self::StormEcdsa)
    }

    /// What the case needs of a server.
    pub fn profile(self) -> Profile {
        let usual = Profile { key: Key::P256, version: Version::Tls13, group: Group::X25519 };
        match self {
            Self::FullRsa | Self::Storm => Profile { key: Key::Rsa2048, ..usual },
            Self::FullMlkem => Profile { group: Group::X25519MlKem768, ..usual },
            Self::FullTls12 => Profile { version: Version::Tls12, ..usual },
            _ => usual,
        }
    }

    /// Whether a proxy without TLS does the same TCP work: then there is a floor.
    pub(crate) fn has_floor(self) -> bool {
        !matches!(self, Self::Idle | Self::Names) && !self.is_storm()
    }

    /// The levels of those asked for at which it is measured. Bulk has the full load alone: what
    /// a byte costs is asked where bytes are all there is.
    pub fn levels(self, asked: &[Level]) -> Vec<Level> {
        match self {
            Self::Down | Self::Up => vec![Level::Full],
            Self::Idle | Self::Names | Self::Storm | Self::StormEcdsa => Vec::new(),
            _ => asked.to_vec(),
        }
    }

    /// In the order of what [`super::measure::Bench::measure`] gives.
    pub(crate) fn columns(self, asked: &[Level]) -> Vec<Column> {
        let column = |name: &str, title: &str, unit, decimals| Column {
            case: self,
            level: None,
            subject: Subject::Cost,
            name: name.into(),
            title: title.into(),
            unit,
            decimals,
        };
        let (us, s_gb) = ("µs CPU", "s CPU/GB");
        let column = match self {
            Self::Full => column("full", "full handshake", us, 0),
            Self::FullRsa => column("full-rsa", "full, RSA-2048", us, 0),
            Self::FullMlkem => column("full-mlkem", "full, X25519MLKEM768", us, 0),
            Self::FullTls12 => column("full-tls12", "full, TLS 1.2", us, 0),
            Self::Resumed => column("resumed", "resumed", us, 0),
            Self::KeepAlive3k => column("keep-alive-3k", "request, 3 KB", us, 1),
            Self::KeepAlive100k => column("keep-alive-100k", "request, 100 KB", us, 0),
            Self::Down => column("down", "bulk down", s_gb, 3),
            Self::Up => column("up", "bulk up", s_gb, 3),
            Self::Idle => return vec![column("idle", "idle connection", "KiB", 1)],
            Self::Names => {
                return vec![
                    column("names-start", "many names: start", "s until ready", 2),
                    column("names-memory", "many names: memory", "MiB", 0),
                    column("names-cold", "first handshake of a name", us, 0),
                    column("names-warm", "second handshake of a name", us, 0),
                    column("names-reload", "reload", "s until served", 2),
                    column("names-reload-cpu", "reload", "s CPU", 2),
                ];
            }
            Self::Storm | Self::StormEcdsa => {
                let (name, title) = match self {
                    Self::Storm => ("storm", "RSA storm"),
                    _ => ("storm-ecdsa", "ECDSA storm"),
                };
                let column = |(figure, its, unit, decimals): (&str, &str, _, _)| Column {
                    subject: Subject::Storm,
                    ..column(
                        &format!("{name}-{figure}"),
                        &format!("{title}: {its}"),
                        unit,
                        decimals,
                    )
                };
                return FIGURES.into_iter().map(column).collect();
            }
        };
        self.levels(asked).into_iter().flat_map(|level| column.at(level)).collect()
    }
}

impl Level {
    /// Half of what a server can do, which is what the half load is.
    pub(crate) const HALF: Self = Self::Share(50);

    /// The level that `--load` takes by this.
    ///
    /// # Errors
    /// What it takes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let percent = || text.strip_suffix('%')?.parse().ok();
        match text {
            "full" => Ok(Self::Full),
            "half" => Ok(Self::HALF),
            _ => match percent() {
                Some(percent @ 1..=99) => Ok(Self::Share(percent)),
                _ => Err("want full, half, or 1% to 99%".into()),
            },
        }
    }

    /// In the document, and in names of columns.
    pub(crate) fn label(self) -> String {
        match self {
            Self::Full => "full".into(),
            Self::HALF => "half".into(),
            Self::Rate(rate) => format!("{rate}/s"),
            Self::Share(percent) => format!("{percent}%"),
        }
    }

    /// What `label` has made.
    pub(crate) fn of_label(label: &str) -> Option<Self> {
        match label.strip_suffix("/s") {
            Some(rate) => rate.parse().ok().map(Self::Rate),
            None => Self::parse(label).ok(),
        }
    }

    /// For a heading.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Rate(rate) => format!("{rate} per second"),
            _ => format!("{} load", self.label()),
        }
    }

    /// Operations per second of an open loop, for a server that can do `capacity`.
    pub(crate) fn rate(self, capacity: f64) -> Option<f64> {
        match self {
            Self::Full => None,
            Self::Rate(rate) => Some(rate),
            Self::Share(percent) => Some(capacity * f64::from(percent) / 100.0),
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
    /// The column as it stands in the document.
    pub(crate) fn document(&self) -> ServerCase {
        let (name, title) = (self.name.clone(), self.title.clone());
        ServerCase { name, title, unit: self.unit.into(), load: self.level.map(Level::label) }
    }

    /// The columns of one level: what an operation costs and, in an open loop, how long the
    /// slowest took. In a closed loop whoever is slow is also asked less.
    fn at(&self, level: Level) -> Vec<Self> {
        let (load, level_title) = (level.label(), level.title());
        let mut cost = self.clone();
        cost.level = Some(level);
        cost.title = format!("{}, {level_title}", self.title);
        if level == Level::Full {
            return vec![cost];
        }
        cost.name = format!("{}-{load}", self.name);
        let mut latency = cost.clone();
        latency.subject = Subject::Latency;
        latency.name += LATENCY;
        (latency.unit, latency.decimals) = ("µs p99, intended", 0);
        vec![cost, latency]
    }

    /// Whether primitives and a proxy without TLS make a floor under it.
    pub(crate) fn has_floor(&self) -> bool {
        self.case.has_floor() && self.subject == Subject::Cost
    }
}

impl Amount {
    /// What figures take.
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
        open_seconds: 2.0,
        settle_ms: 150,
        warm_up: 100,
    };
    /// The least that shows that everything runs.
    pub const QUICK: Self = Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_level_is_called_is_read_back() {
        for level in [Level::Full, Level::HALF, Level::Share(80), Level::Rate(1500.5)] {
            assert_eq!(Level::of_label(&level.label()), Some(level));
        }
        assert_eq!(Level::parse("50%"), Ok(Level::HALF), "it has one name");
        for text in ["", "0%", "100%", "open", "80"] {
            assert!(Level::parse(text).unwrap_err().contains("full, half"), "{text}");
        }
    }

    #[test]
    fn a_share_is_of_what_the_server_can_do_and_a_rate_is_the_same_for_all() {
        assert_eq!(Level::HALF.rate(3_000.0), Some(1_500.0));
        assert_eq!(Level::Rate(200.0).rate(3_000.0), Some(200.0));
        assert_eq!(Level::Full.rate(3_000.0), None);
    }

    #[test]
    fn a_column_of_every_level_says_which() {
        let levels = [Level::Full, Level::HALF];
        let told = |case: Case| -> Vec<_> {
            let columns = case.columns(&levels).into_iter();
            columns.map(|it| (it.document().name, it.document().load, it.has_floor())).collect()
        };
        let load = |load: &str| Some(load.to_owned());
        let expected = [
            ("full".to_owned(), load("full"), true),
            ("full-half".to_owned(), load("half"), true),
            ("full-half-p99".to_owned(), load("half"), false),
        ];
        assert_eq!(told(Case::Full), expected);
        assert_eq!(told(Case::Down), [("down".to_owned(), load("full"), true)]);
        assert_eq!(told(Case::Idle), [("idle".to_owned(), None, false)]);
    }
}
