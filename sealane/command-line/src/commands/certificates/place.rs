//! Files and folders that come to their place whole or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, open, renameat_with};
use rustix::process::geteuid;
use tempfile::{Builder, TempDir};

use super::Refusal;

/// A new folder for this user alone, next to a path and called after it. It is gone when this is
/// dropped. One that a killed process left is removed when the next one is made.
pub(super) struct Scratch {
    folder: TempDir,
    /// Locked for as long as its process is there.
    _mark: File,
}

impl Scratch {
    /// Makes one next to `path`.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn beside(path: &Path) -> Result<Self, Refusal> {
        let hidden =
            with_name(path, |name| *name = format!(".{}.", name.to_string_lossy()).into())?;
        let prefix = hidden.file_name().unwrap_or_default();
        let folder = parent(path);
        let make = || {
            remove_left(folder, prefix)?;
            let made = Builder::new().prefix(prefix).rand_bytes(RANDOM_CHARS).tempdir_in(folder)?;
            let mark = File::create_new(made.path().join(MARK))?;
            flock(&mark, FlockOperation::LockExclusive)?;
            Ok(Self { folder: made, _mark: mark })
        };
        make().map_err(|error: io::Error| at(folder, &error))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder as one that no later process removes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn into_folder(self) -> Result<TempDir, Refusal> {
        let mark = self.folder.path().join(MARK);
        fs::remove_file(&mark).map_err(|error| at(&mark, &error))?;
        Ok(self.folder)
    }
}

/// Removes the scratch folders in `folder` with a prefix that processes of this user left which
/// were killed.
fn remove_left(folder: &Path, prefix: &OsStr) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        let is_ours = name.starts_with(prefix.as_encoded_bytes())
            && name.len() == prefix.len() + RANDOM_CHARS
            && entry
                .metadata()
                .is_ok_and(|facts| facts.is_dir() && facts.uid() == geteuid().as_raw());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Without a mark it is another folder, or one that is to stay.
        if is_ours
            && let Ok(mark) = open(entry.path().join(MARK), flags, Mode::empty())
            && flock(&mark, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            // A folder that cannot be removed only takes disk space: the command goes on.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
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
        io::ErrorKind::StorageFull => "make room on that disk, and run this again",
        _ => "see that this user may read and write there",
    };
    Refusal::Said(format!("{}: {error}; {remedy}", path.display()))
}

/// The file in a scratch folder that its process has locked.
const MARK: &str = "scratch";
/// Random characters in the name of a scratch folder.
const RANDOM_CHARS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_of_killed_process_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let at = |name: &str| folder.path().join(name);
        // A live one, one of a killed process, one that is to stay, and two with other names.
        let live = Scratch::beside(&path).ok().unwrap();
        for name in [".store.killed", ".store.unmark", ".other.killed", ".store.longer-"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("data.mdb"), "").unwrap();
        }
        for name in [".store.killed", ".other.killed", ".store.longer-"] {
            fs::write(at(name).join(MARK), "").unwrap();
        }
        let next = Scratch::beside(&path).ok().unwrap();
        assert!(!at(".store.killed").exists() && live.path().exists());
        for name in [".store.unmark", ".other.killed", ".store.longer-"] {
            assert!(at(name).exists(), "{name}");
        }
        let kept = next.into_folder().ok().unwrap().keep();
        assert!(!kept.join(MARK).exists());
        drop(Scratch::beside(&path).ok().unwrap());
        assert!(kept.exists());
    }
}
