//! The buffers of a lane, which it lends to one session after the other.

use std::cell::RefCell;

use sealane_engine::{
    buffer::Buffer,
    session::{FLIGHT_BYTES_MAX, RECORD_WIRE_MAX, Session},
};
use sealane_lab_model::error::Error;

use super::broken;

/// Lends them to `session` for one call after another, and for one at least: a client speaks first.
/// `true`: the peer sends no more.
pub(super) fn feed(
    session: &mut impl Session,
    incoming: &[u8],
    mut plaintext: Option<&mut Vec<u8>>,
    outgoing: &mut Vec<u8>,
) -> Result<bool, Error> {
    LENT.with_borrow_mut(|Lent { received, plain, wire }| {
        let mut ended = false;
        let mut rest = incoming;
        loop {
            received.clear();
            session.take_partial(received);
            let taken = received.append(rest);
            rest = &rest[taken..];
            let fed = session.feed(received.filled_mut(), plain, wire);
            // What a lane sends with its first response, there is none here.
            session.release_held(wire);
            drain(wire, outgoing);
            if let Some(plaintext) = &mut plaintext {
                plaintext.extend_from_slice(plain.filled());
            }
            plain.clear();
            ended |= fed.map_err(|error| broken(&error))?.peer_closed;
            if rest.is_empty() {
                return Ok(ended);
            }
        }
    })
}

/// Encrypts all of `plaintext` behind `outgoing`.
pub(super) fn seal(
    session: &mut impl Session,
    plaintext: &[u8],
    outgoing: &mut Vec<u8>,
) -> Result<(), Error> {
    LENT.with_borrow_mut(|Lent { wire, .. }| {
        let mut rest = plaintext;
        while !rest.is_empty() {
            let taken = session.seal(rest, wire).map_err(|error| broken(&error))?;
            rest = &rest[taken..];
            drain(wire, outgoing);
        }
        Ok(())
    })
}

struct Lent {
    received: Buffer,
    plain: Buffer,
    wire: Buffer,
}

thread_local! {
    static LENT: RefCell<Lent> = RefCell::new(Lent {
        received: Buffer::with_capacity(RECEIVED_BYTES),
        plain: Buffer::with_capacity(RECEIVED_BYTES),
        wire: Buffer::with_capacity(WIRE_BYTES),
    });
}

fn drain(wire: &mut Buffer, outgoing: &mut Vec<u8>) {
    outgoing.extend_from_slice(wire.filled());
    wire.clear();
}

/// The size of a lane's receive buffer.
const RECEIVED_BYTES: usize = 256 * 1024 + RECORD_WIRE_MAX;
/// The size of a lane's send buffer, which holds any flight.
const WIRE_BYTES: usize = FLIGHT_BYTES_MAX + 16 * RECORD_WIRE_MAX;
