//! Every end is passed on as what it was, in both directions and both versions.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use rustix::net::SendFlags;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Address;
use sealane_reserved_port::ReservedPort;

use crate::backend::{Backend, RESET, read_to_end, reset};
use crate::client::{Client, Seen, VERSIONS, pattern};
use crate::rig::{Rig, Wanted, among_others, eventually};
use crate::service::{Behaviour, WAIT_WORD};

#[test]
fn a_backend_that_ends_first_still_gets_what_the_client_sends() {
    let _others = among_others();
    for version in VERSIONS {
        let (early, late) = (pattern(1, 70_000), pattern(2, 300_000));
        let answer = early.clone();
        // It speaks before the client does, too.
        let backend = Backend::start(move |mut socket| {
            socket.write_all(&answer).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            read_to_end(&mut socket)
        });
        let rig = Rig::start(Wanted::relay(backend.address));
        let mut client = Client::connect(&rig, version).unwrap();
        assert_eq!(client.read_to_end(), (early, Seen::Clean));
        client.send(&late).unwrap();
        client.finish().unwrap();
        assert_eq!(backend.got(), (late, Seen::Clean));
        rig.settle();
        rig.await_end(Cause::Clean, 1);
        rig.stop();
    }
}

#[test]
fn an_end_without_a_byte_is_passed_on() {
    let _others = among_others();
    for version in VERSIONS {
        let backend = Backend::answering(Vec::new());
        let rig = Rig::start(Wanted::relay(backend.address));
        let mut client = Client::connect(&rig, version).unwrap();
        client.finish().unwrap();
        assert_eq!(client.read_to_end(), (Vec::new(), Seen::Clean));
        assert_eq!(backend.got(), (Vec::new(), Seen::Clean));
        rig.await_end(Cause::Clean, 1);
        rig.stop();
    }
}

#[test]
fn a_backend_that_dies_mid_answer_never_looks_clean() {
    let _others = among_others();
    for version in VERSIONS {
        let part = pattern(3, 50_000);
        let answer = part.clone();
        let backend = Backend::start(move |mut socket| {
            socket.write_all(&answer).unwrap();
            let mut request = [0; 4];
            socket.read_exact(&mut request).unwrap();
            reset(socket);
            (Vec::new(), RESET)
        });
        let rig = Rig::start(Wanted::relay(backend.address));
        let mut client = Client::connect(&rig, version).unwrap();
        assert_eq!(client.receive(part.len()).unwrap(), part);
        client.send(b"die!").unwrap();
        assert_eq!(client.read_to_end(), (Vec::new(), RESET));
        rig.await_end(Cause::BackendReset, 1);
        rig.settle();
        rig.stop();
    }
}

#[test]
fn a_client_without_close_notify_never_looks_clean() {
    let _others = among_others();
    for version in VERSIONS {
        for at_once in [false, true] {
            let backend = Backend::start(|mut socket| read_to_end(&mut socket));
            let rig = Rig::start(Wanted::relay(backend.address));
            let mut client = Client::connect(&rig, version).unwrap();
            client.send(b"hello").unwrap();
            if !at_once {
                std::thread::sleep(Duration::from_millis(20));
            }
            client.socket.shutdown(Shutdown::Write).unwrap();
            assert_eq!(backend.got().1, RESET);
            rig.await_end(Cause::ClientTruncated, 1);
            assert_eq!(client.read_to_end().1, RESET);
            rig.stop();
        }
    }
}

#[test]
fn a_client_that_resets_resets_the_backend() {
    let _others = among_others();
    for version in VERSIONS {
        let backend = Backend::start(|mut socket| read_to_end(&mut socket));
        let rig = Rig::start(Wanted::relay(backend.address));
        let mut client = Client::connect(&rig, version).unwrap();
        client.send(b"hello").unwrap();
        reset(client.socket);
        assert_eq!(backend.got().1, RESET);
        rig.await_end(Cause::ClientReset, 1);
        rig.stop();
    }
}

#[test]
fn a_bad_record_is_answered_with_an_alert_and_resets_the_backend() {
    let _others = among_others();
    for version in VERSIONS {
        let backend = Backend::start(|mut socket| read_to_end(&mut socket));
        let rig = Rig::start(Wanted::relay(backend.address));
        let mut client = Client::connect(&rig, version).unwrap();
        client.send(b"hello").unwrap();
        // The tickets still wait for a response, and must leave before the alert.
        eventually("the first bytes are through", || rig.counters().received_bytes.value() == 5);
        client.socket.write_all(&[23, 3, 3, 0, 32]).unwrap();
        client.socket.write_all(&[7; 32]).unwrap();
        let alert = Seen::Alert(rustls::AlertDescription::BadRecordMac);
        assert_eq!(client.read_to_end(), (Vec::new(), alert));
        assert_eq!(backend.got().1, RESET);
        drop(client);
        rig.await_end(Cause::ProtocolError, 1);
        rig.stop();
    }
}

/// What follows the refused record is thrown away, with room for a whole read at any time.
#[test]
fn a_bad_record_behind_many_good_ones_is_refused_like_any_other() {
    let _others = among_others();
    for version in VERSIONS {
        let backend = Backend::start(|mut socket| read_to_end(&mut socket));
        let rig = Rig::start(Wanted::relay(backend.address));
        let mut client = Client::connect(&rig, version).unwrap();
        let mut flight = Vec::new();
        client.tls.set_buffer_limit(None);
        client.tls.writer().write_all(&pattern(4, 200_000)).unwrap();
        while client.tls.wants_write() {
            client.tls.write_tls(&mut flight).unwrap();
        }
        flight.extend([23, 3, 3, 0, 32]);
        flight.extend([7; 100_000]);
        client.socket.write_all(&flight).unwrap();
        let alert = Seen::Alert(rustls::AlertDescription::BadRecordMac);
        assert_eq!(client.read_to_end(), (Vec::new(), alert));
        drop(client);
        assert_eq!(backend.got().1, RESET);
        rig.await_end(Cause::ProtocolError, 1);
        rig.stop();
    }
}

#[test]
fn urgent_bytes_of_a_backend_do_not_cut_its_answer() {
    let _others = among_others();
    // The kernel ends a read at the urgent mark, so a short read does not mean the end here.
    let backend = Backend::start(|mut socket| {
        let mut request = [0; 5];
        socket.read_exact(&mut request).unwrap();
        socket.write_all(b"before ").unwrap();
        rustix::net::send(&socket, b"!", SendFlags::OOB).unwrap();
        socket.write_all(b"behind").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        read_to_end(&mut socket)
    });
    let rig = Rig::start(Wanted::relay(backend.address));
    let mut client = Client::connect(&rig, VERSIONS[1]).unwrap();
    let mut waiting = Client::connect(&rig, VERSIONS[1]).unwrap();
    client.send(b"hello").unwrap();
    waiting.send(WAIT_WORD).unwrap();
    // Hold the lane up until the whole answer and its end have arrived.
    rig.gate.wait();
    std::thread::sleep(Duration::from_millis(50));
    rig.gate.wait();
    let (bytes, seen) = client.read_to_end();
    assert_eq!((String::from_utf8(bytes).unwrap().as_str(), seen), ("before behind", Seen::Clean));
    drop((client, waiting));
    rig.settle();
    rig.stop();
}

#[test]
fn a_backend_that_refuses_is_passed_over_and_the_last_one_resets_the_client() {
    let _others = among_others();
    let nobody = ReservedPort::on_loopback().unwrap();
    let missing = Address::Unix("/nonexistent/socket".into());
    for version in VERSIONS {
        let backend = Backend::answering(b"answer".to_vec());
        let all = [Address::Tcp(nobody.address()), missing.clone(), Address::Tcp(backend.address)];
        let rig = Rig::start(Wanted::new(Behaviour::Relay(all.to_vec())));
        let mut client = Client::connect(&rig, version).unwrap();
        client.send(b"request").unwrap();
        client.finish().unwrap();
        assert_eq!(client.read_to_end(), (b"answer".to_vec(), Seen::Clean));
        rig.publish(2, Wanted::new(Behaviour::Relay(all[..2].to_vec())));
        let refused = Client::connect(&rig, version);
        let seen = refused.map(|mut client| client.read_to_end().1);
        assert!(matches!(seen, Ok(Seen::Failed(_) | Seen::Truncated) | Err(_)), "{seen:?}");
        rig.await_end(Cause::BackendRefused, 1);
        rig.publish(3, Wanted::relay(backend.address));
        let mut client = Client::connect(&rig, version).unwrap();
        client.finish().unwrap();
        assert_eq!(client.read_to_end(), (b"answer".to_vec(), Seen::Clean));
        rig.stop();
    }
}
