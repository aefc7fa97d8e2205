//! Connections that do not begin with TLS that ends at the lane: preambles, plain bytes, and TLS
//! that is passed on.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::version::TLS13;
use rustls::{ClientConnection, ServerConfig, ServerConnection};
use sealane_engine::policy::UnknownNames;
use sealane_lanes::cause::Cause;
use sealane_lanes::generation::{Named, Speech};
use sealane_lanes::limits::Limits;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::service::PREAMBLE_BYTES_MAX;

use crate::client::{Client, Peer, Server, config, pattern};
use crate::rig::{NAME, PATIENCE, Rig, Wanted, context, eventually, provider};
use crate::service::{Behaviour, WAIT_WORD};

const FROM: &[u8] = b"from 192.0.2.7:4000\n";

fn telling() -> Wanted {
    Wanted { preamble: Some(PATIENCE), ..Wanted::new(Behaviour::Tell) }
}

fn plain() -> Wanted {
    Wanted { speech: Some(Speech::Plain), ..Wanted::echo() }
}

/// What the client is told at first, up to the end of the line.
fn line(mut read: impl FnMut() -> u8) -> String {
    let mut line = String::new();
    while !line.ends_with('\n') {
        line.push(read().into());
    }
    line
}

fn plain_line(socket: &mut TcpStream) -> String {
    line(|| {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        byte[0]
    })
}

/// The rest of what a plain socket brings, or how it fails.
fn rest(mut socket: TcpStream) -> Result<Vec<u8>, std::io::ErrorKind> {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).map(|_| bytes).map_err(|error| error.kind())
}

#[test]
fn a_preamble_split_at_any_byte_is_read_whole_and_tells_the_client() {
    let rig = Rig::start(telling());
    for split in 0..=FROM.len() {
        let mut client = Client::begin(&rig, &TLS13);
        let mut hello = Vec::new();
        client.tls.write_tls(&mut hello).unwrap();
        let bytes = [FROM, &hello].concat();
        // At the last split the hello comes by itself, at the first all comes together.
        let (before, behind) = bytes.split_at(split);
        client.socket.write_all(before).unwrap();
        if split % 5 == 1 {
            // Where the lane has certainly looked at the first part.
            eventually("the part is read", || rig.counters().connections.value() == 1);
            std::thread::yield_now();
        }
        client.socket.write_all(behind).unwrap();
        client.handshake().unwrap();
        let told = line(|| client.receive(1).unwrap()[0]);
        let expected = "lines 1 client 192.0.2.7:4000 number 0 name true session true\n";
        assert_eq!(told, expected, "split at {split}");
        client.finish().unwrap();
        client.read_to_end();
        rig.settle();
    }
    rig.stop();
}

#[test]
fn a_preamble_may_be_answered_go_on_and_be_refused() {
    let rig = Rig::start(telling());
    let mut socket = rig.connect();
    socket.write_all(b"more\n").unwrap();
    let mut answer = [0; 1];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+");
    socket.write_all(b"more\nno\n").unwrap();
    assert_eq!(rest(socket), Ok(b"+no\n".to_vec()));
    rig.await_end(Cause::ProxyUntrusted, 1);

    let mut socket = rig.connect();
    socket.write_all(b"what\n").unwrap();
    assert_eq!(rest(socket), Err(std::io::ErrorKind::ConnectionReset));
    rig.await_end(Cause::ProxyMalformed, 1);
    rig.settle();
    rig.stop();
}

#[test]
fn a_preamble_without_an_end_is_bounded_in_bytes_and_in_time() {
    let preamble = Some(Duration::from_millis(50));
    let rig = Rig::start(Wanted { preamble, ..telling() });
    let slow = rig.connect();
    rig.await_end(Cause::PreambleTimeout, 1);
    drop(slow);
    rig.stop();

    let rig = Rig::start(telling());
    let mut long = rig.connect();
    long.write_all(&[b'x'; PREAMBLE_BYTES_MAX - 1]).unwrap();
    eventually("it is kept", || rig.counters().connections.value() == 1);
    long.write_all(b"x").unwrap();
    rig.await_end(Cause::ProtocolError, 1);
    rig.settle();
    rig.stop();
}

#[test]
fn a_probe_may_leave_without_a_word_and_others_may_not() {
    let rig = Rig::start(telling());
    for (preamble, cause) in [("probe\n", Cause::Clean), ("from 1.2.3.4:5\n", Cause::ClientGone)] {
        let mut socket = rig.connect();
        socket.write_all(preamble.as_bytes()).unwrap();
        drop(socket);
        rig.await_end(cause, 1);
    }
    let mut socket = rig.connect();
    // The start of a record.
    socket.write_all(b"probe\n\x16\x03\x01").unwrap();
    drop(socket);
    rig.await_end(Cause::ClientGone, 2);
    rig.settle();
    rig.stop();
}

#[test]
fn plain_bytes_go_both_ways_and_fin_is_their_end() {
    let rig = Rig::start(plain());
    let mut socket = rig.connect();
    let sent = pattern(7, 3_000_000);
    let mut writing = socket.try_clone().unwrap();
    let bytes = sent.clone();
    let writer = std::thread::spawn(move || {
        writing.write_all(&bytes).unwrap();
        writing.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    socket.read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
    rig.await_end(Cause::Clean, 1);
    assert_eq!(rig.counters().handshakes.total(), 0);
    assert_eq!(rig.counters().received_bytes.value(), sent.len() as u64);
    rig.settle();
    rig.stop();
}

#[test]
fn a_plain_server_may_speak_first() {
    let wanted = Wanted { speech: Some(Speech::Plain), ..Wanted::new(Behaviour::Tell) };
    let rig = Rig::start(wanted);
    let mut socket = rig.connect();
    let address = socket.local_addr().unwrap();
    let expected = format!("lines 0 client {address} number 0 name false session false\n");
    assert_eq!(plain_line(&mut socket), expected);
    drop(socket);
    rig.settle();
    rig.stop();

    let rig = Rig::start(Wanted { speech: Some(Speech::Plain), ..telling() });
    let mut socket = rig.connect();
    socket.write_all(b"more\nfrom 192.0.2.7:4000\nhello").unwrap();
    let expected = "+lines 2 client 192.0.2.7:4000 number 0 name false session false\n";
    assert_eq!(plain_line(&mut socket), expected);
    let mut echo = [0; 5];
    socket.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"hello");
    drop(socket);
    rig.settle();
    rig.stop();
}

#[test]
fn a_plain_client_that_is_too_old_sees_a_reset_and_no_end() {
    let limits =
        Limits { connection_age_max: Some(Duration::from_millis(100)), ..Wanted::echo().limits };
    let rig = Rig::start(Wanted { limits, ..plain() });
    assert_eq!(rest(rig.connect()), Err(std::io::ErrorKind::ConnectionReset));
    rig.await_end(Cause::LimitAge, 1);
    rig.stop();
}

#[test]
fn a_plain_client_whose_backend_resets_never_sees_a_clean_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let wanted = Wanted::relay(listener.local_addr().unwrap());
    let rig = Rig::start(Wanted { speech: Some(Speech::Plain), ..wanted });
    let mut client = rig.connect();
    client.write_all(b"ask").unwrap();
    let (mut backend, _) = listener.accept().unwrap();
    backend.read_exact(&mut [0; 2]).unwrap();
    backend.write_all(b"half an ans").unwrap();
    let mut half = [0; 11];
    client.read_exact(&mut half).unwrap();
    // With a byte unread the kernel resets.
    drop(backend);
    assert_eq!(rest(client), Err(std::io::ErrorKind::ConnectionReset));
    rig.await_end(Cause::BackendReset, 1);
    rig.stop();
}

/// A TLS server behind the lane that the lane cannot look into.
fn backend() -> (TcpListener, Arc<ServerConfig>) {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(config))
}

#[test]
fn tls_is_passed_on_by_name_without_a_look_into_it() {
    let (listener, server) = backend();
    let named = vec![Named { pattern: "through.test".into(), number: 3, context: None }];
    let wanted = Wanted::relay(listener.local_addr().unwrap());
    let rig = Rig::start(Wanted { named, ..wanted });
    let served = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut peer: Server = Peer { tls: ServerConnection::new(server).unwrap(), socket };
        peer.handshake().unwrap();
        let name = peer.tls.server_name().map(str::to_owned);
        peer.send(&peer_bytes()).unwrap();
        peer.receive(5).unwrap();
        peer.finish().unwrap();
        name
    });
    let mut client = anonymous(&rig);
    // A hello in three parts, of which the first two come alone.
    let mut hello = Vec::new();
    client.tls.write_tls(&mut hello).unwrap();
    for part in hello.chunks(hello.len().div_ceil(3)) {
        client.socket.write_all(part).unwrap();
    }
    client.handshake().unwrap();
    assert!(client.receive(peer_bytes().len()).unwrap() == peer_bytes());
    client.send(b"enjoy").unwrap();
    client.finish().unwrap();
    client.read_to_end();
    assert_eq!(served.join().unwrap().as_deref(), Some("through.test"));
    rig.await_end(Cause::Clean, 1);
    assert_eq!(rig.counters().handshakes.total(), 0, "none of ours");

    rig.settle();
    rig.stop();
}

fn peer_bytes() -> Vec<u8> {
    pattern(3, 500_000)
}

/// A client that believes every certificate, and asks for `through.test`.
fn anonymous(rig: &Rig) -> Client {
    let mut config = config(&TLS13);
    config.dangerous().set_certificate_verifier(Arc::new(crate::client::Anyone));
    let name = "through.test".try_into().unwrap();
    Peer { tls: ClientConnection::new(Arc::new(config), name).unwrap(), socket: rig.connect() }
}

/// The records of a hello that came in many are the only thing that may differ.
#[test]
fn a_hello_in_many_records_is_passed_on_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let wanted = Wanted::relay(listener.local_addr().unwrap());
    let rig = Rig::start(Wanted { speech: Some(Speech::Sealed), ..wanted });
    let mut client = anonymous(&rig);
    let mut record = Vec::new();
    client.tls.write_tls(&mut record).unwrap();
    for chunk in record[5..].chunks(100) {
        let len = u8::try_from(chunk.len()).unwrap();
        client.socket.write_all(&[&[22, 3, 1, 0, len][..], chunk].concat()).unwrap();
    }
    client.socket.write_all(b"behind").unwrap();
    let (mut backend, _) = listener.accept().unwrap();
    let mut got = vec![0; record.len() + 6];
    backend.read_exact(&mut got).unwrap();
    assert_eq!(got[3..record.len()], record[3..], "type and version aside");
    assert_eq!(&got[record.len()..], b"behind");
    drop((client, backend));
    rig.settle();
    rig.stop();
}

#[test]
fn a_listener_that_passes_on_may_end_the_tls_of_some_names() {
    let own = Arc::new(context(NAME, UnknownNames::Refuse));
    let named = vec![Named { pattern: NAME.into(), number: 9, context: Some(own) }];
    let wanted = Wanted { named, speech: Some(Speech::Sealed), ..Wanted::new(Behaviour::Tell) };
    let rig = Rig::start(wanted);
    let mut client = Client::connect(&rig, &TLS13).unwrap();
    let told = line(|| client.receive(1).unwrap()[0]);
    assert!(told.ends_with("number 9 name true session true\n"), "{told}");
    drop(client);
    rig.settle();
    rig.stop();
}

/// The lane is held up, so that what came lies in the kernel when the drain begins.
#[test]
fn a_drain_lets_a_hello_go_on_of_which_half_has_come() {
    let rig = Rig::start(Wanted::echo());
    let mut client = Client::begin(&rig, &TLS13);
    let mut hello = Vec::new();
    client.tls.write_tls(&mut hello).unwrap();
    client.socket.write_all(&hello[..hello.len() / 2]).unwrap();
    eventually("it is accepted", || rig.counters().connections.value() == 1);
    let mut holder = Client::connect(&rig, &TLS13).unwrap();
    holder.send(WAIT_WORD).unwrap();
    rig.gate.wait();
    rig.handle.post(Mail::Drain(PATIENCE));
    rig.gate.wait();
    eventually("the listener is closed", || TcpStream::connect(rig.address).is_err());
    client.socket.write_all(&hello[hello.len() / 2..]).unwrap();
    client.handshake().unwrap();
    client.send(b"x").unwrap();
    assert_eq!(client.receive(1).unwrap(), b"x");
    for mut each in [client, holder] {
        each.finish().unwrap();
        each.read_to_end();
    }
    assert_eq!(rig.handle.join().unwrap().cut, 0);
}

/// Who was answered has said something, and may go on.
#[test]
fn a_drain_lets_a_client_go_on_whose_preamble_was_answered() {
    let rig = Rig::start(telling());
    let mut client = Client::begin(&rig, &TLS13);
    client.socket.write_all(b"more\n").unwrap();
    client.socket.read_exact(&mut [0; 1]).unwrap();
    rig.handle.post(Mail::Drain(PATIENCE));
    eventually("the listener is closed", || TcpStream::connect(rig.address).is_err());
    client.socket.write_all(FROM).unwrap();
    client.handshake().unwrap();
    client.finish().unwrap();
    client.read_to_end();
    assert_eq!(rig.handle.join().unwrap().cut, 0);
}
