//! One connection of a lane: the client's socket and session, and a socket attached to it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use sealane_engine::buffer::Buffer;
use sealane_engine::session::ServerSession;

use crate::generation::LaneGeneration;

/// Everything a lane keeps for a connection, beside what its service keeps.
pub(crate) struct Client<S> {
    pub(crate) token: u64,
    pub(crate) socket: Socket,
    pub(crate) attached: Option<Socket>,
    pub(crate) listener: u32,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) generation: Rc<LaneGeneration<S>>,
    pub(crate) phase: Phase,
    pub(crate) session: Option<Box<ServerSession>>,
    pub(crate) server_name: Option<Box<str>>,
    /// The start of a ClientHello whose end has not arrived.
    pub(crate) early: Vec<u8>,
    /// Ciphertext that the client's socket did not take.
    pub(crate) outgoing: Option<Buffer>,
    /// Plaintext that the service did not take.
    pub(crate) untaken: Option<Buffer>,
    pub(crate) incoming: Direction,
    pub(crate) outbound: Direction,
    pub(crate) accepted_at: Instant,
    pub(crate) handshake_us: Option<u64>,
    pub(crate) active_ms: u64,
    pub(crate) tickets_due_ms: Option<u64>,
    pub(crate) service_due_ms: Option<u64>,
    pub(crate) client_bytes: u64,
    pub(crate) backend_bytes: u64,
    /// Whether it stands in the lane's queue of connections with work left.
    pub(crate) queued: bool,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Established,
    Handshake,
    /// Waiting for a whole ClientHello; no session exists yet.
    Hello,
    /// Refused with a last message, which a close with unread bytes would destroy: what still
    /// arrives is thrown away until the client closes, or until the deadline.
    Lingering { until_ms: u64, bytes_left: usize },
}

/// The end of one direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Open,
    /// The end has been received or sealed, but not everything before it is through.
    Ending,
    /// The end has been passed on.
    Ended,
}

/// A socket with what the last events said of it.
pub(crate) struct Socket {
    pub(crate) fd: OwnedFd,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// FIN or an error has arrived: whatever can be read is already in the socket's queue, so a
    /// short read means the end.
    pub(crate) hangup: bool,
    /// The end has been read.
    pub(crate) ended: bool,
    /// Bytes have been written to it.
    pub(crate) written: bool,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd, readable: false, writable: true, hangup: false, ended: false, written: false }
    }
}

impl<S> Client<S> {
    /// Whether bytes from the client may be read now: whoever takes them must have taken the last.
    pub(crate) fn wants_client_bytes(&self) -> bool {
        let room = self.untaken.is_none()
            && (self.outgoing.is_none() || self.phase == Phase::Established);
        self.socket.readable && !self.socket.ended && room
    }

    /// Whether bytes from the attached socket may be read now: the client must have taken the last.
    pub(crate) fn wants_attached_bytes(&self) -> bool {
        self.outgoing.is_none()
            && self.outbound == Direction::Open
            && self.attached.as_ref().is_some_and(|socket| socket.readable && !socket.ended)
    }

    /// Both ends have been passed on and nothing is pending.
    pub(crate) fn is_finished(&self) -> bool {
        self.incoming == Direction::Ended && self.outbound == Direction::Ended
    }
}
