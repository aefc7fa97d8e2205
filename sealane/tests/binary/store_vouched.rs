//! A certificate store that is known to be in order: it is served at once, and examined beside.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::process::Command;
use std::sync::Arc;

use sealane_store::{KeyedStore, SealingKeys, Store};

use crate::harness::sealane::{BINARY, Sealane};
use crate::harness::site::{Site, error_text};
use crate::harness::{tools, wait_for};

impl Site {
    /// Waits until the folder says so.
    fn wait_for_state(&self, line: &str) {
        let path = self.path().join("store/state");
        wait_for(line, || fs::read_to_string(&path).ok()?.lines().any(|l| l == line).then_some(()));
    }

    /// Lets the folder say that Sealane made the file as it is, and found it in order or not.
    fn forge_state(&self, is_vouched: bool) {
        let facts = fs::metadata(self.path().join("store/data.mdb")).unwrap();
        let changed_ns = i128::from(facts.ctime()) * 1_000_000_000 + i128::from(facts.ctime_nsec());
        let path = self.path().join("store/state");
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| match line.split_once(' ') {
            Some(("file", _)) => {
                format!("file {} {} {} {changed_ns}\n", facts.dev(), facts.ino(), facts.len())
            }
            Some(("examined", _)) => {
                format!("examined {}\n", if is_vouched { "yes" } else { "no" })
            }
            _ => format!("{line}\n"),
        });
        fs::write(&path, lines.collect::<String>()).unwrap();
    }

    fn flip(&self, at: u64) {
        let path = self.path().join("store/data.mdb");
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }

    /// Leads `kept.test` to a certificate that is not there, as a disk would that gives back other
    /// bytes than it got. Returns the byte in which one bit is another.
    fn damage_name(&self) -> u64 {
        let path = self.path().join("store/data.mdb");
        let whole = fs::read(&path).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let name = b"kept.test";
        let places = (0..whole.len() - 64).filter(|at| whole[*at..].starts_with(name));
        for at in places.map(|at| at + name.len() + 16) {
            file.write_all_at(&[whole[at] ^ 1], at as u64).unwrap();
            let found = tools::run(&mut self.command(&["list"]));
            if error_text(&found).contains("a name leads to no certificate") {
                return at as u64;
            }
            file.write_all_at(&whole[at..=at], at as u64).unwrap();
        }
        panic!("no row of kept.test");
    }
}

#[test]
fn a_store_is_vouched_for_until_somebody_else_changes_it() {
    let mut site = Site::new();
    site.wait_for_state("examined yes");
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    site.wait_for_state("examined yes");
    site.import(&["new.test"], &[]);
    site.wait_for_state("examined yes");
    // Looked at, but not by somebody who can vouch for what was done to it.
    let file = File::open(site.path().join("store/data.mdb")).unwrap();
    site.sealane = None;
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    site.import(&["newer.test"], &[]);
    site.wait_for_state("examined no");
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    site.wait_for_state("examined yes");
    for name in ["kept.test", "new.test", "newer.test"] {
        site.served(name).unwrap();
    }
}

#[test]
fn what_is_vouched_for_and_damaged_all_the_same_is_withdrawn_and_served_by_no_next_process() {
    let site = Site::new();
    site.import(&["other.test"], &[]);
    site.damage_name();
    site.forge_state(true);
    let mut sealane = Sealane::start(site.path(), &site.settings);
    sealane.wait_until_said("a name leads to no certificate");
    sealane.wait_until_said("nothing is served from it until it is in order");
    site.served("other.test").unwrap_err();
    site.wait_for_state("examined no");
    // Had it been ended by the damage, the next one would know.
    assert_eq!(sealane.stop(), Some(0));
    site.settings.write(site.path());
    let mut next = Sealane::start(site.path(), &site.settings);
    next.wait_until_said("a name leads to no certificate");
    assert_eq!(next.metrics().sum("sealane_material_faults", &[]), 1);
}

/// What is written right behind it would else hide it.
#[test]
fn a_change_of_somebody_else_is_not_taken_for_one_of_sealane() {
    let site = Site::new();
    let at = site.damage_name();
    site.flip(at);
    site.forge_state(true);
    let mut sealane = Sealane::start(site.path(), &site.settings);
    site.wait_for_state("examined yes");
    let keys = SealingKeys::from_text(&fs::read_to_string(site.key_file()).unwrap()).unwrap();
    let store = Store::open(&site.path().join("store")).unwrap();
    let store = KeyedStore::new(Arc::new(store), keys).unwrap();
    site.flip(at);
    store.keep(&[], 0, &[("a", Some(b"written behind it"))]).unwrap();
    sealane.wait_until_said("nothing is served from it until it is in order");
    site.wait_for_state("examined no");
    site.served("kept.test").unwrap_err();
    site.flip(at);
    sealane.wait_until_said("in order again, and served");
    site.wait_for_state("examined yes");
    site.served("kept.test").unwrap();
}

/// `check` reads all of it, whatever was said before.
#[test]
fn a_check_believes_nobody() {
    let site = Site::new();
    site.damage_name();
    site.forge_state(true);
    site.settings.write(site.path());
    let mut check = Command::new(BINARY);
    let found =
        tools::run(check.arg("check").arg("--config").arg(site.path().join("sealane.toml")));
    let text = String::from_utf8_lossy(&found.stdout).into_owned() + &error_text(&found);
    assert_eq!(found.status.code(), Some(3), "{text}");
    assert!(text.contains("a name leads to no certificate"), "{text}");
    site.wait_for_state("examined yes");
}
