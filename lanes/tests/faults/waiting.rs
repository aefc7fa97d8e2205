//! Hellos that wait for an answer: they cost nothing while they wait, every limit still holds, and
//! every answer does what it says.

use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use rustls::AlertDescription;
use sealane_engine::policy::UnknownNames;
use sealane_lanes::LaneEnd;
use sealane_lanes::cause::Cause;
use sealane_lanes::limits::Limits;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::orders::{Chosen, ConnectionId};
use sealane_lanes::timeouts::Timeouts;

use crate::backend::{RESET, read_to_end, reset};
use crate::client::{Client, Seen, VERSIONS, config, seen};
use crate::ordered::{Command, Driver, Told};
use crate::rig::{PATIENCE, Wanted, among_others, context, eventually};
use crate::service::Behaviour;

/// A driver whose hellos wait, and a client whose hello does.
fn waiting(wanted: Wanted) -> (Driver, Client, ConnectionId) {
    let driver = Driver::start(wanted, true);
    let (client, id) = greet(&driver, "one.test");
    (driver, client, id)
}

fn greet(driver: &Driver, name: &'static str) -> (Client, ConnectionId) {
    let mut client = Client::named(&driver.rig, config(VERSIONS[1]), name);
    client.tls.write_tls(&mut client.socket).unwrap();
    let (id, asked) = driver.hello();
    assert_eq!(asked.as_deref(), Some(name));
    (client, id)
}

#[test]
fn it_neither_spins_nor_reads_while_it_waits() {
    let _others = among_others();
    let (driver, mut client, id) = waiting(Wanted::echo());
    let turns = driver.rig.counters().turns.value();
    let calls = driver.rig.script.calls();
    for _ in 0..5 {
        client.socket.write_all(&[20, 3, 3, 0, 1, 1]).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    driver.silence();
    assert_eq!(driver.rig.counters().handshaking.value(), 1);
    let turns = driver.rig.counters().turns.value() - turns;
    assert!(turns <= 6, "it spins: {turns} turns");
    assert_eq!(driver.rig.script.calls(), calls, "it reads");
    driver.desk.choose(id, Chosen::Listener);
    // What arrived meanwhile is read now: a middlebox's message in the wrong place, five times, of
    // which rustls takes none before its own answer is acknowledged.
    let _ = client.handshake();
    drop(client);
    driver.rig.settle();
    driver.stop();
}

#[test]
fn a_client_that_leaves_is_gone_at_once() {
    let _others = among_others();
    let (driver, client, id) = waiting(Wanted::echo());
    client.socket.shutdown(Shutdown::Write).unwrap();
    driver.ended(Cause::ClientGone);
    driver.desk.choose(id, Chosen::Listener);
    let (client, _) = greet(&driver, "one.test");
    reset(client.socket);
    driver.ended(Cause::ClientGone);
    // Hello and end in one.
    let mut client = Client::begin(&driver.rig, VERSIONS[1]);
    let gate = std::net::TcpStream::connect(driver.rig.address).unwrap();
    client.tls.write_tls(&mut client.socket).unwrap();
    client.socket.shutdown(Shutdown::Write).unwrap();
    driver.hello();
    driver.ended(Cause::ClientGone);
    drop(gate);
    driver.ended(Cause::ClientGone);
    driver.rig.settle();
    driver.stop();
}

#[test]
fn the_handshake_timeout_and_the_limit_of_handshakes_go_on() {
    let _others = among_others();
    let handshake = Duration::from_millis(150);
    let timeouts = Timeouts { handshake, ..Timeouts::default() };
    let (driver, mut client, id) = waiting(Wanted::timed(timeouts));
    driver.ended(Cause::HandshakeTimeout);
    assert_eq!(read_to_end(&mut client.socket), (Vec::new(), RESET));
    driver.desk.choose(id, Chosen::Listener);
    driver.rig.settle();
    driver.stop();

    let limits = Limits { handshakes_max: 2, ..Limits::default() };
    let (driver, mut oldest, _) = waiting(Wanted::limited(limits));
    let (_second, _) = greet(&driver, "one.test");
    let mut third = Client::begin(&driver.rig, VERSIONS[1]);
    driver.ended(Cause::LimitHandshakes);
    assert_eq!(read_to_end(&mut oldest.socket), (Vec::new(), RESET));
    third.tls.write_tls(&mut third.socket).unwrap();
    let (id, _) = driver.hello();
    driver.desk.choose(id, Chosen::Listener);
    third.handshake().unwrap();
    assert_eq!(driver.opened(), id);
    driver.stop();
}

#[test]
fn what_a_client_may_leave_with_its_hello_has_a_bound() {
    let _others = among_others();
    let driver = Driver::start(Wanted::echo(), true);
    let mut client = Client::begin(&driver.rig, VERSIONS[1]);
    let mut flight = Vec::new();
    client.tls.write_tls(&mut flight).unwrap();
    for _ in 0..5 {
        flight.extend([23, 3, 3, 0x40, 0]);
        flight.resize(flight.len() + (16 << 10), 7);
    }
    client.socket.write_all(&flight).unwrap();
    driver.hello();
    driver.ended(Cause::HelloTooLong);
    driver.rig.settle();
    driver.stop();
}

#[test]
fn a_drain_waits_for_it_and_cuts_it_in_the_end() {
    let _others = among_others();
    let (driver, mut client, id) = waiting(Wanted::echo());
    let (_silent, _) = greet(&driver, "one.test");
    driver.rig.handle.post(Mail::Drain(Duration::from_millis(500)));
    driver.silence();
    driver.desk.choose(id, Chosen::Listener);
    client.handshake().unwrap();
    assert_eq!(driver.opened(), id);
    driver.ended(Cause::LaneStopped);
    driver.ended(Cause::LaneStopped);
    let Told::Stopped(end) = driver.next() else { panic!("it does not stop") };
    assert_eq!(end, LaneEnd { cut: 2 });
}

#[test]
fn each_answer_does_what_it_says() {
    let _others = among_others();
    let (driver, mut client, id) = waiting(Wanted::echo());
    driver.desk.choose(id, Chosen::Refuse);
    let alert = seen(&client.handshake().unwrap_err());
    assert_eq!(alert, Seen::Alert(AlertDescription::UnrecognisedName));
    drop(client);
    driver.ended(Cause::UnknownName);

    let two = Arc::new(context("two.test", UnknownNames::Refuse));
    let (mut client, id) = greet(&driver, "two.test");
    driver.desk.choose(id, Chosen::Context(two.id));
    let alert = seen(&client.handshake().unwrap_err());
    assert_eq!(alert, Seen::Alert(AlertDescription::InternalError));
    drop(client);
    driver.ended(Cause::Internal);

    // The mail lies behind the order's bell, in the same turn.
    let (mut client, id) = greet(&driver, "two.test");
    driver.rig.handle.post(Mail::Provide(Arc::clone(&two)));
    driver.desk.choose(id, Chosen::Context(two.id));
    client.handshake().unwrap();
    let held_up = driver.opened();

    // Mail and order come while the lane takes orders already.
    let (mut other, id) = greet(&driver, "two.test");
    driver.desk.command(held_up, Command::Wait);
    driver.rig.gate.wait();
    let again = Arc::new(context("two.test", UnknownNames::Refuse));
    driver.rig.handle.post(Mail::Provide(Arc::clone(&again)));
    driver.desk.choose(id, Chosen::Context(again.id));
    driver.rig.gate.wait();
    other.handshake().unwrap();
    assert_eq!(driver.opened(), id);
    // A second answer finds no hello that waits.
    driver.desk.choose(id, Chosen::Refuse);
    driver.silence();

    driver.rig.handle.post(Mail::Withdraw(two.id));
    let (mut later, id) = greet(&driver, "two.test");
    driver.desk.choose(id, Chosen::Context(two.id));
    assert!(later.handshake().is_err());
    drop(later);
    driver.ended(Cause::Internal);

    // A chosen context refuses what its own policy refuses.
    driver.rig.handle.post(Mail::Provide(Arc::clone(&two)));
    let (mut client, id) = greet(&driver, "one.test");
    driver.desk.choose(id, Chosen::Context(two.id));
    let alert = seen(&client.handshake().unwrap_err());
    assert_eq!(alert, Seen::Alert(AlertDescription::UnrecognisedName));
    drop(client);
    driver.ended(Cause::UnknownName);
    driver.stop();
}

#[test]
fn a_panic_in_the_question_costs_one_connection() {
    let _others = among_others();
    let driver = Driver::start(Wanted::echo(), false);
    let mut steady = Client::connect(&driver.rig, VERSIONS[1]).unwrap();
    let id = driver.opened();
    driver.rig.publish(2, Wanted::new(Behaviour::Panic("hello")));
    let mut client = Client::begin(&driver.rig, VERSIONS[1]);
    assert!(client.handshake().is_err());
    driver.ended(Cause::Internal);
    eventually("it is counted", || driver.rig.counters().panics.value() == 1);
    driver.desk.command(id, Command::Write(b"still there".to_vec()));
    assert_eq!(steady.receive(11).unwrap(), b"still there");
    driver.stop();
}

#[test]
fn years_of_patience_do_not_overflow() {
    let _others = among_others();
    let forever = Duration::MAX;
    let timeouts = Timeouts {
        backend: Some(forever),
        client: Some(forever),
        ..Timeouts::of_handshake(forever)
    };
    let (driver, mut client, id) = waiting(Wanted::timed(timeouts));
    driver.rig.handle.post(Mail::Drain(Duration::MAX));
    driver.silence();
    driver.desk.choose(id, Chosen::Listener);
    client.handshake().unwrap();
    driver.opened();
    driver.silence();
    assert!(!driver.rig.handle.has_ended());
    client.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    driver.desk.command(id, Command::Finish);
    assert_eq!(client.read_to_end(), (Vec::new(), Seen::Clean));
    client.finish().unwrap();
    loop {
        match driver.next() {
            Told::Stopped(end) => break assert_eq!(end, LaneEnd { cut: 0 }),
            Told::ClientEnded(_) | Told::Ended(Cause::Clean) => {}
            other => panic!("{other:?}"),
        }
    }
}
