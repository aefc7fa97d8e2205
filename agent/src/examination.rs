//! The examination of a certificate store by a process of its own.

use std::path::Path;
use std::process::Command;

/// Lets another process read all of the store: a damaged one may end the process that maps it.
///
/// # Errors
/// It is not in order, or that cannot be found out.
pub(crate) fn examine_apart(store: &Path) -> Result<(), String> {
    let mut other = Command::new("/proc/self/exe");
    let other = other.arg("examine").arg(store).output();
    let other =
        other.map_err(|error| format!("{}: cannot be examined: {error}", store.display()))?;
    match (other.status.code(), String::from_utf8_lossy(&other.stderr).trim()) {
        (Some(0), _) => Ok(()),
        (Some(_), text) if !text.is_empty() => {
            Err(text.trim_start_matches("sealane-agent: ").to_owned())
        }
        _ => Err(format!(
            "{}: damaged: reading it ended a process; restore a backup with: sealane certificates \
             restore",
            store.display()
        )),
    }
}
