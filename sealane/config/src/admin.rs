//! Where it is seen what is served, and where orders are taken.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Address;

/// Where metrics, health and state are served, and to whom; nowhere unless asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// Over TCP, to whoever reaches it: for reading alone.
    pub address: Option<SocketAddr>,
    /// Host names by which that may be asked for, beside `localhost` and addresses.
    pub hosts: Vec<String>,
    /// Over a unix socket, which takes orders of this user and root as well.
    pub socket: Option<AdminSocket>,
}

/// A unix socket that takes orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSocket {
    /// The socket's file.
    pub path: PathBuf,
    /// Who may open it, and so see everything.
    pub mode: u32,
}

/// This user alone.
pub(super) const ADMIN_SOCKET_MODE_DEFAULT: u32 = 0o600;

impl From<Address> for Admin {
    fn from(address: Address) -> Self {
        match address {
            Address::Tcp(address) => Self { address: Some(address), ..Self::default() },
            Address::Unix(path) => {
                let socket = AdminSocket { path, mode: ADMIN_SOCKET_MODE_DEFAULT };
                Self { socket: Some(socket), ..Self::default() }
            }
        }
    }
}
