//! Access to a secret: the one rule for every file that holds one.
//!
//! Owner and group are the operator's choice: programs make keys 0600, Debian has 0640 for the
//! group `ssl-cert`, Kubernetes mounts 0440. All other users may neither read nor write it.
//!
//! The consequence depends on the secret. An exposed sealing key, which opens all other keys and
//! which Sealane makes itself, is refused. For private keys and ticket roots the operator gets a
//! warning. A server that does not start, or leaves an expired certificate in service, because of
//! the mode that another program gave a file, is the greater harm.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A secret file that is open to users other than its owner and group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{file}: every user of this machine may read or write this secret (mode {mode:03o}); run \
     `chmod o= {file}`, and replace the secret if other users may have read it",
    file = path.display()
)]
pub struct Exposed {
    /// The file.
    pub path: PathBuf,
    /// The file's permissions.
    pub mode: u32,
}

impl Exposed {
    /// The file at `path`, if it is exposed and other users can reach it. In a folder that they may
    /// not enter its own mode does not matter. A file that cannot be looked at is not exposed: its
    /// reader reports the reason.
    pub fn find(path: &Path) -> Option<Self> {
        let mode = mode_for_others(&fs::metadata(path).ok()?)?;
        let place = fs::canonicalize(path).ok()?;
        let enters = |folder: &Path| {
            fs::metadata(folder).is_ok_and(|facts| facts.mode() & OTHERS_ENTER != 0)
        };
        place.ancestors().skip(1).all(enters).then(|| Self { path: path.to_owned(), mode })
    }
}

/// The permissions of a file, if they let others in.
pub fn mode_for_others(metadata: &Metadata) -> Option<u32> {
    let mode = metadata.mode() & PERMISSIONS;
    (mode & OTHERS != 0).then_some(mode)
}

/// Permissions of all users other than the owner and the group.
const OTHERS: u32 = 0o007;
const OTHERS_ENTER: u32 = 0o001;
const PERMISSIONS: u32 = 0o777;
