//! Messages that a stranger sends behind its hello.

use rustls::version::{TLS12, TLS13};

use super::hellos::longest_to_be_asked_again;
use crate::policy::Group;
use crate::record::{HANDSHAKE, record_end};
use crate::session::tests::bounds;
use crate::session::tests::early_data::{Foreign, answering};
use crate::session::tests::fragments::established;
use crate::session::tests::{Server, World, client, flight, shake_hands};
use crate::session::{Awaited, SHOWN, Session as _};

/// The work that a message caused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Bytes of it, with the headers of its records.
    pub(super) sent: usize,
    /// Hellos that our own code parsed.
    pub(super) hellos: usize,
    /// Bytes that rustls was shown, those that it was shown again counted again.
    pub(super) shown: usize,
    /// Tickets that were given to a key to open.
    pub(super) opened: usize,
    /// Bytes that were kept at most, because their end had not come.
    pub(super) held: usize,
}

/// Behind a first one that was as long as may be; in records of `piece` bytes, each read alone.
pub(super) fn second_hello(piece: usize) -> Cost {
    let world = World::new();
    let mut server = world.server();
    server.feed(&longest_to_be_asked_again(&world)).unwrap();
    assert!(!server.wire.is_empty(), "it asks for another hello");
    never_ending(&mut server, [1, 0, 0xff, 0xff], record, piece)
}

/// In whole records, until it is refused.
pub(super) fn unfinished(is_certificate_due: bool) -> Cost {
    let mut server = answered(is_certificate_due);
    let header = if is_certificate_due { CERTIFICATE } else { [16, 0, 0x0f, 0xff] };
    let piece = if is_certificate_due { 1 << 14 } else { 1 << 10 };
    never_ending(&mut server, header, record, piece)
}

/// To a server that reads its own records, and to one that leaves them to rustls.
pub(super) fn unfinished_later() -> [Cost; 2] {
    let world = World::new();
    let mut servers = established(&world).map(|(mut server, mut keys, _)| {
        let record = |payload: &[u8]| keys.record(HANDSHAKE, payload);
        never_ending(&mut server, [24, 0, 0xff, 0xff], record, 4_000)
    });
    [(); 2].map(|()| servers.next().unwrap())
}

/// Each record is read alone.
pub(super) fn in_single_bytes() -> Cost {
    let mut server = answered(true);
    never_ending(&mut server, CERTIFICATE, record, 1)
}

/// Behind three records of the longest, each read alone.
pub(super) fn in_single_bytes_behind_long_records() -> Cost {
    let mut server = answered(true);
    let long = [&CERTIFICATE[..], &[0; (1 << 14) - 4]].concat();
    let front = [record(&long), record(&[0; 1 << 14]).repeat(2)].concat();
    server.feed(&front).unwrap();
    let cost = never_ending(&mut server, [0; 4], record, 1);
    Cost { sent: cost.sent + front.len(), shown: cost.shown + front.len(), ..cost }
}

/// Empty records behind another one, and none of them opens.
pub(super) fn early_data() -> Cost {
    let world = World::new();
    let (_, first) = Foreign::new(&world, &[Group::X25519]).client(1);
    let hello_len = record_end(&first).unwrap();
    let mut server = answering(&world, &first);
    server.feed(&first[..hello_len]).unwrap();
    let first = [23, 3, 3, 0, 1, 0];
    let empty = [23, 3, 3, 0, 0].repeat(((1 << 16) - first.len()) / 5);
    let early = [&first[..], &empty].concat();
    SHOWN.set(0);
    server.feed(&early).unwrap();
    let held = server.session.partial_len();
    Cost { sent: early.len(), shown: SHOWN.get(), held, ..Cost::default() }
}

/// They are answered once, and nothing of them is kept.
pub(super) fn key_updates() -> Cost {
    let world = World::new();
    let mut client = client(&world.client_config(&TLS13).into());
    let mut server = world.server();
    shake_hands(&mut client, &mut server);
    server.session.release_held(&mut server.wire);
    server.wire.clear();
    for _ in 0..16 {
        client.refresh_traffic_keys().unwrap();
    }
    let updates = flight(&mut client);
    SHOWN.set(0);
    server.feed(&updates).unwrap();
    server.session.seal(b"", &mut server.wire).unwrap();
    assert!(server.wire.len() <= KEY_UPDATE_BYTES, "{} bytes of answer", server.wire.len());
    let held = server.session.partial_len();
    Cost { sent: updates.len(), shown: SHOWN.get(), held, ..Cost::default() }
}

/// A server that has answered a hello of TLS 1.2, so that the next messages are in the clear.
fn answered(is_certificate_due: bool) -> Server {
    let world = World::new();
    let awaited = Awaited::new(is_certificate_due, false);
    bounds::answered(&world, world.client_config(&TLS12), awaited).1
}

/// Sends `header` and the announced bytes, `piece` bytes to a record, until the session ends.
fn never_ending(
    server: &mut Server,
    header: [u8; 4],
    mut record: impl FnMut(&[u8]) -> Vec<u8>,
    piece: usize,
) -> Cost {
    let mut cost = Cost::default();
    SHOWN.set(0);
    let mut next = record(&header);
    for _ in 0..RECORDS_MAX {
        cost.sent += next.len();
        if server.feed(&next).is_err() {
            return Cost { shown: SHOWN.get(), ..cost };
        }
        cost.held = cost.held.max(server.session.partial_len());
        next = record(&vec![0; piece]);
    }
    panic!("it took all of it");
}

/// A record of handshake messages in the clear.
fn record(payload: &[u8]) -> Vec<u8> {
    bounds::record(HANDSHAKE, u16::try_from(payload.len()).unwrap(), payload)
}

/// The header of the longest that rustls takes.
const CERTIFICATE: [u8; 4] = [11, 0, 0xff, 0xff];
/// One as a record: header, message, content type and tag.
const KEY_UPDATE_BYTES: usize = 5 + 5 + 1 + 16;
const RECORDS_MAX: usize = 10_000;
