//! The addresses of backends, as they are written.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use sealane_operator::mistake::Problem;

/// Where plaintext goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackendAddress {
    /// A host name; the control plane looks it up.
    Host {
        /// The name.
        name: String,
        /// The host's port.
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

/// A backend as it is written: `tls://` before the address says that TLS is spoken there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WrittenBackend {
    /// Where it listens.
    pub address: BackendAddress,
    /// Whether it is spoken to in TLS.
    pub tls: bool,
}

impl fmt::Display for WrittenBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.tls { TLS_SCHEME } else { "" }, self.address)
    }
}

/// Whether the backends of a listener are spoken to in TLS: all of them, or none.
///
/// # Errors
/// Only some are, which is how a forgotten word would send secrets in the clear.
pub(crate) fn share_tls(written: &[WrittenBackend]) -> Result<bool, Problem> {
    let in_tls = written.iter().filter(|backend| backend.tls).count();
    match in_tls {
        0 => Ok(false),
        _ if in_tls == written.len() => Ok(true),
        _ => Err(Problem::new(
            format!("{in_tls} of {} backends are spoken to in TLS", written.len()),
            "write \"tls://\" before all of them or none, or give the others a listener of their \
             own",
        )),
    }
}

/// The scheme of a backend that is reached over TLS.
pub(crate) const TLS_SCHEME: &str = "tls://";
