//! Every connection ends once, with its cause, and its id names no other.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use sealane_lanes::cause::Cause;
use sealane_node::control::Order;
use sealane_node::events::DOWN_TEXT_BYTES_MAX;
use sealane_node::message::{HEADER_BYTES, RESET, WINDOW_IN, WRITE};
use sealane_node::settings::Handover;

use crate::rig::{Client, Rig, read_to_end, send_and_finish};
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
fn a_clients_end_is_told_once() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let mut client = rig.connect();
    let id = script.opened();
    send_and_finish(&mut client, &[]);
    assert_eq!(script.next(), Said::End(id));
    script.end(id);
    assert_eq!(script.next(), Said::Close(id, Cause::Clean));
}

/// Fills the ring until no end finds room in it.
fn fill(rig: &Rig, script: &Script) -> Vec<Client> {
    const LUMP: usize = 16_000;
    let mut clients = Vec::new();
    loop {
        let before = script.room();
        let mut client = rig.connect();
        rig.eventually("it is opened", |_| script.room() < before);
        for _ in 0..WINDOW_IN as usize / LUMP {
            let room = script.room();
            let Some(spare) = room.checked_sub(DOWN_TEXT_BYTES_MAX + 3 * HEADER_BYTES) else {
                clients.push(client);
                return clients;
            };
            let len = (spare + HEADER_BYTES).min(LUMP);
            client.write_all(&vec![0; len]).unwrap();
            rig.eventually("it is in the ring", |_| script.room() == room - HEADER_BYTES - len);
        }
        clients.push(client);
    }
}

#[test]
fn a_slot_is_not_opened_again_before_its_end_was_told() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let first = rig.connect();
    let id = script.opened();
    let fillers = fill(&rig, &script);
    drop(first);
    rig.eventually("it is gone", |rig| rig.connections() == fillers.len() as u64);
    // Room comes in the turn in which the next one in its slot has completed its handshake.
    let mut second = rig.connect_almost();
    script.read_ahead();
    second.conn.write_tls(&mut second.sock).unwrap();
    rig.eventually("it is handed over", |rig| {
        rig.counts.opened.value() == 2 + fillers.len() as u64
    });
    let slot = |id: u64| id & u64::from(u32::MAX);
    let mut is_closed = false;
    loop {
        match script.next() {
            Said::Close(closed, _) => is_closed |= closed == id,
            Said::Open(opened) if slot(opened) == slot(id) => break,
            _ => {}
        }
    }
    assert!(is_closed);
}

#[test]
fn a_lane_that_nobody_reads_ends() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let mut client = rig.connect();
    script.opened();
    script.leave();
    let end = client.read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::UnexpectedEof));
    rig.eventually("nobody listens", |rig| TcpStream::connect(rig.address).is_err());
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

/// Clients that come, send something and leave in every way, and a server that destroys many.
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
            // A client that leaves before the handshake is complete here causes no event.
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
