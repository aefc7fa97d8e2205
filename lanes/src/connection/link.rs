//! What a service sees of a connection: send to the client, end it, attach a socket to it.

mod attached;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use sealane_engine::client_certificates::ClientStanding;
use sealane_engine::context::Context;
use sealane_engine::session::{ServerSession, Session};

use crate::cause::Cause;
use crate::connection::outbox::{Outbox, PushError};
use crate::connection::phase::{Direction, Phase};
use crate::connection::token::ConnectionId;
use crate::connection::{ClientTls, Connection};
use crate::kernel::{Kernel, shut_write};
use crate::reactor::{Reactor, to_ms};

pub use crate::connection::attached::Received;
pub use crate::connection::buffers::Arrivals;

/// One established connection, lent to its service for the length of a call.
pub struct Link<'a, K: Kernel> {
    pub(crate) reactor: &'a mut Reactor<K>,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) connection: &'a mut Connection,
}

impl<K: Kernel> Link<'_, K> {
    /// Names the connection in orders.
    pub fn id(&self) -> ConnectionId {
        ConnectionId::from_bits(self.connection.token)
    }

    /// The number of the lane.
    pub fn lane(&self) -> usize {
        self.reactor.number
    }

    /// The time of this turn, in milliseconds since the lane started.
    pub fn now_ms(&self) -> u64 {
        self.reactor.now_ms
    }

    /// The TLS session; there is one on every established connection whose TLS ends here.
    pub fn session(&self) -> Option<&ServerSession> {
        self.connection.tls.session()
    }

    /// What the client's certificates are worth now.
    pub fn standing(&self) -> ClientStanding {
        match &self.connection.tls {
            ClientTls::Begun { session, context } => context.standing(session),
            ClientTls::Before(_) => ClientStanding::NotAsked,
        }
    }

    /// The secrets of the sessions under this connection's context since they were taken last, as
    /// lines for an NSS key log: this session's, and perhaps those of others in their handshake.
    pub fn take_key_log(&mut self) -> Vec<u8> {
        self.connection.tls.context().map(|context| context.take_key_log()).unwrap_or_default()
    }

    /// The client's address: the one that its preamble told, if it did.
    pub fn client_address(&self) -> Option<SocketAddr> {
        self.connection.address
    }

    /// The address that the client connected to.
    pub fn local_address(&self) -> Option<SocketAddr> {
        let address = rustix::net::getsockname(&self.connection.socket.fd).ok()?;
        SocketAddr::try_from(address).ok()
    }

    /// The server name that the client asked for, in lower case.
    pub fn server_name(&self) -> Option<&str> {
        self.connection.hello.server_name.as_deref()
    }

    /// What the name leads to that the client asked for: the [`Named::number`] of the listener's
    /// entry, or 0.
    ///
    /// [`Named::number`]: crate::shared::generation::Named::number
    pub fn name_number(&self) -> u32 {
        self.connection.hello.name_number
    }

    /// What the client was admitted under.
    pub fn context(&self) -> Option<&Arc<Context>> {
        self.connection.tls.context().map(|context| context.context())
    }

    /// Sends `plain`, encrypted if the client's TLS ends here. What the client does not take now
    /// leaves later, and until then the attached socket is not read.
    ///
    /// # Errors
    /// The client is gone, or the session cannot encrypt any more.
    pub fn send(&mut self, plain: &[u8]) -> Result<(), Cause> {
        self.seal(plain)?;
        self.transmit()
    }

    /// Sends `plain`, which may be empty, and then the clean end: close_notify, if the client's TLS
    /// ends here, and FIN.
    ///
    /// # Errors
    /// As for [`Link::send`].
    pub fn finish(&mut self, plain: &[u8]) -> Result<(), Cause> {
        self.seal(plain)?;
        if let Some(session) = self.connection.tls.session_mut() {
            session.close(&mut self.outbox.wire).map_err(|e| Cause::of_session(&e, true))?;
        }
        self.connection.outward = Direction::Ending;
        self.transmit()
    }

    /// Whether the clean end has been sent to the client, or will be behind what is pending.
    pub fn has_finished(&self) -> bool {
        self.connection.outward != Direction::Open
    }

    /// Bytes of ciphertext that wait until the client takes them.
    pub fn pending_len(&self) -> usize {
        self.connection.outgoing.as_ref().map_or(0, |outgoing| outgoing.len())
    }

    /// From now on nothing of what the client sends is read, its end included, and what the service
    /// has left of it is dropped. The connection ends cleanly as soon as the outward end has been
    /// sent: see [`Link::finish`].
    pub fn abandon_client(&mut self) {
        self.connection.abandoned = true;
        self.connection.inward = Direction::Ended;
        if let Some(untaken) = self.connection.untaken.take() {
            self.outbox.pool.give_back(untaken);
        }
    }

    /// Whether small writes to the client leave at once, as they do at first.
    ///
    /// # Errors
    /// The client's socket has no such option, as a unix socket, or is gone.
    pub fn set_no_delay(&mut self, on: bool) -> io::Result<()> {
        Ok(sockopt::set_tcp_nodelay(&self.connection.socket.fd, on)?)
    }

    /// Whether the kernel asks a silent client for a sign of life, and after how long; zero leaves
    /// that to the system's setting.
    ///
    /// # Errors
    /// The client's socket has no such option, or is gone.
    pub fn set_keep_alive(&mut self, after: Option<Duration>) -> io::Result<()> {
        let socket = &self.connection.socket.fd;
        sockopt::set_socket_keepalive(socket, after.is_some())?;
        if let Some(after) = after.filter(|after| !after.is_zero()) {
            sockopt::set_tcp_keepidle(socket, after)?;
        }
        Ok(())
    }

    /// Calls the service's `deadline` after `delay`, in place of any deadline set before.
    pub fn set_deadline(&mut self, delay: Duration) {
        let due_ms = self.reactor.now_ms.saturating_add(to_ms(delay));
        self.connection.times.service_due_ms = due_ms;
        self.arm(due_ms);
    }

    /// Forgets the service's deadline.
    pub fn clear_deadline(&mut self) {
        self.connection.times.service_due_ms = u64::MAX;
    }

    fn seal(&mut self, plain: &[u8]) -> Result<(), Cause> {
        let taken = match self.connection.tls.session_mut() {
            Some(session) => session.seal(plain, &mut self.outbox.wire),
            None => Ok(self.outbox.wire.append(plain)),
        };
        self.connection.times.tickets_due_ms = u64::MAX;
        match taken {
            Ok(taken) if taken == plain.len() => {
                if taken > 0 {
                    self.connection.times.backend_ms = self.reactor.now_ms;
                }
                self.connection.sent_bytes += plain.len() as u64;
                self.reactor.counters.sent_bytes.add(plain.len() as u64);
                Ok(())
            }
            Ok(_) => Err(Cause::Internal),
            Err(error) => Err(Cause::of_session(&error, true)),
        }
    }

    /// Sends what stands in the lane's wire buffer; the rest waits with the connection.
    pub(crate) fn transmit(&mut self) -> Result<(), Cause> {
        let pushed = self.outbox.push(self.reactor, self.connection.outlet());
        self.conclude(&pushed)
    }

    /// Sends what waits for the client, after an event said that it takes bytes again.
    pub(crate) fn flush(&mut self) -> Result<(), Cause> {
        if self.connection.outgoing.is_none() {
            return Ok(());
        }
        let flushed = self.outbox.flush(self.reactor, self.connection.outlet());
        self.conclude(&flushed)
    }

    fn conclude(&mut self, pushed: &Result<bool, PushError>) -> Result<(), Cause> {
        match pushed {
            Ok(true) if self.connection.outward == Direction::Ending => self.pass_on_end(),
            Ok(_) => {}
            // Answers to a client that sends but does not receive.
            Err(PushError::Flooded) => return Err(Cause::ProtocolError),
            Err(PushError::Peer(_)) if self.connection.is_handshaking() => {
                return Err(Cause::ClientGone);
            }
            Err(PushError::Peer(_)) => return Err(Cause::ClientReset),
            Err(PushError::Watch(_)) => return Err(Cause::Internal),
        }
        Ok(())
    }

    /// Sends FIN, unless both ends are through: then the close that follows does.
    fn pass_on_end(&mut self) {
        if self.connection.inward != Direction::Ended {
            shut_write(&self.connection.socket.fd);
        }
        self.connection.outward = Direction::Ended;
    }

    /// Wakes the connection at `due_ms`, unless it will be looked at before anyway.
    pub(crate) fn arm(&mut self, due_ms: u64) {
        // Long waits need no precision, and what wakes together costs one turn.
        let is_far = due_ms.saturating_sub(self.reactor.now_ms) > COARSE_MS;
        let coarse_ms = || due_ms.checked_next_multiple_of(COARSE_MS).unwrap_or(u64::MAX);
        let due_ms = if is_far { coarse_ms() } else { due_ms };
        if due_ms < self.connection.times.armed_ms {
            self.connection.times.armed_ms = due_ms;
            self.reactor.wheel.arm(due_ms, self.connection.token);
        }
    }

    /// Sends the last words in the wire buffer and waits a moment for the client to take them.
    pub(crate) fn linger(&mut self, cause: Cause) -> Result<(), Cause> {
        self.detach();
        self.clear_deadline();
        self.connection.untaken = None;
        let until_ms = self.reactor.now_ms + LINGER_MS;
        self.connection.phase = Phase::Lingering { cause, until_ms, bytes_left: LINGER_BYTES_MAX };
        self.connection.outward = Direction::Ending;
        self.transmit()?;
        self.arm(until_ms);
        Ok(())
    }
}

/// How long a refused client gets to take the last message.
const LINGER_MS: u64 = 1_000;
/// How much of what it still sends is thrown away meanwhile.
const LINGER_BYTES_MAX: u32 = 256 * 1024;
/// Deadlines further away than this come up to as much late.
const COARSE_MS: u64 = 256;
