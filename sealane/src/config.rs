//! What an operator asks for: read from a TOML file or from flags into a [`Config`].
//!
//! Two steps, as everywhere that text comes in: the reader walks what was written and collects
//! every mistake with its place; what comes out is a [`Config`] with nothing left to check but the
//! world around it. No file but the configuration itself is opened, no socket, no thread.

mod limits;

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use sealane_engine::policy::Policy;
use sealane_engine::provider::ProviderChoice;

pub use limits::Limits;

/// Everything a running Sealane is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where a line per connection goes; none unless asked for.
    pub access_log: Option<AccessLog>,
    /// Where metrics, health and state are served; nowhere unless asked for.
    pub admin: Option<AdminAddress>,
    /// The cryptographic library of every lane.
    pub crypto: ProviderChoice,
    /// How many event loops run, one thread each.
    pub lanes: NonZeroUsize,
    /// What is bounded, and by how much.
    pub limits: Limits,
    /// What is listened on; at least one, no address twice, no name twice.
    pub listeners: Vec<Listener>,
    /// Whether each lane is bound to a core of its own.
    pub pin_lanes: bool,
    /// How sessions are resumed.
    pub tickets: Tickets,
}

/// Addresses that share certificates, a policy and backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// In logs and metrics; the first address unless the operator gives one.
    pub name: String,
    /// At least one.
    pub addresses: Vec<SocketAddr>,
    /// At least one, in the order written: of two certificates for one name the first is served.
    pub certificates: Vec<CertificateSource>,
    /// The name whose certificate is served when none fits; without it, the first certificate.
    pub default_certificate: Option<String>,
    /// TLS versions, groups, ALPN and what happens to unknown names.
    pub policy: Policy,
    /// At least one, none twice.
    pub backends: Vec<BackendAddress>,
    /// How a backend is chosen for a connection.
    pub balance: Balance,
}

/// Where certificates and keys are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// A chain and its key in two files.
    Pair {
        /// The chain, the server's own certificate first.
        chain: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// A directory, or a file with a chain and its key; the loader sees which when it reads.
    Path(PathBuf),
}

impl fmt::Display for CertificateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair { chain, key } => write!(f, "{} with {}", chain.display(), key.display()),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// Where plaintext goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackendAddress {
    /// A host name; the control plane looks it up.
    Host {
        /// The name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// An address and port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { name, port } => write!(f, "{name}:{port}"),
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
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
    /// As written in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::LeastConnections => "least-connections",
            Self::RoundRobin => "round-robin",
        }
    }
}

/// Where metrics, health and state are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// Loopback, unless the operator allowed more.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// One line per connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where the lines go.
    pub destination: AccessLogDestination,
    /// Bytes that each lane may have waiting; lines beyond them are dropped and counted.
    pub buffer_bytes: usize,
}

/// Where the lines of the access log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogDestination {
    /// A file, appended to.
    File(PathBuf),
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
}

/// How sessions are resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tickets {
    /// Tickets sent after a full TLS 1.3 handshake; 0 turns tickets off in TLS 1.2 too.
    pub count: usize,
    /// How long one key seals tickets; they are accepted for as long again.
    pub lifetime: Duration,
    /// A file with the root of all keys, shared by restarts and machines; without it, a root of
    /// this process's own.
    pub root: Option<PathBuf>,
}
