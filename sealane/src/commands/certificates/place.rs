//! Files and folders that come to their place whole or not at all.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::{Builder, TempDir};

use super::Refusal;

/// A new folder for this user alone beside `path`, called after it. It is gone when this is
/// dropped; that of a killed process stays.
pub(super) fn folder_beside(path: &Path) -> Result<TempDir, Refusal> {
    let hidden = with_name(path, |name| *name = format!(".{}.", name.to_string_lossy()).into())?;
    let folder = parent(path);
    let made = Builder::new().prefix(hidden.file_name().unwrap_or_default()).tempdir_in(folder);
    made.map_err(|error| at(folder, &error))
}

/// Moves `from` to `to` at once, and waits until the disk knows it.
pub(super) fn place(from: &Path, to: &Path, may_replace: bool) -> Result<(), Refusal> {
    rename(from, to, may_replace)?;
    sync_folder(parent(to)).map_err(|error| at(to, &error))
}

/// Puts `from` in the place of `to`, and `to` in that of `from`, at once.
pub(super) fn exchange(from: &Path, to: &Path) -> Result<(), Refusal> {
    let exchanged = renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE);
    exchanged.map_err(|error| at(to, &error.into()))
}

/// The folder that `path` is in.
fn parent(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
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
