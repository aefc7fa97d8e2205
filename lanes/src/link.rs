//! What a service sees of a connection: send to the client, end it, attach a socket to it.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use sealane_engine::buffer::Buffer;
use sealane_engine::session::{ServerSession, Session};

use crate::cause::Cause;
use crate::connection::{Connection, Direction, Phase, Socket};
use crate::core::{Core, to_ms};
use crate::kernel::{Address, Kernel, reset_on_close, shut_write};
use crate::pool::Pending;
use crate::token::Token;

/// One established connection, lent to its service for the length of a call.
pub struct Link<'a, K: Kernel> {
    pub(crate) core: &'a mut Core<K>,
    pub(crate) connection: &'a mut Connection,
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

/// Most ciphertext that waits for one client beyond what a single read brings: answers to a client
/// that sends but does not receive.
const OUTGOING_BYTES_MAX: usize = 1 << 20;

impl<K: Kernel> Link<'_, K> {
    /// The number of the lane.
    pub fn lane(&self) -> usize {
        self.core.number
    }

    /// The time of this turn, in milliseconds since the lane started.
    pub fn now_ms(&self) -> u64 {
        self.core.now_ms
    }

    /// The TLS session; there is one on every established connection.
    pub fn session(&self) -> Option<&ServerSession> {
        self.connection.session.as_deref()
    }

    /// The client's address.
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
        self.connection.server_name.as_deref()
    }

    /// Encrypts `plain` and sends it. What the client does not take now leaves later, and until
    /// then the attached socket is not read.
    ///
    /// # Errors
    /// The client is gone, or the session cannot encrypt any more.
    pub fn send(&mut self, plain: &[u8]) -> Result<(), Cause> {
        self.seal(plain)?;
        self.transmit()
    }

    /// Sends `plain`, which may be empty, and then the clean end: close_notify and FIN.
    ///
    /// # Errors
    /// As for [`Link::send`].
    pub fn finish(&mut self, plain: &[u8]) -> Result<(), Cause> {
        self.seal(plain)?;
        let session = self.connection.session.as_mut().ok_or(Cause::Internal)?;
        session.close(&mut self.core.wire).map_err(|e| Cause::of_session(&e, true))?;
        self.connection.outward = Direction::Ending;
        self.transmit()
    }

    /// Whether the clean end has been sent to the client, or will be behind what is pending.
    pub fn has_finished(&self) -> bool {
        self.connection.outward != Direction::Open
    }

    /// Connects to `address` and attaches the socket, which may still be connecting; the socket
    /// attached before is closed. Its events are reported from the end of this turn on, so that
    /// bytes sent at once make the event "writable" needless.
    ///
    /// # Errors
    /// The connection could not even be begun.
    pub fn attach(&mut self, address: &Address) -> io::Result<()> {
        self.detach();
        let fd = self.core.kernel.connect(address)?;
        self.connection.attachment = self.connection.attachment.wrapping_add(1);
        self.connection.attached = Some(Socket::new(fd));
        Ok(())
    }

    /// Resets and closes the attached socket.
    pub fn detach(&mut self) {
        if let Some(socket) = self.connection.attached.take() {
            reset_on_close(&socket.fd);
        }
    }

    /// What went wrong with connecting the attached socket, if anything did.
    ///
    /// # Errors
    /// The error that the kernel holds for the socket.
    pub fn attached_status(&self) -> io::Result<()> {
        let socket = self.connection.attached.as_ref().ok_or(ErrorKind::NotConnected)?;
        Ok(socket_error(&socket.fd)??)
    }

    /// Sends the front of `bytes` to the attached socket and returns how much it took.
    ///
    /// # Errors
    /// `WouldBlock` when it takes nothing now; otherwise the peer is gone.
    pub fn send_attached(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let token = self.connection.attached_token();
        let socket = self.connection.attached.as_mut().ok_or(ErrorKind::NotConnected)?;
        if socket.writes == 1 {
            // The first bytes never wait for others, so only later ones need this. It fails on a
            // unix socket, which does not gather small writes.
            let _ = set_tcp_nodelay(&socket.fd, true);
        }
        let sent = self.core.kernel.send(socket.fd.as_fd(), bytes, false);
        let taken = match sent {
            Ok(taken) => taken,
            // No event will follow: the service is told in the next turn that it may write.
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                socket.writable = true;
                return Err(ErrorKind::WouldBlock.into());
            }
            Err(error) => {
                if error.kind() == ErrorKind::WouldBlock {
                    self.core.watch_room(socket, token)?;
                }
                return Err(error);
            }
        };
        socket.writes = (socket.writes + 1).min(2);
        if taken < bytes.len() {
            self.core.watch_room(socket, token)?;
        }
        self.connection.active_ms = self.core.now_ms;
        Ok(taken)
    }

    /// Reads from the attached socket into `into`, once.
    ///
    /// # Errors
    /// The peer reset the connection or is gone.
    pub fn receive_attached(&mut self, into: &mut Buffer) -> io::Result<Received> {
        let room = self.core.read_len(0);
        let socket = self.connection.attached.as_mut().ok_or(ErrorKind::NotConnected)?;
        let len = match self.core.kernel.recv(socket.fd.as_fd(), &mut into.spare_mut()[..room]) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                socket.readable = false;
                return Ok(Received::Nothing);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Received::Nothing),
            Err(error) => return Err(error),
        };
        into.fill(len);
        self.connection.active_ms = self.core.now_ms;
        if len == 0 {
            socket.ended = true;
            return Ok(Received::End);
        }
        let drained = len < room;
        if drained && !socket.hangup && !socket.failed {
            socket.readable = false;
        }
        // After an error it is the next read that tells, so only FIN makes these bytes the last.
        let last = drained && socket.hangup && !socket.failed;
        socket.ended = last;
        Ok(Received::Bytes { last })
    }

    /// Sends FIN on the attached socket: the client's clean end.
    pub fn end_attached(&mut self) {
        if let Some(socket) = &self.connection.attached {
            shut_write(&socket.fd);
        }
    }

    /// Lends the lane's receive buffer, empty; give it back with [`Link::return_buffer`].
    pub fn lend_buffer(&mut self) -> Buffer {
        let mut buffer = std::mem::take(&mut self.core.received);
        buffer.clear();
        buffer
    }

    /// Takes the lane's receive buffer back.
    pub fn return_buffer(&mut self, buffer: Buffer) {
        self.core.received = buffer;
    }

    /// Calls the service's `deadline` after `delay`, in place of any deadline set before.
    pub fn set_deadline(&mut self, delay: Duration) {
        let due_ms = self.core.now_ms.saturating_add(to_ms(delay));
        self.connection.service_due_ms = Some(due_ms);
        self.arm(due_ms);
    }

    /// Forgets the service's deadline.
    pub fn clear_deadline(&mut self) {
        self.connection.service_due_ms = None;
    }

    fn seal(&mut self, plain: &[u8]) -> Result<(), Cause> {
        let session = self.connection.session.as_mut().ok_or(Cause::Internal)?;
        let taken = session.seal(plain, &mut self.core.wire);
        self.connection.tickets_due_ms = None;
        match taken {
            Ok(taken) if taken == plain.len() => {
                self.connection.backend_bytes += plain.len() as u64;
                self.core.counters.backend_bytes.add(plain.len() as u64);
                Ok(())
            }
            Ok(_) => Err(Cause::Internal),
            Err(error) => Err(Cause::of_session(&error, true)),
        }
    }

    /// Sends what stands in the lane's wire buffer; the rest waits with the connection.
    pub(crate) fn transmit(&mut self) -> Result<(), Cause> {
        let wire = &mut self.core.wire;
        if wire.is_empty() && self.connection.outgoing.is_some() {
            return Ok(());
        }
        if let Some(outgoing) = self.connection.outgoing.take() {
            if outgoing.len() + wire.len() > OUTGOING_BYTES_MAX {
                return Err(Cause::ProtocolError);
            }
            let joined = [outgoing.filled(), wire.filled()].concat();
            self.core.pool.give_back(outgoing);
            wire.clear();
            self.connection.outgoing = Some(Pending::holding(&joined));
            return Ok(());
        }
        if !wire.is_empty() {
            let end_follows = self.connection.outward == Direction::Ending;
            let socket = self.connection.socket.fd.as_fd();
            let sent = self.core.kernel.send(socket, wire.filled(), end_follows);
            wire.consume(taken_by_client(sent, self.connection)?);
            self.connection.active_ms = self.core.now_ms;
        }
        if !wire.is_empty() {
            self.connection.outgoing = Some(self.core.pool.detach(wire));
            let token = Token::from_bits(self.connection.token);
            let watching = self.core.watch_room(&mut self.connection.socket, token);
            watching.map_err(|_| Cause::Internal)?;
        } else if self.connection.outward == Direction::Ending {
            self.pass_on_end();
        }
        Ok(())
    }

    /// Sends what waits for the client, after an event said that it takes bytes again.
    pub(crate) fn flush(&mut self) -> Result<(), Cause> {
        let Some(mut outgoing) = self.connection.outgoing.take() else { return Ok(()) };
        let end_follows = self.connection.outward == Direction::Ending;
        let socket = self.connection.socket.fd.as_fd();
        let sent = self.core.kernel.send(socket, outgoing.filled(), end_follows);
        let taken = taken_by_client(sent, self.connection)?;
        outgoing.consume(taken);
        if taken > 0 {
            self.connection.active_ms = self.core.now_ms;
        }
        if !outgoing.is_empty() {
            self.connection.outgoing = Some(outgoing);
            return Ok(());
        }
        self.core.pool.give_back(outgoing);
        if self.connection.outward == Direction::Ending {
            self.pass_on_end();
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
        let is_far = due_ms.saturating_sub(self.core.now_ms) > COARSE_MS;
        let due_ms = if is_far { due_ms.next_multiple_of(COARSE_MS) } else { due_ms };
        if due_ms < self.connection.armed_ms {
            self.connection.armed_ms = due_ms;
            self.core.wheel.arm(due_ms, self.connection.token);
        }
    }

    /// Sends the last words in the wire buffer and waits a moment for the client to take them.
    pub(crate) fn linger(&mut self, cause: Cause) -> Result<(), Cause> {
        self.detach();
        self.clear_deadline();
        self.connection.untaken = None;
        let until_ms = self.core.now_ms + LINGER_MS;
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

fn taken_by_client(sent: io::Result<usize>, connection: &mut Connection) -> Result<usize, Cause> {
    connection.socket.writable = false;
    match sent {
        Ok(len) => Ok(len),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        // Nothing was sent and no event will follow: try again in the next turn.
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            connection.socket.writable = true;
            Ok(0)
        }
        Err(_) if connection.is_handshaking() => Err(Cause::ClientGone),
        Err(_) => Err(Cause::ClientReset),
    }
}
