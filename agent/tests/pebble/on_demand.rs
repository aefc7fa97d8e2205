//! Certificates for names that clients of a running `sealane serve` ask for, and nobody has listed.

mod ask;
mod users;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use sealane_reserved_port::ReservedPort;

use super::harness::agent::Home;
use super::harness::authority::{Authority, Behaviour};
use super::harness::process::Process;
use super::harness::{serve, wait_for};
use super::served::served_names;

use ask::Ask;

/// An authority, a `sealane serve` with a default certificate, and settings for an agent that fills
/// its store on demand.
struct Rig {
    ask: Ask,
    authority: Authority,
    home: Home,
    _serve: Process,
    tls: ReservedPort,
}

impl Rig {
    /// With more keys of the authority, and more of `[on_demand]`.
    fn start(of_authority: &str, more: &str) -> Option<Self> {
        Self::start_by(of_authority, more, |_| Some(Command::new(serve::program()?)))
    }

    /// The same with a `sealane serve` that is started by a command, once there is a store.
    fn start_by(
        of_authority: &str,
        more: &str,
        command: impl FnOnce(&Home) -> Option<Command>,
    ) -> Option<Self> {
        let tls = ReservedPort::on_loopback().unwrap();
        let behaviour = Behaviour { ports: (1, tls.address().port()), ..Behaviour::default() };
        let authority = Authority::start(behaviour)?;
        let home = Home::new(&authority);
        let ask = Ask::start();
        home.configure(&[
            home.authority(authority.address, of_authority),
            format!(
                "[on_demand]\nask = \"http://{}/ask\"\nchallenge = \"tls-alpn-01\"\n{more}\n",
                ask.address
            ),
        ]);
        // A look at the settings makes the store.
        let (text, code) = super::harness::agent::run(&["check", "--config", "agent.toml"], &home);
        assert_eq!(code, Some(0), "{text}");
        let serve = serving(&home, &tls, command)?;
        Some(Self { ask, authority, home, _serve: serve, tls })
    }

    /// The names in the certificate that a client gets.
    fn served(&self, name: &str) -> Vec<String> {
        served_names(self.tls.address(), name)
    }

    fn wait_until_served(&self, name: &str) {
        wait_for(name, || (self.served(name) == [name]).then_some(()));
    }
}

fn serving(
    home: &Home,
    tls: &ReservedPort,
    command: impl FnOnce(&Home) -> Option<Command>,
) -> Option<Process> {
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let made = rcgen::generate_simple_self_signed([DEFAULT.to_owned()]).unwrap();
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    fs::write(home.path("default.pem"), pem).unwrap();
    super::harness::close(&home.path("default.pem"));
    let text = format!(
        "lanes = 2\nstore_key = {{ file = \"key\" }}\n[admin]\nsocket = \"admin.sock\"\n\
         [[listener]]\naddress = \"{}\"\nbackends = [\"{}\"]\non_demand = true\n\
         certificates = [\"default.pem\", \"store:store\"]\n",
        tls.address(),
        backend.local_addr().unwrap(),
    );
    let process = serve::start_by(command(home)?, home.folder.path(), &text);
    wait_for("sealane serve", || {
        let said = fs::read_to_string(home.path("serve.log")).unwrap();
        assert!(!said.contains("error"), "{said}");
        TcpStream::connect(tls.address()).ok()
    });
    Some(process)
}

#[test]
fn a_name_that_is_allowed_is_served_soon_and_one_that_is_refused_is_never_ordered() {
    let Some(rig) = Rig::start("", "") else { return };
    // Nobody is there yet who could obtain one: the default stands in, and what is asked for is
    // not forgotten.
    assert_eq!(rig.served("allowed.test"), [DEFAULT]);
    assert_eq!(rig.served("refused.test"), [DEFAULT]);
    let agent = rig.home.start();
    rig.home.wait_until_held("allowed.test");
    assert_eq!(rig.served("allowed.test"), ["allowed.test"], "at the next hello");
    wait_for("the other question", || rig.ask.asked("refused.test").eq(&1).then_some(()));
    assert_eq!(rig.served("refused.test"), [DEFAULT]);
    assert!(agent.stop().success());

    // What it has obtained it looks after when it comes again, and asks nobody for that.
    let agent = rig.home.start();
    agent.wait_until_said("looks after 1 certificates");
    assert_eq!(rig.served("next.allowed.test"), [DEFAULT]);
    rig.wait_until_served("next.allowed.test");
    assert!(agent.stop().success());
    assert_eq!(rig.ask.asked("allowed.test"), 1);
    assert_eq!(rig.authority.count_said("refused.test"), 0);
    assert_eq!(rig.authority.issued(), 2);
}

#[test]
fn fifty_clients_at_once_are_one_question_and_one_order() {
    let Some(rig) = Rig::start("", "") else { return };
    let agent = rig.home.start();
    let address = rig.tls.address();
    for _ in 0..4 {
        thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| served_names(address, "allowed.test"));
            }
        });
    }
    rig.wait_until_served("allowed.test");
    assert!(agent.stop().success());
    assert_eq!((rig.ask.asked("allowed.test"), rig.authority.issued()), (1, 1));
}

#[test]
fn a_flood_of_names_costs_no_more_questions_than_the_rate_and_no_order() {
    let Some(rig) = Rig::start("", "rate = \"200/h\"\nwaiting = 1000") else { return };
    let agent = rig.home.start();
    for number in 0..500 {
        assert_eq!(rig.served(&format!("n{number}-{:x}.test", fastrand::u64(..))), [DEFAULT]);
    }
    let said = agent.wait_until_said("times a name was not asked about, because of rate");
    assert!(!said.contains("panicked"), "{said}");
    // A tenth is kept back, as of any rate.
    wait_for("as many questions", || (rig.ask.count() >= 180).then_some(()));
    assert!(agent.stop().success());
    assert!(rig.ask.count() < 200, "{}", rig.ask.count());
    assert_eq!(rig.authority.issued(), 0);
}

#[test]
fn a_service_that_hangs_or_is_away_holds_up_nobody() {
    let Some(rig) = Rig::start("", "") else { return };
    let agent = rig.home.start();
    rig.ask.hang(true);
    assert_eq!(rig.served("slow.allowed.test"), [DEFAULT]);
    wait_for("the question", || rig.ask.asked("slow.allowed.test").eq(&1).then_some(()));
    rig.ask.hang(false);
    assert_eq!(rig.served("quick.allowed.test"), [DEFAULT]);
    rig.wait_until_served("quick.allowed.test");
    agent.wait_until_said("slow.allowed.test: http://");
    rig.ask.go();
    assert_eq!(rig.served("late.allowed.test"), [DEFAULT]);
    agent.wait_until_said("late.allowed.test: http://");
    assert_eq!(rig.served("late.allowed.test"), [DEFAULT]);
    assert!(agent.stop().success());
    assert_eq!(rig.authority.issued(), 1);
}

/// Certificates of this authority are good for half a minute.
#[test]
#[ignore = "a minute and a half; ./check --all runs it"]
fn what_is_asked_for_is_renewed_and_what_nobody_asks_for_lapses() {
    let Some(rig) = Rig::start("profile = \"moments\"", "") else { return };
    let agent = rig.home.start();
    rig.served("allowed.test");
    rig.wait_until_served("allowed.test");
    wait_for("a second certificate", || {
        assert_eq!(rig.served("allowed.test"), ["allowed.test"]);
        (rig.authority.issued() == 2).then_some(())
    });
    agent.wait_until_said("allowed.test: nobody has asked for it; its certificate ends in");
    wait_for("its end", || rig.home.held("allowed.test").is_none().then_some(()));
    wait_for("that it is forgotten", || rig.home.entries("acme/demand/").is_empty().then_some(()));
    // It can come again as it came first, once it is allowed again.
    assert_eq!(rig.served("allowed.test"), [DEFAULT]);
    rig.wait_until_served("allowed.test");
    assert_eq!(rig.ask.asked("allowed.test"), 2);
    assert!(agent.stop().success());
}

/// The name in the certificate that stands in.
const DEFAULT: &str = "default.test";
