//! The table `process`: who the process is, who may look into it, and what it may do.

use std::path::PathBuf;

use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::value;

/// Who the process is, who may look into it, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Whether it may leave a core dump, and others of its user may trace it.
    pub allow_core_dump: bool,
    /// The user that it becomes, if root starts it.
    pub user: Option<String>,
    /// The group that it then has, instead of that user's own.
    pub group: Option<String>,
    /// Whether the kernel refuses it what its configuration does not need.
    pub sandbox: bool,
    /// Files and folders that it may read all the same.
    pub sandbox_read: Vec<PathBuf>,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            allow_core_dump: false,
            user: None,
            group: None,
            sandbox: true,
            sandbox_read: Vec::new(),
        }
    }
}

/// Reads the table.
pub(crate) fn process(table: &mut Table<'_>) -> Process {
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
