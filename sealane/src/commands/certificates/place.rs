//! Files and folders that come to their place whole or not at all.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::Refusal;

/// A folder for this user alone beside what is made in it. It is gone when this is dropped; one
/// that a killed process left has that process's number in its name.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn beside(path: &Path) -> Result<Self, Refusal> {
        let folder = with_name(path, |name| {
            *name = format!(".{}.{}", name.to_string_lossy(), std::process::id()).into();
        })?;
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| at(&folder, &error))?;
        Ok(Self(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may have been moved to its place.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Moves `from` to `to` at once, and waits until the disk knows it.
pub(super) fn place(from: &Path, to: &Path, may_replace: bool) -> Result<(), Refusal> {
    rename(from, to, may_replace)?;
    let folder = to.parent().filter(|folder| *folder != Path::new(""));
    sync_folder(folder.unwrap_or(Path::new("."))).map_err(|error| at(to, &error))
}

/// Moves `from` to `to` at once.
pub(super) fn rename(from: &Path, to: &Path, may_replace: bool) -> Result<(), Refusal> {
    let flags = if may_replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    renameat_with(CWD, from, CWD, to, flags).map_err(|error| at(to, &error.into()))
}

/// Waits until the disk knows which files are in a folder.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The path `path` with another name at its end.
pub(super) fn with_name(
    path: &Path,
    change: impl FnOnce(&mut OsString),
) -> Result<PathBuf, Refusal> {
    let Some(name) = path.file_name() else {
        return Err(Refusal::Said(format!("{}: ends with no name; add one", path.display())));
    };
    let mut name = name.to_owned();
    change(&mut name);
    Ok(path.with_file_name(name))
}

/// What the system said of the file or folder `path`, with what to do about it.
pub(super) fn at(path: &Path, error: &io::Error) -> Refusal {
    let remedy = match error.kind() {
        io::ErrorKind::AlreadyExists => "name another one, or add --replace if that is offered",
        io::ErrorKind::NotFound => "see that the folder is there",
        _ => "see that this user may read and write there, and the disk is not full",
    };
    Refusal::Said(format!("{}: {error}; {remedy}", path.display()))
}
