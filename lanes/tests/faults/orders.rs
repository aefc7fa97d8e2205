//! Orders from another thread: each does what it says, none reaches another connection, and what
//! the kernel fails at on the way is nobody's loss.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rustls::SupportedProtocolVersion;
use sealane_lanes::cause::Cause;
use sealane_lanes::orders::{Chosen, ConnectionId, ORDERS_MAX, Order};
use sealane_lanes::timeouts::Timeouts;

use crate::backend::{RESET, read_to_end, reset};
use crate::client::{Client, Seen, VERSIONS, pattern};
use crate::kernel::Plan;
use crate::ordered::{Command, Driver, Told};
use crate::rig::{Wanted, among_others, eventually};
use crate::service::Behaviour;

/// A driver, a client, and the client's connection.
fn opened(version: &'static SupportedProtocolVersion) -> (Driver, Client, ConnectionId) {
    let driver = Driver::start(Wanted::echo(), false);
    let client = Client::connect(&driver.rig, version).unwrap();
    let id = driver.opened();
    (driver, client, id)
}

/// Turns that the lane makes meanwhile.
fn turns_in(driver: &Driver, wait: Duration) -> u64 {
    let before = driver.rig.counters().turns.value();
    std::thread::sleep(wait);
    driver.rig.counters().turns.value() - before
}

#[test]
fn a_client_that_is_paused_is_not_read_and_goes_on_where_it_was() {
    let _others = among_others();
    for version in VERSIONS {
        let (driver, mut client, id) = opened(version);
        let sent = pattern(5, 2 << 20);
        let bytes = sent.clone();
        let sender = std::thread::spawn(move || {
            client.send(&bytes).unwrap();
            client.finish().unwrap();
            client
        });
        driver.silence();
        let calls = driver.rig.script.calls();
        assert!(turns_in(&driver, Duration::from_millis(50)) < 10, "it spins");
        assert!(driver.rig.script.calls() < calls + 10, "it reads");
        let mut got = Vec::new();
        for credit in [1, 70_000, 300_000, 2 << 20] {
            driver.desk.command(id, Command::Take(credit));
            got.extend(driver.data(credit.min(sent.len() - got.len())));
        }
        assert!(got == sent, "the bytes differ");
        assert!(matches!(driver.next(), Told::ClientEnded(ended) if ended == id));
        let mut client = sender.join().unwrap();
        driver.desk.command(id, Command::Finish);
        assert_eq!(client.read_to_end(), (Vec::new(), Seen::Clean));
        driver.ended(Cause::Clean);
        driver.rig.settle();
        driver.stop();
    }
}

#[test]
fn what_a_client_does_not_take_is_told_when_it_has_left() {
    let _others = among_others();
    let (driver, mut client, id) = opened(VERSIONS[1]);
    let part = pattern(6, 128 << 10);
    let mut written = 0;
    let pending = loop {
        driver.desk.command(id, Command::Write(part.clone()));
        driver.desk.command(id, Command::Look);
        written += part.len();
        match driver.next() {
            Told::Pending(0, true) => assert!(written < 64 << 20, "it never fills"),
            Told::Pending(pending, true) => break pending,
            other => panic!("{other:?}"),
        }
    };
    assert!(pending <= part.len() + 1024, "{pending}");
    driver.silence();
    assert!(turns_in(&driver, Duration::from_millis(50)) < 10, "it spins");
    let got = client.receive(written).unwrap();
    assert!(got.chunks(part.len()).all(|chunk| chunk == part), "the bytes differ");
    assert!(matches!(driver.next(), Told::Drained(drained) if drained == id));
    driver.silence();
    driver.stop();
}

#[test]
fn an_abandoned_client_gets_everything_and_its_end_though_it_never_ends() {
    let _others = among_others();
    for version in VERSIONS {
        // All of it fits into the kernel's queue: what comes later than the close draws a reset.
        for unread in [0, 16_000] {
            let (driver, mut client, id) = opened(version);
            let answer = pattern(7, 3 << 20);
            // Nobody takes it, and it still lies in the lane and in the kernel.
            client.send(&vec![1; unread]).unwrap();
            eventually("it arrives", || {
                driver.rig.counters().received_bytes.value() > 0 || unread == 0
            });
            client.send(&vec![1; unread]).unwrap();
            let parts = answer.chunks(128 << 10);
            for part in parts {
                driver.desk.command(id, Command::Write(part.to_vec()));
                // No more than a client may leave pending.
                let read = client.receive(part.len()).unwrap();
                assert!(read == part);
            }
            let last = pattern(8, 500_000);
            let end = [
                Order::Command(id, Command::Write(last[..250_000].to_vec())),
                Order::Command(id, Command::Write(last[250_000..].to_vec())),
                Order::Command(id, Command::Finish),
                Order::Command(id, Command::Abandon),
            ];
            driver.desk.order_all(end);
            let (bytes, seen) = client.read_to_end();
            assert!(bytes == last, "{} bytes of the last", bytes.len());
            assert_eq!(seen, Seen::Clean);
            let ended = loop {
                match driver.next() {
                    Told::Drained(_) => {}
                    Told::Ended(cause) => break cause,
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(ended, Cause::Clean);
            driver.rig.settle();
            driver.stop();
        }
    }
}

#[test]
fn an_end_that_was_sent_before_is_clean_as_soon_as_the_client_is_abandoned() {
    let _others = among_others();
    let (driver, mut client, id) = opened(VERSIONS[1]);
    driver.desk.command(id, Command::Finish);
    assert_eq!(client.read_to_end(), (Vec::new(), Seen::Clean));
    driver.silence();
    driver.desk.command(id, Command::Abandon);
    driver.ended(Cause::Clean);
    driver.stop();
}

#[test]
fn a_client_that_resets_while_it_is_abandoned_or_paused_ends_it() {
    let _others = among_others();
    for first in [Command::Abandon, Command::Nothing] {
        let (driver, mut client, id) = opened(VERSIONS[1]);
        client.send(b"not taken").unwrap();
        driver.desk.command(id, first);
        driver.silence();
        reset(client.socket);
        driver.ended(Cause::ClientReset);
        driver.rig.settle();
        driver.stop();
    }
}

#[test]
fn a_closed_connection_delivers_what_the_kernel_holds_and_a_reset_one_is_reset() {
    let _others = among_others();
    for version in VERSIONS {
        let (driver, mut client, id) = opened(version);
        client.send(&[1; 50_000]).unwrap();
        eventually("it arrives", || driver.rig.counters().received_bytes.value() > 0);
        // These stay in the kernel, which would answer a close with a reset.
        client.send(&[1; 50_000]).unwrap();
        let answer = pattern(9, 100_000);
        driver.desk.order_all([
            Order::Command(id, Command::Write(answer.clone())),
            Order::Command(id, Command::End(Cause::ServiceClosed)),
        ]);
        driver.ended(Cause::ServiceClosed);
        let (bytes, seen) = client.read_to_end();
        assert!(bytes == answer, "{} bytes", bytes.len());
        assert_eq!(seen, Seen::Truncated);

        let mut client = Client::connect(&driver.rig, version).unwrap();
        let id = driver.opened();
        driver.desk.command(id, Command::End(Cause::ServiceReset));
        driver.ended(Cause::ServiceReset);
        assert_eq!(client.read_to_end(), (Vec::new(), RESET));
        driver.rig.settle();
        driver.stop();
    }
}

#[test]
fn a_connected_socket_can_be_attached() {
    let _others = among_others();
    for version in VERSIONS {
        let (driver, mut client, id) = opened(version);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let (request, answer) = (pattern(10, 1 << 20), pattern(11, 1 << 20));
        // These bytes are there before the socket is.
        client.send(b"early").unwrap();
        driver.silence();
        let same = theirs.try_clone().unwrap();
        driver.desk.command(id, Command::Attach(theirs.into()));
        let mut early = [0; 5];
        ours.read_exact(&mut early).unwrap();
        let flags = rustix::fs::fcntl_getfl(&same).unwrap();
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK), "the lane would wait for the peer");
        drop(same);
        assert_eq!(&early, b"early");
        let (sent, answered) = (request.clone(), answer.clone());
        let peer = std::thread::spawn(move || {
            let mut got = Vec::new();
            ours.read_to_end(&mut got).unwrap();
            assert!(got == sent, "the request differs, {} bytes", got.len());
            ours.write_all(&answered).unwrap();
        });
        client.send(&request).unwrap();
        client.finish().unwrap();
        let (bytes, seen) = client.read_to_end();
        assert!(bytes == answer, "the answer differs, {} bytes", bytes.len());
        assert_eq!(seen, Seen::Clean);
        peer.join().unwrap();
        eventually("it ends cleanly", || driver.rig.counters().ended(Cause::Clean).value() == 1);
        driver.rig.settle();
        driver.stop();
    }
}

#[test]
fn a_service_that_accepts_no_more_lets_clients_wait() {
    let _others = among_others();
    let driver = Driver::start(Wanted::echo(), false);
    let first = Client::connect(&driver.rig, VERSIONS[1]).unwrap();
    let id = driver.opened();
    driver.desk.refuses.store(true, SeqCst);
    // Only the end of a turn asks.
    driver.desk.command(id, Command::Nothing);
    let turns = || driver.rig.counters().turns.value();
    let before = turns();
    eventually("it rests, and asks again", || turns() > before + 3);
    let mut second = Client::begin(&driver.rig, VERSIONS[1]);
    let turns = turns_in(&driver, Duration::from_millis(200));
    assert!((2..100).contains(&turns), "{turns} turns: it spins, or never asks again");
    assert_eq!(driver.rig.counters().accepted.value(), 1);
    driver.desk.refuses.store(false, SeqCst);
    driver.desk.command(id, Command::Nothing);
    second.handshake().unwrap();
    driver.opened();
    // Without an order it is asked again all the same.
    driver.desk.refuses.store(true, SeqCst);
    drop(first);
    driver.left();
    let mut third = Client::begin(&driver.rig, VERSIONS[1]);
    driver.silence();
    assert_eq!(driver.rig.counters().accepted.value(), 2);
    driver.desk.refuses.store(false, SeqCst);
    third.handshake().unwrap();
    driver.opened();
    assert_eq!(driver.rig.counters().accept_errors.value(), 0);
    driver.stop();
}

#[test]
fn nothing_of_an_abandoned_client_reaches_the_service() {
    let _others = among_others();
    let (driver, mut client, id) = opened(VERSIONS[1]);
    client.send(b"left over").unwrap();
    eventually("it arrives", || driver.rig.counters().received_bytes.value() > 0);
    driver.desk.command(id, Command::Abandon);
    // An urgent mark makes the socket look as if an error had arrived.
    rustix::net::send(&client.socket, b"!", rustix::net::SendFlags::OOB).unwrap();
    client.send(b"unwanted").unwrap();
    driver.silence();
    driver.desk.command(id, Command::Write(b"still heard".to_vec()));
    assert_eq!(client.receive(11).unwrap(), b"still heard");
    driver.desk.command(id, Command::Finish);
    assert_eq!(client.read_to_end(), (Vec::new(), Seen::Clean));
    driver.ended(Cause::Clean);
    driver.stop();
}

#[test]
fn an_order_that_comes_just_before_the_lane_sleeps_is_taken() {
    let _others = among_others();
    // Without a timer that would wake the lane.
    let timeouts = Timeouts::of_handshake(Duration::MAX);
    let driver = Driver::start(Wanted::timed(timeouts), false);
    let mut client = Client::connect(&driver.rig, VERSIONS[1]).unwrap();
    let id = driver.opened();
    driver.silence();
    driver.desk.order_late(Order::Command(id, Command::Write(b"late".to_vec())));
    let rings = driver.desk.rings.load(SeqCst);
    client.socket.set_read_timeout(Some(crate::rig::PATIENCE / 4)).unwrap();
    driver.desk.command(id, Command::Nothing);
    assert_eq!(client.receive(4).unwrap(), b"late");
    assert_eq!(driver.desk.rings.load(SeqCst), rings + 1);
    driver.stop();
}

#[test]
fn orders_for_connections_that_are_gone_reach_nobody() {
    let _others = among_others();
    let (driver, client, old) = opened(VERSIONS[1]);
    drop(client);
    driver.left();
    let mut next = Client::connect(&driver.rig, VERSIONS[1]).unwrap();
    let id = driver.opened();
    assert_eq!(old.bits() & u64::from(u32::MAX), id.bits() & u64::from(u32::MAX), "one slot");
    let gone =
        [old.bits(), u64::MAX, u64::from(u32::MAX), id.bits() | 1 << 61, id.bits() | 1 << 63];
    for bits in gone {
        let gone = ConnectionId::from_bits(bits);
        driver.desk.command(gone, Command::Panic);
        driver.desk.choose(gone, Chosen::Refuse);
    }
    driver.desk.choose(id, Chosen::Refuse);
    driver.desk.command(id, Command::Write(b"alive".to_vec()));
    assert_eq!(next.receive(5).unwrap(), b"alive");
    assert_eq!(driver.rig.counters().panics.value(), 0);
    driver.stop();
}

#[test]
fn a_command_for_a_refused_client_is_dropped() {
    let _others = among_others();
    let (driver, mut client, id) = opened(VERSIONS[1]);
    client.socket.write_all(&[&[23, 3, 3, 0, 32][..], &[7; 32]].concat()).unwrap();
    let alert = Seen::Alert(rustls::AlertDescription::BadRecordMac);
    assert_eq!(client.read_to_end(), (Vec::new(), alert));
    driver.desk.command(id, Command::Panic);
    driver.silence();
    drop(client);
    driver.ended(Cause::ProtocolError);
    assert_eq!(driver.rig.counters().panics.value(), 0);
    driver.stop();
}

#[test]
fn more_orders_than_a_turn_takes_are_taken_without_waiting() {
    let _others = among_others();
    let (driver, mut client, id) = opened(VERSIONS[1]);
    driver.silence();
    let (turns, rings) = (driver.rig.counters().turns.value(), driver.desk.rings.load(SeqCst));
    let many = (0..5 * ORDERS_MAX).map(|_| Order::Command(id, Command::Nothing));
    let last = Order::Command(id, Command::Write(b"last".to_vec()));
    driver.desk.order_all(many.chain([last]));
    assert_eq!(client.receive(4).unwrap(), b"last");
    driver.silence();
    assert_eq!(driver.desk.rings.load(SeqCst), rings + 1, "one bell for all");
    let turns = driver.rig.counters().turns.value() - turns;
    assert!((6..12).contains(&turns), "{turns} turns");
    driver.stop();
}

#[test]
fn a_stop_takes_the_orders_that_are_there() {
    let _others = among_others();
    let (driver, mut client, id) = opened(VERSIONS[1]);
    let many = (0..5 * ORDERS_MAX).map(|_| Order::Command(id, Command::Nothing));
    let last = [Command::Write(b"last".to_vec()), Command::Finish, Command::Abandon];
    let last = last.map(|command| Order::Command(id, command));
    let mut waiting = Client::connect(&driver.rig, VERSIONS[1]).unwrap();
    driver.opened();
    // The lane finds all of them in the turn in which it is told to stop.
    driver.desk.command(id, Command::Wait);
    driver.rig.gate.wait();
    driver.desk.order_all(many.chain(last));
    driver.rig.handle.post(sealane_lanes::mailbox::Mail::Stop);
    driver.rig.gate.wait();
    assert_eq!(driver.stop().cut, 1);
    assert_eq!(client.read_to_end(), (b"last".to_vec(), Seen::Clean));
    assert_eq!(read_to_end(&mut waiting.socket), (Vec::new(), RESET));
}

#[test]
fn a_panic_in_a_command_or_when_all_has_left_costs_one_connection() {
    let _others = among_others();
    let (driver, mut steady, id) = opened(VERSIONS[1]);
    let mut client = Client::connect(&driver.rig, VERSIONS[1]).unwrap();
    let unlucky = driver.opened();
    driver.desk.command(unlucky, Command::Panic);
    driver.ended(Cause::Internal);
    assert_eq!(client.read_to_end(), (Vec::new(), RESET));

    driver.rig.publish(2, Wanted::new(Behaviour::Panic("client_drained")));
    let mut client = Client::connect(&driver.rig, VERSIONS[1]).unwrap();
    let unlucky = driver.opened();
    for _ in 0..64 {
        driver.desk.command(unlucky, Command::Write(vec![1; 128 << 10]));
        driver.desk.command(unlucky, Command::Look);
        if !matches!(driver.next(), Told::Pending(0, true)) {
            break;
        }
    }
    let seen = client.read_to_end().1;
    assert!(seen != Seen::Clean, "{seen:?}");
    driver.ended(Cause::Internal);

    assert_eq!(driver.rig.counters().panics.value(), 2);
    driver.desk.command(id, Command::Take(5));
    steady.send(b"hello").unwrap();
    assert_eq!(driver.data(5), b"hello");
    driver.desk.command(id, Command::Write(b"hello".to_vec()));
    assert_eq!(steady.receive(5).unwrap(), b"hello");
    driver.rig.script.set(Plan::Never);
    driver.stop();
}
