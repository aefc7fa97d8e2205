//! How a connection advances: one read and one write in each direction per turn.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use sealane_engine::session::{Fed, Session};

use crate::cause::Cause;
use crate::connection::attached::Attached;
use crate::connection::buffers::{Arrivals, Buffers};
use crate::connection::link::Link;
use crate::connection::phase::{Direction, Phase};
use crate::connection::pool::{Pending, READ_BYTES_SCARCE};
use crate::connection::refused::Refused;
use crate::failure::Failure;
use crate::kernel::Kernel;
use crate::service::Service;
use crate::turn::{Call, Entry, Turn};

/// How long session tickets wait for the first response before they leave alone.
const TICKETS_HELD_MS: u64 = 10;

impl<S: Service, K: Kernel> Turn<'_, S, K> {
    /// Does what the connection's sockets allow, once in each direction.
    ///
    /// # Errors
    /// The cause that ends the connection; [`Cause::Clean`] when both sides have ended.
    pub(crate) fn step(&mut self) -> Result<(), Cause> {
        if self.entry.connection.socket.writable {
            self.write_client()?;
        }
        self.write_attached()?;
        if self.entry.connection.wants_client_bytes() {
            self.read_client()?;
        } else if self.entry.connection.socket.is_reset() {
            // Whoever takes the client's bytes is slow, so nothing is read that would tell.
            return Err(self.client_lost());
        } else if self.entry.connection.phase == Phase::Waiting
            && self.entry.connection.socket.hangup
        {
            // Whatever is decided: without another word from the client no handshake ends.
            return Err(Cause::ClientGone);
        }
        if self.entry.connection.wants_attached_bytes() {
            self.read_attached()?;
        }
        self.finished()
    }

    /// Sends both sides the clean end. Returns whether it could.
    pub(crate) fn finish_both(&mut self) -> bool {
        let mut link = self.link();
        let told = link.connection.inward != Direction::Open || link.end_attached().is_ok();
        let open = link.connection.outward == Direction::Open;
        told && (!open || link.finish(&[]).is_ok())
    }

    /// What it means for the connection that the client is gone without an end.
    fn client_lost(&self) -> Cause {
        if self.entry.connection.is_silent_probe() {
            return Cause::Clean;
        }
        if self.entry.connection.is_handshaking() { Cause::ClientGone } else { Cause::ClientReset }
    }

    /// Ends the connection cleanly if both of its ends have been passed on. Of one that is half
    /// closed the deadline may come sooner than it was to.
    pub(crate) fn finished(&mut self) -> Result<(), Cause> {
        let connection = &self.entry.connection;
        match connection.phase {
            Phase::Established if connection.is_half_closed() && !connection.is_finished() => {
                let (due_ms, _) = self.own_deadline();
                self.link().arm(due_ms);
                Ok(())
            }
            _ if !connection.is_finished() => Ok(()),
            Phase::Lingering { cause, .. } => Err(cause),
            _ => Err(Cause::Clean),
        }
    }

    /// The client takes bytes again: sends what waited for it, and tells the service when all of it
    /// has left.
    fn write_client(&mut self) -> Result<(), Cause> {
        let waited = self.entry.connection.outgoing.is_some();
        self.link().flush()?;
        let connection = &self.entry.connection;
        if waited && connection.outgoing.is_none() && connection.phase == Phase::Established {
            self.entry.connection.times.backend_ms = self.reactor.now_ms;
            self.with_state(|service, state, link, settings| {
                service.client_drained(state, link, settings)
            })?;
        }
        Ok(())
    }

    /// The attached socket takes bytes again: offers it what was left, and then the end.
    fn write_attached(&mut self) -> Result<(), Cause> {
        let attached = self.entry.connection.attached.as_mut();
        if !attached.is_some_and(|attached| std::mem::take(&mut attached.socket.writable)) {
            return Ok(());
        }
        let waited = self.entry.connection.attached_has_pending();
        self.with_state(|service, state, link, settings| {
            service.attached_writable(state, link, settings)
        })?;
        if waited && !self.entry.connection.attached_has_pending() {
            self.entry.connection.times.client_ms = self.reactor.now_ms;
        }
        self.offer_untaken()
    }

    /// Offers the service what it has left, and behind that the client's end.
    pub(crate) fn offer_untaken(&mut self) -> Result<(), Cause> {
        if let Some(mut untaken) = self.entry.connection.untaken.take() {
            self.with_state(|service, state, link, settings| {
                service.plaintext(state, link, &mut untaken, settings)
            })?;
            if untaken.is_empty() || self.entry.connection.abandoned {
                self.buffers.outbox.pool.give_back(untaken);
                self.entry.connection.times.client_ms = self.reactor.now_ms;
            } else {
                self.entry.connection.untaken = Some(untaken);
            }
        }
        self.pass_on_client_end()
    }

    fn pass_on_client_end(&mut self) -> Result<(), Cause> {
        let connection = &mut self.entry.connection;
        if connection.inward == Direction::Cut && connection.untaken.is_none() {
            return Err(Cause::ClientTruncated);
        }
        if connection.inward == Direction::Ending && connection.untaken.is_none() {
            connection.inward = Direction::Ended;
            // When the other direction has ended too, the close that follows says it all to a plain
            // backend.
            let in_tls = connection.attached.as_ref().is_some_and(Attached::speaks_tls);
            if connection.outward != Direction::Ended || in_tls {
                self.with_state(|service, state, link, settings| {
                    service.client_ended(state, link, settings)
                })?;
            }
        }
        Ok(())
    }

    /// The attached socket has something to read: lends the service room for it.
    fn read_attached(&mut self) -> Result<(), Cause> {
        let Some(lent) = self.call() else { return Ok(()) };
        let Call { service, state, mut link, received, plain, settings } = lent;
        // What another connection left is nobody's.
        received.clear();
        let mut arrivals = Arrivals { plain: received, sealed: plain };
        service.attached_readable(state, &mut link, &mut arrivals, settings)
    }

    fn read_client(&mut self) -> Result<(), Cause> {
        if let Phase::Lingering { cause, until_ms, bytes_left } = self.entry.connection.phase {
            return self.throw_away(cause, until_ms, bytes_left);
        }
        let connection = &mut self.entry.connection;
        let carried_len = connection.carried_len();
        // What is read ahead waits in memory that no pool lends.
        let ahead_max = if connection.untaken.is_some() { READ_BYTES_SCARCE } else { usize::MAX };
        let room = self.buffers.outbox.pool.read_len(carried_len).min(ahead_max);
        let received = &mut self.buffers.received;
        received.clear();
        let spare = &mut received.spare_mut()[carried_len..carried_len + room];
        match self.reactor.kernel.recv(connection.socket.fd.as_fd(), spare) {
            Ok(0) => self.client_stream_ended(),
            Ok(len) => {
                let drained = len < room;
                if drained && !connection.socket.hangup && !connection.socket.failed {
                    connection.socket.readable = false;
                }
                let last = drained && connection.socket.hangup && !connection.socket.failed;
                if !connection.append_carried(&spare[..len]) {
                    connection.take_carried(received);
                    received.fill(len);
                    self.take_ciphertext()?;
                }
                if last { self.client_stream_ended() } else { Ok(()) }
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => {
                    connection.socket.readable = false;
                    Ok(())
                }
                ErrorKind::Interrupted => Ok(()),
                _ => Err(self.client_lost()),
            },
        }
    }

    /// FIN from the client: a clean end only behind close_notify.
    fn client_stream_ended(&mut self) -> Result<(), Cause> {
        let connection = &mut self.entry.connection;
        connection.socket.ended = true;
        match connection.phase {
            Phase::Established if connection.inward != Direction::Open => Ok(()),
            // In the clear FIN is the end.
            Phase::Established if connection.tls.session().is_none() => {
                connection.inward = Direction::Ending;
                self.pass_on_client_end()
            }
            Phase::Established => {
                connection.inward = Direction::Cut;
                let awaits = S::AWAITS_LAST_BYTES && connection.untaken.is_some();
                if awaits { Ok(()) } else { Err(Cause::ClientTruncated) }
            }
            Phase::Lingering { .. } => Ok(()),
            Phase::Hello | Phase::Preamble if connection.is_silent_probe() => Err(Cause::Clean),
            Phase::Handshake | Phase::Hello | Phase::Preamble | Phase::Waiting => {
                Err(Cause::ClientGone)
            }
        }
    }

    pub(crate) fn take_ciphertext(&mut self) -> Result<(), Cause> {
        let connection = &self.entry.connection;
        match connection.phase {
            Phase::Preamble => self.pass_preamble(),
            Phase::Hello => {
                if self.begin_session()? {
                    self.feed()?;
                }
                Ok(())
            }
            Phase::Established if connection.tls.session().is_none() => self.take_plain(),
            _ => self.feed(),
        }
    }

    /// Feeds the session what the client sent, which stands in the receive buffer.
    pub(crate) fn feed(&mut self) -> Result<(), Cause> {
        let connection = &mut self.entry.connection;
        let session = connection.tls.session_mut().ok_or(Cause::Internal)?;
        let established = session.is_established();
        let Buffers { received, plain, outbox } = &mut *self.buffers;
        let fed = session.feed(received.filled_mut(), plain, &mut outbox.wire);
        let outcome = match fed {
            Ok(fed) => {
                if fed.records {
                    connection.times.active_ms = self.reactor.now_ms;
                    // Unless it is the other side that waits.
                    connection.kept.is_another = connection.attached_unfinished_len() == 0;
                }
                self.take_plaintext(fed)
            }
            Err(error) => {
                connection.failed.refused = Refused::in_handshake(
                    &error,
                    connection.tls.context().map(|context| &**context),
                )
                .map(Box::new);
                let failure = Failure::of_session(&error, self.buffers.outbox.wire.filled());
                connection.failed.failure = Some(Box::new(failure));
                let cause = Cause::of_session(&error, established);
                if self.buffers.outbox.wire.is_empty() { Err(cause) } else { self.refuse(cause) }
            }
        };
        self.buffers.plain.clear();
        outcome
    }

    /// Sends the last words that stand in the wire buffer, and lingers.
    pub(crate) fn refuse(&mut self, cause: Cause) -> Result<(), Cause> {
        if self.entry.connection.is_handshaking() {
            self.reactor.counters.handshaking.subtract(1);
        }
        self.link().linger(cause)
    }

    fn take_plaintext(&mut self, fed: Fed) -> Result<(), Cause> {
        if fed.established && self.entry.connection.is_challenge {
            return self.end_challenge();
        }
        if fed.established {
            self.establish()?;
        }
        self.link().transmit()?;
        let holds_tickets = self.entry.connection.times.tickets_due_ms != u64::MAX;
        if fed.established && holds_tickets && self.buffers.plain.is_empty() {
            self.entry.connection.socket.acknowledge();
        }
        self.deliver()?;
        if fed.peer_closed && !self.entry.connection.abandoned {
            self.entry.connection.inward = Direction::Ending;
            self.pass_on_client_end()?;
        }
        Ok(())
    }

    /// Offers the service what stands in the plaintext buffer; what it leaves waits.
    pub(crate) fn deliver(&mut self) -> Result<(), Cause> {
        if self.buffers.plain.is_empty() {
            return Ok(());
        }
        let len = self.buffers.plain.len() as u64;
        self.entry.connection.received_bytes += len;
        self.entry.connection.times.client_ms = self.reactor.now_ms;
        self.reactor.counters.received_bytes.add(len);
        if let Some(waiting) = self.entry.connection.untaken.take() {
            let Buffers { plain, outbox, .. } = &mut *self.buffers;
            let joined = Pending::holding(&[waiting.filled(), plain.filled()].concat());
            outbox.pool.give_back(waiting);
            self.entry.connection.untaken = Some(joined);
            return Ok(());
        }
        if let Some(Call { service, state, mut link, plain, settings, .. }) = self.call() {
            service.plaintext(state, &mut link, plain, settings)?;
        }
        let Buffers { plain, outbox, .. } = &mut *self.buffers;
        if !plain.is_empty() && !self.entry.connection.abandoned {
            self.entry.connection.untaken = Some(outbox.pool.detach(plain));
        }
        Ok(())
    }

    fn establish(&mut self) -> Result<(), Cause> {
        let connection = &mut self.entry.connection;
        let taken_us = self.reactor.now_us().saturating_sub(connection.times.accepted_us);
        // Bounded by the handshake timeout; an hour and more is told as 71 minutes.
        let taken_us = u32::try_from(taken_us).unwrap_or(u32::MAX);
        connection.times.handshake_us = Some(taken_us);
        let session = connection.tls.session().ok_or(Cause::Internal)?;
        let counters = &self.reactor.counters;
        counters.handshakes.count(session);
        counters.handshakes_without_ems.add(u64::from(session.lacks_extended_master_secret()));
        counters.handshake_time.record(u64::from(taken_us));
        if session.held_len() > 0 {
            let due_ms = self.reactor.now_ms + TICKETS_HELD_MS;
            connection.times.tickets_due_ms = due_ms;
            self.reactor.tickets.push_back((due_ms, connection.token));
        }
        self.hand_over()
    }

    /// The authority has seen the certificate that it asked for, and nothing follows.
    fn end_challenge(&mut self) -> Result<(), Cause> {
        let session = self.entry.connection.tls.session_mut().ok_or(Cause::Internal)?;
        self.reactor.counters.handshakes.count(session);
        let closed = session.close(&mut self.buffers.outbox.wire);
        closed.map_err(|error| Cause::of_session(&error, true))?;
        self.refuse(Cause::AcmeChallenge)
    }

    /// Hands the connection to the service: nothing more is awaited before its plaintext.
    pub(crate) fn hand_over(&mut self) -> Result<(), Cause> {
        let connection = &mut self.entry.connection;
        connection.phase = Phase::Established;
        (connection.times.client_ms, connection.times.backend_ms) =
            (self.reactor.now_ms, self.reactor.now_ms);
        self.reactor.counters.handshaking.subtract(1);
        // Nobody looks before the handshake's deadline otherwise.
        let (due_ms, _) = self.own_deadline();
        self.link().arm(due_ms);
        let Entry { connection, generation, listener, state } = &mut *self.entry;
        let outbox = &mut self.buffers.outbox;
        let mut link = Link { reactor: self.reactor, outbox, connection };
        let settings = &generation.listener(*listener).settings;
        self.service.established(&mut link, state, settings)
    }

    fn throw_away(&mut self, cause: Cause, until_ms: u64, bytes_left: u32) -> Result<(), Cause> {
        let connection = &mut self.entry.connection;
        let room = self.buffers.outbox.pool.read_len(0);
        // The record that was refused may have come with others, which are still in there.
        self.buffers.received.clear();
        let spare = &mut self.buffers.received.spare_mut()[..room];
        match self.reactor.kernel.recv(connection.socket.fd.as_fd(), spare) {
            Ok(0) => Err(cause),
            Ok(len) => {
                let len_read = u32::try_from(len).map_err(|_| cause)?;
                let bytes_left = bytes_left.checked_sub(len_read).ok_or(cause)?;
                connection.phase = Phase::Lingering { cause, until_ms, bytes_left };
                connection.socket.readable = len == room || connection.socket.hangup;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                connection.socket.readable = false;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(_) => Err(cause),
        }
    }
}
