//! Who the process is, and who may look into it.

/// Who the process is, and who may look into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Whether it may leave a core dump, and others of its user may trace it.
    pub allow_core_dump: bool,
    /// The user that it becomes, if root starts it.
    pub user: Option<String>,
    /// The group that it then has, instead of that user's own.
    pub group: Option<String>,
}
