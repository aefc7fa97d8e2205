//! Who the process is, who may look into it, and what it may do.

use std::path::PathBuf;

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
