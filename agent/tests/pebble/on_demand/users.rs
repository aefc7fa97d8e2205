//! An agent and a `sealane serve` of two users, who share the store's folder through a group, and
//! nothing else.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use super::super::harness::agent::{BINARY, Home};
use super::super::harness::{required, serve, wait_for};
use super::{DEFAULT, Rig};

#[test]
fn an_agent_of_its_own_user_is_told_names_in_the_folder_of_the_store_alone() {
    let setpriv = PathBuf::from("/usr/bin/setpriv");
    if !geteuid().is_root() || required(setpriv).is_none() {
        println!("SKIPPED: only root can be somebody else");
        return;
    }
    let serves = |home: &Home| {
        share(home);
        as_user(home, SERVES, &serve::program()?)
    };
    let Some(rig) = Rig::start_by("", "", serves) else { return };
    let home = &rig.home;
    // Whose certificates are its authority's anybody may know.
    fs::set_permissions(rig.authority.path(""), Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(rig.authority.path("ca.pem"), Permissions::from_mode(0o644)).unwrap();
    // It is there when lanes serve, and an agent that was sooner would say so.
    wait_for("the socket", || home.path("store/names.sock").exists().then_some(()));
    let agent = home.start_by(as_user(home, OBTAINS, Path::new(BINARY)).unwrap());
    agent.wait_until_said("looks after 0 certificates");
    let status = fs::read_to_string(format!("/proc/{}/status", agent.process.id())).unwrap();
    assert!(status.contains(&format!("\nUid:\t{OBTAINS}\t{OBTAINS}\t")), "{status}");
    assert_eq!(rig.served("allowed.test"), [DEFAULT]);
    rig.wait_until_served("allowed.test");
    assert!(agent.stop().success());
    assert!(!home.said().contains("on_demand: "), "{}", home.said());

    // As it was told before: at the admin socket, which is for the user who serves.
    let settings = fs::read_to_string(home.path("agent.toml")).unwrap();
    fs::write(home.path("agent.toml"), settings + "admin = [\"admin.sock\"]\n").unwrap();
    let agent = home.start_by(as_user(home, OBTAINS, Path::new(BINARY)).unwrap());
    agent.wait_until_said("admin.sock: this user may not open it: Permission denied");
    // However far that is open, it takes orders of whom it took them.
    fs::set_permissions(home.path("admin.sock"), Permissions::from_mode(0o666)).unwrap();
    let said = agent.wait_until_said("403 Forbidden: orders are taken from root, and from the");
    assert_eq!(said.matches("leave admin out of [on_demand], and names are").count(), 2, "{said}");
    assert!(agent.stop().success());
    // With the user who serves, as a drop-in had it, either way goes on.
    let agent = home.start_by(as_user(home, SERVES, Path::new(BINARY)).unwrap());
    agent.wait_until_said("looks after 1 certificates");
    assert_eq!(rig.served("next.allowed.test"), [DEFAULT]);
    rig.wait_until_served("next.allowed.test");
    assert!(agent.stop().success());
}

/// Lets both into the home, to what each of them needs.
fn share(home: &Home) {
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    // Who serves makes its admin socket there.
    chown(home.folder.path(), Some(SERVES), None).unwrap();
    mode(home.folder.path(), 0o711);
    let store = home.path("store");
    let files = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
    for path in files.chain([home.path("key"), store.clone()]) {
        chown(&path, Some(SERVES), Some(GROUP)).unwrap();
        mode(&path, if path == store { 0o2770 } else { 0o660 });
    }
    mode(&home.path("key"), 0o640);
    mode(&home.path("agent.toml"), 0o644);
    chown(home.path("default.pem"), Some(SERVES), None).unwrap();
}

/// Starts a program as another user; a copy, because a build's own folder is not for everybody.
fn as_user(home: &Home, user: u32, program: &Path) -> Option<Command> {
    let copy = home.path(&format!("{}-{user}", program.file_name()?.display()));
    let installed = Command::new("install").args(["-m", "755"]).args([program, &copy]).status();
    assert!(installed.unwrap().success());
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={user}"));
    command.arg(format!("--groups={GROUP}")).arg("--no-new-privs").arg(copy);
    Some(command)
}

const GROUP: u32 = 70_001;
const OBTAINS: u32 = 70_002;
const SERVES: u32 = 70_003;
