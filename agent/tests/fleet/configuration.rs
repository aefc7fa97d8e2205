//! A configuration that comes to all machines through three real servers of etcd, or to none.

mod others;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sealane_operator::create_key_file;
use sealane_store::{Answer, GIVEN_BYTES_MAX, Given, HELD};
use serde_json::Value;

use super::harness::agent::{Agent, BINARY, Home, run};
use super::harness::wait_for;
use super::machines::{Machines, pem, status};
use super::serving::{Serve, body};

/// Machines whose agents run, each with a server that takes what the fleet gives.
struct Fleet {
    machines: Machines,
    agents: Vec<Agent>,
    serves: Vec<Serve>,
}

impl Fleet {
    fn start(count: usize) -> Option<Self> {
        let machines = Machines::new(count, &[])?;
        let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
        for home in &machines.homes {
            fs::write(home.path("site.pem"), pem("site.test")).unwrap();
        }
        let serves: Option<Vec<_>> = machines.homes.iter().map(Serve::start_including).collect();
        let fleet = Self { machines, agents, serves: serves? };
        fleet.wait_until(|told| told["holds"] == 0);
        Some(fleet)
    }

    fn homes(&self) -> &[Home] {
        &self.machines.homes
    }

    /// Waits until all machines tell so of the configuration.
    fn wait_until(&self, is_so: impl Fn(&Value) -> bool) {
        wait_for("all machines", || {
            let told = told(&self.homes()[0]);
            (told.len() == self.agents.len() && told.iter().all(&is_so)).then_some(())
        });
    }

    /// Whether each serves the listener that [`text`] names so.
    fn serve(&self, name: &str) -> Vec<bool> {
        self.serves.iter().map(|serve| serve.has(name)).collect()
    }

    fn stop(self) {
        for agent in self.agents {
            assert!(agent.stop().success());
        }
    }
}

/// What each machine tells of the configuration, in the order of their names.
fn told(home: &Home) -> Vec<Value> {
    let (_, text) = status(home, &["--json"]);
    let all: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
    all.into_iter().map(|one| one["configuration"].clone()).filter(|told| !told.is_null()).collect()
}

/// A listener of this name with the certificate of this file.
fn text(name: &str, file: &str) -> String {
    format!(
        "[[listener]]\nname = \"{name}\"\naddress = \"127.0.0.1:0\"\ncertificates = [\"{file}\"]\n\
         backends = [\"127.0.0.1:9\"]\n"
    )
}

/// Proposes a text from a machine, as an operator does; what is said, and the code.
fn configure(home: &Home, text: &str, more: &[&str]) -> (String, Option<i32>) {
    fs::write(home.path("fleet.toml"), text).unwrap();
    let words = ["fleet", "configure", "fleet.toml", "--config", "agent.toml"];
    run(&[&words, more].concat(), home)
}

/// The same, and it goes on meanwhile.
fn begin(home: &Home, text: &str) -> Child {
    fs::write(home.path("begun.toml"), text).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["fleet", "configure", "-", "--config", "agent.toml"]);
    let text = File::open(home.path("begun.toml")).unwrap();
    command.current_dir(home.folder.path()).stdin(text).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_configuration_comes_to_the_first_machine_and_then_to_all_and_one_that_joins() {
    let Some(mut fleet) = Fleet::start(3) else { return };
    let late = fleet.agents.pop().unwrap();
    assert!(late.stop().success());
    let late = fleet.serves.pop().unwrap();
    wait_for("two to be there", || (told(&fleet.homes()[0]).len() == 2).then_some(()));
    // As long as it may be.
    let long = text("one", "site.pem") + &"# a comment\n".repeat(GIVEN_BYTES_MAX / 13);
    let (said, code) = configure(&fleet.homes()[1], &long, &["--first", "1"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("all have found it in order; it holds first on m0"), "{said}");
    assert!(said.contains("holds on all machines that are there"), "{said}");
    assert_eq!(fleet.serve("one"), [true, true]);
    let place = "/sealane/test/configuration/holds";
    assert!(!fleet.machines.cluster.control(&["get", place, "-w", "fields"]).contains("listener"));
    // One that was away takes it, after it has looked at it.
    assert!(!late.has("one"));
    fleet.agents.push(fleet.homes()[2].start());
    wait_for("the one that was away", || late.has("one").then_some(()));
    // One that has not what it takes goes on as it was, and says so.
    fleet.serves.push(late);
    let late = fleet.agents.pop().unwrap();
    assert!(late.stop().success());
    wait_for("two to be there", || (told(&fleet.homes()[0]).len() == 2).then_some(()));
    for home in &fleet.homes()[..2] {
        fs::write(home.path("new.pem"), pem("new.test")).unwrap();
    }
    let (said, code) = configure(&fleet.homes()[0], &text("two", "new.pem"), &["--first", "2"]);
    assert_eq!(code, Some(0), "{said}");
    fleet.agents.push(fleet.homes()[2].start());
    let health = wait_for("its refusal", || {
        let health = fleet.serves[2].health();
        health.contains("degraded").then_some(health)
    });
    assert!(health.contains("the fleet's configuration"), "{health}");
    assert_eq!(fleet.serve("two"), [true, true, false]);
    assert!(fleet.serves[2].has("one"));
    let table = wait_for("the machine that refuses", || {
        let (_, table) = status(&fleet.homes()[0], &[]);
        table.contains("m2 refuses configuration").then_some(table)
    });
    assert!(table.contains("new.pem") && table.contains("CONFIGURATION"), "{table}");
    fleet.stop();
}

#[test]
fn what_one_machine_refuses_changes_nothing_anywhere() {
    let Some(fleet) = Fleet::start(3) else { return };
    let pushed = pem("a.test");
    fleet.homes()[0].import(&["a.test"], &pushed);
    wait_for("its certificate", || {
        (fleet.serves[0].shown("a.test") == body(&pushed)).then_some(())
    });
    fs::remove_file(fleet.homes()[1].path("site.pem")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let mut asked = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(fleet.serves[0].shown("a.test"), body(&pushed));
                asked += 1;
            }
            asked
        });
        for (text, expected) in [
            (text("one", "site.pem"), "m1 refuses it:"),
            (
                text("one", "site.pem") + "ciphers = 7\n",
                ":6:1: listener[0].ciphers: is not a known key",
            ),
            (text("one", "/etc/site.pem"), ":4:17: listener[0].certificates[0]: \"/etc/site.pem\""),
            (text("one", "../site.pem"), "a fleet names nothing there"),
            (text("one", "store:/srv/other"), "is another certificate store"),
            (text("one", "site.pem").replace("127.0.0.1:9", "unix:/run/s"), "is a unix socket"),
        ] {
            let (said, code) = configure(&fleet.homes()[0], &text, &[]);
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains(expected), "{said}, not {expected}");
            assert!(said.contains("is withdrawn, and everywhere the one before holds"), "{said}");
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(asked.join().unwrap() > 0);
    });
    assert_eq!(fleet.serve("one"), [false, false, false]);
    let counted = "/sealane/test/configuration/holds";
    assert_eq!(fleet.machines.cluster.keys("configuration/"), [counted]);
    fleet.wait_until(|told| told["holds"] == 0);
    wait_for("all to be well", || {
        fleet.serves.iter().all(|serve| serve.health().ends_with("ok\n")).then_some(())
    });
    // What is no such file at all goes to no machine.
    let bad = text("one", "site.pem") + "[process]\nuser = \"root\"\n= 7\n";
    for (text, expected) in [
        ("#".repeat(300 << 10), vec!["more than 262144 bytes (256 KiB)"]),
        (bad, vec!["fleet.toml:6:2: process: is not a known key", "fleet.toml:8:1: "]),
    ] {
        let (said, code) = configure(&fleet.homes()[0], &text, &[]);
        let is_told = expected.iter().all(|expected| said.contains(expected));
        assert!(code == Some(3) && is_told, "{said}, not {expected:?}");
    }
    fleet.stop();
}

/// What its command proposed is gone with it, and a stranger does not bring back what was.
#[test]
fn a_command_that_is_killed_leaves_nothing_half_and_of_two_one_is_refused() {
    let Some(fleet) = Fleet::start(2) else { return };
    let cluster = &fleet.machines.cluster;
    let (said, code) = configure(&fleet.homes()[0], &text("one", "site.pem"), &[]);
    assert_eq!(code, Some(0), "{said}");
    let place = "/sealane/test/configuration/holds";
    let held = cluster.value(place);
    let mut begun = begin(&fleet.homes()[0], &text("two", "site.pem"));
    wait_for("it to hold first on one", || (fleet.serve("two") == [true, false]).then_some(()));
    let (said, code) = configure(&fleet.homes()[1], &text("three", "site.pem"), &[]);
    assert!(code == Some(1) && said.contains("another command proposes"), "{said}");
    begun.kill().unwrap();
    begun.wait().unwrap();
    wait_for("the one before", || (fleet.serve("one") == [true, true]).then_some(()));
    assert_eq!(fleet.serve("two"), [false, false]);
    // It may be run again, and withdrawn.
    let mut begun = begin(&fleet.homes()[0], &text("two", "site.pem"));
    wait_for("it to hold first on one", || (fleet.serve("two") == [true, false]).then_some(()));
    let (said, code) =
        run(&["fleet", "configure", "--withdraw", "--config", "agent.toml"], &fleet.homes()[1]);
    assert!(code == Some(0) && said.contains("is withdrawn"), "{said}");
    assert_eq!(begun.wait().unwrap().code(), Some(1));
    wait_for("the one before", || (fleet.serve("one") == [true, true]).then_some(()));
    let (said, code) = configure(&fleet.homes()[0], &text("two", "site.pem"), &[]);
    assert_eq!((code, fleet.serve("two")), (Some(0), vec![true, true]), "{said}");
    let number = |home: &Home| Given::read(&home.path("store"), HELD).unwrap().unwrap().number;
    let newest = number(&fleet.homes()[0]);
    // Whoever can write there puts back what held.
    assert_ne!(cluster.value(place), held);
    cluster.put(place, &held);
    wait_for("the newest one to be put back", || (cluster.value(place) != held).then_some(()));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(fleet.serve("two"), [true, true]);
    for home in fleet.homes() {
        assert_eq!(number(home), newest);
        assert_eq!(Answer::read(&home.path("store")).unwrap().holds, newest);
    }
    fleet.stop();
}

/// The first machine dies while it serves by it: it is known by its last word for a while still.
#[test]
fn what_a_first_machine_does_not_survive_holds_nowhere() {
    let Some(mut fleet) = Fleet::start(3) else { return };
    let homes = [fleet.homes()[1].path("store"), fleet.homes()[2].path("store")];
    for is_all_gone in [false, true] {
        let begun = begin(&fleet.homes()[2], &text("two", "site.pem"));
        wait_for("it to hold first on one", || {
            (fleet.serve("two") == [true, false, false]).then_some(())
        });
        if is_all_gone {
            fleet.agents.remove(0).kill();
        }
        drop(fleet.serves.remove(0));
        assert_eq!(begun.wait_with_output().unwrap().status.code(), Some(1));
        assert_eq!(fleet.serve("two"), [false, false]);
        assert!(homes.iter().all(|store| Given::read(store, HELD).unwrap().is_none()));
        if !is_all_gone {
            let again = Serve::start_including(&fleet.homes()[0]).unwrap();
            fleet.serves.insert(0, again);
            fleet.wait_until(|told| told["holds"] == 0);
            assert_eq!(fleet.serve("two"), [false; 3], "it left it by itself");
        }
    }
    fleet.stop();
}

/// Nobody says any more that it is proposed: whoever serves by it goes back alone.
#[test]
fn a_machine_on_trial_that_is_cut_off_serves_again_by_what_held() {
    let Some(fleet) = Fleet::start(2) else { return };
    let (said, code) = configure(&fleet.homes()[0], &text("one", "site.pem"), &[]);
    assert_eq!(code, Some(0), "{said}");
    let mut begun = begin(&fleet.homes()[1], &text("two", "site.pem"));
    wait_for("it to hold first on one", || (fleet.serve("two") == [true, false]).then_some(()));
    fleet.machines.cluster.kill_all();
    wait_for("the one before", || (fleet.serve("one") == [true, true]).then_some(()));
    assert_eq!(fleet.serve("two"), [false, false]);
    assert_eq!(begun.wait().unwrap().code(), Some(1));
    fleet.machines.cluster.start_again();
    fleet.wait_until(|told| told["holds"] == 1);
    // Its lease begins anew with the servers.
    wait_for("the end of a proposal", || {
        (fleet.machines.cluster.keys("configuration/").len() == 1).then_some(())
    });
    wait_for("the one before", || (fleet.serve("one") == [true, true]).then_some(()));
    let (said, code) = configure(&fleet.homes()[1], &text("two", "site.pem"), &[]);
    assert_eq!((code, fleet.serve("two")), (Some(0), vec![true, true]), "{said}");
    fleet.stop();
}

/// With another sealing key, with junk in its place, and with nothing there at all.
#[test]
fn what_holds_is_sealed_anew_and_put_back() {
    let Some(mut fleet) = Fleet::start(2) else { return };
    let (said, code) = configure(&fleet.homes()[0], &text("one", "site.pem"), &[]);
    assert_eq!(code, Some(0), "{said}");
    let place = "/sealane/test/configuration/holds";
    let cluster = &fleet.machines.cluster;
    for damage in [Some(&b"junk"[..]), None] {
        match damage {
            Some(junk) => cluster.put(place, junk),
            None => drop(cluster.control(&["del", place])),
        }
        wait_for("what holds", || (cluster.value(place).len() > 100).then_some(()));
    }
    let before = cluster.value(place);
    let (old, new) = (fleet.homes()[0].path("key"), fleet.homes()[0].path("new"));
    create_key_file(&new).unwrap();
    let key = |path: &Path| fs::read_to_string(path).unwrap().trim().to_owned();
    let (old, new) = (key(&old), key(&new));
    for home in fleet.homes() {
        fs::write(home.path("key"), format!("{new}\n{old}\n")).unwrap();
    }
    for agent in std::mem::take(&mut fleet.agents) {
        agent.wait_until_said("looks after");
        assert!(agent.stop().success());
    }
    fleet.agents = fleet.machines.homes.iter().map(Home::start).collect();
    let cluster = &fleet.machines.cluster;
    wait_for("another seal", || (cluster.value(place) != before).then_some(()));
    // A machine that has only the new key.
    let authority = &fleet.machines.authority;
    let late = fleet.machines.homes[0].beside(authority);
    fs::write(late.path("key"), format!("{new}\n")).unwrap();
    let table = late.authority(authority.address, "");
    late.configure(&[table, late.by_dns(&["blocked.test"]), cluster.table("m2")]);
    fs::write(late.path("site.pem"), pem("site.test")).unwrap();
    fleet.agents.push(late.start());
    let serve = Serve::start_including(&late).unwrap();
    wait_for("what holds", || serve.has("one").then_some(()));
    // It is proposed to a fleet that has forgotten all but what its machines know.
    fleet.machines.homes.push(late);
    fleet.serves.push(serve);
    fleet.machines.cluster.control(&["del", "--prefix", "/sealane/test/configuration/"]);
    let (said, code) = configure(&fleet.homes()[2], &text("two", "site.pem"), &[]);
    assert_eq!((code, fleet.serve("two")), (Some(0), vec![true; 3]), "{said}");
    fleet.stop();
}
