//! Who is silent too long is told apart: the client, the backend, both, and what is left of a
//! connection of which one direction has ended.

use std::io::Write;
use std::net::Shutdown;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use sealane_lanes::cause::Cause;
use sealane_lanes::timeouts::Timeouts;

use crate::backend::{Backend, RESET, read_to_end};
use crate::client::{Client, VERSIONS};
use crate::rig::{Rig, Wanted, among_others};

/// Long enough for a loaded machine to say a word between two of them.
const SHORT: Duration = Duration::from_millis(500);
const TALK_PAUSE: Duration = Duration::from_millis(20);

fn relay(backend: &Backend, timeouts: Timeouts) -> Rig {
    Rig::start(Wanted { timeouts, ..Wanted::relay(backend.address) })
}

/// Says a byte now and then until it is cut, and reads nothing.
fn talkative() -> Backend {
    Backend::start(|mut socket| {
        while socket.write_all(b".").is_ok() {
            std::thread::sleep(TALK_PAUSE);
        }
        read_to_end(&mut socket)
    })
}

/// Neither reads nor says anything before the test comes to the gate.
fn silent() -> (Backend, Arc<Barrier>) {
    let gate = Arc::new(Barrier::new(2));
    let waiting = Arc::clone(&gate);
    let backend = Backend::start(move |mut socket| {
        waiting.wait();
        read_to_end(&mut socket)
    });
    (backend, gate)
}

#[test]
fn a_client_that_only_listens_ends_where_it_must_talk() {
    let _others = among_others();
    let backend = talkative();
    for version in VERSIONS {
        let rig = relay(&backend, Timeouts { client: Some(SHORT), ..Timeouts::default() });
        let mut client = Client::connect(&rig, version).unwrap();
        let (got, seen) = client.read_to_end();
        assert!(!got.is_empty());
        assert_eq!(seen, RESET);
        rig.await_end(Cause::ClientTimeout, 1);
        rig.stop();
    }
}

#[test]
fn a_backend_that_only_listens_ends_where_it_must_talk() {
    let _others = among_others();
    let backend = Backend::answering(Vec::new());
    for version in VERSIONS {
        let rig = relay(&backend, Timeouts { backend: Some(SHORT), ..Timeouts::default() });
        let mut client = Client::connect(&rig, version).unwrap();
        while client.send(b".").is_ok() {
            std::thread::sleep(TALK_PAUSE);
        }
        rig.await_end(Cause::BackendTimeout, 1);
        rig.stop();
    }
}

#[test]
fn who_is_not_read_from_is_not_silent() {
    let _others = among_others();
    // Pushes until the client, who reads nothing, takes no more.
    let pushing = Backend::start(|mut socket| {
        while socket.write_all(&[7; 65_536]).is_ok() {}
        read_to_end(&mut socket)
    });
    let idle = 3 * SHORT;
    let rig = relay(&pushing, Timeouts { backend: Some(SHORT), idle, ..Timeouts::default() });
    let _client = Client::connect(&rig, VERSIONS[1]).unwrap();
    rig.await_end(Cause::Idle, 1);
    rig.stop();

    // Takes nothing of what the client pushes.
    let (deaf, gate) = silent();
    let rig = relay(&deaf, Timeouts { client: Some(SHORT), idle, ..Timeouts::default() });
    let mut client = Client::connect(&rig, VERSIONS[1]).unwrap();
    while client.send(&[7; 65_536]).is_ok() {}
    rig.await_end(Cause::Idle, 1);
    gate.wait();
    rig.stop();
}

#[test]
fn what_is_left_of_a_half_closed_connection_has_its_own_patience() {
    let _others = among_others();
    // Who has ended its direction need say nothing in it.
    let half_closed = 2 * SHORT;
    let (backend, gate) = silent();
    let timeouts = Timeouts { client: Some(SHORT), half_closed, ..Timeouts::default() };
    let rig = relay(&backend, timeouts);
    let mut client = Client::connect(&rig, VERSIONS[1]).unwrap();
    client.send(b"all").unwrap();
    client.finish().unwrap();
    assert_eq!(client.read_to_end(), (Vec::new(), RESET));
    rig.await_end(Cause::HalfClosed, 1);
    gate.wait();
    rig.stop();

    // Without a timer that would have the lane look at it by chance, too.
    let backend = Backend::start(|mut socket| {
        socket.shutdown(Shutdown::Write).unwrap();
        read_to_end(&mut socket)
    });
    for of_backend in [Some(SHORT), None] {
        let forever = Timeouts::of_handshake(Duration::MAX);
        let timeouts = Timeouts { backend: of_backend, half_closed, ..forever };
        let rig = relay(&backend, timeouts);
        let _client = Client::connect(&rig, VERSIONS[1]).unwrap();
        rig.await_end(Cause::HalfClosed, 1);
        assert_eq!(backend.got().1, RESET);
        rig.stop();
    }
}
