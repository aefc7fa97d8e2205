//! The table `process`: who the process is, who may look into it, and what it may do.

use super::super::mistake::Problem;
use super::super::reader::{Table, Value};
use super::super::{Process, value};

/// Reads the table.
pub(super) fn process(table: &mut Table<'_>) -> Process {
    let allow_core_dump = table.boolean("allow_core_dump").unwrap_or(false);
    let (user, group) = (table.value("user"), table.value("group"));
    if let (None, Some(group)) = (&user, &group) {
        group.wrong(Problem::new("means nothing without a user", "add user, or remove it"));
    }
    let sandbox = table.boolean("sandbox").unwrap_or(true);
    let read = table.value("sandbox_read");
    if let (false, Some(read)) = (sandbox, &read) {
        let remedy = "remove it, or sandbox = false";
        read.wrong(Problem::new("means nothing without the sandbox", remedy));
    }
    let sandbox_read = read.and_then(|read| read.set(PATHS_MAX, Value::path));
    let name = |value: Option<Value<'_>>| value.and_then(|v| v.parsed(value::account));
    Process {
        allow_core_dump,
        user: name(user),
        group: name(group),
        sandbox,
        sandbox_read: sandbox_read.unwrap_or_default(),
    }
}

const PATHS_MAX: usize = 1024;
