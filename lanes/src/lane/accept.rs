//! A lane's listeners: taking connections off their queues.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use sealane_file_table::Descriptor;

use crate::cause::Cause;
use crate::connection::token::{SLOTS_MAX, Source, Token};
use crate::connection::{Connection, Phase};
use crate::kernel::liveness::Liveness;
use crate::kernel::reuseport::Steer;
use crate::kernel::{Address, Kernel, reset_on_close};
use crate::lane::orders::ConnectionId;
use crate::lane::{Entry, Lane};
use crate::service::{EndedConnection, Service};
use crate::shared::generation::{Listener, Speech};

/// A listening socket of this lane.
pub(crate) struct LaneListener {
    fd: Descriptor,
    pub(crate) key: Address,
    /// In the generation that is served now.
    pub(crate) position: usize,
    /// How many connections to take at most in the next turn that brings any.
    batch: usize,
    /// The turn that took a whole batch last.
    full_batch_turn: u64,
    /// When to accept again after accept4(2) failed for want of descriptors, or when to ask the
    /// service again that does not accept.
    pub(crate) paused_until_ms: Option<u64>,
    /// Whether it pauses on the service's account.
    rests: bool,
    /// What its socket has, and so those of its clients.
    liveness: Liveness,
    /// What all sockets of its address have.
    steer: Steer,
}

/// Connections taken from one listener's queue in one turn.
pub(crate) const ACCEPTS_MAX: usize = 64;
/// How long a listener rests when the process has no descriptor left.
const ACCEPT_PAUSE_MS: u64 = 100;
/// How long a listener rests at a time when the service accepts no more.
const REST_MS: u64 = 5;
/// Ended handshakes that may stand behind a slow one in the queue of handshakes.
const STALE_HANDSHAKES_MAX: usize = 16_384;

impl LaneListener {
    /// `fd` was bound as `listener`, at `position` of its generation, wants it.
    pub(crate) fn new<S>(
        fd: Descriptor,
        key: Address,
        position: usize,
        listener: &Listener<S>,
    ) -> Self {
        Self {
            fd,
            key,
            position,
            batch: 1,
            full_batch_turn: 0,
            paused_until_ms: None,
            rests: false,
            liveness: listener.liveness,
            steer: listener.steer,
        }
    }

    pub(crate) fn fd(&self) -> &Descriptor {
        &self.fd
    }

    /// Serves `listener` at `position` of a new generation from now on.
    pub(crate) fn keep<S>(&mut self, position: usize, listener: &Listener<S>) {
        self.position = position;
        // They were validated, and a unix socket has no such options.
        if let Address::Tcp(address) = &self.key {
            let _ = listener.liveness.apply(&self.fd, Some(self.liveness));
            let _ = listener.steer.apply(&self.fd, address.is_ipv6(), Some(self.steer));
        }
        (self.liveness, self.steer) = (listener.liveness, listener.steer);
    }
}

impl<S: Service, K: Kernel> Lane<S, K> {
    /// Takes connections off a listener's queue, at most a batch.
    ///
    /// A call that finds the queue empty is wasted, so one connection is taken for one event. Only
    /// when the queue is still not empty in the very next turn do batches grow.
    pub(crate) fn accept(&mut self, index: usize, accepts_max: usize) {
        let turn = self.reactor.counters.turns.value();
        let Some(listener) = self.listeners.get_mut(index) else { return };
        listener.batch = if listener.full_batch_turn + 1 == turn {
            (listener.batch * 2).min(ACCEPTS_MAX)
        } else {
            1
        };
        for _ in 0..listener.batch.min(accepts_max) {
            let Some((fd, address, position)) = self.accept_one(index) else { return };
            self.admit(fd, address, position);
        }
        if let Some(listener) = self.listeners.get_mut(index) {
            listener.full_batch_turn = turn;
        }
    }

    /// Whether clients of a listener begin with a hello.
    pub(crate) fn expects_tls(&self, index: usize) -> bool {
        let served = self.current.as_ref().zip(self.listeners.get(index));
        served.is_some_and(|(current, listener)| {
            !matches!(current.listener(listener.position).speech, Speech::Plain)
        })
    }

    fn accept_one(&mut self, index: usize) -> Option<(Descriptor, Option<SocketAddr>, usize)> {
        let listener = self.listeners.get_mut(index)?;
        match self.reactor.kernel.accept(listener.fd.as_fd()) {
            Ok((fd, address)) => Some((fd, address, listener.position)),
            Err(error) => {
                let errno = Errno::from_io_error(&error);
                // The queue is empty, the client gave up before it was accepted, or a signal came:
                // whatever is left is reported again.
                let passing = [Errno::AGAIN, Errno::CONNABORTED, Errno::INTR];
                if matches!(errno, Some(Errno::MFILE | Errno::NFILE)) {
                    self.service.out_of_descriptors();
                }
                if !errno.is_some_and(|errno| passing.contains(&errno)) {
                    self.reactor.counters.accept_errors.add(1);
                    listener.paused_until_ms = Some(self.reactor.now_ms + ACCEPT_PAUSE_MS);
                    self.reactor.unwatch(&listener.fd);
                }
                None
            }
        }
    }

    fn admit(&mut self, fd: Descriptor, address: Option<SocketAddr>, position: usize) {
        let counters = Arc::clone(&self.reactor.counters);
        counters.accepted.add(1);
        let Some(current) = &self.current else { return };
        let limits = &current.generation.limits;
        let listener = current.listener(position);
        let admitted = if self.entries.len() >= limits.connections_max.min(SLOTS_MAX) {
            Err(Cause::LimitConnections)
        } else {
            self.service.admits(address, &listener.settings)
        };
        if let Err(cause) = admitted {
            reset_on_close(&fd);
            counters.ended(cause).add(1);
            return self.reject(cause, address, position);
        }
        let handshakes_max = limits.handshakes_max;
        let generation = Rc::clone(current);
        let (phase, speaks_first) = match (listener.preamble, &listener.speech) {
            (Some(_), _) => (Phase::Preamble, false),
            (None, Speech::Plain) => (Phase::Hello, true),
            (None, Speech::Sealed | Speech::Tls(_)) => (Phase::Hello, false),
        };

        self.slot_generation = self.slot_generation.wrapping_add(1);
        let vacant = self.entries.vacant_entry();
        let slot = vacant.key();
        let token = Token::connection(slot, self.slot_generation).bits();
        let (now_ms, now_us) = (self.reactor.now_ms, self.reactor.now_us());
        let poll = self.reactor.poll.as_fd();
        let is_watched = self.reactor.kernel.watch(poll, fd.as_fd(), token, false).is_ok();
        let mut connection = Connection::new(token, fd, address, now_us, now_ms);
        connection.socket.is_watched = is_watched;
        connection.phase = phase;
        vacant.insert(Box::new(Entry { connection, generation, listener: position, state: None }));
        counters.connections.add(1);
        counters.handshaking.add(1);
        if !is_watched {
            // The service has admitted it, and so has to hear of its end.
            counters.accept_errors.add(1);
            return self.end(slot, Cause::Internal);
        }
        self.begin(slot, speaks_first);
        self.handshakes.push_back(token);
        self.limit_handshakes(handshakes_max);
    }

    /// Reports a client to the service that was reset before it had a connection.
    fn reject(&mut self, cause: Cause, client: Option<SocketAddr>, position: usize) {
        let Some(current) = &self.current else { return };
        self.slot_generation = self.slot_generation.wrapping_add(1);
        let slot = self.entries.vacant_key().min(SLOTS_MAX - 1);
        let listener = current.listener(position);
        let end = EndedConnection {
            id: ConnectionId(Token::connection(slot, self.slot_generation).bits()),
            cause,
            client,
            listener: listener.number,
            generation: current.generation.number,
            lane: self.reactor.number,
            server_name: None,
            session: None,
            distrust: None,
            refused_certificate: None,
            offered: None,
            ja4: None,
            failure: None,
            handshake_us: None,
            duration_ms: 0,
            received_bytes: 0,
            sent_bytes: 0,
        };
        self.service.rejected(&listener.settings, &end);
    }

    /// Arms the first deadline; where nothing is awaited from the client, the connection stands.
    fn begin(&mut self, slot: usize, speaks_first: bool) {
        let Some(mut turn) = self.turn(slot) else { return };
        let (due_ms, _) = turn.own_deadline();
        turn.link().arm(due_ms);
        if speaks_first {
            let outcome = catch_unwind(AssertUnwindSafe(|| turn.hand_over()));
            self.conclude(slot, &outcome);
        }
    }

    /// Resets the oldest handshake in flight while there are more than allowed.
    fn limit_handshakes(&mut self, handshakes_max: usize) {
        if self.handshakes.len() > handshakes_max.saturating_add(STALE_HANDSHAKES_MAX) {
            let entries = &self.entries;
            self.handshakes.retain(|bits| {
                let Source::Connection { slot, .. } = Token::from_bits(*bits).source() else {
                    return false;
                };
                let entry = entries.get(slot).map(|entry| &entry.connection);
                entry.is_some_and(|c| c.token == *bits && c.is_handshaking())
            });
        }
        while let Some(&bits) = self.handshakes.front() {
            let token = Token::from_bits(bits);
            let Source::Connection { slot, .. } = token.source() else { return };
            let in_flight =
                self.entry(slot, token).is_some_and(|entry| entry.connection.is_handshaking());
            let over = self.reactor.counters.handshaking.value() > handshakes_max as u64;
            if in_flight && !over {
                return;
            }
            self.handshakes.pop_front();
            if in_flight {
                self.end(slot, Cause::LimitHandshakes);
            }
        }
    }

    /// Lets listeners rest while the service does not accept, and go on when their pause is over.
    pub(crate) fn pause_and_resume_listeners(&mut self) {
        let now_ms = self.reactor.now_ms;
        let accepts = self.service.accepts();
        for (index, listener) in &mut self.listeners {
            if !accepts && (listener.rests || listener.paused_until_ms.is_none()) {
                if !listener.rests {
                    self.reactor.unwatch(&listener.fd);
                }
                listener.rests = true;
                listener.paused_until_ms = Some(now_ms + REST_MS);
                continue;
            }
            let is_over = listener.paused_until_ms.is_some_and(|until_ms| until_ms <= now_ms);
            if is_over || listener.rests {
                listener.rests = false;
                listener.paused_until_ms = None;
                let token = Token::listener(index).bits();
                if self.reactor.watch_level(&listener.fd, token).is_err() {
                    listener.paused_until_ms = Some(now_ms + ACCEPT_PAUSE_MS);
                }
            }
        }
    }
}
