//! The table `process`: who the process is, who may look into it, and what it may do.

use std::path::PathBuf;

use sealane_operator::key::{Bool, Group, Key, Or, PathKind, Set, Text};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::Table;

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
            allow_core_dump: ALLOW_CORE_DUMP.default(),
            user: None,
            group: None,
            sandbox: SANDBOX.default(),
            sandbox_read: Vec::new(),
        }
    }
}

/// Reads the table.
pub(crate) fn process(table: &Table<'_>) -> Process {
    let allow_core_dump = table.get(&ALLOW_CORE_DUMP);
    let (user, group) = (table.value(&USER), table.value(&GROUP_NAME));
    if let (None, Some(group)) = (&user, &group) {
        group.wrong(Problem::new("means nothing without a user", "add user, or remove it"));
    }
    let sandbox = table.get(&SANDBOX);
    let read = table.value(&SANDBOX_READ);
    if let (false, Some(read)) = (sandbox, &read) {
        let remedy = "remove it, or sandbox = false";
        read.wrong(Problem::new("means nothing without the sandbox", remedy));
    }
    let sandbox_read = read.and_then(|read| SANDBOX_READ.read(&read));
    Process {
        allow_core_dump,
        user: user.and_then(|v| USER.read(&v)),
        group: group.and_then(|v| GROUP_NAME.read(&v)),
        sandbox,
        sandbox_read: sandbox_read.unwrap_or_default(),
    }
}

pub(crate) static GROUP: Group = Group::new(
    "process",
    "The user of the process, its memory and its sandbox. A change takes effect at the next start.",
    &[&USER, &GROUP_NAME, &ALLOW_CORE_DUMP, &SANDBOX, &SANDBOX_READ],
)
.restart();

static USER: Key<Text<String>> = Key::new(
    "user",
    Text("name of a user", value::account),
    "The user that Sealane becomes if root starts it, before it reads anything but this file. Of \
     root's rights it keeps that of binding ports below 1024. `sealane check`, run by root, reads \
     as that user too. Do not set it if the service manager starts Sealane as a user, as \
     packaging/sealane.service does.",
)
.examples(&["\"sealane\""])
.without("the user does not change");

static GROUP_NAME: Key<Text<String>> = Key::new(
    "group",
    Text("name of a group", value::account),
    "The group that Sealane then has, instead of the user's own group.",
)
.examples(&["\"sealane\""])
.without("the user's own group");

static ALLOW_CORE_DUMP: Key<Or<Bool>> = Key::new(
    "allow_core_dump",
    Or(Bool, false),
    "Private keys are in the memory of the process. Therefore it leaves no core dump, and only \
     root can inspect it by a debugger, a profiler or /proc. True leaves both as the system has \
     them.",
);

static SANDBOX: Key<Or<Bool>> = Key::new(
    "sandbox",
    Or(Bool, true),
    "Whether the kernel denies the process everything that it does not need (Landlock and \
     seccomp). It can read the folders of the files that this configuration names, /etc, and the \
     files of the system's library. It can write to its log, its sockets, stores and ticket root. \
     It can start no program. A reload that needs another folder is refused with a message; a \
     restart allows it. Set it to false if store_key.command needs more. Lanes have no system \
     calls but those that they use.",
);

static SANDBOX_READ: Key<Set<PathKind>> = Key::new(
    "sandbox_read",
    Set(PathKind, 1024),
    "Further files and folders that the sandbox lets Sealane read, for reloads to come.",
)
.examples(&["[\"/srv/certificates\"]"]);
