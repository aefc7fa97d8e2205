//! Bytes arrive as they were sent, if either end is slow.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

use sealane_lanes::cause::Cause;
use sealane_node::message::WINDOW_IN;
use sealane_node::settings::Handover;

use crate::rig::{Rig, read_to_end, send_and_finish};
use crate::script::Said;

const MEGABYTE: usize = 1 << 20;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at).to_le_bytes()[0] ^ seed).collect()
}

#[test]
fn ten_megabytes_come_back_within_both_windows() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let sent = pattern(10 * MEGABYTE, 3);
    let mut reader = rig.connect();
    let played = thread::spawn(move || script.echo(1));
    // One thread for both directions, in lumps that fit no buffer exactly.
    let mut got = Vec::with_capacity(sent.len());
    let mut part = vec![0; 100_003];
    for lump in sent.chunks(100_003) {
        reader.write_all(lump).unwrap();
        let part = &mut part[..lump.len()];
        reader.read_exact(part).unwrap();
        got.extend_from_slice(part);
    }
    send_and_finish(&mut reader, &[]);
    assert_eq!(read_to_end(&mut reader), b"");
    assert!(got == sent, "other bytes came back");
    drop(reader);
    played.join().unwrap();
    rig.eventually("it ends", |rig| rig.connections() == 0);
}

#[test]
fn a_full_ring_stalls_its_connections_and_goes_on_when_it_is_read() {
    const CLIENTS: usize = 12;
    let (rig, mut script) = Rig::start(Handover::Ring);
    // More than the ring holds, while it is not read.
    let len = WINDOW_IN as usize;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = rig.connect();
            let seed = u8::try_from(number).unwrap();
            thread::spawn(move || {
                let sent = pattern(len, seed);
                send_and_finish(&mut client, &sent);
                assert!(read_to_end(&mut client) == sent, "other bytes came back");
            })
        })
        .collect();
    rig.eventually("connections find no room", |rig| rig.counts.stalls.value() > 0);
    script.echo(CLIENTS);
    for client in clients {
        client.join().unwrap();
    }
    rig.eventually("all end", |rig| rig.connections() == 0);
}

#[test]
fn a_client_beyond_its_window_waits_for_credit_and_others_go_on() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let mut greedy = rig.connect();
    let id = script.opened();
    let sender = thread::spawn(move || {
        let sent = pattern(3 * WINDOW_IN as usize, 1);
        greedy.write_all(&sent).unwrap();
        (greedy, sent)
    });
    let mut got = Vec::new();
    while got.len() < WINDOW_IN as usize {
        match script.next() {
            Said::Data(from, bytes) if from == id => got.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got.len(), WINDOW_IN as usize, "not a byte more than the window");
    let mut other = rig.connect();
    let second = script.opened();
    other.write_all(b"me too").unwrap();
    assert_eq!(script.next(), Said::Data(second, b"me too".to_vec()));
    // The whole window at once, and then byte by byte of the received data.
    script.credit(id, WINDOW_IN as usize);
    while got.len() < 3 * WINDOW_IN as usize {
        match script.next() {
            Said::Data(from, bytes) if from == id => {
                script.credit(id, bytes.len());
                got.extend_from_slice(&bytes);
            }
            other => panic!("{other:?}"),
        }
    }
    let (_greedy, sent) = sender.join().unwrap();
    assert!(got == sent, "other bytes arrived");
}

#[test]
fn what_came_before_a_cut_arrives() {
    let (rig, mut script) = Rig::start(Handover::Ring);
    let mut client = rig.connect();
    let id = script.opened();
    let sent = pattern(WINDOW_IN as usize + 150_000, 5);
    client.write_all(&sent).unwrap();
    client.sock.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    loop {
        match script.next() {
            Said::Data(_, bytes) => got.extend_from_slice(&bytes),
            other => break assert_eq!(other, Said::Close(id, Cause::ClientTruncated)),
        }
        // Slowly, so that some is left when the last of it comes.
        if got.len() >= WINDOW_IN as usize {
            script.credit(id, 10_000);
        }
    }
    assert_eq!(got.len(), sent.len());
    assert!(got == sent, "other bytes arrived");
}

#[test]
fn what_came_before_a_cut_arrives_through_a_socket() {
    let (rig, mut script) = Rig::start(Handover::Socket);
    let mut client = rig.connect();
    let mut socket = UnixStream::from(script.opened_descriptor());
    socket.set_nonblocking(false).unwrap();
    let sent = pattern(MEGABYTE, 6);
    let expected = sent.clone();
    let sender = thread::spawn(move || {
        client.write_all(&sent).unwrap();
        client.sock.shutdown(Shutdown::Write).unwrap();
        client
    });
    let (mut got, mut part) = (Vec::new(), [0; 1_000]);
    loop {
        match socket.read(&mut part).unwrap() {
            0 => break,
            len => got.extend_from_slice(&part[..len]),
        }
    }
    assert_eq!(got.len(), expected.len());
    assert!(got == expected, "other bytes arrived");
    assert!(matches!(script.next(), Said::Close(_, Cause::ClientTruncated)));
    let mut client = sender.join().unwrap();
    let end = client.read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::UnexpectedEof), "an end without close_notify, and no reset");
}

#[test]
fn a_socket_carries_plaintext_and_both_ends() {
    let (rig, mut script) = Rig::start(Handover::Socket);
    let mut client = rig.connect();
    let descriptor = script.opened_descriptor();
    let mut socket = UnixStream::from(descriptor);
    socket.set_nonblocking(false).unwrap();
    let player = thread::spawn(move || {
        let mut got = Vec::new();
        socket.read_to_end(&mut got).unwrap();
        socket.write_all(&got).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
    });
    let sent = pattern(3 * MEGABYTE, 9);
    send_and_finish(&mut client, &sent);
    assert!(read_to_end(&mut client) == sent, "other bytes came back");
    player.join().unwrap();
    drop(client);
    assert!(matches!(script.next(), Said::Close(..)));
}
