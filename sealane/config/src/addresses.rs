//! The addresses of a listener.

use sealane_lanes::kernel::Address;
use sealane_operator::key::{Key, List, Text};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::claims::{Claims, Owner};
use crate::limits::LISTENERS_MAX;
use crate::value::{self, ListenAddresses};

/// `address` for one, `addresses` for several.
pub(crate) fn addresses(
    table: &Table<'_>,
    at: &Value<'_>,
    claims: &mut Claims,
) -> Option<Vec<Address>> {
    let many = table.value(&ADDRESSES);
    let one = match many {
        None => table.required(&ADDRESS, "address = \"0.0.0.0:443\""),
        Some(_) => table.value(&ADDRESS),
    };
    let mut claimed = |v: &Value<'_>| {
        let addresses = ADDRESS.read(v)?.0;
        for address in &addresses {
            claims.address(address, Owner::Listener(at.place()), v)?;
        }
        Some(addresses)
    };
    match (one, many) {
        (Some(one), Some(_)) => {
            one.wrong(Problem::new(
                "both address and addresses are given",
                "put all in addresses = [...]",
            ));
            None
        }
        (Some(one), None) => claimed(&one),
        (None, Some(many)) => {
            many.list(ADDRESSES.kind.1, |v| claimed(&v)).map(|each| each.concat())
        }
        (None, None) => None,
    }
}

/// The mode of a socket: for its owner and group, among whom a balancer on this machine can be.
pub(crate) const SOCKET_MODE_DEFAULT: u32 = 0o660;

pub(crate) static ADDRESS: Key<Text<ListenAddresses>> = Key::new(
    "address",
    Text(ADDRESS_TEXT, value::listen_addresses),
    "One address. Required, unless there are addresses.",
)
.examples(&["\"0.0.0.0:443\""]);

pub(crate) static ADDRESSES: Key<List<Text<ListenAddresses>>> = Key::new(
    "addresses",
    List(Text(ADDRESS_TEXT, value::listen_addresses), LISTENERS_MAX),
    "Several addresses, instead of one address. \":443\" and \"*:443\" are every address, IPv4 and \
     IPv6. \"unix:/PATH\" is a socket for programs on this machine; its file is made and removed \
     with the listener.",
)
.examples(&["[\"0.0.0.0:443\", \"[::]:443\", \"unix:/run/sealane/tls.sock\"]"])
.see(&["limits.listeners"]);

pub(crate) static SOCKET_MODE: Key<Text<u32>> = Key::new(
    "socket_mode",
    Text("\"0600\", \"0660\" or \"0666\"", value::socket_mode),
    "The permissions of its unix sockets: \"0600\" for the user of the process, \"0660\" for its \
     group too, \"0666\" for every user that can enter the folder. All lanes accept from one \
     socket, each as it is free: of limits that are divided among lanes, one lane may reach its \
     share before another.",
)
.examples(&["\"0660\""])
.without("\"0660\"");

const ADDRESS_TEXT: &str = "\"ADDRESS:PORT\", \":PORT\", \"*:PORT\" or \"unix:/PATH\"";
