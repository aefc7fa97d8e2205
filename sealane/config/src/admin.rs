//! The table `admin`: where metrics, health and state are served, and where commands are taken.

use std::net::SocketAddr;
use std::path::PathBuf;

use sealane_lanes::kernel::Address;
use sealane_operator::key::{Bool, Group, Key, Or, PathKind, Set, Text};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::claims::{Claims, Owner};
use crate::value;

/// The addresses and permissions of metrics, health and state; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// Over TCP, without authentication, read-only.
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
    /// The permissions of the socket.
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
pub(crate) fn admin(table: &Table<'_>, claims: &mut Claims) -> Option<Admin> {
    let socket = table.value(&SOCKET);
    let mode = table.value(&SOCKET_MODE);
    let written = match &socket {
        None => table.required(&ADDRESS, "address = \"127.0.0.1:9180\", or a socket"),
        Some(_) => table.value(&ADDRESS),
    };
    let allow_remote = table.get(&ALLOW_REMOTE);
    let hosts = table.value(&HOSTS);
    let names = hosts.as_ref().and_then(|v| HOSTS.read(v));
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
        (Some(mode), Some(socket)) => socket.mode = SOCKET_MODE.read(mode)?,
        (Some(mode), None) => {
            mode.wrong(Problem::new("means nothing without a unix socket", "remove it"));
        }
        (None, _) => {}
    }
    admin.hosts = names.unwrap_or_default();
    Some(admin)
}

fn address(written: &Value<'_>, allow_remote: bool, claims: &mut Claims) -> Option<Address> {
    let address = ADDRESS.read(written)?;
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

pub(crate) static GROUP: Group = Group::new(
    "admin",
    "The admin interface: metrics (/metrics), health (/healthz), state (/state) and commands. Off \
     without this table. A change takes effect at the next start.",
    &[&ADDRESS, &SOCKET, &SOCKET_MODE, &ALLOW_REMOTE, &HOSTS],
)
.restart();

static ADDRESS: Key<Text<Address>> = Key::new(
    "address",
    Text("\"ADDRESS:PORT\" or \"unix:/PATH\"", value::admin_address),
    "A TCP address. Everyone on this machine can reach it, for reading alone. \"unix:/PATH\" means \
     the same as socket. Required, unless there is a socket.",
)
.examples(&["\"127.0.0.1:9180\""])
.without("no TCP address");

static SOCKET: Key<PathKind> = Key::new(
    "socket",
    PathKind,
    "A unix socket, in place of the address or besides it. `sealane status`, `sealane reload` and \
     other commands use it. Every user that can open it can read all that the address shows. \
     Commands are accepted from root and from the user of the process alone.",
)
.examples(&["\"/run/sealane/admin.sock\""]);

static SOCKET_MODE: Key<Text<u32>> = Key::new(
    "socket_mode",
    Text("\"0600\", \"0660\" or \"0666\"", value::socket_mode),
    "The permissions of the socket: \"0600\" for the user of the process, \"0660\" for its group \
     too, \"0666\" for every user that can enter the folder.",
)
.examples(&["\"0600\""])
.without("\"0600\"");

static ALLOW_REMOTE: Key<Or<Bool>> = Key::new(
    "allow_remote",
    Or(Bool, false),
    "An address other than loopback or a unix socket is refused unless this is true.",
);

static HOSTS: Key<Set<Text<String>>> = Key::new(
    "hosts",
    Set(Text("host name", admin_host), 64),
    "Host names that HTTP requests over TCP may use, besides \"localhost\" and addresses. A \
     request with another name gets 421. Therefore no web page can reach the interface by a name \
     that resolves to this machine.",
)
.examples(&["[\"metrics.example.com\"]"]);
