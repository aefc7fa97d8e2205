//! First bytes in every shape: split, slow, too long, refused, or no TLS at all.

use std::io::{self, Read as _, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustls::AlertDescription;
use sealane_engine::alert;
use sealane_engine::hello::RECORD_HEADER_LEN;
use sealane_engine::policy::UnknownNames;
use sealane_lanes::cause::Cause;
use sealane_lanes::limits::Limits;

use crate::backend::read_to_end;
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

/// Sends `bytes` in steps of `step`, for as long as somebody takes them.
fn send_in_steps(socket: &mut TcpStream, bytes: &[u8], step: usize) {
    for chunk in bytes.chunks(step) {
        if socket.write_all(chunk).is_err() {
            break;
        }
        std::thread::yield_now();
    }
}

/// A client that is refused gets an alert and a clean end, however its bytes arrive.
fn is_refused(rig: &Rig, bytes: &[u8], description: AlertDescription, cause: Cause) {
    for step in [bytes.len(), 100, 1] {
        let before = rig.counters().ended(cause).value();
        let mut socket = rig.connect();
        send_in_steps(&mut socket, bytes, step);
        let got = read_to_end(&mut socket);
        let expected = alert::fatal(description).to_vec();
        assert_eq!(got, (expected, Seen::Clean), "{bytes:?} in steps of {step}");
        drop(socket);
        rig.await_end(cause, before + 1);
    }
}

#[test]
fn a_hello_beyond_the_limit_gets_an_alert_however_it_arrives() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let hello = flight(&mut Client::begin(&rig, VERSIONS[1]));
    let message_len = hello.len() - RECORD_HEADER_LEN;
    rig.settle();
    let limits = |hello_bytes_max| Limits { hello_bytes_max, ..Limits::default() };
    rig.publish(2, Wanted::limited(limits(message_len - 1)));
    for hello in [hello.clone(), refragment(&hello, 1)] {
        is_refused(&rig, &hello, AlertDescription::IllegalParameter, Cause::HelloTooLong);
    }
    rig.publish(3, Wanted::limited(limits(message_len)));
    for len in [1 << 14, 1] {
        let mut client = Client::begin(&rig, VERSIONS[1]);
        let hello = refragment(&flight(&mut client), len);
        client.socket.write_all(&hello).unwrap();
        client.handshake().unwrap();
        echoes(&mut client);
    }
    rig.stop();
}

/// Extensions without a meaning are passed over (RFC 8446 section 4.2).
#[test]
fn many_unassigned_extensions_are_passed_over() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let mut message = flight(&mut Client::begin(&rig, VERSIONS[1]))[RECORD_HEADER_LEN..].to_vec();
    // Header, version, random, session id, suites, compressions.
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(message[at]);
    at += 2 + usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    at += 1 + usize::from(message[at]);
    for kind in 0x5000..0x5400_u16 {
        message.extend(kind.to_be_bytes());
        message.extend([&[0, 40][..], &[7; 40]].concat());
    }
    let (all_len, extensions_len) = (message.len() - 4, message.len() - at - 2);
    message[1..4].copy_from_slice(&u32::try_from(all_len).unwrap().to_be_bytes()[1..]);
    let extensions_len = u16::try_from(extensions_len).unwrap().to_be_bytes();
    message[at..at + 2].copy_from_slice(&extensions_len);
    let record = [&[22, 3, 1, 0, 0][..], &message].concat();
    let mut socket = rig.connect();
    socket.write_all(&refragment(&record, 1 << 14)).unwrap();
    let mut answer = [0; 6];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!((answer[0], answer[5]), (22, 2), "it is a ServerHello");
    drop(socket);
    rig.stop();
}

#[test]
fn a_long_hello_in_records_of_one_byte_is_within_the_usual_limit() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let mut config = config(VERSIONS[1]);
    config.alpn_protocols = (0..11).map(|number| vec![b'a' + number; 240]).collect();
    for step in [1 << 20, 1_400, 7] {
        let mut client = Client::with(&rig, config.clone());
        let hello = flight(&mut client);
        assert!((2_731..16_384).contains(&hello.len()), "{}", hello.len());
        send_in_steps(&mut client.socket, &refragment(&hello, 1), step);
        client.handshake().unwrap();
        echoes(&mut client);
    }
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
fn what_is_no_hello_gets_the_alert_that_the_standard_wants() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let strange: [(&[u8], AlertDescription, Cause); 9] = [
        (b"SSH-2.0-client\r\n", AlertDescription::UnexpectedMessage, Cause::NotTls),
        (&[0x80, 0x2e, 1, 3, 1], AlertDescription::ProtocolVersion, Cause::NotTls),
        (&[22, 2, 0, 0, 4], AlertDescription::ProtocolVersion, Cause::NotTls),
        (&[22, 3, 1, 0, 0], AlertDescription::UnexpectedMessage, Cause::HandshakeFailed),
        (&[23, 3, 3, 0, 9], AlertDescription::UnexpectedMessage, Cause::HandshakeFailed),
        (&[22, 3, 1, 0x40, 1], AlertDescription::RecordOverflow, Cause::HandshakeFailed),
        (
            &[22, 3, 1, 0, 4, 2, 0, 0, 0],
            AlertDescription::UnexpectedMessage,
            Cause::HandshakeFailed,
        ),
        (&[22, 3, 1, 0, 4, 1, 0, 0, 0], AlertDescription::DecodeError, Cause::HandshakeFailed),
        (&[22, 3, 1, 0, 4, 1, 1, 0, 0], AlertDescription::IllegalParameter, Cause::HelloTooLong),
    ];
    for (bytes, description, cause) in strange {
        is_refused(&rig, bytes, description, cause);
    }
    rig.settle();
    rig.stop();
}

#[test]
fn the_alert_arrives_although_the_client_goes_on_talking() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let mut bytes = vec![22, 3, 1, 0, 0];
    bytes.resize(100_000, 7);
    is_refused(&rig, &bytes, AlertDescription::UnexpectedMessage, Cause::HandshakeFailed);
    rig.stop();
}

/// Where a hello's suites begin, and its extensions.
fn places(hello: &[u8]) -> (usize, usize) {
    let mut at = RECORD_HEADER_LEN + 4 + 2 + 32;
    at += 1 + usize::from(hello[at]);
    let suites_at = at + 2;
    at = suites_at + usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    (suites_at, at + 1 + usize::from(hello[at]) + 2)
}

/// `hello` without the extension `kind`: it has a number that nobody knows instead.
fn without_extension(hello: &[u8], kind: u16) -> Vec<u8> {
    let mut bytes = hello.to_vec();
    let (_, mut at) = places(hello);
    while bytes[at..at + 2] != kind.to_be_bytes() {
        at += 4 + usize::from(u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]));
    }
    bytes[at..at + 2].copy_from_slice(&[0xfa, 0xfa]);
    bytes
}

#[test]
fn what_rustls_lets_pass_or_names_otherwise_is_refused_before_it() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    let tls12 = flight(&mut Client::begin(&rig, VERSIONS[0]));
    let tls13 = flight(&mut Client::begin(&rig, VERSIONS[1]));
    rig.settle();
    let mut fallback = tls12.clone();
    let suites_at = places(&fallback).0;
    fallback[suites_at..suites_at + 2].copy_from_slice(&[0x56, 0]);
    let failed = Cause::HandshakeFailed;
    is_refused(&rig, &fallback, AlertDescription::InappropriateFallback, failed);
    for extension in [KEY_SHARE, SIGNATURE_ALGORITHMS, SUPPORTED_GROUPS] {
        let hello = without_extension(&tls13, extension);
        is_refused(&rig, &hello, AlertDescription::MissingExtension, failed);
    }
    for mut hello in [tls12, tls13] {
        hello[RECORD_HEADER_LEN + 4 + 1] = 0;
        is_refused(&rig, &hello, AlertDescription::ProtocolVersion, Cause::NotTls);
    }
    rig.settle();
    rig.stop();
}

const KEY_SHARE: u16 = 51;
const SIGNATURE_ALGORITHMS: u16 = 13;
const SUPPORTED_GROUPS: u16 = 10;

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
