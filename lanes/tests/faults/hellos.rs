//! First bytes in every shape: split, slow, too long, refused, or no TLS at all.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustls::AlertDescription;
use sealane_engine::policy::UnknownNames;
use sealane_lanes::cause::Cause;
use sealane_lanes::limits::Limits;

use crate::backend::{RESET, read_to_end};
use crate::client::{Client, Seen, VERSIONS, config, seen};
use crate::kernel::{Fault, Plan};
use crate::rig::{Rig, Wanted, among_others};

/// Sends what a client writes as the test wants it.
struct Sender<'a, F: FnMut(&mut TcpStream, &[u8])> {
    socket: &'a mut TcpStream,
    send: F,
}

impl<F: FnMut(&mut TcpStream, &[u8])> Write for Sender<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.send)(self.socket, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of a client's next flight.
fn flight(client: &mut Client) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.tls.wants_write() {
        client.tls.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// The one record in `bytes` as many, of at most `len` bytes each.
fn refragment(bytes: &[u8], len: usize) -> Vec<u8> {
    let record = |chunk: &[u8]| {
        let len = u16::try_from(chunk.len()).unwrap().to_be_bytes();
        [&bytes[..3], &len[..], chunk].concat()
    };
    bytes[5..].chunks(len).flat_map(record).collect()
}

fn echoes(client: &mut Client) {
    client.send(b"through").unwrap();
    assert_eq!(client.receive(7).unwrap(), b"through");
}

#[test]
fn one_byte_at_a_time_is_enough() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    for version in VERSIONS {
        let mut client = Client::begin(&rig, version);
        let one_by_one = |socket: &mut TcpStream, bytes: &[u8]| {
            for byte in bytes {
                socket.write_all(&[*byte]).unwrap();
                std::thread::yield_now();
            }
        };
        while client.tls.is_handshaking() || client.tls.wants_write() {
            while client.tls.wants_write() {
                let mut sender = Sender { socket: &mut client.socket, send: one_by_one };
                client.tls.write_tls(&mut sender).unwrap();
            }
            if client.tls.is_handshaking() {
                client.tls.read_tls(&mut client.socket).unwrap();
                client.tls.process_new_packets().unwrap();
            }
        }
        client.tls.writer().write_all(b"through").unwrap();
        let mut sender = Sender { socket: &mut client.socket, send: one_by_one };
        client.tls.write_tls(&mut sender).unwrap();
        assert_eq!(client.receive(7).unwrap(), b"through");
    }
    rig.stop();
}

#[test]
fn a_hello_over_many_records_is_put_together() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    for version in VERSIONS {
        for len in [1, 3, 4, 50, 150] {
            let mut client = Client::begin(&rig, version);
            let hello = refragment(&flight(&mut client), len);
            client.socket.write_all(&hello).unwrap();
            client.handshake().unwrap();
            echoes(&mut client);
        }
    }
    assert_eq!(rig.counters().panics.value(), 0);
    rig.stop();
}

#[test]
fn a_hello_beyond_the_limit_is_reset_however_it_arrives() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let hello = flight(&mut Client::begin(&rig, VERSIONS[1]));
    rig.settle();
    let limits = |hello_bytes_max| Limits { hello_bytes_max, ..Limits::default() };
    rig.publish(2, Wanted::limited(limits(hello.len() - 1)));
    for (number, step) in [hello.len(), 100, 1].into_iter().enumerate() {
        let mut socket = rig.connect();
        for chunk in hello.chunks(step) {
            if socket.write_all(chunk).is_err() {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(read_to_end(&mut socket), (Vec::new(), RESET), "in steps of {step}");
        rig.await_end(Cause::HelloTooLong, number as u64 + 1);
    }
    rig.publish(3, Wanted::limited(limits(hello.len())));
    let mut client = Client::connect(&rig, VERSIONS[1]).unwrap();
    echoes(&mut client);
    rig.stop();
}

#[test]
fn plain_http_is_told_so() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    for (number, half_closed) in [false, true].into_iter().enumerate() {
        let mut socket = rig.connect();
        for chunk in b"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n".chunks(3) {
            socket.write_all(chunk).unwrap();
        }
        if half_closed {
            socket.shutdown(Shutdown::Write).unwrap();
        }
        let (bytes, seen) = read_to_end(&mut socket);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{text}");
        assert!(body.contains("https://"), "{text}");
        assert_eq!(seen, Seen::Clean);
        drop(socket);
        rig.await_end(Cause::PlainHttp, number as u64 + 1);
    }
    rig.settle();
    rig.stop();
}

#[test]
fn the_last_words_arrive_whatever_fails() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    for fault in [Fault::Interrupted, Fault::Short, Fault::WouldBlock] {
        for call in 0..10 {
            rig.script.set(Plan::At(call, fault));
            let mut socket = rig.connect();
            for chunk in [&b"GET / HTTP/1.1\r\n"[..], b"Host: one.test\r\n", b"\r\n"] {
                socket.write_all(chunk).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            // Unread bytes at the lane's close would have destroyed them.
            let (bytes, seen) = read_to_end(&mut socket);
            let what = format!("{fault:?} at call {call}");
            assert!(bytes.ends_with(b"https:// instead of http:// for it."), "{what}, {seen:?}");
            assert_eq!(seen, Seen::Clean, "{what}");
            drop(socket);
            rig.settle();
        }
    }
    rig.stop();
}

#[test]
fn what_is_not_tls_is_reset() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let strange: [&[u8]; 4] =
        [b"SSH-2.0-client\r\n", &[0x80, 0x2e, 1, 3, 1], &[22, 2, 0, 0, 4], &[22, 3, 1, 0, 0]];
    for (number, bytes) in strange.into_iter().enumerate() {
        let mut socket = rig.connect();
        socket.write_all(bytes).unwrap();
        assert_eq!(read_to_end(&mut socket), (Vec::new(), RESET), "{bytes:?}");
        rig.await_end(Cause::NotTls, number as u64 + 1);
    }
    rig.stop();
}

#[test]
fn names_that_nothing_covers_get_their_alert_where_they_are_refused() {
    let _others = among_others();
    let rig = Rig::start(Wanted { unknown_names: UnknownNames::Refuse, ..Wanted::echo() });
    let mut ended = 0;
    for version in VERSIONS {
        echoes(&mut Client::connect(&rig, version).unwrap());
        let is_tls13 = version.version == rustls::ProtocolVersion::TLSv1_3;
        let missing = if is_tls13 {
            AlertDescription::MissingExtension
        } else {
            AlertDescription::HandshakeFailure
        };
        for (name, alert) in
            [("two.test", AlertDescription::UnrecognisedName), ("127.0.0.1", missing)]
        {
            let mut client = Client::named(&rig, config(version), name);
            let error = client.handshake().unwrap_err();
            assert_eq!(seen(&error), Seen::Alert(alert), "{name}");
            drop(client);
            ended += 1;
            rig.await_end(Cause::UnknownName, ended);
        }
    }
    rig.settle();
    rig.stop();
}

#[test]
fn a_refused_handshake_gets_an_alert() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    for version in VERSIONS {
        let mut config = config(version);
        // The lane speaks X25519 alone.
        let mut provider = config.crypto_provider().as_ref().clone();
        provider.kx_groups.retain(|group| group.name() == rustls::NamedGroup::secp384r1);
        config = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(crate::rig::roots())
            .with_no_client_auth();
        let error = Client::with(&rig, config).handshake().unwrap_err();
        assert_eq!(seen(&error), Seen::Alert(AlertDescription::HandshakeFailure));
    }
    rig.await_end(Cause::NothingInCommon, 2);
    rig.settle();
    rig.stop();
}
