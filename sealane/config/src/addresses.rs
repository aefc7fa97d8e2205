//! The addresses of a listener.

use sealane_lanes::kernel::Address;
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::claims::{Claims, Owner};
use crate::limits::LISTENERS_MAX;
use crate::value;

/// `address` for one, `addresses` for several.
pub(crate) fn addresses(table: &mut Table<'_>, at: &Value<'_>, claims: &mut Claims) -> Option<Vec<Address>> {
    let many = table.value("addresses");
    let one = match many {
        None => table.required("address", "address = \"0.0.0.0:443\""),
        Some(_) => table.value("address"),
    };
    let mut claimed = |v: &Value<'_>| {
        let addresses = v.parsed(value::listen_addresses)?.0;
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
        (None, Some(many)) => many.list(LISTENERS_MAX, |v| claimed(&v)).map(|each| each.concat()),
        (None, None) => None,
    }
}

/// The mode of a socket: for its owner and group, among whom a balancer on this machine can be.
pub(crate) const SOCKET_MODE_DEFAULT: u32 = 0o660;
