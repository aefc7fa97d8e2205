//! Bytes that begin something and do not end it: they buy no time and little memory; and the end of
//! a connection that is old.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use sealane_lanes::cause::Cause;
use sealane_lanes::limits::Limits;
use sealane_lanes::timeouts::Timeouts;

use crate::backend::{Backend, RESET, read_to_end};
use crate::client::{Client, Seen, VERSIONS};
use crate::hostile::stalled;
use crate::rig::{PATIENCE, Rig, Wanted, among_others, eventually};
use crate::sealed::Identity;

/// The header of a full record of application data.
const RECORD_HEADER: [u8; 5] = [23, 3, 3, 0x40, 0x10];

fn must_echo(client: &mut Client) {
    client.send(b"hello?").unwrap();
    assert_eq!(client.receive(6).unwrap(), b"hello?");
}

#[test]
fn bytes_of_a_record_that_never_ends_do_not_renew_the_idle_timeout() {
    let _others = among_others();
    let idle = Duration::from_millis(400);
    for version in VERSIONS {
        let rig = Rig::start(Wanted::timed(Timeouts { idle, ..Timeouts::default() }));
        let mut client = Client::connect(&rig, version).unwrap();
        must_echo(&mut client);
        client.socket.write_all(&RECORD_HEADER).unwrap();
        eventually("it is idle", || {
            // Fails as soon as the lane has lost its patience.
            let _ = client.socket.write_all(&[0]);
            rig.counters().ended(Cause::Idle).value() == 1
        });
        rig.settle();
        rig.stop();
    }
}

#[test]
fn the_longest_wait_ends_where_a_lane_keeps_too_much() {
    let _others = among_others();
    let limits = Limits { unfinished_bytes_max: 100_000, ..Limits::default() };
    let rig = Rig::start(Wanted::limited(limits));
    // Without tickets that come when they like.
    let version = VERSIONS[0];
    let mut steady = Client::connect(&rig, version).unwrap();
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(&rig, version).unwrap()).collect();
    let begun = [&RECORD_HEADER[..], &[7; 15_995]].concat();
    // What the first one has begun it ends when the third has begun, and begins anew: from then on
    // the second is the one that waits longest.
    let mut sealed = Vec::new();
    clients[0].tls.writer().write_all(&[1; 16_000]).unwrap();
    clients[0].tls.write_tls(&mut sealed).unwrap();
    let (front, back) = sealed.split_at(15_000);
    clients[0].socket.write_all(front).unwrap();
    must_echo(&mut steady);
    for number in 1..8 {
        clients[number].socket.write_all(&begun).unwrap();
        must_echo(&mut steady);
        if number == 2 {
            clients[0].socket.write_all(&[back, &begun].concat()).unwrap();
            assert_eq!(clients[0].receive(16_000).unwrap(), [1; 16_000]);
        }
    }
    // Six times 16,000 bytes are what it may keep; two are too many.
    rig.await_end(Cause::LimitUnfinished, 2);
    for (number, client) in clients.iter_mut().enumerate() {
        client.socket.set_nonblocking(true).unwrap();
        let read = client.socket.read(&mut [0]).map_err(|error| error.kind());
        let expected = if [1, 2].contains(&number) {
            ErrorKind::ConnectionReset
        } else {
            ErrorKind::WouldBlock
        };
        assert_eq!(read, Err(expected), "{number}");
    }
    must_echo(&mut steady);
    drop((clients, steady));
    rig.settle();
    rig.stop();
}

/// What its client sends renews the place of no connection whose backend has begun something.
#[test]
fn whole_records_of_a_client_do_not_renew_the_wait_for_its_backend() {
    let _others = among_others();
    // Without tickets that come when they like.
    let version = VERSIONS[0];
    let identity = Identity::good(version);
    // Answers each byte, and begins a record behind the answer to a 1.
    let backend = identity.backend(|mut server| {
        while let Ok(asked) = server.receive(1) {
            server.tls.writer().write_all(&asked).unwrap();
            let mut answer = Vec::new();
            server.tls.write_tls(&mut answer).unwrap();
            if asked == [1] {
                answer.extend([&RECORD_HEADER[..], &[7; 15_995]].concat());
            }
            if server.socket.write_all(&answer).is_err() {
                break;
            }
        }
        server.read_to_end()
    });
    let limits = Limits { unfinished_bytes_max: 100_000, ..Limits::default() };
    let rig = Rig::start(Wanted { limits, ..identity.relay(&[&backend]) });
    let ask = |client: &mut Client, what: u8| {
        client.send(&[what]).unwrap();
        assert_eq!(client.receive(1).unwrap(), [what]);
    };
    let mut steady = Client::connect(&rig, version).unwrap();
    let mut clients: Vec<_> = (0..7).map(|_| Client::connect(&rig, version).unwrap()).collect();
    for number in 0..7 {
        if number == 6 {
            clients[0].send(&[2]).unwrap();
        }
        ask(&mut clients[number], 1);
        ask(&mut steady, 3);
    }
    // Six times 16,000 bytes are what it may keep.
    rig.await_end(Cause::LimitUnfinished, 1);
    let (first, second) = (clients[0].read_to_end(), clients[1].socket.set_nonblocking(true));
    assert!(!matches!(first.1, Seen::Clean), "{first:?}");
    second.unwrap();
    let read = clients[1].socket.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::WouldBlock));
    ask(&mut steady, 3);
    drop((clients, steady));
    rig.settle();
    rig.stop();
}

#[test]
fn at_its_greatest_age_a_connection_ends_whatever_it_does() {
    let _others = among_others();
    let limits =
        Limits { connection_age_max: Some(Duration::from_millis(300)), ..Limits::default() };
    for version in VERSIONS {
        let backend = Backend::start(|mut socket| {
            let mut echo = socket.try_clone().unwrap();
            let got = std::io::copy(&mut socket, &mut echo);
            (Vec::new(), got.map_or_else(|error| Seen::Failed(error.kind()), |_| Seen::Clean))
        });
        let rig = Rig::start(Wanted { limits: limits.clone(), ..Wanted::relay(backend.address) });
        let mut client = Client::connect(&rig, version).unwrap();
        let until = Instant::now() + PATIENCE;
        let ended = loop {
            assert!(Instant::now() < until, "it goes on for ever");
            if client.send(b"busy").is_err() || client.receive(4).is_err() {
                break client.read_to_end();
            }
        };
        assert_eq!(ended, (Vec::new(), Seen::Clean), "close_notify, and FIN");
        drop(client);
        rig.await_end(Cause::LimitAge, 1);
        assert_eq!(backend.got().1, RESET, "what the client still had to say is missing");
        rig.settle();
        rig.stop();
    }
}

/// What is read ahead of a backend lies in memory that no pool counts.
#[test]
fn little_is_read_ahead_while_the_backend_is_being_reached() {
    let _others = among_others();
    let (address, ..) = &stalled();
    for version in VERSIONS {
        let rig = Rig::start(Wanted::relay(*address));
        let mut client = Client::connect(&rig, version).unwrap();
        client.send(b"1").unwrap();
        eventually("it waits", || rig.counters().received_bytes.value() == 1);
        client.tls.writer().write_all(&[2; 60_000]).unwrap();
        let mut sealed = Vec::new();
        while client.tls.wants_write() {
            client.tls.write_tls(&mut sealed).unwrap();
        }
        client.socket.write_all(&sealed).unwrap();
        eventually("more waits", || rig.counters().received_bytes.value() > 1);
        // The client's end would be noticed: turns go by.
        for _ in 0..3 {
            let mut other = Client::connect(&rig, version).unwrap();
            other.send(b"3").unwrap();
        }
        let read = rig.counters().received_bytes.value();
        assert!(read <= 32 << 10, "{read} bytes");
        drop(client);
        rig.stop();
    }
}

#[test]
fn a_fatal_error_while_the_backend_is_being_reached_is_answered_by_its_alert() {
    let _others = among_others();
    let (address, ..) = &stalled();
    let bad = [[23, 3, 3, 0, 32].as_slice(), &[7; 32]].concat();
    for version in VERSIONS {
        for (before, together) in [(false, false), (true, false), (true, true)] {
            let rig = Rig::start(Wanted::relay(*address));
            let mut client = Client::connect(&rig, version).unwrap();
            eventually("the handshake completes", || rig.counters().handshakes.total() == 1);
            let mut bytes = Vec::new();
            if before {
                client.tls.writer().write_all(b"for the backend").unwrap();
                client.tls.write_tls(&mut bytes).unwrap();
            }
            if before && !together {
                client.socket.write_all(&bytes).unwrap();
                eventually("it waits", || rig.counters().received_bytes.value() == 15);
                bytes.clear();
            }
            client.socket.write_all(&[&bytes[..], &bad].concat()).unwrap();
            let (_, seen) = client.read_to_end();
            let case = format!("{version:?} before {before} together {together}");
            assert_eq!(seen, Seen::Alert(rustls::AlertDescription::BadRecordMac), "{case}");
            assert_eq!(read_to_end(&mut client.socket), (Vec::new(), Seen::Clean), "FIN {case}");
            rig.await_end(Cause::ProtocolError, 1);
            rig.stop();
        }
    }
}
