//! The calls by which a service uses the socket attached to a connection.
//!
//! A service sees no difference but at the beginning: [`Link::secure_attached`] turns TLS on, and
//! until its handshake is complete the socket takes nothing.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;

use rustix::net::sockopt::socket_error;
use sealane_engine::buffer::Buffer;
use sealane_engine::session::{ClientSession, Fed, Session};
use sealane_file_table::Descriptor;

use crate::cause::Cause;
use crate::connection::attached::{Attached, Received, Tls};
use crate::connection::buffers::Arrivals;
use crate::connection::link::Link;
use crate::connection::outbox::PushError;
use crate::connection::phase::Direction;
use crate::connection::pool::Pending;
use crate::connection::socket::Socket;
use crate::connection::token::Token;
use crate::kernel::liveness::Liveness;
use crate::kernel::{Address, Kernel, reset_on_close, shut_write};

impl<K: Kernel> Link<'_, K> {
    /// Connects to `address` and attaches the socket, which may still be connecting; the socket
    /// attached before is closed. Its events are reported from the end of this turn on, so that
    /// bytes sent at once make the event "writable" needless.
    ///
    /// # Errors
    /// The connection could not even be begun.
    pub fn attach(&mut self, address: &Address) -> io::Result<()> {
        self.detach();
        let fd = self.reactor.kernel.connect(address)?;
        self.connection.attachment = Token::next_attachment(self.connection.attachment);
        self.connection.attached = Some(Attached::new(Socket::new(fd)));
        Ok(())
    }

    /// Attaches a stream socket that is connected already, such as one end of a pair, in place of
    /// the one before. It is reported as "writable" only once it has run out of room.
    ///
    /// # Errors
    /// It cannot be used without blocking; it is closed.
    pub fn attach_socket(&mut self, fd: Descriptor) -> io::Result<()> {
        self.detach();
        rustix::io::ioctl_fionbio(&fd, true)?;
        self.connection.attachment = Token::next_attachment(self.connection.attachment);
        self.connection.attached = Some(Attached::new(Socket::connected(fd)));
        Ok(())
    }

    /// Makes the kernel find out as `liveness` says that the attached socket's peer is gone.
    ///
    /// # Errors
    /// There is none, or it has no such option, as a unix socket.
    pub fn watch_over_attached(&mut self, liveness: Liveness) -> io::Result<()> {
        let attached = self.connection.attached.as_ref().ok_or(ErrorKind::NotConnected)?;
        liveness.apply(&attached.socket.fd, Some(Liveness::default()))
    }

    /// Closes the attached socket: with a reset, unless its peer failed the handshake and should
    /// get the alert that says why.
    pub fn detach(&mut self) {
        let Some(attached) = self.connection.attached.take() else { return };
        let told_why = |tls: &Tls| tls.cause.is_some() && !tls.session.is_established();
        if !attached.tls.as_deref().is_some_and(told_why) {
            reset_on_close(&attached.socket.fd);
        }
        if let Some(pending) = attached.into_pending() {
            self.outbox.pool.give_back(pending);
        }
    }

    /// Turns TLS on for the attached socket, which may still be connecting: what was sent before
    /// went in the clear, and what is sent from now on waits for the end of the handshake, which is
    /// reported as "writable".
    ///
    /// # Errors
    /// The peer is gone, or `session` cannot begin.
    pub fn secure_attached(&mut self, mut session: ClientSession) -> io::Result<()> {
        let attached = self.connection.attached.as_mut().ok_or(ErrorKind::NotConnected)?;
        // Bytes for the client may stand in the wire buffer still.
        let wire = &mut self.outbox.wire;
        let before = wire.len();
        let begun = session.feed(&mut [], &mut Buffer::default(), wire);
        let outgoing = Some(Pending::holding(&wire.filled()[before..]));
        wire.truncate(before);
        attached.tls = Some(Box::new(Tls { session, outgoing, ending: false, cause: None }));
        begun.map_err(io::Error::other)?;
        self.flush_attached()
    }

    /// Our end of TLS on the attached socket, if there is one.
    pub fn attached_session(&self) -> Option<&ClientSession> {
        Some(&self.connection.attached.as_ref()?.tls.as_ref()?.session)
    }

    /// What TLS had against the attached socket's peer, after a call failed.
    pub fn attached_cause(&self) -> Option<Cause> {
        self.connection.attached.as_ref()?.tls.as_ref()?.cause
    }

    /// What went wrong with connecting the attached socket, if anything did.
    ///
    /// # Errors
    /// The error that the kernel holds for the socket.
    pub fn attached_status(&self) -> io::Result<()> {
        let attached = self.connection.attached.as_ref().ok_or(ErrorKind::NotConnected)?;
        Ok(socket_error(&attached.socket.fd)??)
    }

    /// Sends the front of `bytes` to the attached socket and returns how much it took.
    ///
    /// # Errors
    /// `WouldBlock` when it takes nothing now; otherwise the peer is gone.
    pub fn send_attached(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let attached = self.connection.attached.as_mut().ok_or(ErrorKind::NotConnected)?;
        let Some(tls) = &mut attached.tls else { return self.send_plain(bytes) };
        if tls.outgoing.is_some() || !tls.session.is_established() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let sealed = tls.session.seal(bytes, &mut self.outbox.wire);
        let taken = sealed.map_err(|error| tls.fail_writing(error, &mut self.outbox.wire))?;
        self.push_attached()?;
        Ok(taken)
    }

    fn send_plain(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let token = self.connection.attached_token();
        let attached = self.connection.attached.as_mut().ok_or(ErrorKind::NotConnected)?;
        let socket = &mut attached.socket;
        socket.do_not_gather();
        let sent = self.reactor.kernel.send(socket.fd.as_fd(), bytes, false);
        let taken = match sent {
            Ok(taken) => taken,
            // No event will follow: the service is told in the next turn that it may write.
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                socket.writable = true;
                return Err(ErrorKind::WouldBlock.into());
            }
            Err(error) => {
                if error.kind() == ErrorKind::WouldBlock {
                    self.reactor.watch_room(socket, token)?;
                }
                return Err(error);
            }
        };
        socket.writes = (socket.writes + 1).min(2);
        if taken < bytes.len() {
            self.reactor.watch_room(socket, token)?;
        }
        self.connection.times.active_ms = self.reactor.now_ms;
        Ok(taken)
    }

    /// Sends what waits for the attached socket, after an event said that it takes bytes again.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn flush_attached(&mut self) -> io::Result<()> {
        let Some(outlet) = self.connection.attached_outlet() else { return Ok(()) };
        let flushed = self.outbox.flush(self.reactor, outlet);
        self.conclude_attached(flushed)
    }

    /// Sends what stands in the lane's wire buffer to the attached socket; the rest waits.
    fn push_attached(&mut self) -> io::Result<()> {
        let Some(outlet) = self.connection.attached_outlet() else { return Ok(()) };
        let pushed = self.outbox.push(self.reactor, outlet);
        self.conclude_attached(pushed)
    }

    fn conclude_attached(&mut self, pushed: Result<bool, PushError>) -> io::Result<()> {
        let all = pushed.map_err(|error| {
            // The connection may live on without its backend.
            self.outbox.wire.clear();
            match error {
                PushError::Flooded => io::Error::other("it sends, but does not receive"),
                PushError::Peer(error) | PushError::Watch(error) => error,
            }
        })?;
        // When both ends are through, the close that follows sends FIN.
        if let Some(Attached { socket, tls: Some(tls) }) = &self.connection.attached
            && all
            && tls.ending
            && self.connection.outward != Direction::Ended
        {
            shut_write(&socket.fd);
        }
        Ok(())
    }

    /// Reads from the attached socket once. What it brought stands in `arrivals`, in place of what
    /// was there before.
    ///
    /// # Errors
    /// The peer reset the connection or is gone, or TLS failed: see [`Link::attached_cause`].
    pub fn receive_attached(&mut self, arrivals: &mut Arrivals<'_>) -> io::Result<Received> {
        let Arrivals { plain: into, sealed } = arrivals;
        into.clear();
        if self.attached_session().is_some() {
            let received = self.unseal(sealed, into);
            sealed.clear();
            return received;
        }
        let room = self.outbox.pool.read_len(0);
        let (received, ended) = match self.read_attached(&mut into.spare_mut()[..room])? {
            Arrived::Bytes { len, last } => {
                self.connection.times.active_ms = self.reactor.now_ms;
                into.fill(len);
                (Received::Bytes { last }, last)
            }
            Arrived::End => (Received::End, true),
            Arrived::Nothing => (Received::Nothing, false),
        };
        if let Some(attached) = &mut self.connection.attached {
            attached.socket.ended = ended;
        }
        Ok(received)
    }

    /// One read under TLS: ciphertext into `sealed`, what it holds into `into`, and answers out.
    fn unseal(&mut self, sealed: &mut Buffer, into: &mut Buffer) -> io::Result<Received> {
        let carried_len = self.attached_session().map_or(0, Session::partial_len);
        let room = self.outbox.pool.read_len(carried_len);
        let spare = &mut sealed.spare_mut()[carried_len..carried_len + room];
        let arrived = self.read_attached(spare)?;
        let Some(Attached { socket, tls: Some(tls) }) = &mut self.connection.attached else {
            return Err(ErrorKind::NotConnected.into());
        };
        match arrived {
            // Whether these are the last is not for FIN to say.
            Arrived::Bytes { len, .. } => {
                let arrived = &sealed.spare_mut()[carried_len..carried_len + len];
                if tls.session.append_partial(arrived) {
                    return Ok(Received::Nothing);
                }
                tls.session.take_partial(sealed);
                sealed.fill(len);
            }
            Arrived::End => return Err(tls.truncated()),
            Arrived::Nothing => return Ok(Received::Nothing),
        }
        let fed = tls.session.feed(sealed.filled_mut(), into, &mut self.outbox.wire);
        let fed = fed.map_err(|error| tls.fail(error));
        socket.ended = fed.as_ref().is_ok_and(|fed| fed.peer_closed);
        if fed.as_ref().is_ok_and(|fed| fed.records) {
            self.connection.times.active_ms = self.reactor.now_ms;
            // Unless it is the other side that waits.
            self.connection.kept.is_another = self.connection.carried_len() == 0;
        }
        let answered = if self.outbox.wire.is_empty() { Ok(()) } else { self.push_attached() };
        let Fed { established, peer_closed: last, .. } = fed?;
        answered?;
        if let Some(Attached { socket, .. }) = &mut self.connection.attached {
            // That it is established shows in no event of the socket's.
            socket.writable |= established;
        }
        Ok(match (into.is_empty(), last) {
            (false, last) => Received::Bytes { last },
            (true, true) => Received::End,
            (true, false) => Received::Nothing,
        })
    }

    /// After a call that could not send under TLS: reads once more, so that
    /// [`Link::attached_cause`] knows of an alert that arrived before the reset. Whatever else
    /// arrived is thrown away.
    pub fn hear_attached_out(&mut self) {
        let Some(Attached { socket, tls: Some(tls) }) = &mut self.connection.attached else {
            return;
        };
        let room = tls.session.partial_len() + LAST_WORDS_BYTES_MAX;
        let mut sealed = Buffer::with_capacity(room);
        tls.session.take_partial(&mut sealed);
        let Ok(len) = self.reactor.kernel.recv(socket.fd.as_fd(), sealed.spare_mut()) else {
            return;
        };
        sealed.fill(len);
        let mut plain = Buffer::with_capacity(room);
        self.outbox.wire.clear();
        if let Err(error) = tls.session.feed(sealed.filled_mut(), &mut plain, &mut self.outbox.wire)
        {
            tls.cause = Some(Cause::of_backend(&error, tls.session.is_established()));
        }
        self.outbox.wire.clear();
    }

    fn read_attached(&mut self, spare: &mut [u8]) -> io::Result<Arrived> {
        let attached = self.connection.attached.as_mut().ok_or(ErrorKind::NotConnected)?;
        let socket = &mut attached.socket;
        let room = spare.len();
        let len = match self.reactor.kernel.recv(socket.fd.as_fd(), spare) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                socket.readable = false;
                return Ok(Arrived::Nothing);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Arrived::Nothing),
            Err(error) => return Err(error),
        };
        if len == 0 {
            return Ok(Arrived::End);
        }
        let drained = len < room;
        if drained && !socket.hangup && !socket.failed {
            socket.readable = false;
        }
        // After an error it is the next read that tells, so only FIN makes these bytes the last.
        Ok(Arrived::Bytes { len, last: drained && socket.hangup && !socket.failed })
    }

    /// Tells the attached socket's peer the client's clean end: FIN, under TLS behind close_notify.
    ///
    /// # Errors
    /// The peer is gone, and does not hear it.
    pub fn end_attached(&mut self) -> io::Result<()> {
        let Some(attached) = &mut self.connection.attached else { return Ok(()) };
        let Some(tls) = &mut attached.tls else {
            shut_write(&attached.socket.fd);
            return Ok(());
        };
        if tls.ending || !tls.session.is_established() {
            return Ok(());
        }
        tls.ending = true;
        let closed = tls.session.close(&mut self.outbox.wire);
        closed.map_err(|error| tls.fail_writing(error, &mut self.outbox.wire))?;
        self.push_attached()
    }
}

/// What a read from the socket itself brought.
enum Arrived {
    Bytes { len: usize, last: bool },
    End,
    Nothing,
}

/// Bytes that are read of a peer that has left: tickets, and an alert behind them.
const LAST_WORDS_BYTES_MAX: usize = 32 << 10;
