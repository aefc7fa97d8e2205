//! One TLS connection over memory, for the functions by which C feeds and fetches.

use std::cell::RefCell;

use sealane_engine::buffer::Buffer;
use sealane_engine::session::{
    ClientSession, FLIGHT_BYTES_MAX, Fed, PARTIAL_BYTES_MAX, RECORD_WIRE_MAX, Session as _,
};

use crate::failure::{Failure, Status};
use crate::waiting::Waiting;

/// One connection: `sealane_session`. At any time one thread uses it, now this one, then that.
pub struct Session {
    tls: ClientSession,
    /// Plaintext of the peer, to be read.
    pub(crate) plain: Waiting,
    /// Ciphertext for the peer, to be transmitted.
    pub(crate) wire: Waiting,
    closed: bool,
    failed: Option<Failure>,
    peer_closed: bool,
}

impl Session {
    pub(crate) fn begin(tls: ClientSession) -> Result<Self, Failure> {
        let (plain, wire) = (Waiting::default(), Waiting::default());
        let mut session =
            Self { tls, plain, wire, closed: false, failed: None, peer_closed: false };
        session.feed(&[])?;
        Ok(session)
    }

    /// Takes the front of `ciphertext`, and returns how much that was.
    pub(crate) fn receive(&mut self, ciphertext: &[u8]) -> Result<usize, Failure> {
        self.check()?;
        if self.peer_closed || ciphertext.is_empty() {
            // Behind close_notify nothing counts.
            return Ok(ciphertext.len());
        }
        check_room(&self.plain, "plaintext waits; read it")?;
        check_room(&self.wire, "ciphertext waits; transmit it")?;
        let taken = &ciphertext[..ciphertext.len().min(RECORD_WIRE_MAX)];
        if !self.tls.append_partial(taken) {
            self.feed(taken)?;
        }
        Ok(taken.len())
    }

    /// Encrypts the front of `plaintext`, and returns how much that was.
    pub(crate) fn write(&mut self, plaintext: &[u8]) -> Result<usize, Failure> {
        self.check()?;
        if self.closed {
            return Err(Failure::new(Status::Closed, "this session was closed for writing"));
        }
        if !self.tls.is_established() {
            let text = "the handshake is not complete; transmit, receive, and look at the state";
            return Err(Failure::new(Status::NotEstablished, text));
        }
        check_room(&self.wire, "ciphertext waits; transmit it")?;
        let (tls, wire) = (&mut self.tls, &mut self.wire);
        let sealed = lend(|lent| {
            let sealed = tls.seal(&plaintext[..plaintext.len().min(WRITE_BYTES)], &mut lent.wire);
            wire.append(lent.wire.filled());
            sealed.map_err(Failure::from)
        });
        self.remember(sealed)
    }

    /// Writes close_notify for the peer.
    pub(crate) fn close(&mut self) -> Result<(), Failure> {
        self.check()?;
        if !self.tls.is_established() {
            let text = "the handshake is not complete; free the session, for nothing was said";
            return Err(Failure::new(Status::NotEstablished, text));
        }
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let (tls, wire) = (&mut self.tls, &mut self.wire);
        let closed = lend(|lent| {
            let closed = tls.close(&mut lent.wire);
            wire.append(lent.wire.filled());
            closed.map_err(Failure::from)
        });
        self.remember(closed)
    }

    /// Notes the end of the transport, and returns whether all the peer's data had arrived.
    pub(crate) fn ended(&mut self) -> Result<(), Failure> {
        self.check()?;
        if self.peer_closed {
            return Ok(());
        }
        let text = match self.tls.is_established() {
            true => "the stream ended without close_notify: what arrived may not be all",
            false => "the server left in the middle of the handshake",
        };
        self.remember(Err(Failure::new(Status::Truncated, text)))
    }

    pub(crate) fn alpn(&self) -> &[u8] {
        self.tls.alpn().unwrap_or_default()
    }

    /// The present state, as bits.
    pub(crate) fn state(&self) -> u32 {
        let held = [
            (self.tls.is_established(), ESTABLISHED),
            (!self.plain.front().is_empty(), PLAINTEXT_WAITS),
            (!self.wire.front().is_empty(), CIPHERTEXT_WAITS),
            (self.peer_closed, PEER_CLOSED),
            (self.closed, CLOSED),
            (self.failed.is_some(), FAILED),
        ];
        held.iter().filter(|(holds, _)| *holds).map(|(_, bit)| bit).sum()
    }

    /// Ends it for good: a call has left it halfway.
    pub(crate) fn break_off(&mut self) {
        self.failed = Some(Failure::panicked());
    }

    fn check(&self) -> Result<(), Failure> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn remember<T>(&mut self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        outcome.inspect_err(|failure| self.failed = Some(failure.clone()))
    }

    fn feed(&mut self, ciphertext: &[u8]) -> Result<(), Failure> {
        let (tls, plain, wire) = (&mut self.tls, &mut self.plain, &mut self.wire);
        let fed: Result<Fed, Failure> = lend(|lent| {
            tls.take_partial(&mut lent.received);
            lent.received.append(ciphertext);
            let fed = tls.feed(lent.received.filled_mut(), &mut lent.plain, &mut lent.wire);
            plain.append(lent.plain.filled());
            // Also the alert with the reason why the session failed.
            wire.append(lent.wire.filled());
            fed.map_err(Failure::from)
        });
        self.peer_closed |= self.remember(fed)?.peer_closed;
        Ok(())
    }
}

/// Memory that a thread lends to the session it is busy with.
struct Lent {
    received: Buffer,
    plain: Buffer,
    wire: Buffer,
}

fn lend<T>(body: impl FnOnce(&mut Lent) -> Result<T, Failure>) -> Result<T, Failure> {
    let lent = LENT.try_with(|lent| {
        let mut lent = lent.try_borrow_mut().map_err(|_| Failure::panicked())?;
        let Lent { received, plain, wire } = &mut *lent;
        [received, plain, wire].into_iter().for_each(Buffer::clear);
        body(&mut lent)
    });
    lent.unwrap_or_else(|_| {
        Err(Failure::new(Status::Internal, "a session was used while its thread ends"))
    })
}

thread_local! {
    static LENT: RefCell<Lent> = RefCell::new(Lent {
        received: Buffer::with_capacity(PARTIAL_BYTES_MAX + RECORD_WIRE_MAX),
        plain: Buffer::with_capacity(PARTIAL_BYTES_MAX + RECORD_WIRE_MAX),
        wire: Buffer::with_capacity(FLIGHT_BYTES_MAX + RECORD_WIRE_MAX),
    });
}

fn check_room(waiting: &Waiting, remedy: &str) -> Result<(), Failure> {
    let len = waiting.front().len();
    if len >= WAITING_BYTES_MAX {
        return Err(Failure::new(Status::Full, format!("{len} bytes of {remedy} first")));
    }
    Ok(())
}

/// Threads hand sessions to each other, and share clients and contexts.
const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_shared<T: Send + Sync>() {}
    is_send::<Session>();
    is_shared::<crate::Client>();
    is_shared::<crate::Contexts>();
};

/// The handshake is complete.
pub(crate) const ESTABLISHED: u32 = 1;
/// Plaintext of the peer can be read.
pub(crate) const PLAINTEXT_WAITS: u32 = 2;
/// Ciphertext is to be transmitted.
pub(crate) const CIPHERTEXT_WAITS: u32 = 4;
/// The peer has sent close_notify.
pub(crate) const PEER_CLOSED: u32 = 8;
/// This end has sent close_notify.
pub(crate) const CLOSED: u32 = 16;
/// The session is over. Each call returns the reason again.
pub(crate) const FAILED: u32 = 32;

/// Waiting bytes on one side, from which on nothing more is taken. One call may go beyond it.
const WAITING_BYTES_MAX: usize = 64 << 10;
/// Plaintext that is encrypted in one call.
const WRITE_BYTES: usize = 64 << 10;
