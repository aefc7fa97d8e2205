//! The list of listeners.

use sealane_operator::key::{FileKeys, Group, Key, TableList};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::Value;

use crate::claims::Claims;
use crate::demand::check_demands;
use crate::limits::{LISTENERS_MAX, Limits, Shared};
use crate::listener::{GROUP, Listener, listener};
use crate::route::written_routes;

/// The listeners that are written, of which no two may claim the same.
pub(crate) fn listener_list(
    written: &Value<'_>,
    shared: Shared<'_>,
    claims: &mut Claims,
) -> Option<Vec<Listener>> {
    if written.is_table() {
        written.wrong(Problem::new(
            "expected a list of tables, found one table",
            "write [[listener]] in double brackets above each listener",
        ));
        return None;
    }
    let most = shared.limits.listeners_max;
    if written.length() > most {
        let what = format!("there are {} listeners", written.length());
        let remedy = format!("limits.listeners allows {most}: raise it");
        written.wrong(Problem::new(what, remedy));
        return None;
    }
    written.list(most, |v| {
        v.table(&GROUP, |table| {
            let listener = listener(table, &v, shared, claims)?;
            check_demands(&listener, &written_routes(table), &v);
            Some(listener)
        })
    })
}

/// Counts addresses of all files together: those of one may be within the limit.
pub(crate) fn check_number_of_addresses(
    listeners: &[Listener],
    limits: &Limits,
    written: &Value<'_>,
) {
    let addresses: usize = listeners.iter().map(|listener| listener.addresses.len()).sum();
    if addresses > limits.listeners_max {
        let what = format!("{addresses} addresses are listened on");
        let remedy = format!("limits.listeners allows {}: raise it", limits.listeners_max);
        written.wrong(Problem::new(what, remedy));
    }
}

pub(crate) const FILE_LISTENER_EXAMPLE: &str =
    "a [[listener]]: a file that is included has nothing else";

pub(crate) static LISTENER: Key<TableList> =
    Key::new("listener", TableList(&GROUP, LISTENERS_MAX), "");

/// A file that is included.
pub(crate) static INCLUDED: FileKeys = FileKeys { top: &INCLUDED_GROUP, page: PAGE };

static INCLUDED_GROUP: Group =
    Group::new("listener", "A file that is included has listeners and nothing else.", &[&LISTENER]);

/// The reference of all keys.
pub(crate) const PAGE: &str = "docs/configuration.md";
