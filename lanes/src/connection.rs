//! One connection of a lane: the client's socket and session, and a socket attached to it.

pub(crate) mod attached;
pub(crate) mod buffers;
pub mod link;
pub(crate) mod outbox;
pub(crate) mod outlet;
pub(crate) mod phase;
pub(crate) mod pool;
pub(crate) mod refused;
pub(crate) mod socket;
pub(crate) mod token;
pub(crate) mod unfinished;

use std::net::SocketAddr;
use std::rc::Rc;

use sealane_engine::buffer::Buffer;
use sealane_engine::context::LaneContext;
use sealane_engine::hello::Offered;
use sealane_engine::session::{ServerSession, Session};
use sealane_file_table::Descriptor;

use crate::connection::attached::Attached;
use crate::connection::outlet::Outlet;
use crate::connection::phase::{Direction, Early, Phase};
use crate::connection::pool::Pending;
use crate::connection::refused::Refused;
use crate::connection::socket::Socket;
use crate::connection::token::Token;
use crate::connection::unfinished::Kept;
use crate::failure::Failure;

/// Everything a lane keeps for a connection, except its generation and its service's state.
pub(crate) struct Connection {
    pub(crate) token: u64,
    pub(crate) socket: Socket,
    pub(crate) attached: Option<Attached>,
    /// Counts the attached sockets from 1, so that an event for one does not reach the next.
    pub(crate) attachment: u8,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) phase: Phase,
    pub(crate) tls: ClientTls,
    pub(crate) hello: HelloFacts,
    pub(crate) failed: HandshakeFailure,
    pub(crate) times: Times,
    /// Bytes that the lane counts of those that wait for their rest.
    pub(crate) kept: Kept,
    /// Ciphertext that the client's socket did not take.
    pub(crate) outgoing: Option<Pending>,
    /// Plaintext that the service did not take.
    pub(crate) untaken: Option<Pending>,
    /// From the client to the service.
    pub(crate) inward: Direction,
    /// From the service to the client.
    pub(crate) outward: Direction,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Whether the service wants nothing more from the client.
    pub(crate) abandoned: bool,
    /// Whether it is in the lane's queue of connections with work left.
    pub(crate) queued: bool,
    /// Whether a certificate authority validates a name: the connection ends with its handshake.
    pub(crate) is_challenge: bool,
    /// Whether the peer may leave without having sent anything behind its preamble.
    pub(crate) is_probe: bool,
}

/// Our end of TLS towards the client.
pub(crate) enum ClientTls {
    /// No session yet, or never one: bytes that came and wait, if there are any.
    Before(Option<Box<Early>>),
    /// A session, with the context that it was begun under.
    Begun { session: Box<ServerSession>, context: Rc<LaneContext> },
}

/// The contents of the client's hello, as far as it has come and somebody asks for them.
#[derive(Default)]
pub(crate) struct HelloFacts {
    pub(crate) server_name: Option<Box<str>>,
    /// The entry of that name: [`Named::number`](crate::shared::generation::Named::number).
    pub(crate) name_number: u32,
    pub(crate) offered: Option<Offered>,
    pub(crate) ja4: Option<Box<str>>,
}

/// The reasons for which a session has failed.
#[derive(Default)]
pub(crate) struct HandshakeFailure {
    pub(crate) failure: Option<Box<Failure>>,
    /// The client's certificate, if it ended the connection. Nothing else is kept of one: the
    /// session has the chain.
    pub(crate) refused: Option<Box<Refused>>,
}

/// The times of a connection, in milliseconds since the lane started by default.
pub(crate) struct Times {
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
}

/// Plaintext that may wait while more is read ahead.
const READ_AHEAD_BYTES_MAX: usize = 16 * 1024;

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
            tls: ClientTls::Before(None),
            hello: HelloFacts::default(),
            failed: HandshakeFailure::default(),
            times: Times::new(accepted_us, now_ms),
            kept: Kept::default(),
            outgoing: None,
            untaken: None,
            inward: Direction::Open,
            outward: Direction::Open,
            received_bytes: 0,
            sent_bytes: 0,
            abandoned: false,
            queued: false,
            is_challenge: false,
            is_probe: false,
        }
    }

    pub(crate) fn accepted_ms(&self) -> u64 {
        self.times.accepted_us / 1_000
    }

    /// The token of the socket that is attached now.
    pub(crate) fn attached_token(&self) -> Token {
        Token::from_bits(self.token).attached(self.attachment)
    }

    /// Where ciphertext for the attached socket leaves.
    pub(crate) fn attached_outlet(&mut self) -> Option<Outlet<'_>> {
        let token = self.attached_token();
        self.attached.as_mut()?.outlet(&mut self.times.active_ms, token)
    }

    /// Where bytes for the client leave.
    pub(crate) fn outlet(&mut self) -> Outlet<'_> {
        Outlet {
            socket: &mut self.socket,
            outgoing: &mut self.outgoing,
            active_ms: &mut self.times.active_ms,
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

    /// Whether the client's next message is its hello, or the repeated one: the signature is still
    /// to come.
    pub(crate) fn awaits_hello(&self) -> bool {
        match self.tls.session() {
            Some(session) => session.awaits_second_hello(),
            None => true,
        }
    }

    /// Whether the client has sent nothing yet: a preamble does not count, unless it was answered.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.phase, Phase::Preamble | Phase::Hello)
            && !self.queued
            && matches!(self.tls, ClientTls::Before(None))
            && self.outgoing.is_none()
            && self.socket.writes == 0
    }

    /// Whether the peer only checked that the port answers.
    pub(crate) fn is_silent_probe(&self) -> bool {
        self.is_probe && self.is_silent()
    }

    /// Whether bytes from the client may be read now: the ones before must have been taken.
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

    /// Whether the client is read although earlier bytes wait: while the attached socket's peer
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

    /// Whether one direction has ended, or will with the pending bytes.
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
        match &self.tls {
            ClientTls::Begun { session, .. } => session.partial_len(),
            ClientTls::Before(early) => early.as_ref().map_or(0, |early| early.room_len()),
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
        self.tls.session_mut().is_some_and(|session| session.append_partial(more))
    }

    /// Moves those bytes into `into`, or leaves room for them.
    pub(crate) fn take_carried(&mut self, into: &mut Buffer) {
        match &mut self.tls {
            ClientTls::Begun { session, .. } => session.take_partial(into),
            ClientTls::Before(early) => match early.as_deref() {
                Some(Early::Gathering(gathering)) => into.fill(gathering.room_len()),
                Some(Early::Whole(bytes)) => {
                    into.append(bytes);
                    *early = None;
                }
                None => {}
            },
        }
    }
}

impl ClientTls {
    pub(crate) fn session(&self) -> Option<&ServerSession> {
        match self {
            Self::Before(_) => None,
            Self::Begun { session, .. } => Some(session),
        }
    }

    pub(crate) fn session_mut(&mut self) -> Option<&mut ServerSession> {
        match self {
            Self::Before(_) => None,
            Self::Begun { session, .. } => Some(session),
        }
    }

    pub(crate) fn context(&self) -> Option<&Rc<LaneContext>> {
        match self {
            Self::Before(_) => None,
            Self::Begun { context, .. } => Some(context),
        }
    }
}

impl Times {
    fn new(accepted_us: u64, now_ms: u64) -> Self {
        Self {
            accepted_us,
            handshake_us: None,
            active_ms: now_ms,
            client_ms: now_ms,
            backend_ms: now_ms,
            armed_ms: u64::MAX,
            tickets_due_ms: u64::MAX,
            service_due_ms: u64::MAX,
        }
    }
}
