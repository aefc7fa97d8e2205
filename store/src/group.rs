//! A store that users share through a group: `sealane serve` as one, the agent as another.
//!
//! The folder says so: its group may write to it, and what is made in it belongs to that group
//! (mode 2770). What a user makes in such a folder that group may read and write; elsewhere it is
//! for that user alone, and nobody else's files are ever touched.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Lets the group that the folder is shared with read and write a file in it, if it is there and
/// this user made it.
///
/// # Errors
/// The system's.
pub(crate) fn share_with_group(folder: &Path, name: &str) -> io::Result<()> {
    OwnFile::find(folder, name)?.map_or(Ok(()), |file| file.share())
}

/// A file of this user in a shared folder that the group may not use as it is to: the file itself,
/// whatever stands at its path by now.
struct OwnFile(OwnedFd);

impl OwnFile {
    fn find(folder: &Path, name: &str) -> io::Result<Option<Self>> {
        let facts = fs::metadata(folder)?;
        if !is_shared(&facts) {
            return Ok(None);
        }
        // No more than a place: LMDB's locks are gone when a process closes what it had opened.
        let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match open(folder.join(name), place, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => file?,
        };
        let stat = fstat(&file)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_ours = is_file && stat.st_uid == geteuid().as_raw() && stat.st_gid == facts.gid();
        Ok((is_ours && stat.st_mode & PERMISSIONS != SHARED).then_some(Self(file)))
    }

    fn share(&self) -> io::Result<()> {
        // The system changes no mode by a place but through this.
        let itself = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        fs::set_permissions(itself, Permissions::from_mode(SHARED))
    }
}

/// Puts a file with `content` in the place of the one called `name` in the folder, at once, for
/// those whose folder it is.
///
/// # Errors
/// The system's; what was there is there then.
pub(crate) fn replace_file(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let beside = folder.join(format!("{name}.new"));
    // What a process of another user left there is not this one's to open.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OWN).open(&beside)?;
    share_file(folder, &file)?;
    file.write_all(content)?;
    file.sync_data()?;
    fs::rename(beside, folder.join(name))
}

/// Lets the group that the folder is shared with read and write `file`, which was opened in it, if
/// this user made it.
///
/// # Errors
/// The system's.
pub(crate) fn share_file(folder: &Path, file: &File) -> io::Result<()> {
    // By the file itself: by its name another may stand there by now.
    let is_ours = file.metadata()?.uid() == geteuid().as_raw();
    match is_ours && is_shared(&fs::metadata(folder)?) {
        true => file.set_permissions(Permissions::from_mode(SHARED)),
        false => Ok(()),
    }
}

/// For whom what is made in a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The group that the folder is shared with; none if it is one user's.
    pub group: Option<u32>,
}

impl Sharing {
    /// What the folder says.
    ///
    /// # Errors
    /// The system's.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let facts = fs::metadata(folder)?;
        Ok(Self { group: is_shared(&facts).then(|| facts.gid()) })
    }

    /// The permissions of what is made there.
    #[must_use]
    pub fn mode(self) -> u32 {
        match self.group {
            Some(_) => SHARED,
            None => OWN,
        }
    }
}

fn is_shared(folder: &Metadata) -> bool {
    folder.mode() & (GROUP_WRITES | GROUP_INHERITS) == GROUP_WRITES | GROUP_INHERITS
}

/// The socket in a store's folder at which a process that serves from the store tells which names
/// its clients ask for. Whoever may write to the store may open it.
pub const NAMES_SOCKET: &str = "names.sock";

const GROUP_INHERITS: u32 = 0o2000;
const GROUP_WRITES: u32 = 0o020;
const OWN: u32 = 0o600;
const PERMISSIONS: u32 = 0o777;
const SHARED: u32 = 0o660;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt as _;
    use std::path::PathBuf;

    use rustix::fs::FlockOperation;

    use super::*;
    use crate::Store;

    /// A folder of this mode, whatever the umask is.
    fn folder_of_mode(place: &Path, mode: u32) -> PathBuf {
        let path = place.join(format!("{mode:o}"));
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn modes(folder: &Path) -> Vec<(String, u32)> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().mode() & PERMISSIONS;
            (entry.file_name().into_string().unwrap(), mode)
        });
        let mut modes: Vec<_> = entries.collect();
        modes.sort();
        modes
    }

    #[test]
    fn files_are_for_the_group_where_the_folder_is_and_for_nobody_else_ever() {
        let place = tempfile::tempdir().unwrap();
        for (mode, expected) in [(0o2770, 0o660), (0o2750, 0o600), (0o770, 0o600), (0o700, 0o600)] {
            let path = folder_of_mode(place.path(), mode);
            let store = Store::open_or_create(&path).unwrap();
            store.leave_word(Some("a word")).unwrap();
            // Each file that a change replaces, too.
            store.remove(&[], 0).unwrap();
            let names = ["data.mdb", "fleet-away", "lock.mdb", "state"];
            let expected: Vec<_> = names.map(|name| (name.to_owned(), expected)).into();
            assert_eq!(modes(&path), expected, "in {mode:o}");
            // A copy leaves the folder.
            let copy = path.join("copy");
            store.back_up(&copy).unwrap();
            assert_eq!(fs::metadata(copy).unwrap().mode() & PERMISSIONS, 0o600, "in {mode:o}");
        }
    }

    #[test]
    fn a_store_of_before_is_shared_once_its_folder_is_and_is_in_order_still() {
        let place = tempfile::tempdir().unwrap();
        let path = folder_of_mode(place.path(), 0o700);
        drop(Store::open_or_create(&path).unwrap());
        fs::write(path.join("state.new"), "as a killed process of another user leaves it").unwrap();
        fs::set_permissions(path.join("state.new"), Permissions::from_mode(0o400)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o2770)).unwrap();
        let store = Store::open(&path).unwrap();
        // Before anything is changed, for whoever opens it then.
        let shared = ["data.mdb", "lock.mdb", "state"].map(|name| (name.to_owned(), SHARED));
        let left = ("state.new".to_owned(), 0o400);
        assert_eq!(modes(&path), [&shared[..], &[left]].concat());
        store.remove(&[], 0).unwrap();
        assert_eq!(store.generation().unwrap(), 1);
        assert_eq!(modes(&path), shared);
    }

    /// Whoever else may write in the folder puts another file there between look and change.
    #[test]
    fn what_stands_at_the_path_by_then_keeps_its_mode() {
        let place = tempfile::tempdir().unwrap();
        let folder = folder_of_mode(place.path(), 0o2770);
        let (file, victim) = (folder.join("data.mdb"), place.path().join("victim"));
        for path in [&file, &victim] {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        }
        let found = OwnFile::find(&folder, "data.mdb").unwrap().unwrap();
        fs::rename(&file, folder.join("moved")).unwrap();
        std::os::unix::fs::symlink(&victim, &file).unwrap();
        found.share().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & PERMISSIONS;
        assert_eq!((mode(&victim), mode(&folder.join("moved"))), (0o600, SHARED));
        // Nor is a link followed that was there before.
        share_with_group(&folder, "data.mdb").unwrap();
        assert_eq!(mode(&victim), 0o600);
    }

    /// LMDB holds them by the process, which loses them with any descriptor of the file.
    #[test]
    fn locks_of_a_file_stay_when_it_is_shared() {
        let place = tempfile::tempdir().unwrap();
        let folder = folder_of_mode(place.path(), 0o2770);
        let file = File::create(folder.join("lock.mdb")).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
        let number = format!(":{} ", file.metadata().unwrap().ino());
        let is_locked = || {
            let locks = fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains("POSIX") && line.contains(&number))
        };
        assert!(is_locked());
        share_with_group(&folder, "lock.mdb").unwrap();
        assert_eq!(file.metadata().unwrap().mode() & PERMISSIONS, SHARED);
        assert!(is_locked());
    }
}
