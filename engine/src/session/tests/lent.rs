//! A session with its own buffers, and two of them face to face.

use super::{ClientSession, Fed, ServerSession, Session, SessionError};
use crate::buffer::Buffer;

/// A session with the buffers that a lane would lend it.
pub(crate) struct Lent<S> {
    pub(crate) session: S,
    received: Buffer,
    pub(crate) plain: Buffer,
    pub(crate) wire: Buffer,
}

impl<S: Session> Lent<S> {
    pub(crate) fn to(session: S) -> Self {
        Self {
            session,
            received: Buffer::with_capacity(1 << 20),
            plain: Buffer::with_capacity(1 << 20),
            wire: Buffer::with_capacity(1 << 20),
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Fed, SessionError> {
        if self.session.append_partial(bytes) {
            return Ok(Fed::default());
        }
        self.received.clear();
        self.session.take_partial(&mut self.received);
        assert_eq!(self.received.append(bytes), bytes.len());
        self.session.feed(self.received.filled_mut(), &mut self.plain, &mut self.wire)
    }
}

/// Moves the bytes that `from` has written to `to` in pieces of `piece` bytes, and sums up the
/// results.
pub(crate) fn carry<A: Session, B: Session>(
    from: &mut Lent<A>,
    to: &mut Lent<B>,
    piece: usize,
) -> Result<Fed, SessionError> {
    let bytes = from.wire.filled().to_vec();
    from.wire.clear();
    let mut all = Fed::default();
    for piece in bytes.chunks(piece) {
        let fed = to.feed(piece)?;
        assert!(!(fed.established && all.established), "established twice");
        all.established |= fed.established;
        all.peer_closed |= fed.peer_closed;
    }
    Ok(all)
}

/// A handshake; the error is the first of either end.
pub(crate) fn shake(
    client: &mut Lent<ClientSession>,
    server: &mut Lent<ServerSession>,
    piece: usize,
) -> Result<(), SessionError> {
    client.feed(&[])?;
    for _ in 0..FLIGHTS_MAX {
        carry(client, server, piece)?;
        carry(server, client, piece)?;
        if client.session.is_established() && server.session.is_established() {
            return Ok(());
        }
    }
    panic!("the handshake never ends");
}

const FLIGHTS_MAX: usize = 4;
