//! The table `process`: who the process is, and who may look into it.

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
    let name = |value: Option<Value<'_>>| value.and_then(|v| v.parsed(value::account));
    Process { allow_core_dump, user: name(user), group: name(group) }
}
