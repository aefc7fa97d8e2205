//! What goes on beside a text of a fleet's: clients that are served, other processes, and time.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use rustls::version::TLS13;
use sealane_store::{Answer, Given, HELD, Proposed, SETTLED};

use super::{Site, is_well};
use crate::harness::client::Connector;
use crate::harness::process::Process;
use crate::harness::{PATIENCE, tools, wait_for};

/// One address of it is more exact than one that is served, and another is in use.
#[test]
fn a_check_is_met_by_no_client() {
    let mut site = Site::new();
    site.settings.listeners[0].move_to(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let sealane = site.start();
    let port = site.settings.listeners[0].address.port();
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let in_use = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let connector = Connector::new(site.authority.der(), &TLS13);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let visits = || {
            while !is_over.load(Ordering::Relaxed) {
                connector.connect(here).unwrap().echo(b"a word").unwrap();
            }
        };
        let clients = [scope.spawn(visits), scope.spawn(visits)];
        for number in 1..=5 {
            let [exact, other] = [here, in_use.local_addr().unwrap()].map(|address| {
                let given = site.given(number, "site.pem").text;
                given.replace("127.0.0.1:0", &address.to_string())
            });
            let text = format!("{exact}{}", other.replace("given", "other"));
            let given = Given { number, text };
            Proposed { given, is_on_trial: false }.put(&site.store).unwrap();
            let refusal = site.answered(0, number);
            assert!(refusal.contains("other-") && !refusal.contains("given-"), "{refusal}");
        }
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn of_what_holds_and_what_has_settled_each_is_refused_once() {
    let site = Site::new();
    site.given(1, "first.pem").put(&site.store, SETTLED).unwrap();
    site.hold(2, "second.pem");
    let sealane = site.start();
    assert!(site.answered(0, 2).contains("second.pem"));
    // Some looks later.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(sealane.count_said("configuration 1 is refused"), 1);
    assert_eq!(sealane.count_said("configuration 2 is refused"), 1);
    fs::copy(site.path("site.pem"), site.path("second.pem")).unwrap();
    sealane.signal(Signal::HUP);
    site.answered(2, 0);
    assert!(is_well(&sealane));
    assert_eq!(sealane.stop(), Some(0));
}

/// The command has ended, and the agent that would say so too.
#[test]
fn what_nobody_proposes_any_more_is_no_reason_to_be_degraded() {
    let site = Site::new();
    let sealane = site.start();
    site.propose(1, "absent.pem", false);
    assert!(site.answered(0, 1).contains("absent.pem"));
    assert!(!is_well(&sealane));
    wait_for("it to be over", || is_well(&sealane).then_some(()));
    assert_eq!(site.answered(0, 0), "");
    // Nor is it looked at again, whoever asks for that.
    sealane.signal(Signal::HUP);
    wait_for("a reload", || (sealane.count_said("sealane: reloaded") == 1).then_some(()));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(sealane.count_said("configuration 1 is refused"), 1);
    assert!(Given::read(&site.store, HELD).unwrap().is_none());
    assert_eq!(sealane.stop(), Some(0));
}

/// What its control thread says is not all: lanes may hang by it.
#[test]
fn a_text_by_which_lanes_do_not_serve_is_not_proven() {
    let Some(strace) = tools::required("strace") else { return };
    let site = Site::new();
    let sealane = site.start();
    site.propose(1, "site.pem", true);
    site.answered(1, 1);
    let lanes = sealane.process.threads("lane");
    assert!(!lanes.is_empty());
    let hold = || {
        let mut by = Command::new(&strace);
        by.args(["-qq", "-o", "/dev/null", "-e", "trace=epoll_wait,epoll_pwait,epoll_pwait2"]);
        by.args(["-e", "inject=epoll_wait,epoll_pwait,epoll_pwait2:delay_enter=600000000"]);
        by.args(lanes.iter().flat_map(|lane| ["-p".to_owned(), lane.to_string()]));
        Process::new(by.spawn().unwrap())
    };
    let mut held = hold();
    let trial_s = || {
        site.propose(1, "site.pem", true);
        std::thread::sleep(Duration::from_secs(4));
        Answer::read(&site.store).unwrap().trial_s
    };
    let before = trial_s();
    assert_eq!(trial_s(), before, "lanes say nothing");
    let stood_s = 8;
    held.signal(Signal::KILL);
    held.wait(PATIENCE);
    let after = wait_for("lanes that serve", || {
        site.propose(1, "site.pem", true);
        Answer::read(&site.store).map(|answer| answer.trial_s).filter(|after| *after != before)
    });
    assert!(after < before + stood_s, "{after} s: a time in which they stood still does not count");
    // Whoever ends it may do so for that.
    let mut held = hold();
    std::thread::sleep(Duration::from_secs(5));
    sealane.signal(Signal::TERM);
    wait_for("it to leave", || (sealane.count_said("draining") > 0).then_some(()));
    held.signal(Signal::KILL);
    held.wait(PATIENCE);
    assert_eq!(sealane.stop(), Some(0));
    let sealane = site.start();
    site.propose(1, "site.pem", true);
    assert!(site.answered(0, 1).contains("ended soon after it had begun"));
    assert_eq!(sealane.stop(), Some(0));
}
