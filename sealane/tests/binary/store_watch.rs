//! A certificate store that others than Sealane change while it is served, and whose check fails,
//! waits or is refused: what stays in service, what leaves it at once, and what comes back.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use crate::harness::process::Process;
use crate::harness::sealane::{BINARY, Sealane};
use crate::harness::site::{Site, error_text};
use crate::harness::tools;
use crate::harness::{install, wait_for};

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
        install(BINARY.as_ref(), &copy);
        let mut sealane = Sealane::launch(self.path(), &self.settings, &copy);
        sealane.wait_until_said("serve: ready");
        self.sealane = Some(sealane);
        copy
    }

    /// Changes the file while Sealane looks away, as it does while another process writes.
    fn change(&self, change: impl FnOnce(&File)) {
        let lock = File::open(self.store()).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        change(&File::options().write(true).open(self.file()).unwrap());
    }

    /// Waits until somebody waits for the lock of the folder.
    fn wait_until_a_check_waits(&self) {
        // The kernel lists whoever waits for a lock behind an arrow.
        let folder = format!(":{} ", fs::metadata(self.store()).unwrap().ino());
        wait_for("a check that waits", || {
            let locks = fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains("->") && line.contains(&folder)).then_some(())
        });
    }

    fn wait_until_said(&mut self, text: &str, times: usize) {
        self.sealane.as_mut().unwrap().wait_until_said_times(text, times);
    }

    /// Reloads with a fault, by their numbers. Between two of them there is a look.
    fn reload_in_vain(&mut self, reloads: RangeInclusive<usize>) {
        for reload in reloads {
            self.sealane().signal(Signal::HUP);
            self.wait_until_said("with 1 fault", reload);
        }
    }
}

/// Changes nothing in the file but its time of change.
fn touch(file: &File) {
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

const PAGE_BYTES: u64 = 4096;

#[test]
fn a_check_that_fails_is_made_again_and_withdraws_nothing() {
    let mut site = Site::new();
    let copy = site.start_copy();
    set_mode(&copy, 0);
    site.change(touch);
    site.wait_until_said("cannot be checked", 1);
    site.served("kept.test").unwrap();
    // The next check fails as well meanwhile, and is not told. Whatever is told is told in time.
    std::thread::sleep(Duration::from_secs(2));
    set_mode(&copy, 0o755);
    site.wait_until_said("checked now, and in order", 1);
    site.served("kept.test").unwrap();
    assert_eq!(site.sealane().count_said("cannot be checked"), 1, "{:#?}", site.sealane().said());
    assert_eq!(site.sealane().count_said("nothing is served"), 0, "{:#?}", site.sealane().said());
    // A change that is in order at once is not told.
    site.change(touch);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(site.sealane().count_said("in order"), 2, "{:#?}", site.sealane().said());
}

#[test]
fn what_length_and_first_pages_show_needs_no_check() {
    let mut site = Site::new();
    let copy = site.start_copy();
    let whole = fs::read(site.file()).unwrap();
    for round in 1..=2 {
        set_mode(&copy, 0);
        // A check that failed, and that is to be made again later, delays nothing.
        site.change(touch);
        site.wait_until_said("until it is known whether it is in order it is served on", round);
        site.change(|file| match round {
            1 => file.set_len(whole.len() as u64 - PAGE_BYTES).unwrap(),
            _ => (0..2).for_each(|page| file.write_all_at(&[0; 64], page * PAGE_BYTES).unwrap()),
        });
        site.wait_until_said(CUT, round);
        site.served("kept.test").unwrap_err();
        site.reload_in_vain(2 * round - 1..=2 * round);
        assert_eq!(site.sealane().count_said(CUT), round, "{:#?}", site.sealane().said());
        site.change(|file| file.write_all_at(&whole, 0).unwrap());
        set_mode(&copy, 0o755);
        site.wait_until_said("in order again", round);
        site.served("kept.test").unwrap();
    }
}

const CUT: &str = "cut short, or overwritten at its beginning";

#[test]
fn reload_serves_no_withdrawn_store() {
    let mut site = Site::new();
    let before = fs::read(site.file()).unwrap();
    // Two, because LMDB goes by its lock file to one of its two first pages in turn.
    site.import(&["later.test"], &[]);
    site.import(&["last.test"], &[]);
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    // An older copy in the same place, and nothing in the folder that tells of it.
    site.change(|file| {
        file.write_all_at(&before, 0).unwrap();
        fs::remove_file(site.store().join("state")).unwrap();
    });
    site.wait_until_said("an older copy of the store", 1);
    site.served("kept.test").unwrap_err();
    site.reload_in_vain(1..=1);
    site.served("kept.test").unwrap_err();
}

#[test]
fn a_folder_that_takes_the_place_of_a_served_one_is_told_and_disturbs_nobody() {
    let mut site = Site::new();
    let program = site.start_copy();
    // A copy that Sealane changed meanwhile, and remembers as its own change.
    let [copy, before] = ["copied", "before"].map(|name| site.path().join(name));
    fs::create_dir(&copy).unwrap();
    fs::copy(site.file(), copy.join("data.mdb")).unwrap();
    let mut import = Command::new(BINARY);
    import.args(["certificates", "import", "--store"]).arg(&copy);
    import.arg("--key-file").arg(site.key_file()).arg(site.path().join("import.pem"));
    tools::output(&mut import);
    set_mode(&program, 0);
    fs::rename(site.store(), before).unwrap();
    fs::rename(copy, site.store()).unwrap();
    site.wait_until_said(SERVED_ON, 1);
    site.reload_in_vain(1..=2);
    // The next check fails as well meanwhile, and is not told.
    std::thread::sleep(Duration::from_secs(2));
    set_mode(&program, 0o755);
    site.wait_until_said("another file took the place of the store (in order)", 1);
    site.reload_in_vain(3..=4);
    site.served("kept.test").unwrap();
    let said = site.sealane().said();
    assert_eq!(site.sealane().count_said(SERVED_ON), 2, "{said:#?}");
    assert_eq!(site.sealane().count_said("nothing is served"), 0, "{said:#?}");
}

#[test]
fn what_takes_the_place_of_a_withdrawn_store_is_not_served_either_and_that_is_told() {
    let mut site = Site::start();
    let whole = fs::read(site.file()).unwrap();
    site.change(|file| file.set_len(whole.len() as u64 - PAGE_BYTES).unwrap());
    site.wait_until_said("nothing is served from it", 1);
    let copy = site.path().join("copied");
    fs::write(&copy, &whole).unwrap();
    fs::rename(copy, site.file()).unwrap();
    site.wait_until_said(
        "took the place of the store (in order); nothing is served from either",
        1,
    );
    site.served("kept.test").unwrap_err();
    assert_eq!(site.sealane().count_said(SERVED_ON), 0, "{:#?}", site.sealane().said());
}

const SERVED_ON: &str = "the one that was there before is served on";

#[test]
fn a_check_waits_for_a_writer_and_for_nobody_who_reads() {
    let site = Site::new();
    let lock = File::open(site.store()).unwrap();
    flock(&lock, FlockOperation::LockShared).unwrap();
    assert_eq!(site.run(&["list"]).lines().count(), 1);

    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["certificates", "examine", "--"]).arg(site.store()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let _child = Process::new(child);
    site.wait_until_a_check_waits();
    let said = rustix::io::ioctl_fionread(output.get_ref()).unwrap();
    assert_eq!(said, 0, "it says that it began while it waits");
    drop(lock);
    let mut lines = output.by_ref().lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    assert!(lines.next().unwrap().unwrap().contains("\"certificates\":1"));
}

#[test]
fn a_lock_file_that_promises_more_readers_than_it_has_ends_no_command() {
    let site = Site::start();
    site.served("kept.test").unwrap();
    let lock_file = File::options().write(true).open(site.store().join("lock.mdb")).unwrap();
    // How many places of readers were ever taken.
    lock_file.write_all_at(&0x00ff_ffff_u32.to_ne_bytes(), 16).unwrap();
    for words in [&["list"][..], &["remove", "kept.test"], &["verify"]] {
        let output = tools::run(&mut site.command(words));
        let said = error_text(&output);
        assert_eq!(output.status.signal(), None, "{words:?}: {said}");
        assert!(said.contains("remove lock.mdb"), "{words:?}: {said}");
    }
    lock_file.write_all_at(&3_u32.to_ne_bytes(), 16).unwrap();
    site.run(&["list"]);
}

#[test]
fn a_store_whose_lock_file_is_cut_or_replaced_is_not_read_from() {
    let path = |site: &Site, name: &str| site.store().join(name);
    for is_cut in [true, false] {
        let mut site = Site::start();
        site.served("kept.test").unwrap();
        match is_cut {
            true => {
                let file = File::options().write(true).open(path(&site, "lock.mdb")).unwrap();
                file.set_len(0).unwrap();
            }
            false => {
                // At once, so that there is never a time without one.
                fs::copy(path(&site, "lock.mdb"), path(&site, "lock.new")).unwrap();
                fs::rename(path(&site, "lock.new"), path(&site, "lock.mdb")).unwrap();
                site.import(&["new.test"], &[]);
            }
        }
        site.wait_until_said(LOST, 1);
        site.served("kept.test").unwrap_err();
        site.reload_in_vain(1..=2);
        assert_eq!(site.sealane().count_said(LOST), 1, "{:#?}", site.sealane().said());
        site.served("kept.test").unwrap_err();
        assert_eq!(site.sealane.take().unwrap().stop(), Some(0), "cut: {is_cut}");
    }
}

const LOST: &str = "nothing is served from a certificate store: ";

#[test]
fn a_check_at_the_start_is_made_beside_whatever_else_there_is_to_do() {
    let mut site = Site::new();
    let go = site.path().join("go");
    let script = format!(
        "until test -e {}; do sleep 0.05; done; cat {}",
        go.display(),
        site.key_file().display()
    );
    site.settings.more = format!("store_key = {{ command = [\"sh\", \"-c\", {script:?}] }}");
    let lock = File::open(site.store()).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut sealane = Sealane::launch(site.path(), &site.settings, Path::new(BINARY));
    // Nobody has said yet which sealing keys there are.
    site.wait_until_a_check_waits();
    fs::write(go, "").unwrap();
    drop(lock);
    sealane.wait_until_said("serve: ready");
    site.sealane = Some(sealane);
    site.served("kept.test").unwrap();
}
