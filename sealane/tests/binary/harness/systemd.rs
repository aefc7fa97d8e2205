//! What systemd does for a service, as far as tests need it: it is told states, keeps descriptors,
//! and passes them to the next process.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::fstat;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::PATIENCE;
use super::sealane::{BINARY, Sealane, Settings};

/// A service manager, at a socket of its own. It does what it is told at once.
pub struct ServiceManager {
    address: SocketAddr,
    kept: Arc<Mutex<Kept>>,
    /// What it was told.
    told: Receiver<String>,
}

/// What it keeps, by name.
pub type Kept = Vec<(String, OwnedFd)>;

impl ServiceManager {
    /// One that listens in `folder`.
    pub fn new(folder: &Path) -> Self {
        Self::at(SocketAddr::from_pathname(folder.join("notify.sock")).unwrap())
    }

    /// One at an address that is no file, but of which `folder` makes sure that nobody else has it.
    pub fn abstract_in(folder: &Path) -> Self {
        let name = folder.join("notify").into_os_string();
        Self::at(SocketAddr::from_abstract_name(name.as_bytes()).unwrap())
    }

    fn at(address: SocketAddr) -> Self {
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let kept = Arc::<Mutex<Kept>>::default();
        let (sender, told) = channel();
        let keeps = Arc::clone(&kept);
        std::thread::spawn(move || {
            loop {
                let told = hear(&socket, &keeps);
                // Nothing is what it tells itself in the end.
                if told.is_empty() || sender.send(told).is_err() {
                    return;
                }
            }
        });
        Self { address, kept, told }
    }

    /// What it keeps, and may be made to keep.
    pub fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    /// The names of what it keeps.
    pub fn kept_names(&self) -> Vec<String> {
        self.kept().iter().map(|(name, _)| name.clone()).collect()
    }

    /// Starts a process with what was kept, at most two sockets, and waits until it is ready; what
    /// it tells is read by [`ServiceManager::read_until`].
    pub fn start(&self, folder: &Path, settings: &Settings) -> Sealane {
        let mut sealane = self.launch(folder, settings);
        sealane.wait_until_said("serve: ready");
        sealane
    }

    /// Starts a process with what was kept, without waiting for it.
    pub fn launch(&self, folder: &Path, settings: &Settings) -> Sealane {
        let mut settings = settings.clone();
        let notify = match (self.address.as_pathname(), self.address.as_abstract_name()) {
            (Some(path), _) => path.to_str().unwrap().to_owned(),
            (None, name) => format!("@{}", String::from_utf8_lossy(name.unwrap())),
        };
        settings.environment.push(("NOTIFY_SOCKET".into(), notify));
        // A shell has the number that the process will have, and moves what it was given.
        let script = "exec 3<&0 4<&1 </dev/null >/dev/null; export LISTEN_PID=$$; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", BINARY]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let names = self.kept_names();
        assert!(names.len() <= 2);
        settings.environment.push(("LISTEN_FDNAMES".into(), names.join(":")));
        settings.environment.push(("LISTEN_FDS".into(), names.len().to_string()));
        {
            let kept = self.kept();
            let mut copies = kept.iter().map(|(_, fd)| Stdio::from(fd.try_clone().unwrap()));
            if let Some(first) = copies.next() {
                command.stdin(first);
            }
            if let Some(second) = copies.next() {
                command.stdout(second);
            }
        }
        Sealane::launch_by(folder, &settings, command)
    }

    /// Reads what it was told up to a message that contains `text`, and returns that.
    pub fn read_until(&self, text: &str) -> String {
        loop {
            let told = self.told.recv_timeout(PATIENCE).expect("it is told nothing");
            if told.contains(text) {
                return told;
            }
        }
    }

    /// How often it has been told `text` in what waits to be read.
    pub fn count_waiting(&self, text: &str) -> usize {
        self.told.try_iter().filter(|told| told.contains(text)).count()
    }

    /// The numbers of the sockets that it keeps, as they stand in /proc.
    pub fn kept_sockets(&self) -> Vec<String> {
        let link = |(_, fd): &(String, OwnedFd)| format!("socket:[{}]", fstat(fd).unwrap().st_ino);
        self.kept().iter().map(link).collect()
    }
}

impl Drop for ServiceManager {
    fn drop(&mut self) {
        // Or else its thread would listen for as long as the tests run.
        let _ = UnixDatagram::unbound().unwrap().send_to_addr(b"", &self.address);
    }
}

/// Does what is told next, and returns it.
fn hear(socket: &UnixDatagram, kept: &Mutex<Kept>) -> String {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let len = recvmsg(socket, &mut into, &mut rights, RecvFlags::CMSG_CLOEXEC).unwrap().bytes;
    let told = String::from_utf8_lossy(&bytes[..len]).into_owned();
    let name = told.lines().find_map(|line| line.strip_prefix("FDNAME="));
    let name = name.unwrap_or("stored").to_owned();
    let mut kept = kept.lock().unwrap();
    if told.lines().any(|line| line == "FDSTOREREMOVE=1") {
        kept.retain(|(known, _)| *known != name);
    }
    // What comes with anything else closes here, as a barrier has it.
    let is_kept = told.lines().any(|line| line == "FDSTORE=1");
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message
            && is_kept
        {
            rights.for_each(|fd| keep(&mut kept, name.clone(), fd));
        }
    }
    told
}

/// One that is kept already is not kept twice.
fn keep(kept: &mut Kept, name: String, fd: OwnedFd) {
    let number = fstat(&fd).unwrap().st_ino;
    let is_same = |(_, kept): &(String, OwnedFd)| fstat(kept.as_fd()).unwrap().st_ino == number;
    if !kept.iter().any(is_same) {
        kept.push((name, fd));
    }
}
