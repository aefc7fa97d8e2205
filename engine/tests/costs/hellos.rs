//! The first message of a stranger.

use rustls::ClientConfig;
use rustls::version::TLS13;

use super::messages::Cost;
use crate::hello::extend::extend;
use crate::hello::tests::{refragment, work_of};
use crate::hello::{Fault, Gathering, Peek, RECORD_HEADER_LEN, peek};
use crate::session::tests::bounds::asked_again;
use crate::session::tests::{World, client, flight};
use crate::session::{SHOWN, Session as _};
use crate::tickets::OPENED;

/// Bytes that are no TLS are recognized by the first of them.
pub(super) fn junk() -> Cost {
    assert_eq!(peek(&[0x5a], HELLO_BYTES_MAX), Peek::Refused(Fault::NotTls));
    Cost { sent: 1, ..Cost::default() }
}

/// Each of another unknown type, and empty.
pub(super) fn full_of_extensions() -> Cost {
    peeked_and_shown(&extended(|message| {
        for number in 0_u16.. {
            if message.len() + 4 > HELLO_BYTES_MAX {
                return;
            }
            extend(message, 0x5000 | number, &[]);
        }
    }))
}

/// Each has a ticket's form, and no session inside.
pub(super) fn full_of_tickets() -> Cost {
    let hello = extended(|message| {
        let room = HELLO_BYTES_MAX - message.len();
        let len = |len: usize| u16::try_from(len).unwrap().to_be_bytes();
        let identity = [&len(TICKET_BYTES)[..], &[0; TICKET_BYTES + 4]].concat();
        let binder = [&[32][..], &[0; 32]].concat();
        // The extension's header, and the lengths of its two lists.
        let count = (room - 4 - 4) / (identity.len() + binder.len());
        let (identities, binders) = (identity.repeat(count), binder.repeat(count));
        let offer =
            [&len(identities.len())[..], &identities, &len(binders.len()), &binders].concat();
        extend(message, 41, &offer);
    });
    peeked_and_shown(&hello)
}

/// A hello of as many bytes as it may have, each in a separate record, each read alone.
pub(super) fn in_single_bytes() -> Cost {
    let mut gathering = Gathering::default();
    let sent = refragment(&longest(), 1);
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
    let hello = longest();
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
    let mut server = World::new().server();
    OPENED.set(0);
    SHOWN.set(0);
    let _ = server.feed(hello);
    let held = server.session.partial_len();
    Cost { sent: hello.len(), shown: SHOWN.get(), opened: OPENED.get(), held, ..Cost::default() }
}

/// A hello as long as may be.
fn longest() -> Vec<u8> {
    extended(lengthen)
}

/// A hello as long as may be, of a client with a key share that no server accepts.
pub(super) fn longest_to_be_asked_again(world: &World) -> Vec<u8> {
    extended_of(asked_again(world), lengthen)
}

fn lengthen(message: &mut Vec<u8>) {
    extend(message, 0x5000, &vec![0; HELLO_BYTES_MAX - message.len() - 4]);
}

/// A sound hello with the additions of `more`.
fn extended(more: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    extended_of(World::new().client_config(&TLS13), more)
}

fn extended_of(config: ClientConfig, more: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let sound = flight(&mut client(&config.into()));
    let mut message = sound[RECORD_HEADER_LEN..].to_vec();
    more(&mut message);
    let len = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&[22, 3, 1][..], &len, &message].concat()
}

/// The default limit of a listener for the length of a hello.
const HELLO_BYTES_MAX: usize = 1 << 14;
/// The shortest that has the form of a ticket: epoch, nonce and tag.
const TICKET_BYTES: usize = 8 + 24 + 16;
