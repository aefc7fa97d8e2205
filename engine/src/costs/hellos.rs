//! The first message of a stranger.

use rustls::version::TLS13;

use super::messages::Cost;
use crate::hello::tests::{refragment, work_of};
use crate::hello::{Fault, Gathering, Hello, Peek, RECORD_HEADER_LEN, peek};
use crate::session::tests::lent::Lent;
use crate::session::tests::{World, client, flight};
use crate::session::{SHOWN, ServerSession, Session as _};
use crate::tickets::OPENED;

/// What is no TLS is known by its first byte.
pub(super) fn junk() -> Cost {
    assert_eq!(peek(&[0x5a], HELLO_BYTES_MAX), Peek::Refused(Fault::NotTls));
    Cost { sent: 1, ..Cost::default() }
}

/// Each of an unknown type of its own, and empty.
pub(super) fn full_of_extensions() -> Cost {
    let hello = extended(|room| {
        let unknown = (0..).map(|number: u16| number | 0x5000);
        unknown.take(room / 4).flat_map(|kind| [kind.to_be_bytes(), [0; 2]].concat()).collect()
    });
    peeked_and_shown(&hello)
}

/// Each has a ticket's form, and no session inside.
pub(super) fn full_of_tickets() -> Cost {
    let hello = extended(|room| {
        let len = |len: usize| u16::try_from(len).unwrap().to_be_bytes();
        let identity = [&len(TICKET_BYTES)[..], &[0; TICKET_BYTES + 4]].concat();
        let binder = [&[32][..], &[0; 32]].concat();
        // The extension's header, and the lengths of its two lists.
        let count = (room - 4 - 4) / (identity.len() + binder.len());
        let (identities, binders) = (identity.repeat(count), binder.repeat(count));
        let offer =
            [&len(identities.len())[..], &identities, &len(binders.len()), &binders].concat();
        [&[0, 41][..], &len(offer.len()), &offer].concat()
    });
    peeked_and_shown(&hello)
}

/// As many bytes as a hello may have, each in a record of its own, each read alone.
pub(super) fn in_single_bytes() -> Cost {
    let hello = extended(|room| [&[0x50, 0][..], &padding(room - 4)].concat());
    let mut gathering = Gathering::default();
    let sent = refragment(&hello, 1);
    let mut cost = Cost { sent: sent.len(), ..Cost::default() };
    let work = work_of(|| {
        for byte in &sent {
            if let (_, Peek::Hello(_)) = gathering.take(&[*byte], HELLO_BYTES_MAX) {
                return;
            }
            cost.held = cost.held.max(gathering.framed_len());
        }
        panic!("it was no hello");
    });
    let mut framed = vec![0; gathering.framed_len()];
    gathering.frame(&mut framed);
    let shown = shown(&framed);
    Cost { hellos: work.parsed, shown: shown.shown, ..cost }
}

/// All but the last byte.
pub(super) fn unfinished() -> Cost {
    let hello = extended(|room| [&[0x50, 0][..], &padding(room - 4)].concat());
    let mut gathering = Gathering::default();
    let sent = &hello[..hello.len() - 1];
    let mut cost = Cost { sent: sent.len(), ..Cost::default() };
    let work = work_of(|| {
        for byte in sent {
            assert_eq!(gathering.take(&[*byte], HELLO_BYTES_MAX), (1, Peek::NeedMore));
            cost.held = cost.held.max(gathering.framed_len());
        }
    });
    Cost { hellos: work.parsed, ..cost }
}

/// A hello that arrives in one piece.
fn peeked_and_shown(hello: &[u8]) -> Cost {
    let work = work_of(|| assert!(matches!(peek(hello, HELLO_BYTES_MAX), Peek::Hello(_))));
    Cost { hellos: work.parsed, ..shown(hello) }
}

fn shown(hello: &[u8]) -> Cost {
    let world = World::new();
    let config = world.context.admit(&Hello::default()).unwrap();
    let mut server = Lent::to(ServerSession::new(config).unwrap());
    OPENED.set(0);
    SHOWN.set(0);
    let _ = server.feed(hello);
    let held = server.session.partial_len();
    Cost { sent: hello.len(), shown: SHOWN.get(), opened: OPENED.get(), held, ..Cost::default() }
}

/// A sound hello with more extensions, which `more` makes of the bytes that are left for them.
fn extended(more: impl FnOnce(usize) -> Vec<u8>) -> Vec<u8> {
    let world = World::new();
    let sound = flight(&mut client(&world.client_config(&TLS13).into()));
    let mut message = sound[RECORD_HEADER_LEN..].to_vec();
    let more = more(HELLO_BYTES_MAX - message.len());
    // Header, version, random, session id, suites, compressions; then the extensions' length.
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(message[at]);
    at += 2 + usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    at += 1 + usize::from(message[at]);
    let len = |len: usize| u16::try_from(len).unwrap().to_be_bytes();
    let extensions = usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    message[at..at + 2].copy_from_slice(&len(extensions + more.len()));
    message.extend(more);
    let body = len(message.len() - 4);
    message[2..4].copy_from_slice(&body);
    [&[22, 3, 1][..], &len(message.len()), &message].concat()
}

/// An extension's content of `len` bytes, behind its length.
fn padding(len: usize) -> Vec<u8> {
    let mut padding = u16::try_from(len).unwrap().to_be_bytes().to_vec();
    padding.resize(2 + len, 0);
    padding
}

/// What a listener takes of a hello unless it is told otherwise.
const HELLO_BYTES_MAX: usize = 1 << 14;
/// The shortest that has the form of a ticket: epoch, nonce and tag.
const TICKET_BYTES: usize = 8 + 24 + 16;
