//! At a limit somebody suffers by a stated rule, it is counted, and nobody else notices.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use sealane_lanes::cause::Cause;
use sealane_lanes::limits::Limits;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::timeouts::Timeouts;

use crate::backend::{Backend, RESET, read_to_end, reset};
use crate::client::{Client, Seen, VERSIONS};
use crate::kernel::Plan;
use crate::rig::{PATIENCE, Rig, Wanted, among_others, eventually};
use crate::service::{Behaviour, PANIC_WORD, WAIT_WORD};

fn must_echo(client: &mut Client) {
    client.send(b"hello?").unwrap();
    assert_eq!(client.receive(6).unwrap(), b"hello?");
}

#[test]
fn a_silent_client_gets_the_handshake_timeout() {
    let _others = among_others();
    let handshake = Duration::from_millis(150);
    let rig = Rig::start(Wanted::timed(Timeouts { handshake, ..Timeouts::default() }));
    let mut silent = rig.connect();
    let mut half = rig.connect();
    half.write_all(&[22, 3, 1]).unwrap();
    // One that has answered the hello, but never finishes.
    let mut stuck = Client::begin(&rig, VERSIONS[1]);
    stuck.tls.write_tls(&mut stuck.socket).unwrap();
    let mut steady = Client::connect(&rig, VERSIONS[1]).unwrap();
    assert_eq!(read_to_end(&mut silent), (Vec::new(), RESET));
    assert_eq!(read_to_end(&mut half), (Vec::new(), RESET));
    assert_eq!(read_to_end(&mut stuck.socket).1, RESET);
    rig.await_end(Cause::HandshakeTimeout, 3);
    must_echo(&mut steady);
    rig.stop();
}

#[test]
fn an_idle_connection_ends_even_where_handshakes_may_take_longer() {
    let _others = among_others();
    let idle = Duration::from_millis(100);
    for version in VERSIONS {
        let timeouts = Timeouts { handshake: PATIENCE, idle, ..Timeouts::default() };
        let rig = Rig::start(Wanted::timed(timeouts));
        let mut client = Client::connect(&rig, version).unwrap();
        client.socket.set_read_timeout(Some(PATIENCE / 4)).unwrap();
        assert_eq!(client.read_to_end().1, RESET);
        rig.await_end(Cause::Idle, 1);
        rig.stop();
    }
}

#[test]
fn the_newest_connection_is_reset_at_connections_max() {
    let _others = among_others();
    let limits = Limits { connections_max: 3, ..Limits::default() };
    let rig = Rig::start(Wanted::limited(limits));
    let mut kept: Vec<_> = (0..3).map(|_| Client::connect(&rig, VERSIONS[1]).unwrap()).collect();
    for refused in 1..=2 {
        let mut socket = rig.connect();
        assert_eq!(read_to_end(&mut socket), (Vec::new(), RESET));
        rig.await_end(Cause::LimitConnections, refused);
    }
    kept.iter_mut().for_each(must_echo);
    drop(kept.pop());
    eventually("a place is free", || rig.counters().connections.value() == 2);
    must_echo(&mut Client::connect(&rig, VERSIONS[1]).unwrap());
    rig.stop();
}

#[test]
fn the_oldest_handshake_is_reset_at_handshakes_max() {
    let _others = among_others();
    let limits = Limits { handshakes_max: 2, ..Limits::default() };
    let rig = Rig::start(Wanted::limited(limits));
    let mut established = Client::connect(&rig, VERSIONS[1]).unwrap();
    let mut waiting = Vec::new();
    for number in 1..=5 {
        waiting.push(Client::begin(&rig, VERSIONS[0]));
        eventually("it is accepted", || rig.counters().accepted.value() == number + 1);
    }
    for client in &mut waiting[..3] {
        assert_eq!(read_to_end(&mut client.socket), (Vec::new(), RESET));
    }
    rig.await_end(Cause::LimitHandshakes, 3);
    assert_eq!(rig.counters().handshaking.value(), 2);
    for client in &mut waiting[3..] {
        client.handshake().unwrap();
        must_echo(client);
    }
    must_echo(&mut established);
    drop((waiting, established));
    rig.settle();
    rig.stop();
}

#[test]
fn without_descriptors_a_listener_rests_and_goes_on() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let mut established = Client::connect(&rig, VERSIONS[1]).unwrap();
    rig.script.set(Plan::NoDescriptors);
    let mut waiting = Client::begin(&rig, VERSIONS[1]);
    eventually("accept fails", || rig.counters().accept_errors.value() > 1);
    must_echo(&mut established);
    assert!(rig.script.calls() < 50, "it spins: {} calls", rig.script.calls());
    rig.script.set(Plan::Never);
    waiting.handshake().unwrap();
    must_echo(&mut waiting);
    rig.stop();
}

#[test]
fn a_panic_costs_one_connection() {
    let _others = among_others();
    for place in ["established", "plaintext", "attached_readable", "client_ended", "ended"] {
        for version in VERSIONS {
            let rig = Rig::start(Wanted::echo());
            let mut steady = Client::connect(&rig, version).unwrap();
            rig.publish(2, Wanted::new(Behaviour::Panic(place)));
            // Fails where it may: what matters is what the others see.
            if let Ok(mut client) = Client::connect(&rig, version) {
                let _ = client.send(PANIC_WORD);
                let _ = client.finish();
                let clean = client.read_to_end().1 == Seen::Clean;
                assert_eq!(clean, place == "ended", "{place}");
            }
            eventually(place, || rig.counters().panics.value() == 1);
            eventually(place, || rig.counters().connections.value() == 1);
            assert_eq!(rig.counters().handshaking.value(), 0, "{place}");
            must_echo(&mut steady);
            rig.publish(3, Wanted::echo());
            must_echo(&mut Client::connect(&rig, version).unwrap());
            rig.stop();
        }
    }
}

#[test]
fn an_echo_to_a_client_that_never_reads_has_a_bound() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let mut client = Client::connect(&rig, VERSIONS[1]).unwrap();
    client.socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let bytes = vec![1; 65_536];
    let mut sent = 0;
    while sent < 256 << 20 && client.send(&bytes).is_ok() {
        sent += bytes.len();
    }
    assert!(sent < 64 << 20, "{sent} bytes were taken from a client that reads nothing");
    must_echo(&mut Client::connect(&rig, VERSIONS[1]).unwrap());
    reset(client.socket);
    rig.stop();
}

#[test]
fn a_drain_lets_connections_finish_and_takes_no_others() {
    let _others = among_others();
    let backend = Backend::answering(b"answer".to_vec());
    let rig = Rig::start(Wanted::relay(backend.address));
    let mut client = Client::connect(&rig, VERSIONS[1]).unwrap();
    client.send(b"request").unwrap();
    let mut silent = rig.connect();
    eventually("the silent one is accepted", || rig.counters().accepted.value() == 2);
    rig.handle.post(Mail::Drain(PATIENCE));
    assert_eq!(read_to_end(&mut silent).1, RESET);
    eventually("nobody is taken", || std::net::TcpStream::connect(rig.address).is_err());
    assert!(!rig.handle.has_ended());
    client.finish().unwrap();
    assert_eq!(client.read_to_end(), (b"answer".to_vec(), Seen::Clean));
    assert_eq!(rig.handle.join().unwrap(), sealane_lanes::LaneEnd { cut: 0 });
}

#[test]
fn a_drain_serves_a_client_that_was_taken_just_now_and_has_not_said_a_word() {
    let _others = among_others();
    // On a machine that stands still for longer than a client may be silent, it is one of the next.
    let served = (0..8).any(|_| {
        let rig = Rig::start(Wanted::echo());
        let mut client = Client::begin(&rig, VERSIONS[1]);
        eventually("it is accepted", || rig.counters().accepted.value() == 1);
        rig.handle.post(Mail::Drain(PATIENCE));
        eventually("nobody is taken", || std::net::TcpStream::connect(rig.address).is_err());
        let served = client.handshake().is_ok() && client.send(b"here").is_ok();
        let served = served && client.receive(4).is_ok_and(|echo| echo == b"here");
        drop(client);
        assert_eq!(rig.handle.join().unwrap().cut, 0);
        served
    });
    assert!(served);
}

#[test]
fn what_a_drain_cuts_looks_clean_only_if_it_was_at_rest() {
    let _others = among_others();
    for version in VERSIONS {
        let rig = Rig::start(Wanted::echo());
        let mut quiet = Client::connect(&rig, version).unwrap();
        let mut moving = Client::connect(&rig, version).unwrap();
        must_echo(&mut quiet);
        must_echo(&mut moving);
        std::thread::sleep(Duration::from_millis(1_100));
        rig.handle.post(Mail::Drain(Duration::from_millis(300)));
        std::thread::sleep(Duration::from_millis(100));
        must_echo(&mut moving);
        assert_eq!(quiet.read_to_end(), (Vec::new(), Seen::Clean));
        assert_eq!(moving.read_to_end(), (Vec::new(), RESET));
        assert_eq!(rig.handle.join().unwrap(), sealane_lanes::LaneEnd { cut: 1 });
    }
}

#[test]
fn a_stop_resets_what_is_open() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let mut client = Client::connect(&rig, VERSIONS[1]).unwrap();
    must_echo(&mut client);
    assert_eq!(rig.stop(), sealane_lanes::LaneEnd { cut: 1 });
    assert_eq!(client.read_to_end(), (Vec::new(), RESET));
}

#[test]
fn a_generation_is_freed_with_its_last_connection() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let second = rig.publish(2, Wanted::echo());
    let mut old = Client::connect(&rig, VERSIONS[1]).unwrap();
    must_echo(&mut old);
    let backend = Backend::answering(b"from the third".to_vec());
    let third = rig.publish(3, Wanted::relay(backend.address));
    // The old connection keeps what it has, a new one gets the new.
    must_echo(&mut old);
    let mut new = Client::connect(&rig, VERSIONS[1]).unwrap();
    new.finish().unwrap();
    assert_eq!(new.read_to_end(), (b"from the third".to_vec(), Seen::Clean));
    assert!(second.upgrade().is_some(), "a connection still lives under it");
    old.finish().unwrap();
    assert_eq!(old.read_to_end(), (Vec::new(), Seen::Clean));
    eventually("the second generation is freed", || second.upgrade().is_none());
    assert!(third.upgrade().is_some());
    rig.stop();
    assert!(third.upgrade().is_none());
}

#[test]
fn sessions_resume_across_generations() {
    let _others = among_others();
    for version in VERSIONS {
        let rig = Rig::start(Wanted::echo());
        let config = crate::client::config(version);
        for number in 2..5 {
            let mut client = Client::with(&rig, config.clone());
            client.handshake().unwrap();
            must_echo(&mut client);
            client.finish().unwrap();
            assert_eq!(client.read_to_end().1, Seen::Clean);
            let resumed = client.tls.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
            assert_eq!(resumed, number > 2, "{:?}", version.version);
            rig.publish(number, Wanted::echo());
        }
        rig.stop();
    }
}

#[test]
fn a_client_that_half_closes_a_silent_connection_ends_it() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let mut socket = rig.connect();
    socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(socket.read(&mut [0; 1]).map_err(|error| error.kind()).unwrap_or(0), 0);
    rig.await_end(Cause::ClientGone, 1);
    rig.settle();
    rig.stop();
}

#[test]
fn a_drain_does_not_cut_a_client_whose_hello_has_arrived() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let mut waiting = Client::connect(&rig, VERSIONS[1]).unwrap();
    waiting.send(WAIT_WORD).unwrap();
    rig.gate.wait();
    // The lane is held up while a client connects and speaks, another only connects, and the end
    // comes.
    let mut speaking = Client::begin(&rig, VERSIONS[1]);
    speaking.tls.write_tls(&mut speaking.socket).unwrap();
    let silent = rig.connect();
    rig.handle.post(Mail::Drain(PATIENCE));
    rig.gate.wait();
    speaking.handshake().unwrap();
    speaking.send(b"still there?").unwrap();
    assert_eq!(speaking.receive(12).unwrap(), b"still there?");
    rig.await_end(Cause::LaneStopped, 1);
    drop((speaking, silent, waiting));
    assert_eq!(rig.handle.join().unwrap().cut, 0);
}
