//! A certificate store that others than Sealane change while it is served, and whose check fails,
//! waits or is refused: what stays in service, what leaves it at once, and what comes back.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::harness::sealane::{BINARY, Sealane};
use crate::harness::site::Site;

impl Site {
    fn store(&self) -> PathBuf {
        self.path().join("store")
    }

    fn file(&self) -> PathBuf {
        self.store().join("data.mdb")
    }

    /// Serves from a copy of the program, and returns its path: while it may not be run, the store
    /// cannot be checked.
    fn start_copy(&mut self) -> PathBuf {
        let copy = self.path().join("copy");
        fs::copy(BINARY, &copy).unwrap();
        let mut sealane = Sealane::launch(self.path(), &self.settings, &copy);
        sealane.wait_until_said("sealane: ready");
        self.sealane = Some(sealane);
        copy
    }

    /// Changes the file while Sealane looks away, as it does while another process writes.
    fn change(&self, change: impl FnOnce(&File)) {
        let lock = File::open(self.store()).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        change(&File::options().write(true).open(self.file()).unwrap());
    }

    fn wait_until_said(&mut self, text: &str, times: usize) {
        self.sealane.as_mut().unwrap().wait_until_said_times(text, times);
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_check_that_fails_is_made_again_and_withdraws_nothing() {
    let mut site = Site::new();
    let copy = site.start_copy();
    set_mode(&copy, 0);
    // Nothing in the file changes, but its time of change does.
    site.change(|file| file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap());
    site.wait_until_said("cannot be checked", 1);
    site.served("kept.test").unwrap();
    set_mode(&copy, 0o755);
    site.wait_until_said("in order", 1);
    site.served("kept.test").unwrap();
    assert_eq!(site.sealane().count_said("cannot be checked"), 1, "{:#?}", site.sealane().said());
    assert_eq!(site.sealane().count_said("nothing is served"), 0, "{:#?}", site.sealane().said());
}
