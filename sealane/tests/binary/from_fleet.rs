//! What a fleet gives by way of a certificate store: looked at first, then served, answered, and
//! left again if it does no good.

mod beside;
mod starts;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sealane_store::{Answer, Given, HELD, Proposed, SETTLED, Trouble};
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::{tools, wait_for};

/// A machine that includes what a fleet gives, and has a certificate in `site.pem`.
struct Site {
    authority: Authority,
    backend: Backend,
    folder: TempDir,
    settings: Settings,
    store: PathBuf,
}

impl Site {
    fn new() -> Self {
        let (folder, backend) = (tempfile::tempdir().unwrap(), Backend::echo_for_many());
        let (authority, certificates) = (Authority::new(), folder.path().join("site.pem"));
        fs::write(&certificates, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let store = folder.path().join("store");
        fs::create_dir(&store).unwrap();
        let listener = ListenerSettings::new("own", &certificates, &backend.address);
        let mut settings = Settings::new(vec![listener]);
        settings.more = format!("watch = false\ninclude = [\"store:{}\"]", store.display());
        Self { authority, backend, folder, settings, store }
    }

    /// Another on the same machine, which serves from the same store.
    fn beside(&self) -> Self {
        let mut other = Self::new();
        other.settings.more =
            format!("watch = false\ninclude = [\"store:{}\"]", self.store.display());
        other.store.clone_from(&self.store);
        other
    }

    /// Does what removing a store does, or a copy takes its place.
    fn empty_the_store(&self) {
        for entry in fs::read_dir(&self.store).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }

    /// Starts it, and waits until it has looked at what lies there.
    fn start(&self) -> Sealane {
        let sealane = Sealane::start(self.folder.path(), &self.settings);
        wait_for("an answer", || Answer::read(&self.store));
        sealane
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A text of this number: one listener, called by the number, with the certificate of a file.
    fn given(&self, number: u64, file: &str) -> Given {
        let text = format!(
            "[[listener]]\nname = \"given-{number}\"\naddress = \"127.0.0.1:0\"\n\
             certificates = [\"{file}\"]\nbackends = [\"{}\"]\n",
            self.backend.address
        );
        Given { number, text }
    }

    fn hold(&self, number: u64, file: &str) {
        self.given(number, file).put(&self.store, HELD).unwrap();
    }

    /// Gives a text, on trial or to hold.
    fn give(&self, number: u64, is_on_trial: bool) {
        match is_on_trial {
            true => self.propose(number, "site.pem", true),
            false => self.hold(number, "site.pem"),
        }
    }

    fn propose(&self, number: u64, file: &str, is_on_trial: bool) {
        let given = self.given(number, file);
        Proposed { given, is_on_trial }.put(&self.store).unwrap();
    }

    /// Waits until it answers that it serves `holds` and has looked at `checked`; what is wrong.
    fn answered(&self, holds: u64, checked: u64) -> String {
        let is_so = |told: &Answer| (told.holds, told.checked) == (holds, checked);
        wait_for("the answer", || Answer::read(&self.store).filter(is_so)).refusal
    }

    /// Has a text hold until the next process would begin with it.
    fn settle(&self, number: u64, file: &str) {
        self.hold(number, file);
        self.answered(number, 0);
        self.settled(number);
    }

    /// Waits until the next process would begin with this text.
    fn settled(&self, number: u64) {
        wait_for("a text that has settled", || {
            let settled = Given::read(&self.store, SETTLED).unwrap();
            let is_it = settled.is_some_and(|given| given.number == number);
            (is_it && Trouble::read(&self.store).taken.is_none()).then_some(())
        });
    }
}

/// Whether the listener of this text is served.
fn has(sealane: &Sealane, number: u64) -> bool {
    sealane.admin("/state").contains(&format!("\"given-{number}\""))
}

fn is_well(sealane: &Sealane) -> bool {
    sealane.admin("/healthz").ends_with("ok\n")
}

#[test]
fn what_a_fleet_proposes_is_looked_at_and_what_it_gives_is_served() {
    let mut site = Site::new();
    let mut sealane = site.start();
    assert_eq!(site.answered(0, 0), "");
    // What is refused is named by its line, and changes nothing.
    site.propose(5, "absent.pem", false);
    let refusal = site.answered(0, 5);
    assert!(refusal.contains("absent.pem"), "{refusal}");
    assert!(sealane.admin("/healthz").contains("the fleet's configuration 5 is refused here"));
    site.propose(6, "../site.pem", false);
    let refusal = site.answered(0, 6);
    assert!(refusal.contains("store/fleet-proposed.toml:4:17: listener[0].cert"), "{refusal}");
    // What is in order is not served before it holds.
    site.propose(7, "site.pem", false);
    assert_eq!(site.answered(0, 7), "");
    assert!(is_well(&sealane) && !has(&sealane, 7));
    assert_eq!(sealane.count_said("reloaded"), 0);
    Proposed::take_back(&site.store).unwrap();
    site.hold(7, "site.pem");
    site.answered(7, 0);
    sealane.wait_until_reloaded(1);
    assert!(has(&sealane, 7));
    // What holds and is refused leaves what is served, and one that was mended is looked at again.
    site.hold(8, "late.pem");
    assert!(site.answered(7, 8).contains("late.pem"));
    assert!(has(&sealane, 7));
    let told = tools::output(&mut sealane.command(&["reload"]));
    assert!(
        told.contains("configuration 8 is refused here") && told.contains("late.pem"),
        "{told}"
    );
    fs::copy(site.path("site.pem"), site.path("late.pem")).unwrap();
    sealane.signal(Signal::HUP);
    site.answered(8, 0);
    // So is one that the next is in the place of.
    site.hold(9, "absent.pem");
    site.answered(8, 9);
    site.hold(10, "site.pem");
    site.answered(10, 0);
    assert!(is_well(&sealane));
    // Who includes nothing any more answers nothing.
    site.settings.more.clear();
    site.settings.write(site.folder.path());
    sealane.signal(Signal::HUP);
    wait_for("no answer", || Answer::read(&site.store).is_none().then_some(()));
    assert!(!has(&sealane, 10));
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn what_nobody_confirms_any_more_is_left_for_what_was_served_before() {
    let site = Site::new();
    let sealane = site.start();
    site.propose(3, "site.pem", true);
    assert_eq!(site.answered(3, 3), "");
    // With nothing before it, it goes all the same.
    Proposed::take_back(&site.store).unwrap();
    site.answered(0, 0);
    site.hold(4, "site.pem");
    site.answered(4, 0);
    let proposed = Instant::now();
    site.propose(5, "site.pem", true);
    site.answered(5, 5);
    while proposed.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(500));
        site.propose(5, "site.pem", true);
        // A reload meanwhile has it looked at again.
        sealane.signal(Signal::HUP);
        assert!(has(&sealane, 5));
    }
    assert_ne!(Given::read(&site.store, SETTLED).unwrap().map(|given| given.number), Some(5));
    // Its agent is gone, or cut off from the cluster; so is the file with what holds, and that of
    // this machine is not in order.
    fs::remove_file(site.store.join(HELD)).unwrap();
    let own = fs::read_to_string(site.path("sealane.toml")).unwrap();
    fs::write(site.path("sealane.toml"), "nonsense").unwrap();
    site.answered(4, 0);
    assert!(has(&sealane, 4) && !has(&sealane, 5));
    fs::write(site.path("sealane.toml"), own).unwrap();
    // One after another on trial, and none of them holds.
    for number in [6, 7] {
        site.propose(number, "site.pem", true);
        site.answered(number, number);
    }
    Proposed::take_back(&site.store).unwrap();
    site.answered(4, 0);
    assert!(has(&sealane, 4));
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn a_text_with_which_a_process_ended_is_left_by_the_next() {
    let site = Site::new();
    let sealane = site.start();
    site.settle(1, "site.pem");
    assert_eq!(sealane.stop(), Some(0));
    for (number, is_on_trial) in [(2, true), (3, false)] {
        let sealane = site.start();
        site.give(number, is_on_trial);
        wait_for("it to be served", || has(&sealane, number).then_some(()));
        sealane.signal(Signal::KILL);
        drop(sealane);
        assert_eq!(Answer::read(&site.store), None, "with its process an answer is gone");
        let next = site.start();
        site.give(number, is_on_trial);
        let refusal = site.answered(1, number);
        assert!(refusal.contains("ended soon after it had begun"), "{refusal}");
        assert!(has(&next, 1) && !has(&next, number) && !is_well(&next));
        // A third one knows it still.
        next.signal(Signal::KILL);
        drop(next);
        let next = site.start();
        site.give(number, is_on_trial);
        assert!(!site.answered(1, number).is_empty());
        if !is_on_trial {
            // Somebody wants it.
            next.signal(Signal::HUP);
            site.answered(number, 0);
            assert!(has(&next, number) && is_well(&next));
        }
        Proposed::take_back(&site.store).unwrap();
        assert_eq!(next.stop(), Some(0));
    }
    // With one after the other: none of them is forgotten.
    for (number, is_on_trial) in [(4, false), (5, true)] {
        let sealane = site.start();
        site.give(number, is_on_trial);
        wait_for("it to be served", || has(&sealane, number).then_some(()));
        sealane.signal(Signal::KILL);
    }
    let sealane = site.start();
    site.give(5, true);
    assert!(site.answered(1, 5).contains("ended soon after it had begun"));
    Proposed::take_back(&site.store).unwrap();
    assert!(site.answered(1, 4).contains("ended soon after it had begun"));
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn a_trial_that_cannot_be_ended_does_not_become_what_held() {
    let site = Site::new();
    fs::copy(site.path("site.pem"), site.path("other.pem")).unwrap();
    let sealane = site.start();
    site.settle(1, "other.pem");
    site.propose(2, "site.pem", true);
    site.answered(2, 2);
    fs::remove_file(site.path("other.pem")).unwrap();
    Proposed::take_back(&site.store).unwrap();
    assert!(site.answered(2, 1).contains("other.pem"));
    std::thread::sleep(Duration::from_secs(6));
    assert!(has(&sealane, 2) && !is_well(&sealane));
    assert_eq!(Given::read(&site.store, SETTLED).unwrap(), Some(site.given(1, "other.pem")));
    fs::copy(site.path("site.pem"), site.path("other.pem")).unwrap();
    sealane.signal(Signal::HUP);
    site.answered(1, 0);
    assert!(has(&sealane, 1) && !has(&sealane, 2));
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn of_two_that_serve_from_a_store_one_takes_what_a_fleet_gives() {
    let site = Site::new();
    let other = site.beside();
    let first = site.start();
    site.answered(0, 0);
    let second = other.start();
    site.settle(1, "site.pem");
    assert!(has(&first, 1) && !has(&second, 1));
    assert_eq!(first.stop(), Some(0));
    site.answered(1, 0);
    assert!(has(&second, 1));
    assert_eq!(second.stop(), Some(0));
}

#[test]
fn what_is_not_there_any_more_changes_nothing() {
    let site = Site::new();
    let sealane = site.start();
    site.settle(1, "site.pem");
    site.empty_the_store();
    site.settled(1);
    site.answered(1, 0);
    sealane.signal(Signal::HUP);
    wait_for("a reload", || (sealane.count_said("sealane: reloaded") == 2).then_some(()));
    assert!(has(&sealane, 1) && is_well(&sealane));
    // In the midst of a trial, too.
    site.propose(2, "site.pem", true);
    site.answered(2, 2);
    site.empty_the_store();
    site.settled(1);
    assert!(has(&sealane, 1) && !has(&sealane, 2));
    assert_eq!(sealane.stop(), Some(0));
    assert!(!site.store.join(HELD).exists());
    let sealane = site.start();
    assert!(has(&sealane, 1));
    assert_eq!(sealane.count_said("reloaded"), 0, "it starts with it");
    assert_eq!(sealane.stop(), Some(0));
}
