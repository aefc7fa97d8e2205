//! What systemd does for a service, as far as tests need it: it is told states, keeps descriptors,
//! and passes them to the next process.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::fstat;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::PATIENCE;
use super::sealane::{BINARY, Sealane, Settings};

/// A service manager, at a socket of its own.
pub struct ServiceManager {
    socket: UnixDatagram,
    path: PathBuf,
    /// What it keeps, by name.
    pub kept: Vec<(String, OwnedFd)>,
}

impl ServiceManager {
    /// One that listens in `folder`.
    pub fn new(folder: &Path) -> Self {
        let path = folder.join("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, path, kept: Vec::new() }
    }

    /// Starts a process with what was kept, at most two sockets, and waits until it is ready; what
    /// it tells is read by [`ServiceManager::read_until`].
    pub fn start(&self, folder: &Path, settings: &Settings) -> Sealane {
        let mut settings = settings.clone();
        let notify = self.path.display().to_string();
        settings.environment.push(("NOTIFY_SOCKET".into(), notify));
        // A shell has the number that the process will have, and moves what it was given.
        let script = "exec 3<&0 4<&1 </dev/null >/dev/null; export LISTEN_PID=$$; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", BINARY]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        assert!(self.kept.len() <= 2);
        let names: Vec<_> = self.kept.iter().map(|(name, _)| name.as_str()).collect();
        settings.environment.push(("LISTEN_FDNAMES".into(), names.join(":")));
        settings.environment.push(("LISTEN_FDS".into(), names.len().to_string()));
        let mut copies = self.kept.iter().map(|(_, fd)| Stdio::from(fd.try_clone().unwrap()));
        if let Some(first) = copies.next() {
            command.stdin(first);
        }
        if let Some(second) = copies.next() {
            command.stdout(second);
        }
        let mut sealane = Sealane::launch_by(folder, &settings, command);
        sealane.wait_until_said("sealane: ready");
        sealane
    }

    /// Reads what it is told, and does it, until it has been told `text`; returns that message.
    pub fn read_until(&mut self, text: &str) -> String {
        loop {
            let told = self.read();
            if told.contains(text) {
                return told;
            }
        }
    }

    /// How often it has been told `text` in what waits to be read.
    pub fn count_waiting(&mut self, text: &str) -> usize {
        self.socket.set_nonblocking(true).unwrap();
        let mut count = 0;
        let mut message = [0; 4096];
        while let Ok(len) = self.socket.recv(&mut message) {
            count += usize::from(String::from_utf8_lossy(&message[..len]).contains(text));
        }
        self.socket.set_nonblocking(false).unwrap();
        count
    }

    /// The numbers of the sockets that it keeps, as they stand in /proc.
    pub fn kept_sockets(&self) -> Vec<String> {
        let link = |(_, fd): &(String, OwnedFd)| format!("socket:[{}]", fstat(fd).unwrap().st_ino);
        self.kept.iter().map(link).collect()
    }

    fn read(&mut self) -> String {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let len = recvmsg(&self.socket, &mut into, &mut rights, RecvFlags::CMSG_CLOEXEC);
        let len = len.expect("it is told nothing").bytes;
        let told = String::from_utf8_lossy(&bytes[..len]).into_owned();
        let name = told.lines().find_map(|line| line.strip_prefix("FDNAME="));
        let name = name.unwrap_or("stored").to_owned();
        if told.lines().any(|line| line == "FDSTOREREMOVE=1") {
            self.kept.retain(|(known, _)| *known != name);
        }
        let is_kept = told.lines().any(|line| line == "FDSTORE=1");
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message
                && is_kept
            {
                rights.for_each(|fd| self.keep(name.clone(), fd));
            }
        }
        told
    }

    /// One that it keeps already is not kept twice.
    fn keep(&mut self, name: String, fd: OwnedFd) {
        let number = fstat(&fd).unwrap().st_ino;
        let is_same = |(_, kept): &(String, OwnedFd)| fstat(kept.as_fd()).unwrap().st_ino == number;
        if !self.kept.iter().any(is_same) {
            self.kept.push((name, fd));
        }
    }
}
