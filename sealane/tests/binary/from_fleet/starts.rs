//! What a process does at its start with what a fleet gave to those before it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use sealane_store::{Given, HELD, Proposed, SETTLED, Trouble};

use super::{Site, has, is_well};
use crate::harness::sealane::{BINARY, Sealane};
use crate::harness::{PATIENCE, wait_for};

#[test]
fn a_trial_that_is_over_is_not_begun_by_a_start() {
    let site = Site::new();
    site.given(1, "site.pem").put(&site.store, SETTLED).unwrap();
    site.propose(2, "site.pem", true);
    let sealane = site.start();
    assert_eq!(site.answered(1, 0), "");
    std::thread::sleep(Duration::from_secs(2));
    assert!(has(&sealane, 1) && !has(&sealane, 2));
    assert_eq!(sealane.count_said("is served, on trial"), 0);
    // Whoever proposes it is there.
    site.propose(2, "site.pem", true);
    site.answered(2, 2);
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn a_linked_folder_needs_a_word_in_the_own_file_once() {
    let mut site = Site::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let inner = elsewhere.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::copy(site.path("site.pem"), inner.join("site.pem")).unwrap();
    symlink(&inner, site.path("linked")).unwrap();
    let sealane = site.start();
    let is_closed = !sealane.admin("/state").contains("\"landlock\":null");
    site.propose(1, "linked/site.pem", false);
    let refusal = site.answered(0, 1);
    assert_eq!(refusal.contains("name its folder in process.sandbox_read"), is_closed, "{refusal}");
    assert_eq!(sealane.stop(), Some(0));
    let own = site.settings.more.clone();
    site.settings.more += &format!("\nprocess.sandbox_read = [{:?}]", elsewhere.path());
    let sealane = site.start();
    site.propose(1, "linked/site.pem", false);
    assert_eq!(site.answered(0, 1), "");
    site.hold(1, "linked/site.pem");
    site.answered(1, 1);
    site.settled(1);
    assert_eq!(sealane.stop(), Some(0));
    // What has settled needs none, though what it leads to comes after the start.
    site.settings.more = own;
    fs::rename(&inner, elsewhere.path().join("away")).unwrap();
    let sealane = site.start();
    assert!(site.answered(0, 1).contains("linked/site.pem"));
    fs::rename(elsewhere.path().join("away"), &inner).unwrap();
    site.answered(1, 0);
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn a_start_is_without_a_text_that_is_refused() {
    let site = Site::new();
    fs::copy(site.path("site.pem"), site.path("other.pem")).unwrap();
    let sealane = site.start();
    site.settle(1, "other.pem");
    assert_eq!(sealane.stop(), Some(0));
    fs::remove_file(site.path("other.pem")).unwrap();
    let sealane = site.start();
    assert!(site.answered(0, 1).contains("other.pem"));
    assert!(!has(&sealane, 1));
    // A balancer is to know.
    let is_without = || sealane.admin_answer("/healthz").starts_with("HTTP/1.1 503 ");
    assert!(is_without());
    site.propose(2, "site.pem", false);
    assert_eq!(site.answered(0, 2), "");
    assert!(is_without(), "nothing is served by what is proposed");
    Proposed::take_back(&site.store).unwrap();
    // What comes late is taken without anybody's help.
    fs::copy(site.path("site.pem"), site.path("other.pem")).unwrap();
    site.answered(1, 0);
    assert!(has(&sealane, 1) && is_well(&sealane));
    assert_eq!(sealane.count_said("configuration 1 is refused here"), 1);
    assert_eq!(sealane.stop(), Some(0));
    // A start that is refused for the machine's own part blames the fleet's for nothing.
    let own = fs::read(site.path("site.pem")).unwrap();
    fs::remove_file(site.path("site.pem")).unwrap();
    let mut refused = Sealane::launch(site.folder.path(), &site.settings, Path::new(BINARY));
    refused.wait_until_said("site.pem");
    assert_eq!(refused.process.wait(PATIENCE).code(), Some(3));
    fs::write(site.path("site.pem"), own).unwrap();
    let sealane = site.start();
    assert!(has(&sealane, 1));
    assert_eq!(sealane.count_said("reloaded"), 0, "it starts with it");
    assert_eq!(sealane.stop(), Some(0));
    // One that is not in order at all leaves the rest at once.
    let settled = Given { number: 1, text: "nonsense".to_owned() };
    settled.put(&site.store, SETTLED).unwrap();
    fs::remove_file(site.store.join(HELD)).unwrap();
    let sealane = site.start();
    assert!(site.answered(0, 1).contains("fleet.toml:1"));
    assert!(sealane.admin_answer("/healthz").starts_with("HTTP/1.1 503 "));
    assert_eq!(sealane.stop(), Some(0));
}

/// By hand, or twice: its administration's socket is in use.
#[test]
fn a_second_start_on_the_same_store_blames_no_text() {
    let site = Site::new();
    let sealane = site.start();
    site.settle(1, "site.pem");
    site.propose(2, "site.pem", true);
    site.answered(2, 2);
    let begun = Trouble::read(&site.store).taken;
    assert_eq!(begun, Some(site.given(2, "site.pem").mark()));
    let mut second = Sealane::launch(site.folder.path(), &site.settings, Path::new(BINARY));
    second.wait_until_said("another process takes what the fleet gives");
    assert_eq!(second.process.wait(PATIENCE).code(), Some(3));
    let after = Trouble::read(&site.store).taken;
    // It has settled by then, if this took long.
    assert!(after == begun || after.is_none());
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn a_start_that_is_refused_does_not_forget_what_ended_the_process_before() {
    let site = Site::new();
    fs::copy(site.path("site.pem"), site.path("other.pem")).unwrap();
    let sealane = site.start();
    site.settle(1, "other.pem");
    site.propose(2, "site.pem", true);
    wait_for("it to be served", || has(&sealane, 2).then_some(()));
    sealane.signal(Signal::KILL);
    drop(sealane);
    fs::remove_file(site.path("other.pem")).unwrap();
    let sealane = site.start();
    site.propose(2, "site.pem", true);
    assert!(site.answered(0, 2).contains("ended soon after it had begun"));
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn a_process_that_is_told_to_end_blames_no_text() {
    let site = Site::new();
    let sealane = site.start();
    site.hold(1, "site.pem");
    site.answered(1, 0);
    assert_eq!(sealane.stop(), Some(0));
    let sealane = site.start();
    assert_eq!(site.answered(1, 0), "");
    assert_eq!(sealane.stop(), Some(0));
}
