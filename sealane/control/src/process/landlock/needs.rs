//! What a configuration needs of the file system: [`of`] it, and [`all`] that its process needs.
//!
//! Files are replaced by renaming, and links by relinking, so what is needed is folders: those of
//! all files, and where links lead from one to another what both have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf, absolute};

use landlock::{AccessFs, BitFlags, make_bitflags};
use sealane_config::{AccessLogDestination, ChallengeSource, Config, KeySource, RootPlace};
use sealane_lanes::kernel::Address;
use sealane_listeners as listener;
use sealane_sandbox::{KEPT, Need, READ, STORE, folders};

/// What `config`, which was read from `file`, names, and what for.
pub(super) fn of(file: Option<&Path>, config: &Config) -> BTreeSet<(PathBuf, Need)> {
    let mut needs = BTreeSet::new();
    let mut need = |path: &Path, need| {
        // One that is empty has been refused.
        needs.extend(absolute(path).ok().map(|path| (path, need)));
    };
    let read = file.into_iter().chain(config.included.iter().map(|path| &**path));
    read.for_each(|path| need(path, Need::Read));
    for listener in &config.listeners {
        listener::files(listener).iter().for_each(|path| need(path, Need::Read));
        if let Some(ChallengeSource::Folder(path)) = &listener.acme_responder {
            need(path, Need::Challenges);
        }
        listener.store.iter().for_each(|path| need(path, Need::Store));
        for address in &listener.addresses {
            if let Address::Unix(path) = address {
                need(path, Need::Socket);
            }
        }
    }
    config.admin.socket.iter().for_each(|socket| need(&socket.path, Need::Socket));
    match &config.tickets.root {
        None => {}
        Some(RootPlace::File(path)) => need(path, Need::TicketRoot),
        Some(RootPlace::Store(path)) => need(path, Need::Store),
    }
    if let Some(KeySource::File(path)) = &config.store_key {
        need(path, Need::Read);
    }
    if let Some(AccessLogDestination::File(path)) =
        config.access_log.as_ref().map(|log| &log.destination)
    {
        need(path, Need::Log);
    }
    needs
}

/// Everything that a process with `config` needs, and every process of ours: to find names, to ask
/// which resources it has, and to run itself once more.
pub(super) fn all(file: Option<&Path>, config: &Config) -> BTreeMap<PathBuf, BitFlags<AccessFs>> {
    let mut open: BTreeMap<PathBuf, BitFlags<AccessFs>> = BTreeMap::new();
    let mut grant = |path: PathBuf, access| *open.entry(path).or_default() |= access;
    for (path, need) in of(file, config) {
        folders(&path, need).into_iter().for_each(|folder| grant(folder, need.access()));
    }
    config.process.sandbox_read.iter().for_each(|path| grant(path.clone(), READ));
    for (name, access) in FOLDERS_OF_THE_MANAGER {
        let folders = env::var_os(name).unwrap_or_default();
        let folders = folders.as_bytes().split(|byte| *byte == b':');
        let folders = folders.filter(|folder| folder.starts_with(b"/"));
        folders.for_each(|folder| grant(PathBuf::from(OsStr::from_bytes(folder)), access));
    }
    for path in OF_THE_SYSTEM {
        grant(path.into(), READ);
    }
    for path in OF_NAMES.iter().chain(&listener::SYSTEM_BUNDLES) {
        folders(Path::new(path), Need::Read).into_iter().for_each(|path| grant(path, READ));
    }
    grant("/dev/null".into(), READ | AccessFs::WriteFile);
    if config.process.allow_core_dump {
        folder_of_cores().into_iter().for_each(|folder| grant(folder, KEPT));
    }
    // It examines stores in a process of its own, and loads what finds names when it is asked to.
    let run = READ | AccessFs::Execute;
    libraries().into_iter().for_each(|folder| grant(folder, run));
    grant(OWN_PROGRAM.into(), run);
    open
}

/// Where the kernel leaves core dumps, by the rights of the process; none if it gives them to a
/// program.
fn folder_of_cores() -> Option<PathBuf> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").ok()?;
    let path = absolute(Path::new(pattern.trim_end())).ok()?;
    path.parent().filter(|_| !pattern.starts_with(['|', '@'])).map(Path::to_owned)
}

/// Where the libraries are that this program has loaded, its interpreter among them.
fn libraries() -> BTreeSet<PathBuf> {
    let own = fs::read_link(OWN_PROGRAM).unwrap_or_default();
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let files = maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let others = files.filter(|file| *file != own);
    others
        .filter_map(|file| file.parent().filter(|folder| folder.is_dir()))
        .map(Path::to_owned)
        .collect()
}

/// What a service manager gives a service, by the names of variables; a reload may use them.
const FOLDERS_OF_THE_MANAGER: [(&str, BitFlags<AccessFs>); 5] = [
    ("CONFIGURATION_DIRECTORY", READ),
    ("CREDENTIALS_DIRECTORY", READ),
    ("LOGS_DIRECTORY", make_bitflags!(AccessFs::{WriteFile | MakeReg})),
    ("RUNTIME_DIRECTORY", make_bitflags!(AccessFs::{MakeSock | RemoveFile})),
    ("STATE_DIRECTORY", STORE),
];
/// Files by which names are found; they may be links.
const OF_NAMES: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"];
/// What the system's library and Rust's read: programs replace single files in /etc by renaming, so
/// it is all of that.
const OF_THE_SYSTEM: [&str; 6] =
    ["/dev/random", "/dev/urandom", "/etc", "/proc", "/sys/devices/system/cpu", "/sys/fs/cgroup"];
const OWN_PROGRAM: &str = "/proc/self/exe";
