//! Certificate stores that are damaged, cut, older than they were, on a full disk, or whose writer
//! is killed: nothing that Sealane runs ends by them, and nothing in them is half done.
//!
//! `SEALANE_STORE_ROUNDS=1000` makes each of them as many times.
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::harness::certificates::KeyKind;
use crate::harness::sealane::{BINARY, Sealane};
use crate::harness::site::{Site, error_text};
use crate::harness::tools;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::Value;

/// How often each thing is done.
pub(crate) fn rounds() -> usize {
    std::env::var("SEALANE_STORE_ROUNDS").map_or(40, |rounds| rounds.parse().unwrap())
}

/// Numbers as they seem to come, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

const PAGE_BYTES: usize = 4096;

/// A file with the damage of one round: bytes, headers of pages, or its end.
fn damaged(whole: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let at = match chance.below(4) {
        0 => {
            bytes.truncate(chance.below(whole.len()));
            return bytes;
        }
        1 => chance.below(whole.len()),
        _ => chance.below(whole.len() / PAGE_BYTES) * PAGE_BYTES + chance.below(48),
    };
    let to = whole.len().min(at + 1 + chance.below(8));
    bytes[at..to].fill_with(|| u8::try_from(chance.below(256)).unwrap());
    bytes
}

impl Site {
    fn data(&self) -> PathBuf {
        self.path().join("store/data.mdb")
    }

    /// Files with certificates for `n0.test` and so on, in a folder that an import can name.
    pub(crate) fn write_many(&self, folder: &str, count: usize) -> PathBuf {
        let folder = self.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        for number in 0..count {
            let text = self.authority.leaf(KeyKind::P256, &[&format!("n{number}.test")]);
            fs::write(folder.join(format!("{number}.pem")), text).unwrap();
        }
        folder
    }

    /// What is wrong with the store, and how many certificates it has.
    fn verified(&self) -> (Vec<Value>, u64) {
        let json: Value = serde_json::from_str(&self.run(&["verify", "--json"])).unwrap();
        let certificates = json["store"]["certificates"].as_u64().unwrap();
        (json["problems"].as_array().unwrap().clone(), certificates)
    }

    /// The ends of all sealed keys in `file`: each stands before the path that its certificate was
    /// imported from.
    fn ends_of_sealed_keys(&self, file: &[u8]) -> Vec<Vec<u8>> {
        let label = self.path().as_os_str().as_encoded_bytes();
        let places = (END_BYTES + 2..file.len()).filter(|at| file[*at..].starts_with(label));
        places.map(|at| file[at - 2 - END_BYTES..at - 2].to_vec()).collect()
    }
}

const END_BYTES: usize = 20;

/// How many of `ends` stand in `file`.
fn found(file: &[u8], ends: &[Vec<u8>]) -> usize {
    let set: std::collections::HashSet<&[u8]> = ends.iter().map(Vec::as_slice).collect();
    let found: std::collections::HashSet<_> =
        file.windows(END_BYTES).filter(|part| set.contains(part)).collect();
    found.len()
}

#[test]
fn a_damaged_store_ends_nothing_but_the_process_that_checks_it() {
    let site = Site::new();
    let many = site.write_many("many", 40);
    site.run(&["import", many.to_str().unwrap()]);
    site.run(&["remove", "n3.test", "n5.test"]);
    let whole = fs::read(site.data()).unwrap();
    site.settings.write(site.path());
    let (mut chance, mut refused, mut went_on) = (Chance(23), 0, 0);
    for round in 0..rounds() {
        fs::remove_dir_all(site.path().join("store")).unwrap();
        fs::create_dir(site.path().join("store")).unwrap();
        fs::write(site.data(), damaged(&whole, &mut chance)).unwrap();
        let mut command = match round % 6 {
            0 => site.command(&["import", many.to_str().unwrap()]),
            1 => site.command(&["list"]),
            2 => site.command(&["remove", "n7.test"]),
            3 => site.command(&["reseal"]),
            4 => site.command(&["verify"]),
            _ => {
                let mut check = Command::new(BINARY);
                check.arg("check").arg("--config").arg(site.path().join("sealane.toml"));
                check
            }
        };
        let output = tools::run(&mut command);
        assert_eq!(output.status.signal(), None, "round {round}: {}", error_text(&output));
        let said = error_text(&output) + &String::from_utf8_lossy(&output.stdout);
        match output.status.success() {
            true => went_on += 1,
            false => refused += 1,
        }
        assert!(!said.contains("panicked"), "round {round}: {said}");
    }
    println!("{} damaged stores: {refused} refused, {went_on} used, 0 ended", rounds());
    assert!(refused > rounds() / 10, "{refused}");
}

#[test]
fn a_store_that_is_damaged_while_it_is_served_is_withdrawn_until_it_is_in_order() {
    let mut site = Site::new();
    let file = site.path().join("file.pem");
    fs::write(&file, site.authority.leaf(KeyKind::P256, &["file.test"])).unwrap();
    // A second listener, which has files alone.
    let mut listener = site.settings.listeners[0].clone();
    listener.name = "files".into();
    listener.move_to(listener.address.ip());
    listener.certificates = Some(file.clone());
    site.settings.listeners.push(listener);
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    let stored = site.served("kept.test").unwrap();
    let whole = fs::read(site.data()).unwrap();
    let data = fs::File::options().write(true).open(site.data()).unwrap();
    // Sealane looks away while a process has this lock, so that it sees each change once and whole.
    let folder = fs::File::open(site.path().join("store")).unwrap();
    let looks = |how| flock(&folder, how).unwrap();

    // Headers of all pages but the first, which a look reads; then the end of the file. Each is
    // mended again.
    for round in 1..=2 {
        looks(FlockOperation::LockExclusive);
        if round == 1 {
            for page in 2..whole.len() / PAGE_BYTES {
                data.write_all_at(&[0xff; 16], (page * PAGE_BYTES) as u64).unwrap();
            }
        } else {
            data.set_len(PAGE_BYTES as u64).unwrap();
        }
        looks(FlockOperation::Unlock);
        let sealane = site.sealane.as_mut().unwrap();
        sealane.wait_until_said_times("nothing is served from it", round);
        site.served("kept.test").unwrap_err();
        let address = site.settings.listeners[1].address;
        site.connector("file.test").connect(address).unwrap();
        // Between two reloads there is a look, which has nothing new to tell.
        for reload in 2 * round - 1..=2 * round {
            site.sealane().signal(Signal::HUP);
            let sealane = site.sealane.as_mut().unwrap();
            sealane.wait_until_said_times("with 1 fault", reload);
        }
        let sealane = site.sealane.as_mut().unwrap();
        assert_eq!(sealane.count_said("nothing is served from it"), round);
        looks(FlockOperation::LockExclusive);
        data.write_all_at(&whole, 0).unwrap();
        looks(FlockOperation::Unlock);
        sealane.wait_until_said_times("in order again", round);
        assert_eq!(site.served("kept.test").unwrap(), stored);
    }
}

#[test]
fn what_takes_the_place_of_a_served_store_is_told_and_older_copies_are_refused() {
    let mut site = Site::new();
    let before = fs::read(site.data()).unwrap();
    let later = site.import(&["later.test"], &[]);
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    // A restored copy, put there by renaming.
    fs::write(site.path().join("copy"), &before).unwrap();
    fs::rename(site.path().join("copy"), site.data()).unwrap();
    let told = "another file took the place of the store";
    let sealane = site.sealane.as_mut().unwrap();
    sealane.wait_until_said(told);
    assert!(sealane.said().join("\n").contains("an older copy of the store"));
    // Between two reloads there is a look, which has nothing new to tell.
    for reload in 1..=2 {
        site.sealane().signal(Signal::HUP);
        let sealane = site.sealane.as_mut().unwrap();
        sealane.wait_until_said_times("with 1 fault", reload);
    }
    assert_eq!(site.sealane().count_said(told), 1, "{:#?}", site.sealane().said());
    let served = site.served("later.test");
    assert_eq!(served.unwrap(), later, "what was there is served on: {:#?}", site.sealane().said());
    let list = tools::run(&mut site.command(&["list"]));
    assert_eq!(list.status.code(), Some(3));
    assert!(error_text(&list).contains("remove state from the folder"), "{}", error_text(&list));
    fs::remove_file(site.path().join("store/state")).unwrap();
    let list = tools::run(&mut site.command(&["list"]));
    assert!(error_text(&list).contains("another process still serves"), "{}", error_text(&list));
    site.sealane.take().unwrap().stop();
    assert_eq!(site.run(&["list"]).lines().count(), 1);
}

/// Kills commands at any point of what they do, however long that takes on this machine.
pub(crate) struct Killer {
    chance: Chance,
    pub(crate) killed: usize,
    /// How long commands took, by kind.
    whole_us: [usize; 3],
}

impl Killer {
    pub(crate) fn new(seed: u64) -> Self {
        Self { chance: Chance(seed), killed: 0, whole_us: [100_000; 3] }
    }

    /// Runs a command and kills it after a while. One that ends before says how long it takes;
    /// each that does not may have been killed early, so the next one of its kind gets more time.
    pub(crate) fn run(&mut self, kind: usize, mut command: Command) {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let whole_us = &mut self.whole_us[kind];
        let delay = Duration::from_micros(self.chance.below(*whole_us) as u64);
        let started = Instant::now();
        let mut child = command.spawn().unwrap();
        while started.elapsed() < delay && child.try_wait().unwrap().is_none() {
            std::thread::sleep(KILLER_TICK);
        }
        let took_us = usize::try_from(started.elapsed().as_micros()).unwrap();
        // It may have ended by itself.
        let _ = child.kill();
        let was_killed = child.wait().unwrap().signal().is_some();
        self.killed += usize::from(was_killed);
        *whole_us = if was_killed { *whole_us + *whole_us / 8 } else { took_us.max(1) };
    }
}

const KILLER_TICK: Duration = Duration::from_micros(200);

/// Gives `site` other sealing keys, and waits until what serves has them too.
fn change_keys(site: &mut Site, keys: &str) {
    let reloads = site.sealane().count_said("reload: reloaded");
    // In its place at once with the right mode: the server may look at any moment.
    let beside = site.path().join("key.new");
    fs::write(&beside, keys).unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(beside, site.key_file()).unwrap();
    // It would notice by itself, but later.
    site.sealane().signal(Signal::HUP);
    site.sealane.as_mut().unwrap().wait_until_said_times("reload: reloaded", reloads + 1);
}

#[test]
fn a_writer_that_is_killed_leaves_old_or_new_and_nothing_half_done() {
    let mut site = Site::start();
    let folders = [site.write_many("first", 30), site.write_many("second", 30)];
    let keys = [
        "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n",
        "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\n",
    ];
    let mut current = fs::read_to_string(site.key_file()).unwrap();
    site.run(&["import", folders[0].to_str().unwrap()]);
    let mut killer = Killer::new(5);
    for round in 0..rounds() {
        // What is sealed before with a key that goes.
        let old = site.ends_of_sealed_keys(&fs::read(site.data()).unwrap());
        let next = keys[round / 3 % 2];
        let command = match round % 3 {
            0 => site.command(&["import", folders[round / 3 % 2].to_str().unwrap()]),
            1 => {
                change_keys(&mut site, &format!("{next}{current}"));
                site.command(&["reseal"])
            }
            _ => {
                let names: Vec<String> = (0..30).map(|number| format!("n{number}.test")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                site.command(&[&["remove"], &names[killer.chance.below(28)..]].concat())
            }
        };
        // No assertion depends on where this falls; it only has to fall everywhere.
        killer.run(round % 3, command);
        // What serves meanwhile goes on, also over a lock that the killed one left.
        site.served("kept.test").unwrap();
        let (problems, certificates) = site.verified();
        assert_eq!(problems, Vec::<Value>::new(), "round {round}");
        // An import is one transaction, and so is a removal of names; the one of `kept.test` stays.
        let listed = site.run(&["list", "--json"]);
        assert_eq!(listed.lines().count() as u64, certificates, "round {round}");
        for line in listed.lines() {
            let json: Value = serde_json::from_str(line).unwrap();
            assert_eq!(json["names"].as_array().unwrap().len(), 1, "round {round}: {line}");
        }
        if round % 3 == 1 {
            // Finished, it leaves nothing of the old key, whatever the killed one left.
            site.run(&["reseal"]);
            change_keys(&mut site, next);
            assert_eq!(site.verified().0, Vec::<Value>::new(), "round {round}");
            assert!(!old.is_empty());
            assert_eq!(found(&fs::read(site.data()).unwrap(), &old), 0, "round {round}");
            next.clone_into(&mut current);
        }
    }
    println!("{} writers, {} of them killed; 0 half done", rounds(), killer.killed);
    assert!(killer.killed > rounds() / 4, "{}", killer.killed);
    assert_eq!(site.sealane().metrics().sum("sealane_store_failures_total", &[]), 0);
    assert_eq!(site.sealane.take().unwrap().stop(), Some(0));
}

/// The commit is made, and then nothing can be noted: as on a disk that is full, or under a kill.
#[test]
fn a_removal_that_was_interrupted_is_finished_by_the_same_command() {
    let site = Site::new();
    let old = site.ends_of_sealed_keys(&fs::read(site.data()).unwrap());
    assert_eq!(old.len(), 1);
    let beside = site.path().join("store/state.new");
    fs::create_dir(&beside).unwrap();
    let first = tools::run(&mut site.command(&["remove", "kept.test"]));
    assert_eq!(first.status.code(), Some(3));
    assert!(error_text(&first).contains("changed, but state"), "{}", error_text(&first));
    assert!(error_text(&first).contains("run this again"), "{}", error_text(&first));
    fs::remove_dir(&beside).unwrap();
    let second = tools::run(&mut site.command(&["remove", "kept.test"]));
    assert_eq!(second.status.code(), Some(1), "{}", error_text(&second));
    assert!(error_text(&second).contains("not in it: kept.test"), "{}", error_text(&second));
    assert_eq!(found(&fs::read(site.data()).unwrap(), &old), 0, "the private key is still there");
    assert_eq!(site.verified(), (Vec::new(), 0));
}

#[test]
fn a_full_disk_changes_nothing() {
    let site = Site::new();
    let first = site.write_many("first", 40);
    let mut chance = Chance(9);
    let (mut full, mut done) = (0, 0);
    for round in 0..rounds().div_ceil(2) {
        let (problems, before) = site.verified();
        assert_eq!(problems, Vec::<Value>::new());
        let blocks = fs::metadata(site.data()).unwrap().len() / 512;
        // The limit is of each file's length, in blocks of 512 bytes.
        let limit = blocks.saturating_sub(40) + chance.below(120) as u64;
        let command = match round % 2 {
            0 => site.command(&["import", first.to_str().unwrap()]),
            _ => site.command(&["reseal"]),
        };
        let output = limited(&command, limit);
        assert_eq!(output.status.signal(), None, "round {round}: {}", error_text(&output));
        let (problems, after) = site.verified();
        assert_eq!(problems, Vec::<Value>::new(), "round {round}");
        match output.status.success() {
            true => done += 1,
            false => {
                full += 1;
                assert!(after == before || after == 41, "round {round}: {before} {after}");
            }
        }
        if after == 41 && round % 4 == 3 {
            let names: Vec<String> = (0..40).map(|number| format!("n{number}.test")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            site.run(&[&["remove"], names.as_slice()].concat());
        }
    }
    println!("{full} writers found the disk full, {done} did not");
    assert!(full > 0 && done > 0, "{full} {done}");
}

/// Runs `command` so that no file grows over `blocks`, and the signal for that is ignored.
fn limited(command: &Command, blocks: u64) -> Output {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"", "sh"])
        .arg(blocks.to_string())
        .arg(command.get_program())
        .args(command.get_args());
    let mut shell = shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell = shell.env_remove("RUST_BACKTRACE");
    shell.output().unwrap()
}

/// The disk is a real small one, if this user may mount one: in a namespace of its own, so that it
/// is gone with the shell.
#[test]
fn a_small_disk_that_fills_up_keeps_what_it_has() {
    let site = Site::new();
    let many = site.write_many("many", 200);
    let disk = site.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let script = "mount -t tmpfs -o size=300k,mode=755 tmpfs \"$1\" || exit 77
        s=\"$2 certificates\"; k=\"--key-file $3 --store $1/store\"
        $s import --create $k \"$4\"/1.pem || exit 1
        for part in 1 2 3 4 5 6 7 8 9; do
            $s import $k \"$4\"/*$part.pem || echo FULL
        done
        $s verify $k";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .args([disk.as_os_str(), BINARY.as_ref(), site.key_file().as_os_str(), many.as_os_str()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &error_text(&output);
    if output.status.code() == Some(77) || said.contains("unshare") {
        println!("SKIPPED: this user may not mount a disk");
        return;
    }
    assert!(output.status.success() && said.contains("FULL"), "{} {said}", output.status);
    assert!(said.contains("make room on its disk") && said.contains(" in order"), "{said}");
}

#[test]
fn root_opens_no_store_in_whose_place_others_can_put_one() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can show what root does");
        return;
    }
    const NOBODY: u32 = 65_534;
    let site = Site::new();
    let (folder, store) = (site.path().join("folder"), site.path().join("folder/store"));
    fs::create_dir(&folder).unwrap();
    fs::rename(site.path().join("store"), &store).unwrap();
    let list = |path: &std::path::Path| {
        let mut command = Command::new(BINARY);
        tools::run(command.args(["certificates", "list", "--store"]).arg(path))
    };
    for (shared, mode, user, group) in [
        (&folder, 0o777, 0, 0),
        (&folder, 0o775, 0, NOBODY),
        (&folder, 0o755, NOBODY, 0),
        (&store, 0o702, 0, 0),
        (&store, 0o1777, 0, 0),
    ] {
        chown(shared, Some(user), Some(group)).unwrap();
        fs::set_permissions(shared, fs::Permissions::from_mode(mode)).unwrap();
        let said = error_text(&list(&store));
        let expected =
            format!("others than root and the store's user may write to {}", shared.display());
        assert!(said.contains(&expected), "{mode:o} {user} {group}: {said}");
        chown(shared, Some(0), Some(0)).unwrap();
        fs::set_permissions(shared, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(list(&store).status.success(), "what is root's stays where it is in a sticky folder");
    // Where none is yet, others could be first.
    let mut create = Command::new(BINARY);
    create.args(["certificates", "import", "--create", "--store"]).arg(folder.join("new"));
    create.arg("--key-file").arg(site.key_file()).arg(site.path().join("import.pem"));
    assert!(error_text(&tools::run(&mut create)).contains("others than root"));
    // A link of another user's is followed once: later it may lead elsewhere.
    let link = site.path().join("link");
    std::os::unix::fs::symlink(&store, &link).unwrap();
    let mut show = Command::new(BINARY);
    show.args(["certificates", "show", "absent.test", "--store"]).arg(&link);
    let said = error_text(&tools::run(&mut show));
    assert!(said.contains(&format!("{}: nothing is served", store.display())), "{said}");
}

#[test]
fn root_opens_a_store_of_another_user_with_that_users_rights() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can show what root does");
        return;
    }
    const NOBODY: u32 = 65_534;
    let site = Site::new();
    let store = site.path().join("store");
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o711)).unwrap();
    for entry in fs::read_dir(&store).unwrap() {
        chown(entry.unwrap().path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    chown(&store, Some(NOBODY), Some(NOBODY)).unwrap();
    // The key file and the certificates are root's alone.
    site.import(&["new.test"], &[]);
    assert_eq!(fs::metadata(store.join("state")).unwrap().uid(), NOBODY);
    for words in [&["reseal"][..], &["remove", "kept.test"], &["verify"], &["list"]] {
        site.run(words);
        assert_eq!(fs::metadata(store.join("state")).unwrap().uid(), NOBODY, "{words:?}");
    }
    // In a folder of that user's a new store is that user's too.
    let of_nobody = site.path().join("of-nobody");
    fs::create_dir(&of_nobody).unwrap();
    chown(&of_nobody, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = Command::new(BINARY);
    command
        .args(["certificates", "import", "--create", "--store"])
        .arg(of_nobody.join("store"))
        .arg("--key-file")
        .arg(site.key_file())
        .arg(site.path().join("import.pem"));
    tools::output(&mut command);
    assert_eq!(fs::metadata(of_nobody.join("store")).unwrap().uid(), NOBODY);
}
