//! The table `admin`: where metrics, health and state are served, and where commands are taken.

use std::net::SocketAddr;
use std::path::PathBuf;

use sealane_lanes::kernel::Address;
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::claims::{Claims, Owner};
use crate::value;

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

/// Reads the table.
pub(crate) fn admin(table: &mut Table<'_>, claims: &mut Claims) -> Option<Admin> {
    let socket = table.value("socket");
    let mode = table.value("socket_mode");
    let written = match &socket {
        None => table.required("address", "address = \"127.0.0.1:9180\", or a socket"),
        Some(_) => table.value("address"),
    };
    let allow_remote = table.boolean("allow_remote").unwrap_or(false);
    let hosts = table.value("hosts");
    let names = hosts.as_ref().and_then(|v| v.set(ADMIN_HOSTS_MAX, |v| v.parsed(admin_host)));
    let mut admin = match &written {
        Some(written) => Admin::from(address(written, allow_remote, claims)?),
        None => Admin::default(),
    };
    if let (None, Some(hosts)) = (admin.address, &hosts) {
        let what = "nobody is asked for a host on a unix socket";
        hosts.wrong(Problem::new(what, "remove it, or serve on ADDRESS:PORT"));
    }
    if let Some(written) = &socket {
        if admin.socket.is_some() {
            let what = "address is a unix socket already";
            written.wrong(Problem::new(what, "keep one of the two"));
        }
        let path = written.path()?;
        claims.address(&Address::Unix(path.clone()), Owner::Admin, written)?;
        admin.socket = Some(AdminSocket { path, mode: ADMIN_SOCKET_MODE_DEFAULT });
    }
    match (&mode, &mut admin.socket) {
        (Some(mode), Some(socket)) => socket.mode = mode.parsed(value::socket_mode)?,
        (Some(mode), None) => {
            mode.wrong(Problem::new("means nothing without a unix socket", "remove it"));
        }
        (None, _) => {}
    }
    admin.hosts = names.unwrap_or_default();
    Some(admin)
}

fn address(written: &Value<'_>, allow_remote: bool, claims: &mut Claims) -> Option<Address> {
    let address = written.parsed(value::admin_address)?;
    if !allow_remote {
        let remedy = "use 127.0.0.1, [::1] or unix:PATH, or say allow_remote = true";
        written.parsed(|_| value::check_admin_is_local(&address, remedy))?;
    }
    claims.address(&address, Owner::Admin, written)?;
    Some(address)
}

fn admin_host(text: &str) -> Result<String, Problem> {
    match value::host_name(text) {
        Ok(name) if name.starts_with("*.") => Err(Problem::new(
            format!("{text:?} is every name under another"),
            "write each name in full, such as \"metrics.example.com\"",
        )),
        read => read,
    }
}

/// This user alone.
pub(crate) const ADMIN_SOCKET_MODE_DEFAULT: u32 = 0o600;

/// Names by which the admin address may be asked for.
const ADMIN_HOSTS_MAX: usize = 64;
