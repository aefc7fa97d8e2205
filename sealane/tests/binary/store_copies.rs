//! `sealane certificates backup` and `restore`: copies made and put back while a store is served.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

use crate::harness::sealane::{BINARY, Sealane};
use crate::harness::site::{Site, error_text};
use crate::harness::tools;

impl Site {
    fn copy(&self) -> PathBuf {
        self.path().join("copy")
    }

    fn back_up(&self) -> PathBuf {
        self.run(&["backup", self.copy().to_str().unwrap()]);
        self.copy()
    }

    /// What a restore from `file` prints, and what was there before by the name that it prints.
    fn restore(&self, file: &Path) -> (String, PathBuf) {
        let printed = self.run(&["restore", file.to_str().unwrap()]);
        let kept = printed.split_whitespace().find(|word| word.contains(".replaced-"));
        let kept = kept.unwrap_or_default().into();
        (printed, kept)
    }

    fn restore_in_vain(&self, file: &Path, key: &Path) -> String {
        let mut command = Command::new(BINARY);
        command.args(["certificates", "restore", "--key-file"]).arg(key);
        let output = tools::run(command.arg("--store").arg(self.path().join("store")).arg(file));
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        error_text(&output)
    }

    /// The names that are served, and that every key opens.
    fn names(&self) -> Vec<String> {
        let verified: Value = serde_json::from_str(&self.run(&["verify", "--json"])).unwrap();
        assert_eq!(verified["problems"].as_array().unwrap().len(), 0, "{verified}");
        let listed = self.run(&["list"]);
        let mut names: Vec<String> = listed
            .lines()
            .filter_map(|line| line.split_whitespace().last())
            .map(Into::into)
            .collect();
        names.sort();
        names
    }

    /// Everything in the folder that a command made and should not have left.
    fn left_over(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap());
        let hidden = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."));
        hidden.map(|entry| entry.path()).collect()
    }
}

#[test]
fn a_copy_is_restored_while_the_store_is_served_and_so_is_what_was_there() {
    let site = Site::start();
    let first = site.served("kept.test").unwrap();
    let copy = site.back_up();
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let second = site.import(&["kept.test"], &[]);
    site.import(&["later.test"], &[]);
    site.served("later.test").unwrap();

    let before = fs::read(&copy).unwrap();
    let again: Output = tools::run(&mut site.command(&["backup", copy.to_str().unwrap()]));
    assert_eq!(again.status.code(), Some(3));
    assert!(error_text(&again).contains("add --replace"), "{}", error_text(&again));
    assert_eq!(fs::read(&copy).unwrap(), before);

    let (printed, kept) = site.restore(&copy);
    assert!(printed.contains("1 certificate, 1 name, restored from"), "{printed}");
    assert_eq!(site.served("kept.test").unwrap(), first);
    site.served("later.test").unwrap_err();
    assert_eq!(site.names(), ["kept.test"]);
    site.restore(&kept);
    assert_eq!(site.served("kept.test").unwrap(), second);
    site.served("later.test").unwrap();
    site.run(&["backup", "--replace", copy.to_str().unwrap()]);
    assert_ne!(fs::read(&copy).unwrap(), before);

    // Whoever serves sees changes of Sealane's own, and nothing to check or to complain of.
    let said = site.sealane().said();
    assert_eq!(site.sealane().count_said("store"), 0, "{said:#?}");
    assert_eq!(site.sealane().metrics().sum("sealane_store_failures_total", &[]), 0);
    assert_eq!(site.left_over(), Vec::<PathBuf>::new());
}

#[test]
fn a_copy_that_is_not_in_order_to_the_last_key_changes_nothing() {
    let site = Site::new();
    let whole = fs::read(site.back_up()).unwrap();
    site.import(&["later.test"], &[]);
    let store = fs::read(site.path().join("store/data.mdb")).unwrap();
    let key = site.key_file();
    // A sealed key ends before the path that its certificate came from.
    let label = site.path().as_os_str().as_encoded_bytes();
    let label = whole.windows(label.len()).position(|part| part == label).unwrap();
    let mut broken = whole.clone();
    broken[label - 3] ^= 1;
    let other = site.path().join("other-key");
    fs::write(&other, "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=").unwrap();
    fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
    for (bytes, key, why) in [
        (&whole[..whole.len() - 4096], &key, "damaged"),
        (&broken[..], &key, "a private key's seal is broken"),
        (&whole[..], &other, "which is not given"),
        (b"", &key, "no certificate store"),
    ] {
        fs::write(site.copy(), bytes).unwrap();
        let said = site.restore_in_vain(&site.copy(), key);
        assert!(said.contains("nothing was restored") && said.contains(why), "{why}: {said}");
    }
    let large = site.path().join("large");
    fs::File::create(&large).unwrap().set_len((16 << 30) + 1).unwrap();
    let pipe = site.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    for (file, why) in [
        (&site.path().join("absent"), "absent: No such file"),
        (&site.path().to_owned(), "is no file; name a copy that `backup` made"),
        (&pipe, "pipe: is no file"),
        (&large, "large: has 17179869185 bytes, a store at most 17179869184; name a copy"),
    ] {
        let said = site.restore_in_vain(file, &key);
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(fs::read(site.path().join("store/data.mdb")).unwrap(), store);
    assert_eq!(site.left_over(), Vec::<PathBuf>::new());
}

#[test]
fn a_store_that_is_lost_or_damaged_or_another_one_makes_room_and_is_kept() {
    let mut site = Site::new();
    let copy = site.back_up();
    let store = site.path().join("store");
    fs::remove_dir_all(&store).unwrap();
    let (printed, kept) = site.restore(&copy);
    assert!(!printed.contains("restart"), "{printed}");
    assert_eq!((site.names(), kept), (vec!["kept.test".to_owned()], PathBuf::new()));

    let data = fs::File::options().write(true).open(store.join("data.mdb")).unwrap();
    data.set_len(4096).unwrap();
    let listed = tools::run(&mut site.command(&["list"]));
    let said = error_text(&listed);
    assert!(said.contains("sealane certificates restore"), "no word of the remedy: {said}");
    let (printed, kept) = site.restore(&copy);
    assert!(printed.contains("restart what serves from it"), "{printed}");
    assert_eq!(fs::metadata(kept.join("data.mdb")).unwrap().len(), 4096);
    assert_eq!(site.names(), ["kept.test"]);
    fs::remove_dir_all(&kept).unwrap();

    fs::remove_dir_all(&store).unwrap();
    site.import(&["another.test"], &["--create"]);
    let (_, kept) = site.restore(&copy);
    assert!(kept.join("data.mdb").exists());
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    site.served("kept.test").unwrap();
    site.served("another.test").unwrap_err();
}

#[test]
fn a_store_that_is_shared_with_a_group_is_so_in_its_new_folder_too() {
    let site = Site::new();
    let copy = site.back_up();
    let store = site.path().join("store");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    fs::set_permissions(&store, Permissions::from_mode(0o2770)).unwrap();
    let data = fs::File::options().write(true).open(store.join("data.mdb")).unwrap();
    data.set_len(4096).unwrap();
    let (_, kept) = site.restore(&copy);
    assert_eq!((mode(&store), mode(&kept)), (0o2770, 0o2770));
    for name in ["data.mdb", "lock.mdb"] {
        assert_eq!(mode(&store.join(name)), 0o660, "{name}");
    }
    // What is copied out of it is for one user.
    assert_eq!(mode(&copy), 0o600);
    assert_eq!(site.names(), ["kept.test"]);
}

#[test]
fn copies_that_are_made_while_others_write_are_whole() {
    let site = Site::start();
    let other = site.path().join("other");
    std::thread::scope(|scope| {
        let writer =
            scope.spawn(|| (0..20).for_each(|n| drop(site.import(&[&format!("n{n}.test")], &[]))));
        while !writer.is_finished() {
            site.run(&["backup", "--replace", site.copy().to_str().unwrap()]);
            let mut command = Command::new(BINARY);
            command.args(["certificates", "restore", "--store"]).arg(&other);
            let printed =
                tools::output(command.arg("--key-file").arg(site.key_file()).arg(site.copy()));
            assert!(printed.contains("restored from"), "{printed}");
        }
    });
    assert_eq!(site.names().len(), 21);
}
