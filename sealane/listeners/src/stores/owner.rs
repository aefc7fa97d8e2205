//! Whose store it is. Whoever can write to the folder can lead a process that opens the store
//! astray, so that process must have no more rights than they have.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Gid, Uid, geteuid};
use sealane_sandbox::become_user;

/// Takes, for good, the rights of the user whose store is or will be in the folder `path`, if this
/// is root and that user is not. It must be called before there are other threads. Returns the path
/// to go on with: as root one without links, on which nobody else can put another store.
///
/// # Errors
/// As root: somebody else can, or the system refuses.
pub fn become_owner_of(path: &Path) -> Result<PathBuf, OwnerError> {
    if !geteuid().is_root() {
        return Ok(path.into());
    }
    let refused = |error| OwnerError::System { path: path.into(), error };
    let (real, folder) = without_links(path).map_err(refused)?;
    let facts = fs::symlink_metadata(&folder).map_err(refused)?;
    let owner = Owner { user: facts.uid(), group: facts.gid() };
    for (position, folder) in folder.ancestors().enumerate() {
        let facts = fs::symlink_metadata(folder).map_err(refused)?;
        if !owner.alone_writes_to(&facts, position == 0) {
            return Err(OwnerError::Shared { folder: folder.into(), path: path.into() });
        }
    }
    if owner.user != 0 {
        owner.take_rights().map_err(|error| refused(error.into()))?;
    }
    Ok(real)
}

/// The path of a folder without links, and that of the folder that says whose it is: itself, or the
/// one in which it will be made.
fn without_links(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error);
            };
            let here = Path::new(".");
            let folder = if folder == Path::new("") { here } else { folder }.canonicalize()?;
            Ok((folder.join(name), folder))
        }
        found => found.map(|real| (real.clone(), real)),
    }
}

/// The user and the group that a folder belongs to.
struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// Whether nobody but the owner and root can put something else in the place of what is in a
    /// folder. In a sticky one others can add to it, which matters in that which `is_last`.
    fn alone_writes_to(&self, facts: &Metadata, is_last: bool) -> bool {
        let is_safe = facts.mode() & STICKY != 0 && !is_last;
        let group_may = facts.mode() & WRITABLE_BY_GROUP == 0 || facts.gid() == self.group;
        let others_may_not = facts.mode() & WRITABLE_BY_OTHERS == 0;
        [0, self.user].contains(&facts.uid()) && (is_safe || group_may && others_may_not)
    }

    fn take_rights(&self) -> rustix::io::Result<()> {
        become_user(Uid::from_raw(self.user), Gid::from_raw(self.group), &[])
    }
}

/// The user and group that the folder `path` belongs to, or will belong to, if this is root and
/// they are not.
pub(super) fn other_owner(path: &Path) -> io::Result<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let (_, folder) = without_links(path)?;
    let facts = fs::symlink_metadata(folder)?;
    Ok(Some((facts.uid(), facts.gid())).filter(|(user, _)| *user != 0))
}

/// A store cannot be opened with no more rights than its user has.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// Others could put another store there, for root to open.
    #[error(
        "{}: others than root and the store's user may write to {}, and so lead root astray; \
         take that from them by chmod and chown, or run this as the store's user",
        path.display(), folder.display()
    )]
    Shared {
        /// The folder that they may write to.
        folder: PathBuf,
        /// The store.
        path: PathBuf,
    },
    /// The system refuses.
    #[error(
        "{}: cannot take the rights of the user whose store it is: {error}; run this as that user",
        path.display()
    )]
    System {
        /// The store.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

const STICKY: u32 = 0o1000;
const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_OTHERS: u32 = 0o002;
