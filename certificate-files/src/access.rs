//! The folder that keeps a user from a file: modes of the file itself are seldom the reason.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The folder that this user may not enter on the way to `path`, links included. `None` if that is
/// not the reason.
pub(crate) fn closed_folder(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let ancestors: Vec<PathBuf> = path.ancestors().map(Path::to_path_buf).collect();
        let mut link = None;
        for at in ancestors.iter().rev().filter(|at| **at != Path::new("")) {
            match fs::symlink_metadata(at) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    let closed = at.parent()?;
                    return Some(fs::canonicalize(closed).unwrap_or_else(|_| closed.into()));
                }
                Ok(facts) if facts.is_symlink() => {
                    link = Some(at);
                    break;
                }
                Ok(_) | Err(_) => {}
            }
        }
        let link = link?;
        let rest = path.strip_prefix(link).ok()?;
        path = link.parent()?.join(fs::read_link(link).ok()?).join(rest);
    }
    None
}

/// Symbolic links that are followed, as many as the kernel follows.
const LINKS_MAX: usize = 40;
