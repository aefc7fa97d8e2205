//! Who can read a secret: the one rule for every file that holds one.
//!
//! Owner and group are the operator's choice: programs make keys 0600, Debian has 0640 for the
//! group `ssl-cert`, Kubernetes mounts 0440. Nobody else may read or write it. What follows depends
//! on the secret. A sealing key, which opens all others and which Sealane makes itself, is refused.
//! Of private keys and ticket roots an operator is warned, because a server that does not start, or
//! leaves an expired certificate in service, over the mode that another program gave a file is the
//! greater harm.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file with a secret that users may read or write who are neither its owner nor in its group.
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
    /// The file at `path`, if it is exposed and others can come to it: in a folder that they may
    /// not enter its own mode matters to nobody. A file that cannot be looked at is not exposed;
    /// whoever reads it says why.
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

/// Permissions of everybody who is neither the owner nor in the group.
const OTHERS: u32 = 0o007;
const OTHERS_ENTER: u32 = 0o001;
const PERMISSIONS: u32 = 0o777;
