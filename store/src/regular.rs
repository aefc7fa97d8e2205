//! Files of a store's folder, opened so that nothing in the folder holds up a process.
//!
//! Users that share a folder may put anything there. To open a named pipe waits for a process at
//! its other end, and a link leads to a file elsewhere.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Opens a regular file of a store's folder for reading.
///
/// # Errors
/// The system's, or it is no regular file.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    checked(path, OFlags::RDONLY)
}

/// The same for reading and writing.
///
/// # Errors
/// The system's, or it is no regular file.
pub(crate) fn open_regular_to_write(path: &Path) -> io::Result<File> {
    checked(path, OFlags::RDWR)
}

/// Opens a store's folder itself, to lock it.
///
/// # Errors
/// The system's, or it is no folder.
pub(crate) fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(open(path, flags, Mode::empty())?))
}

/// A regular file and its length; none if it is not there, or empty, as a process leaves it that
/// was ended when it made it: LMDB begins again.
///
/// # Errors
/// The system's, or it is no regular file.
pub(crate) fn begun_file(path: &Path) -> io::Result<Option<(File, u64)>> {
    let file = match open_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let len = file.metadata()?.len();
    Ok((len > 0).then_some((file, len)))
}

fn checked(path: &Path, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is no regular file; remove it")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;
    use crate::{Store, StoreError};

    /// Puts a named pipe in the place of a file.
    fn put_pipe(path: &Path) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("{error}"),
            _ => mknodat(CWD, path, FileType::Fifo, Mode::from(0o600), 0).unwrap(),
        }
    }

    #[test]
    fn pipe_for_a_file_is_refused_at_once() {
        for name in ["data.mdb", "lock.mdb", "state"] {
            let folder = tempfile::tempdir().unwrap();
            drop(Store::open_or_create(folder.path()).unwrap());
            put_pipe(&folder.path().join(name));
            let refused: [Result<(), StoreError>; 3] = [
                Store::open(folder.path()).map(drop),
                Store::open_or_create(folder.path()).map(drop),
                crate::examine(folder.path(), || {}).map(drop),
            ];
            assert!(refused[..2].iter().all(Result::is_err), "{name}: {refused:?}");
        }
    }

    #[test]
    fn pipe_under_an_open_store_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(folder.path()).unwrap();
        put_pipe(&folder.path().join("fleet-away"));
        assert_eq!(store.word(), None);
        put_pipe(&folder.path().join("state"));
        assert!(store.look().is_err() && store.remove(&[], 0).is_err());
        fs::remove_file(folder.path().join("state")).unwrap();
        put_pipe(&folder.path().join("data.mdb"));
        assert!(store.look().is_err() && store.remove(&[], 0).is_err());
    }

    #[test]
    fn link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        assert!(open_regular(&file).is_ok() && open_regular(&link).is_err());
        assert!(open_folder(folder.path()).is_ok() && open_folder(&file).is_err());
    }
}
