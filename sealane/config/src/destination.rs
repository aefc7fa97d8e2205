//! Where the plaintext of a listener goes, or of some of its clients.

use std::time::Duration;

use super::backend::{BackendAddress, BackendTls, Share, WrittenBackend};
use super::proxy_header::ProxyHeader;

/// Where plaintext goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// None twice; at least one, but where no plaintext goes anywhere.
    pub backends: Vec<(BackendAddress, Share)>,
    /// How TLS is spoken to all of them; without it they get plain bytes.
    pub backend_tls: Option<BackendTls>,
    /// How a backend is chosen for a connection.
    pub balance: Balance,
    /// What a backend is told of a client.
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

/// Backends of one destination: a connection keeps those that it has tried in 64 bits.
pub const BACKENDS_MAX: usize = 64;

/// How often names of backends are looked up unless something else is written.
pub const RESOLVE_DEFAULT: Option<Duration> = Some(Duration::from_secs(30));

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
