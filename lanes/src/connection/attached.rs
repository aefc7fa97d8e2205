//! The socket attached to a connection: plain, or under TLS with our end being the client's.

use std::io::{self, ErrorKind};

use sealane_engine::buffer::Buffer;
use sealane_engine::session::{ClientSession, Session, SessionError};

use crate::cause::Cause;
use crate::connection::outlet::Outlet;
use crate::connection::pool::Pending;
use crate::connection::socket::Socket;
use crate::connection::token::Token;

/// What a connection keeps of the socket attached to it.
pub(crate) struct Attached {
    pub(crate) socket: Socket,
    /// A pointer, because most backends get plain bytes.
    pub(super) tls: Option<Box<Tls>>,
}

/// Our end of TLS towards the peer of an attached socket.
pub(super) struct Tls {
    pub(super) session: ClientSession,
    /// Ciphertext that the socket did not take.
    pub(super) outgoing: Option<Pending>,
    /// close_notify is written: FIN follows it.
    pub(super) ending: bool,
    /// What TLS had against the peer.
    pub(super) cause: Option<Cause>,
}

/// What a read from the attached socket brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes, and whether they are the last.
    Bytes {
        /// Nothing follows: the peer has ended its direction.
        last: bool,
    },
    /// The clean end, without a byte before it.
    End,
    /// Nothing for now.
    Nothing,
}

impl Attached {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    /// Whether something may be read now.
    pub(crate) fn wants_reading(&self) -> bool {
        self.socket.readable && !self.socket.ended
    }

    /// Whether ciphertext waits for room in the socket.
    pub(crate) fn has_pending(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.outgoing.is_some())
    }

    /// Whether the peer has taken a byte, under TLS one of what a client sends: until then it is
    /// being reached.
    pub(crate) fn is_reached(&self) -> bool {
        let is_secured = self.tls.as_ref().is_none_or(|tls| tls.session.is_established());
        self.socket.writes > 0 && is_secured
    }

    /// Whether a close_notify must be sent before the socket is closed.
    pub(crate) fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Bytes of the peer that wait for their rest.
    pub(crate) fn unfinished_len(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.session.partial_len())
    }

    /// Where ciphertext leaves, if there is TLS.
    pub(super) fn outlet<'c>(
        &'c mut self,
        active_ms: &'c mut u64,
        token: Token,
    ) -> Option<Outlet<'c>> {
        let tls = self.tls.as_mut()?;
        self.socket.do_not_gather();
        Some(Outlet {
            socket: &mut self.socket,
            outgoing: &mut tls.outgoing,
            active_ms,
            token,
            end_follows: tls.ending,
        })
    }

    /// Takes what waits, when the connection is over.
    pub(crate) fn into_pending(self) -> Option<Pending> {
        self.tls?.outgoing
    }
}

impl Tls {
    pub(super) fn fail(&mut self, error: SessionError) -> io::Error {
        self.cause = Some(Cause::of_backend(&error, self.session.is_established()));
        io::Error::new(ErrorKind::InvalidData, error)
    }

    /// The same where something was to be written: the connection may live on, and what stands in
    /// `wire` must not reach another.
    pub(super) fn fail_writing(&mut self, error: SessionError, wire: &mut Buffer) -> io::Error {
        wire.clear();
        self.fail(error)
    }

    /// FIN without close_notify.
    pub(super) fn truncated(&mut self) -> io::Error {
        let (cause, words) = match self.session.is_established() {
            true => (Cause::BackendTruncated, "its stream ended without close_notify"),
            false => (Cause::BackendHandshakeFailed, "it left in the middle of the handshake"),
        };
        self.cause = Some(cause);
        io::Error::new(ErrorKind::UnexpectedEof, words)
    }
}
