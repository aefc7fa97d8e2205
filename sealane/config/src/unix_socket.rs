//! Listening unix sockets: [`bind`] makes one with the wanted permissions, in place of a stale one,
//! and [`SocketFile`] takes its file away in the end.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags, access, chmod, fchmod, fstat, open};
use socket2::{Domain, SockAddr, Socket, Type};

use sealane_operator::value::folder_of;

/// Why [`bind`] would fail at `path`, as far as that shows without binding. A socket there may be
/// that of a process that runs.
pub fn obstacle(path: &Path) -> Option<io::Error> {
    let found = fs::symlink_metadata(path).map(|found| found.file_type().is_socket());
    match found {
        Ok(true) => return None,
        Ok(false) => return Some(other_file()),
        Err(error) if error.kind() != ErrorKind::NotFound => return Some(error),
        Err(_) => {}
    }
    let to_make = Access::WRITE_OK | Access::EXEC_OK;
    let folder = access(folder_of(path), to_make).map_err(io::Error::from);
    SockAddr::unix(path).err().or(folder.err())
}

/// A socket file that is removed with this value, unless another took its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

/// Listens on `path` for whoever `mode` lets in. A socket that nobody listens on any more makes
/// way; any other file stays.
///
/// # Errors
/// Somebody listens there, another file is there, or the system refuses the path.
pub fn bind(path: &Path, mode: u32, backlog: i32) -> io::Result<(OwnedFd, SocketFile)> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file gets the mode of the socket, so there is no moment at which others may connect; but
    // the process's mask takes off what it takes off every new file.
    fchmod(&socket, Mode::from_raw_mode(mode))?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    socket.listen(backlog)?;
    // Another process may have come between, and have taken it for stale.
    file.permit(mode)?;
    Ok((socket.into(), file))
}

impl SocketFile {
    /// Whether it is still where it was made.
    pub fn is_in_place(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }

    /// Lets in whoever `mode` says, from now on.
    ///
    /// # Errors
    /// The file is not there any more, another is, or it is not this user's.
    pub fn permit(&self, mode: u32) -> io::Result<()> {
        match self.to_change(mode)? {
            Some(itself) => itself.change(mode),
            None => Ok(()),
        }
    }

    /// The file itself, if its mode is another.
    fn to_change(&self, mode: u32) -> io::Result<Option<Itself>> {
        // Where others may write too, another file may take its place between two looks at a path.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(&self.path, flags, Mode::empty())?;
        let found = fstat(&file)?;
        if (found.st_dev, found.st_ino) != self.identity {
            return Err(io::Error::new(ErrorKind::NotFound, "another file has taken its place"));
        }
        Ok((found.st_mode & 0o777 != mode).then_some(Itself(file)))
    }

    /// The group of the file, as long as it is where it was made.
    pub fn group(&self) -> Option<u32> {
        let found = fs::symlink_metadata(&self.path).ok();
        let own = found.filter(|found| (found.dev(), found.ino()) == self.identity);
        own.map(|own| own.gid())
    }
}

/// A file, whatever stands at its path by now.
struct Itself(OwnedFd);

impl Itself {
    fn change(&self, mode: u32) -> io::Result<()> {
        // The system changes no mode by a place but through this.
        let itself = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        Ok(chmod(itself, Mode::from_raw_mode(mode))?)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_in_place() {
            // Left behind at worst, it is stale, and the next process removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(other_file());
    }
    let caller = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Whoever listens and has no room for us must not keep us waiting.
    caller.set_nonblocking(true)?;
    match caller.connect(&SockAddr::unix(path)?).map_err(|error| (error.kind(), error)) {
        Ok(()) | Err((ErrorKind::WouldBlock, _)) => {
            Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there"))
        }
        Err((ErrorKind::ConnectionRefused, _)) => fs::remove_file(path),
        Err((_, error)) => Err(error),
    }
}

fn other_file() -> io::Error {
    io::Error::new(ErrorKind::AlreadyExists, "a file that is no socket is there")
}

/// Device and inode: what stays the same as long as it is the same file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::inotify;

    use super::*;

    #[test]
    fn whoever_takes_the_place_of_a_socket_keeps_his_own_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (_socket, file) = bind(&path, 0o600, 1).unwrap();
        file.permit(0o660).unwrap();
        assert_eq!((mode(&path), file.group().is_some()), (0o660, true));
        let other = folder.path().join("other");
        fs::write(&other, "").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o640)).unwrap();
        fs::remove_file(&path).unwrap();
        for is_link in [true, false] {
            match is_link {
                true => std::os::unix::fs::symlink(&other, &path).unwrap(),
                false => fs::rename(&other, &path).unwrap(),
            }
            assert_eq!(file.permit(0o666).unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!((mode(&path), file.group()), (0o640, None));
        }
        drop(file);
        assert!(path.exists(), "nor is it removed");
    }

    /// Whoever else may write in the folder puts another file there between look and change.
    #[test]
    fn what_stands_at_the_path_by_then_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved] = ["a.sock", "moved"].map(|name| folder.path().join(name));
        let (_socket, file) = bind(&path, 0o600, 1).unwrap();
        let itself = file.to_change(0o660).unwrap().unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        itself.change(0o660).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&moved)), (0o640, 0o660));
    }

    #[test]
    fn a_socket_has_its_mode_from_the_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let seen = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let events = inotify::WatchFlags::CREATE | inotify::WatchFlags::ATTRIB;
        inotify::add_watch(&seen, folder.path(), events).unwrap();
        let _socket = bind(&folder.path().join("a.sock"), 0o600, 1).unwrap();
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut reader = inotify::Reader::new(&seen, &mut buffer);
        let first = reader.next().unwrap().events();
        assert_eq!(first, inotify::ReadFlags::CREATE);
        assert!(reader.next().is_err(), "nothing is changed of it");
    }

    /// Whoever listens need not take anybody.
    #[test]
    fn a_listener_that_has_no_room_is_there_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let _first = bind(&path, 0o600, 0).unwrap();
        let mut waiting = Vec::new();
        loop {
            let caller = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            caller.set_nonblocking(true).unwrap();
            let is_full = caller.connect(&SockAddr::unix(&path).unwrap()).is_err();
            waiting.push(caller);
            if is_full {
                break;
            }
        }
        let (sender, second) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(bind(&path, 0o600, 0).map(drop)));
        let second = second.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(second.unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
