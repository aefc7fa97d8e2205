//! Peers that stall, flood, vanish at the wrong moment, or never read.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Address;

use crate::backend::{Backend, RESET, read_to_end, reset};
use crate::client::{Client, VERSIONS};
use crate::kernel::Plan;
use crate::rig::{PATIENCE, Rig, Wanted, among_others, eventually};
use crate::service::{Behaviour, WAIT_WORD};

/// An address where connections are neither accepted nor refused, for as long as the rest lives.
pub(crate) fn stalled() -> (SocketAddr, socket2::Socket, Vec<TcpStream>) {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let listener = listener.unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let patience = Duration::from_millis(50);
    let mut queued = Vec::new();
    while let Ok(socket) = TcpStream::connect_timeout(&address, patience) {
        queued.push(socket);
        assert!(queued.len() < 16, "the backlog never fills");
    }
    (address, listener, queued)
}

fn must_echo(rig: &Rig) {
    let mut client = Client::connect(rig, VERSIONS[1]).unwrap();
    client.send(b"still there?").unwrap();
    assert_eq!(client.receive(12).unwrap(), b"still there?");
}

#[test]
fn a_backend_that_stalls_costs_its_connect_timeout() {
    let _others = among_others();
    let (address, ..) = &stalled();
    let mut wanted = Wanted::relay(*address);
    wanted.connect_timeout = Duration::from_millis(100);
    let rig = Rig::start(wanted);
    let mut client = Client::connect(&rig, VERSIONS[1]).unwrap();
    assert_eq!(client.read_to_end().1, RESET);
    rig.await_end(Cause::BackendRefused, 1);
    rig.stop();
}

#[test]
fn a_refused_client_opens_no_further_backend() {
    let _others = among_others();
    let (address, ..) = &stalled();
    let second = Backend::start(|mut socket| read_to_end(&mut socket));
    let backends = vec![Address::Tcp(*address), Address::Tcp(second.address)];
    let mut wanted = Wanted::new(Behaviour::Relay(backends));
    wanted.connect_timeout = Duration::from_millis(300);
    let rig = Rig::start(wanted);
    let mut client = Client::connect(&rig, VERSIONS[1]).unwrap();
    eventually("the handshake completes", || rig.counters().handshakes.total() == 1);
    client.socket.write_all(&[[23, 3, 3, 0, 32].as_slice(), &[7; 32]].concat()).unwrap();
    // It stays until the lane has lost its patience, which is after the deadline of the first.
    rig.await_end(Cause::ProtocolError, 1);
    assert_eq!(second.drain(), []);
    rig.stop();
}

#[test]
fn a_stale_event_does_not_reach_the_backend_that_took_the_descriptor() {
    let _others = among_others();
    let (tell, told) = channel::<()>();
    let told = Arc::new(Mutex::new(told));
    let first = Backend::start(move |socket| {
        told.lock().unwrap().recv().unwrap();
        reset(socket);
        (Vec::new(), RESET)
    });
    let (second, ..) = &stalled();
    let backends = vec![Address::Tcp(first.address), Address::Tcp(*second)];
    let mut wanted = Wanted::new(Behaviour::Relay(backends));
    wanted.connect_timeout = Duration::from_millis(300);
    wanted.wait_to_connect = true;
    let rig = Rig::start(wanted);
    let mut client = Client::begin(&rig, VERSIONS[1]);
    // The word leaves with the client's last handshake message, so that the lane stops a second
    // time in the turn that began to connect.
    client.tls.writer().write_all(WAIT_WORD).unwrap();
    client.handshake().unwrap();
    rig.gate.wait();
    client.send(b"for the backend").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    rig.gate.wait();
    rig.gate.wait();
    tell.send(()).unwrap();
    first.got();
    std::thread::sleep(Duration::from_millis(50));
    rig.gate.wait();
    // One batch now says that the client has sent and that the first backend is gone. The second
    // takes its descriptor's number, and must not pass for connected.
    assert_eq!(client.read_to_end().1, RESET);
    rig.await_end(Cause::BackendRefused, 1);
    rig.stop();
}

#[test]
fn a_descriptor_used_again_within_one_batch_gets_no_foreign_event() {
    let _others = among_others();
    let backend = Backend::start(|mut socket| {
        socket.write_all(b"greeting").unwrap();
        read_to_end(&mut socket)
    });
    let rig = Rig::start(Wanted::relay(backend.address));
    let mut leaving: Vec<_> = (0..8).map(|_| Client::connect(&rig, VERSIONS[1]).unwrap()).collect();
    for client in &mut leaving {
        assert_eq!(client.receive(8).unwrap(), b"greeting");
    }
    let mut waiting = Client::connect(&rig, VERSIONS[1]).unwrap();
    waiting.send(WAIT_WORD).unwrap();
    rig.gate.wait();
    // In one batch: clients vanish, their backends see nothing yet, others take their place.
    for client in leaving {
        reset(client.socket);
    }
    let arriving: Vec<_> = (0..8).map(|_| Client::begin(&rig, VERSIONS[1])).collect();
    rig.gate.wait();
    for mut client in arriving {
        client.handshake().unwrap();
        assert_eq!(client.receive(8).unwrap(), b"greeting");
    }
    rig.await_end(Cause::ClientReset, 8);
    assert_eq!(rig.counters().panics.value(), 0);
    rig.stop();
}

#[test]
fn a_reset_at_any_point_of_the_handshake_costs_nothing() {
    let _others = among_others();
    let rig = Rig::start(Wanted::echo());
    for version in VERSIONS {
        let hello = {
            let mut hello = Vec::new();
            Client::begin(&rig, version).tls.write_tls(&mut hello).unwrap();
            hello
        };
        rig.settle();
        for len in (0..=hello.len()).step_by(17).chain([hello.len()]) {
            let mut socket = rig.connect();
            socket.write_all(&hello[..len]).unwrap();
            reset(socket);
        }
        rig.settle();
        must_echo(&rig);
    }
    assert_eq!(rig.counters().panics.value(), 0);
    rig.stop();
}

/// A backend that sends for as long as somebody takes it.
fn flood() -> Backend {
    Backend::start(|mut socket| {
        let bytes = vec![1; 65_536];
        while socket.write_all(&bytes).is_ok() {}
        (Vec::new(), RESET)
    })
}

#[test]
fn a_client_that_never_reads_is_never_read_ahead_for() {
    let _others = among_others();
    let backend = flood();
    let rig = Rig::start(Wanted::relay(backend.address));
    let client = Client::connect(&rig, VERSIONS[1]).unwrap();
    let mut before = 0;
    eventually("the lane stops reading", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = rig.script.sent_bytes();
        std::mem::replace(&mut before, now) == now && now > 0
    });
    // What the kernel buffers for the client, plus at most one read of ours.
    assert!(before < 16 << 20, "{before} bytes were taken for a client that reads nothing");
    rig.publish(2, Wanted::echo());
    must_echo(&rig);
    reset(client.socket);
    rig.await_end(Cause::ClientReset, 1);
    rig.stop();
}

/// More than the large buffers that may be lent before the lane reads less.
const MANY: usize = 300;

fn reads_are_whole(rig: &Rig) {
    rig.settle();
    rig.publish(9, Wanted::echo());
    rig.script.set(Plan::Never);
    must_echo(rig);
    assert_eq!(rig.script.largest_read(), 256 * 1024, "the lane believes its buffers lent");
}

#[test]
fn clients_reset_in_mid_flush_give_their_buffers_back() {
    let _others = among_others();
    let backend = flood();
    let rig = Rig::start(Wanted::relay(backend.address));
    for round in 0..MANY {
        let client = Client::connect(&rig, VERSIONS[1]).unwrap();
        let mut before = 0;
        eventually("the client's socket is full", || {
            std::thread::sleep(Duration::from_millis(2));
            let now = rig.script.sent_bytes();
            std::mem::replace(&mut before, now) == now && now > 0
        });
        rig.script.set(Plan::Never);
        reset(client.socket);
        rig.await_end(Cause::ClientReset, round as u64 + 1);
    }
    reads_are_whole(&rig);
    rig.stop();
}

#[test]
fn backends_reset_with_bytes_pending_give_the_buffers_back() {
    let _others = among_others();
    for protocol_error in [false, true] {
        // Takes nothing, and dies after a while.
        let backend = Backend::start(move |socket| {
            if protocol_error {
                let mut socket = socket;
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                std::thread::sleep(Duration::from_millis(60));
                return read_to_end(&mut socket);
            }
            std::thread::sleep(Duration::from_millis(60));
            reset(socket);
            (Vec::new(), RESET)
        });
        let rig = Rig::start(Wanted::relay(backend.address));
        std::thread::scope(|scope| {
            for _ in 0..80 {
                scope.spawn(|| {
                    let mut client = Client::connect(&rig, VERSIONS[1]).unwrap();
                    // More than both sockets to the backend buffer.
                    let bytes = vec![1; 65_536];
                    if protocol_error {
                        for _ in 0..256 {
                            client.send(&bytes).unwrap();
                        }
                        let _ = client.socket.write_all(&[23, 3, 3, 0, 32]);
                        let _ = client.socket.write_all(&[7; 32]);
                        return;
                    }
                    while client.send(&bytes).is_ok() {}
                });
            }
        });
        reads_are_whole(&rig);
        rig.stop();
    }
}
