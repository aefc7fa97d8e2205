//! Whose store it is. Whoever can write to the folder can lead a process that opens the store
//! astray, so that process must have no more rights than they have.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Takes, for good, the rights of the user whose store is or will be in the folder `path`, if this
/// is root and that user is not. It must be called before there are other threads.
///
/// # Errors
/// The system refuses.
pub fn become_owner_of(path: &Path) -> Result<(), OwnerError> {
    let refused = |error| OwnerError { path: path.into(), error };
    let Some((user, group)) = other_owner(path).map_err(refused)? else { return Ok(()) };
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(group, group, group))
        .and_then(|()| set_thread_res_uid(user, user, user))
        .map_err(|error| refused(error.into()))
}

/// The user and group that the folder `path` belongs to, or will belong to, if this is root and
/// they are not.
pub(super) fn other_owner(path: &Path) -> io::Result<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let facts = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            fs::metadata(folder.unwrap_or(Path::new(".")))?
        }
        facts => facts?,
    };
    Ok(Some((facts.uid(), facts.gid())).filter(|(user, _)| *user != 0))
}

/// A store of another user's cannot be opened with that user's rights.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: cannot take the rights of the user whose store it is: {error}; run this as that user",
    path.display()
)]
pub struct OwnerError {
    path: PathBuf,
    error: io::Error,
}
