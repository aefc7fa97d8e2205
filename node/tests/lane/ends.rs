//! Every connection ends once, with its cause, and its id names no other.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::net::sockopt;
use sealane_lanes::cause::Cause;
use sealane_node::control::Order;
use sealane_node::message::{RESET, WINDOW_IN, WRITE};
use sealane_node::settings::Handover;

use crate::rig::{Rig, read_to_end, send_and_finish};
use crate::script::{Said, Script};

#[test]
fn an_end_in_one_direction_leaves_the_other() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let mut client = rig.connect();
    let id = script.opened();
    script.finish(id, b"all I have");
    assert_eq!(read_to_end(&mut client), b"all I have");
    send_and_finish(&mut client, b"but I have more");
    assert_eq!(script.next(), Said::Data(id, b"but I have more".to_vec()));
    assert_eq!(script.next(), Said::End(id));
    assert_eq!(script.next(), Said::Close(id, Cause::Clean));
}

#[test]
fn a_client_without_close_notify_is_told_apart() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let mut client = rig.connect();
    let id = script.opened();
    client.write_all(b"cut").unwrap();
    assert_eq!(script.next(), Said::Data(id, b"cut".to_vec()));
    client.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(script.next(), Said::Close(id, Cause::ClientTruncated));
    let end = client.read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::UnexpectedEof), "an end without close_notify, and no reset");
}

#[test]
fn what_came_before_an_end_without_close_notify_waits_for_the_window() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let mut client = rig.connect();
    let id = script.opened();
    client.write_all(&vec![1; WINDOW_IN as usize]).unwrap();
    let mut got = 0;
    while got < WINDOW_IN as usize {
        match script.next() {
            Said::Data(from, bytes) if from == id => got += bytes.len(),
            other => panic!("{other:?}"),
        }
    }
    // The last bytes and FIN in one segment.
    sockopt::set_tcp_cork(&client.sock, true).unwrap();
    client.write_all(b"the last").unwrap();
    client.sock.shutdown(Shutdown::Write).unwrap();
    // A later connection is served when the lane has seen all that.
    rig.connect();
    assert!(matches!(script.next(), Said::Open(_)), "nothing is said before there is a window");
    script.credit(id, got);
    while let said = script.next()
        && said != Said::Data(id, b"the last".to_vec())
    {
        assert!(!matches!(said, Said::Close(from, _) if from == id), "the last bytes are lost");
    }
    while script.next() != Said::Close(id, Cause::ClientTruncated) {}
}

#[test]
fn an_end_that_found_no_room_is_told_before_the_next_connection_in_its_place() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let leaving = rig.connect();
    let left = script.opened();
    let mut fillers: Vec<_> = (0..7).map(|_| rig.connect()).collect();
    for _ in &fillers {
        script.opened();
    }
    for (number, filler) in fillers.iter_mut().enumerate() {
        // The last ones find out that there is room for nothing at all.
        let (bytes, times) = [(16_384, 16), (1_000, 64), (1, 64)][number.saturating_sub(4)];
        let stalls = rig.counts.stalls.value();
        for _ in 0..times {
            filler.write_all(&vec![0; bytes]).unwrap();
            sleep(Duration::from_millis(1));
            if rig.counts.stalls.value() > stalls {
                break;
            }
        }
    }
    drop(leaving);
    rig.eventually("it has left", |rig| rig.connections() == 7);
    let mut next = rig.half_connect();
    script.drop_all();
    while next.conn.wants_write() {
        next.conn.complete_io(&mut next.sock).unwrap();
    }
    let first = script.next();
    assert!(matches!(first, Said::Close(id, _) if id == left), "{first:?} comes first");
    let opened = script.opened();
    assert_eq!(opened & u64::from(u32::MAX), left & u64::from(u32::MAX), "it has that place");
}

#[test]
fn destroy_closes_and_reset_resets() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let mut client = rig.connect();
    let id = script.opened();
    script.write(id, b"bye");
    script.destroy(id);
    assert_eq!(script.next(), Said::Close(id, Cause::ServiceClosed));
    let mut got = Vec::new();
    let end = client.read_to_end(&mut got).map_err(|error| error.kind());
    assert_eq!((end, &got[..]), (Err(ErrorKind::UnexpectedEof), &b"bye"[..]));

    let mut client = rig.connect();
    let id = script.opened();
    script.say(RESET, 0, id, &[]);
    assert_eq!(script.next(), Said::Close(id, Cause::ServiceReset));
    let end = client.read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
}

#[test]
fn what_is_said_to_a_connection_that_is_gone_is_dropped() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    drop(rig.connect());
    let gone = script.opened();
    assert!(matches!(script.next(), Said::Close(id, _) if id == gone));
    script.say(WRITE, 0, gone, b"too late");
    script.destroy(gone);
    let mut client = rig.connect();
    let id = script.opened();
    assert_ne!(id, gone, "the slot's next tenant has another id");
    client.write_all(b"unharmed").unwrap();
    assert_eq!(script.next(), Said::Data(id, b"unharmed".to_vec()));
}

#[test]
fn the_last_word_of_a_lane_is_down() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let _client = rig.connect();
    let id = script.opened();
    rig.control.stop();
    assert_eq!(script.next(), Said::Close(id, Cause::LaneStopped));
    assert_eq!(script.next(), Said::Down(String::new()));
}

#[test]
fn a_drained_lane_ends_with_its_last_connection() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let mut client = rig.connect();
    let id = script.opened();
    rig.control.order(Order::Drain);
    client.write_all(b"still served").unwrap();
    assert_eq!(script.next(), Said::Data(id, b"still served".to_vec()));
    script.finish(id, b"and answered");
    assert_eq!(read_to_end(&mut client), b"and answered");
    send_and_finish(&mut client, &[]);
    assert_eq!(script.next(), Said::End(id));
    assert_eq!(script.next(), Said::Close(id, Cause::Clean));
    assert_eq!(script.next(), Said::Down(String::new()));
}

#[test]
fn a_ring_that_is_broken_ends_the_lane_with_a_word() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let _client = rig.connect();
    script.opened();
    script.commands.write(&[0xff; 64]);
    script.ring();
    match script.next() {
        Said::Down(text) => assert!(text.contains("written over"), "{text}"),
        other => panic!("{other:?}"),
    }
    rig.eventually("its connections are closed", |rig| rig.connections() == 0);
}

#[cfg(feature = "faults")]
#[test]
fn a_panic_in_a_connection_costs_that_one_and_one_outside_the_lane() {
    use sealane_node::message::PANIC;
    let (rig, mut script) = Rig::start(Handover::Ring);
    let (_one, mut two) = (rig.connect(), rig.connect());
    let (first, second) = (script.opened(), script.opened());
    script.say(PANIC, 0, first, &[0]);
    assert_eq!(script.next(), Said::Close(first, Cause::Internal));
    two.write_all(b"unharmed").unwrap();
    assert_eq!(script.next(), Said::Data(second, b"unharmed".to_vec()));
    script.say(PANIC, 0, second, &[1]);
    match script.next() {
        Said::Down(text) => assert!(text.contains("panicked"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// Clients that come, say something and leave in every way, and a server that destroys many.
fn churn(rig: &Rig, script: &mut Script, connections: usize) {
    const CLIENTS: usize = 8;
    let address_of = rig;
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || {
                for round in 0..connections / CLIENTS {
                    let mut client = address_of.connect();
                    let _ = client.write_all(b"hello");
                    match (round + number) % 3 {
                        0 => drop(client),
                        1 => {
                            client.conn.send_close_notify();
                            let _ = client.flush();
                            let _ = client.read(&mut [0; 64]);
                        }
                        _ => {
                            let _ = client.read(&mut [0; 64]);
                        }
                    }
                }
            });
        }
        let (mut opened, mut closed) = (0_usize, 0);
        while closed < connections / CLIENTS * CLIENTS {
            // Whoever leaves before the handshake is complete here is never told of.
            match script.next() {
                Said::Open(_) => opened += 1,
                Said::Data(id, bytes) => {
                    script.credit(id, bytes.len());
                    if opened % 4 == 0 {
                        script.destroy(id);
                    } else {
                        script.finish(id, b"you are welcome");
                    }
                }
                Said::Close(id, _) => {
                    assert!(!script.is_open(id));
                    closed += 1;
                }
                Said::End(_) | Said::Credit(..) => {}
                Said::Other(7) => closed += 1,
                other => panic!("{other:?}"),
            }
        }
    });
    assert_eq!(script.open_count(), 0);
}

#[test]
fn no_id_is_stale_however_connections_end() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    churn(&rig, &mut script, 400);
    rig.eventually("none is left", |rig| rig.connections() == 0);
}

/// `cargo test --release -p sealane-node --test lane -- --ignored soak`
#[test]
#[ignore = "minutes of handshakes"]
fn soak_100_000_connections() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    churn(&rig, &mut script, 100_000);
    rig.eventually("none is left", |rig| rig.connections() == 0);
}
