//! Listening unix sockets: [`bind`] makes one with the wanted permissions, in place of a stale one,
//! and [`SocketFile`] takes its file away in the end.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

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
        if !self.is_in_place() {
            return Err(io::Error::new(ErrorKind::NotFound, "another file has taken its place"));
        }
        let found = fs::symlink_metadata(&self.path)?;
        if found.mode() & 0o777 == mode {
            return Ok(());
        }
        fs::set_permissions(&self.path, Permissions::from_mode(mode))
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
        return Err(io::Error::new(ErrorKind::AlreadyExists, "a file that is no socket is there"));
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

/// Device and inode: what stays the same as long as it is the same file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
