//! One connection of a lane: the client's socket and session, and a socket attached to it.

pub(crate) mod attached;
pub(crate) mod buffers;
pub mod link;
pub(crate) mod outbox;
pub(crate) mod pool;
pub(crate) mod token;
pub(crate) mod unfinished;

use std::net::SocketAddr;
use std::rc::Rc;

use rustix::event::epoll::EventFlags;
use rustix::net::sockopt::socket_error;
use sealane_engine::buffer::Buffer;
use sealane_engine::context::LaneContext;
use sealane_engine::hello::{Gathering, Offered};
use sealane_engine::session::{ServerSession, Session};
use sealane_file_table::Descriptor;

use crate::cause::Cause;
use crate::connection::attached::Attached;
use crate::connection::outbox::Outlet;
use crate::connection::pool::Pending;
use crate::connection::token::Token;
use crate::connection::unfinished::Kept;
use crate::failure::Failure;
use crate::lane::revoked::Refused;

/// Everything a lane keeps for a connection, beside its generation and what its service keeps.
pub(crate) struct Connection {
    pub(crate) token: u64,
    pub(crate) socket: Socket,
    pub(crate) attached: Option<Attached>,
    /// Counts the attached sockets from 1, so that an event for one does not reach the next.
    pub(crate) attachment: u8,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) phase: Phase,
    pub(crate) session: Option<Box<ServerSession>>,
    /// The context that the session was begun under.
    pub(crate) context: Option<Rc<LaneContext>>,
    pub(crate) server_name: Option<Box<str>>,
    /// What that name leads to: [`Named::number`](crate::shared::generation::Named::number).
    pub(crate) name_number: u32,
    /// What its hello offered.
    pub(crate) offered: Option<Offered>,
    /// How its hello introduced the client, where that is asked for.
    pub(crate) ja4: Option<Box<str>>,
    /// What is known of a failure, if its session has failed.
    pub(crate) failure: Option<Box<Failure>>,
    /// What came and waits, as long as there is no session.
    pub(crate) early: Option<Box<Early>>,
    /// What the lane counts of that, and of what the sessions keep.
    pub(crate) kept: Kept,
    /// Ciphertext that the client's socket did not take.
    pub(crate) outgoing: Option<Pending>,
    /// Plaintext that the service did not take.
    pub(crate) untaken: Option<Pending>,
    /// From the client to the service.
    pub(crate) inward: Direction,
    /// From the service to the client.
    pub(crate) outward: Direction,
    /// In microseconds since the lane started.
    pub(crate) accepted_us: u64,
    pub(crate) handshake_us: Option<u32>,
    /// When plaintext or a whole record last came, or a byte left.
    pub(crate) active_ms: u64,
    /// When plaintext last came from the client.
    pub(crate) client_ms: u64,
    /// When the service last had plaintext for the client.
    pub(crate) backend_ms: u64,
    /// The entry of the timer wheel that counts; others of this connection are stale.
    pub(crate) armed_ms: u64,
    /// When tickets that wait for the first response leave alone; the end of time if none wait.
    pub(crate) tickets_due_ms: u64,
    /// When the service wants to be called; the end of time if it does not.
    pub(crate) service_due_ms: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// The client's certificate, if it ended the connection. Nothing else is kept of one: the
    /// session has the chain.
    pub(crate) refused: Option<Box<Refused>>,
    /// Whether the service wants nothing more from the client.
    pub(crate) abandoned: bool,
    /// Whether it stands in the lane's queue of connections with work left.
    pub(crate) queued: bool,
    /// Whether an authority asks who serves a name: the connection ends with its handshake.
    pub(crate) is_challenge: bool,
    /// Whether the peer may leave without having said anything behind its preamble.
    pub(crate) is_probe: bool,
}

/// What a client has sent before its session exists.
pub(crate) enum Early {
    /// A ClientHello whose end has not arrived.
    Gathering(Gathering),
    /// Bytes as they came: a whole ClientHello that waits, and what came with it; or a preamble
    /// whose end has not arrived.
    Whole(Box<[u8]>),
}

impl Early {
    /// `bytes`, if there are any.
    pub(crate) fn whole(bytes: &[u8]) -> Option<Box<Self>> {
        (!bytes.is_empty()).then(|| Box::new(Self::Whole(bytes.into())))
    }
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
    Lingering {
        cause: Cause,
        until_ms: u64,
        bytes_left: u32,
    },
    /// Waiting for what stands before the rest, and the service reads.
    Preamble,
    /// The whole ClientHello is there, and somebody else decides about it; no session exists yet,
    /// and nothing is read.
    Waiting,
}

/// One direction of the relayed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Open,
    /// The end has arrived, but not everything before it has been passed on.
    Ending,
    /// The end has been passed on.
    Ended,
    /// The connection broke off, but not everything before that has been passed on.
    Cut,
}

/// A socket with what the last events said of it.
pub(crate) struct Socket {
    pub(crate) fd: Descriptor,
    pub(crate) readable: bool,
    /// An event said that it takes bytes again.
    pub(crate) writable: bool,
    /// FIN has arrived: whatever can be read already lies in the socket's queue, so a short read
    /// means the end.
    pub(crate) hangup: bool,
    /// An error has arrived, which a read will tell; or an urgent mark, at which reads end short.
    pub(crate) failed: bool,
    /// The end has been read.
    pub(crate) ended: bool,
    /// Successful writes so far; more than two are not told apart.
    pub(crate) writes: u8,
    /// Whether the lane's poll reports it. An attached socket is not, in its first turn.
    pub(crate) is_watched: bool,
    /// Whether the poll reports, or will, that it takes bytes again.
    pub(crate) wants_room: bool,
}

/// Plaintext that may wait while more is read ahead.
const READ_AHEAD_BYTES_MAX: usize = 16 * 1024;

impl Socket {
    pub(crate) fn new(fd: Descriptor) -> Self {
        Self {
            fd,
            readable: false,
            writable: false,
            hangup: false,
            failed: false,
            ended: false,
            writes: 0,
            is_watched: false,
            wants_room: false,
        }
    }

    /// A socket whose connection stands: it is reported for what arrives, and for room only once it
    /// ran out of it.
    pub(crate) fn connected(fd: Descriptor) -> Self {
        Self { writes: 2, ..Self::new(fd) }
    }

    /// Whether the peer has reset the connection, asked only after an event that hints at it.
    pub(crate) fn is_reset(&self) -> bool {
        self.failed && !matches!(socket_error(&self.fd), Ok(Ok(())))
    }

    /// Takes note of what an event says.
    pub(crate) fn note(&mut self, flags: EventFlags) {
        self.hangup |= flags.contains(EventFlags::RDHUP);
        self.failed |= flags.intersects(EventFlags::ERR | EventFlags::PRI);
        self.readable |= flags
            .intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.writable |= flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
    }
}

impl Connection {
    pub(crate) fn new(
        token: u64,
        fd: Descriptor,
        address: Option<SocketAddr>,
        accepted_us: u64,
        now_ms: u64,
    ) -> Self {
        Self {
            token,
            socket: Socket::new(fd),
            attached: None,
            attachment: 0,
            address,
            phase: Phase::Hello,
            session: None,
            context: None,
            server_name: None,
            name_number: 0,
            offered: None,
            ja4: None,
            failure: None,
            early: None,
            kept: Kept::default(),
            outgoing: None,
            untaken: None,
            inward: Direction::Open,
            outward: Direction::Open,
            accepted_us,
            handshake_us: None,
            active_ms: now_ms,
            client_ms: now_ms,
            backend_ms: now_ms,
            armed_ms: u64::MAX,
            tickets_due_ms: u64::MAX,
            service_due_ms: u64::MAX,
            received_bytes: 0,
            sent_bytes: 0,
            refused: None,
            abandoned: false,
            queued: false,
            is_challenge: false,
            is_probe: false,
        }
    }

    pub(crate) fn accepted_ms(&self) -> u64 {
        self.accepted_us / 1_000
    }

    /// The token of the socket that is attached now.
    pub(crate) fn attached_token(&self) -> Token {
        Token::from_bits(self.token).attached(self.attachment)
    }

    /// Where bytes for the client leave.
    pub(crate) fn outlet(&mut self) -> Outlet<'_> {
        Outlet {
            socket: &mut self.socket,
            outgoing: &mut self.outgoing,
            active_ms: &mut self.active_ms,
            token: Token::from_bits(self.token),
            end_follows: self.outward == Direction::Ending,
        }
    }

    /// Whether the handshake has neither been completed nor failed, from the preamble on.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::Preamble | Phase::Hello | Phase::Waiting | Phase::Handshake)
    }

    /// Whether its next step is handshake work, which waits for its turn. A client that leaves
    /// before its session has begun costs next to nothing.
    pub(crate) fn awaits_admission(&self) -> bool {
        match self.phase {
            Phase::Handshake => true,
            Phase::Hello | Phase::Preamble => !self.socket.hangup,
            Phase::Established | Phase::Lingering { .. } | Phase::Waiting => false,
        }
    }

    /// Whether the client has sent nothing yet: a preamble does not count, unless it was answered.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.phase, Phase::Preamble | Phase::Hello)
            && !self.queued
            && self.early.is_none()
            && self.outgoing.is_none()
            && self.socket.writes == 0
    }

    /// Whether whoever is there only looked whether somebody answers.
    pub(crate) fn is_silent_probe(&self) -> bool {
        self.is_probe && self.is_silent()
    }

    /// Whether bytes from the client may be read now: whoever takes them must have taken the last.
    pub(crate) fn wants_client_bytes(&self) -> bool {
        let has_room = match self.phase {
            Phase::Waiting => false,
            Phase::Established if self.abandoned => false,
            // Behind close_notify only FIN can come, which tells nothing new, or an error.
            Phase::Established if self.inward != Direction::Open => self.socket.failed,
            Phase::Established if self.untaken.is_some() => self.reads_ahead(),
            Phase::Established => !self.attached_has_pending(),
            Phase::Handshake | Phase::Hello | Phase::Preamble => self.outgoing.is_none(),
            Phase::Lingering { .. } => true,
        };
        has_room && self.socket.readable && !self.socket.ended
    }

    /// Whether bytes from the attached socket may be read now: the client must have taken the last.
    pub(crate) fn wants_attached_bytes(&self) -> bool {
        self.phase == Phase::Established
            && self.outgoing.is_none()
            && self.outward == Direction::Open
            && self.attached.as_ref().is_some_and(Attached::wants_reading)
    }

    /// Whether the client is read although what it has sent waits: while the attached socket's peer
    /// is being reached, which may take seconds, so that the client's end is noticed, and an error
    /// of its answered by an alert.
    fn reads_ahead(&self) -> bool {
        let waiting = self.untaken.as_ref().map_or(0, |untaken| untaken.len());
        waiting <= READ_AHEAD_BYTES_MAX
            && self.attached.as_ref().is_some_and(|attached| !attached.is_reached())
    }

    pub(crate) fn attached_has_pending(&self) -> bool {
        self.attached.as_ref().is_some_and(Attached::has_pending)
    }

    /// Whether bytes wait for either side.
    pub(crate) fn has_pending(&self) -> bool {
        self.outgoing.is_some() || self.untaken.is_some() || self.attached_has_pending()
    }

    /// Whether one direction has ended, or will with what is pending.
    pub(crate) fn is_half_closed(&self) -> bool {
        self.inward != Direction::Open || self.outward != Direction::Open
    }

    /// Whether both ends have been passed on and nothing is pending.
    pub(crate) fn is_finished(&self) -> bool {
        self.inward == Direction::Ended
            && self.outward == Direction::Ended
            && !self.attached_has_pending()
    }

    /// Bytes that stand in front of the next ones from the client, or will: the start of a hello
    /// is put there when the rest has come.
    pub(crate) fn carried_len(&self) -> usize {
        match (&self.session, self.early.as_deref()) {
            (Some(session), _) => session.partial_len(),
            (None, Some(Early::Gathering(gathering))) => gathering.room_len(),
            (None, Some(Early::Whole(bytes))) => bytes.len(),
            (None, None) => 0,
        }
    }

    /// Bytes that wait for their rest, of the client and of the attached socket's peer.
    pub(crate) fn unfinished_len(&self) -> usize {
        self.carried_len() + self.attached_unfinished_len()
    }

    /// Bytes of the attached socket's peer that wait for their rest.
    pub(crate) fn attached_unfinished_len(&self) -> usize {
        self.attached.as_ref().map_or(0, Attached::unfinished_len)
    }

    /// Appends `more` to those bytes where nothing but more waiting comes of it.
    pub(crate) fn append_carried(&mut self, more: &[u8]) -> bool {
        self.session.as_mut().is_some_and(|session| session.append_partial(more))
    }

    /// Moves those bytes into `into`, or leaves room for them.
    pub(crate) fn take_carried(&mut self, into: &mut Buffer) {
        match (&mut self.session, self.early.as_deref()) {
            (Some(session), _) => session.take_partial(into),
            (None, Some(Early::Gathering(gathering))) => into.fill(gathering.room_len()),
            (None, Some(Early::Whole(bytes))) => {
                into.append(bytes);
                self.early = None;
            }
            (None, None) => {}
        }
    }
}
