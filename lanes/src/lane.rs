//! The event loop of one core.

mod accept;
pub(crate) mod admission;
mod apply_generation;
pub mod arena;
mod drain;
pub mod orders;
pub(crate) mod replicas;
pub(crate) mod revoked;
pub mod start;
pub mod thread;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::epoll::Event;
use sealane_engine::context::LaneResources;
use sealane_engine::tickets::UnixSeconds;
use slab::Slab;

use crate::cause::Cause;
use crate::connection::attached::Attached;
use crate::connection::buffers::Buffers;
use crate::connection::token::{Source, Token};
use crate::connection::{Connection, Phase};
use crate::kernel::{Kernel, reset_on_close};
use crate::lane::accept::{ACCEPTS_MAX, LaneListener};
use crate::lane::admission::Admission;
use crate::lane::orders::ConnectionId;
use crate::lane::replicas::Replicas;
use crate::lane::revoked::Sweep;
use crate::reactor::{Reactor, to_ms};
use crate::service::{EndedConnection, Service};
use crate::shared::generation::LaneGeneration;
use crate::shared::handover::Inlet;
use crate::shared::mailbox::{Inbox, Mail};

/// One lane: a thread's event loop and all that it owns.
pub(crate) struct Lane<S: Service, K: Kernel> {
    pub(crate) reactor: Reactor<K>,
    pub(crate) buffers: Buffers,
    pub(crate) service: S,
    /// Boxed, so that the slab's spare room costs a pointer for each slot.
    pub(crate) entries: Slab<Box<Entry<S>>>,
    /// Tells the tenants of one slot apart; counts up with every connection.
    pub(crate) slot_generation: u32,
    pub(crate) listeners: Slab<LaneListener>,
    pub(crate) current: Option<Rc<LaneGeneration<S::Settings>>>,
    pub(crate) resources: LaneResources,
    pub(crate) replicas: Replicas,
    letters: Inbox<S::Settings>,
    pub(crate) inlet: Inlet,
    pub(crate) admission: Admission,
    /// Connections with work left from this turn, behind their handshake.
    pub(crate) ready: VecDeque<u64>,
    /// Connections in their handshake, oldest first; some have moved on.
    pub(crate) handshakes: VecDeque<u64>,
    /// The end of a drain; 0 is a stop at once.
    pub(crate) drain_until_ms: Option<u64>,
    /// In a drain, when clients end that have not said a word.
    pub(crate) silence_until_ms: Option<u64>,
    /// The look for clients whose certificates have been revoked, if there is one.
    pub(crate) sweep: Option<Sweep>,
}

/// A connection with its generation and what the service keeps for it.
pub(crate) struct Entry<S: Service> {
    pub(crate) connection: Connection,
    pub(crate) generation: Rc<LaneGeneration<S::Settings>>,
    /// The listener's position in the generation.
    pub(crate) listener: usize,
    pub(crate) state: Option<S::Connection>,
}

/// How a lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneEnd {
    /// Connections that were still moving bytes, or still in their handshake, and had to be cut.
    pub cut: usize,
}

/// Events taken from the kernel in one turn.
const EVENTS_MAX: usize = 512;

/// The connection as its service is given it at its end.
fn describe<'a, T, K: Kernel>(
    connection: &'a Connection,
    generation: &LaneGeneration<T>,
    listener: usize,
    reactor: &Reactor<K>,
    cause: Cause,
) -> EndedConnection<'a> {
    let refused = connection.refused.as_deref();
    EndedConnection {
        id: ConnectionId(connection.token),
        cause,
        client: connection.address,
        listener: generation.listener(listener).number,
        generation: generation.generation.number,
        lane: reactor.number,
        server_name: connection.server_name.as_deref(),
        session: connection.session.as_deref(),
        distrust: refused.map(|refused| &refused.distrust),
        refused_certificate: refused.and_then(|refused| refused.certificate.as_deref()),
        offered: connection.offered,
        ja4: connection.ja4.as_deref(),
        failure: connection.failure.as_deref().copied(),
        handshake_us: connection.handshake_us.map(u64::from),
        duration_ms: reactor.now_us().saturating_sub(connection.accepted_us).div_ceil(1_000),
        received_bytes: connection.received_bytes,
        sent_bytes: connection.sent_bytes,
    }
}

impl<S: Service, K: Kernel> Lane<S, K> {
    pub(crate) fn new(
        reactor: Reactor<K>,
        service: S,
        resources: LaneResources,
        letters: Inbox<S::Settings>,
        inlet: Inlet,
    ) -> std::io::Result<Self> {
        reactor.watch_level(&letters.bell, Token::BELL.bits())?;
        reactor.watch_level(&inlet, Token::DOOR.bits())?;
        if let Some(bell) = service.bell() {
            reactor.watch_level(bell, Token::ORDERS.bits())?;
        }
        Ok(Self {
            reactor,
            buffers: Buffers::new(),
            service,
            entries: Slab::new(),
            slot_generation: 0,
            listeners: Slab::new(),
            current: None,
            resources,
            replicas: Replicas::new(),
            letters,
            inlet,
            admission: Admission::new(),
            ready: VecDeque::new(),
            handshakes: VecDeque::new(),
            drain_until_ms: None,
            silence_until_ms: None,
            sweep: None,
        })
    }

    /// Runs until a drain or a stop has ended the last connection.
    pub(crate) fn run(mut self) -> LaneEnd {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut due = Vec::new();
        let mut orders_left = false;
        self.pause_and_resume_listeners();
        loop {
            let mut timeout_ms = if orders_left { Some(0) } else { self.timeout_ms() };
            if timeout_ms != Some(0) && !self.service.may_sleep() {
                timeout_ms = Some(0);
            }
            self.reactor.wait(&mut events, timeout_ms);
            self.service.after_wait();
            self.tell_time();
            self.reactor.counters.turns.add(1);
            for event in &events {
                self.handle(event);
            }
            self.run_ready();
            self.run_handshakes();
            self.release_tickets();
            self.reactor.wheel.advance(self.reactor.now_ms, &mut due);
            for bits in due.drain(..) {
                self.wake(Token::from_bits(bits));
            }
            self.cut_revoked();
            orders_left = self.take_orders();
            self.pause_and_resume_listeners();
            self.share_engine_counters();
            let end = self.end_of_drain();
            self.service.turn_ended();
            if let Some(end) = end {
                self.service.stopped(end);
                return end;
            }
        }
    }

    fn timeout_ms(&mut self) -> Option<u64> {
        if !self.ready.is_empty() || !self.admission.is_idle() {
            return Some(0);
        }
        let tickets = self.next_held_ticket().map(|(due_ms, _)| due_ms);
        let paused = self.listeners.iter().filter_map(|(_, listener)| listener.paused_until_ms);
        let until = paused
            .chain(self.drain_until_ms)
            .chain(self.silence_until_ms)
            .chain(tickets)
            .chain(self.sweep.as_ref().map(|sweep| sweep.due_ms))
            .map(|at_ms| at_ms.saturating_sub(self.reactor.now_ms))
            .min();
        [self.reactor.wheel.wait_ms(self.reactor.now_ms), until].into_iter().flatten().min()
    }

    fn tell_time(&mut self) {
        self.reactor.read_clock();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = UnixSeconds(unix.as_secs());
        if self.replicas.is_unsettled && self.resources.clock.now() != Some(now) {
            self.settle_replicas();
        }
        // An error means that the clock and the ticket root contradict each other: the lane then
        // issues no tickets, and the control plane, which sees the same, reports it.
        let _ = self.resources.tell_time(now);
    }

    /// Lets keys go whose certificates no context has that is served now.
    pub(crate) fn settle_replicas(&mut self) {
        let listeners = self.current.as_ref().map(|current| current.all_contexts());
        self.replicas.settle(listeners.unwrap_or_default(), &self.resources);
    }

    fn handle(&mut self, event: &Event) {
        let token = Token::from_bits({ event.data }.u64());
        match token.source() {
            Source::Bell => self.read_mail(),
            Source::Door => self.fetch(),
            // The service has emptied its bell, and is asked for orders at the end of the turn.
            Source::Orders => {}
            // Its clients wait in the kernel's queue, which is reported again.
            Source::Listener(index) if self.is_full() && self.expects_tls(index) => {}
            Source::Listener(index) => self.accept(index, ACCEPTS_MAX),
            Source::Connection { slot, attachment } => {
                let Some(entry) = self.entry(slot, token) else { return };
                let flags = { event.flags };
                match (attachment, &mut entry.connection.attached) {
                    (None, _) => entry.connection.socket.note(flags),
                    (Some(number), Some(attached)) if number == entry.connection.attachment => {
                        attached.socket.note(flags);
                    }
                    // It is about a socket that was closed earlier in this batch.
                    (Some(_), _) => return,
                }
                if entry.connection.awaits_admission() {
                    return self.queue(slot);
                }
                // An established connection keeps its one place among those that have work left.
                if entry.connection.is_handshaking() {
                    entry.connection.queued = false;
                }
                self.drive(slot);
            }
        }
    }

    pub(crate) fn entry(&mut self, slot: usize, token: Token) -> Option<&mut Entry<S>> {
        let entry = self.entries.get_mut(slot)?;
        (entry.connection.token == token.client().bits()).then_some(entry)
    }

    /// Gives every connection that had work left one more turn.
    fn run_ready(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(bits) = self.ready.pop_front() else { return };
            let token = Token::from_bits(bits);
            let Source::Connection { slot, .. } = token.source() else { continue };
            if let Some(entry) = self.entry(slot, token) {
                entry.connection.queued = false;
                self.drive(slot);
            }
        }
    }

    /// Does what the connection's sockets allow, once in each direction, and ends it if that fails.
    pub(crate) fn drive(&mut self, slot: usize) {
        // A panic is a fault of ours; it costs this connection and no other.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.step(slot)));
        self.conclude(slot, &outcome);
    }

    pub(crate) fn conclude(
        &mut self,
        slot: usize,
        outcome: &std::thread::Result<Result<(), Cause>>,
    ) {
        let cause = match outcome {
            Ok(Ok(())) => match self.watch_attached(slot) {
                Ok(()) => {
                    self.report_refusal(slot);
                    self.queue(slot);
                    return self.limit_unfinished(slot);
                }
                Err(_) => Cause::Internal,
            },
            Ok(Err(cause)) => *cause,
            Err(_) => {
                self.reactor.counters.panics.add(1);
                Cause::Internal
            }
        };
        // What this connection left in the lane's buffers must not reach another.
        self.buffers.recover();
        self.end(slot, cause);
    }

    fn watch_attached(&mut self, slot: usize) -> std::io::Result<()> {
        match self.entries.get_mut(slot) {
            Some(entry) => self.reactor.watch_attached(&mut entry.connection),
            None => Ok(()),
        }
    }

    fn queue(&mut self, slot: usize) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let connection = &mut entry.connection;
        if connection.queued {
            return;
        }
        let retry_write = connection.outgoing.is_some() && connection.socket.writable
            || connection.attached.as_ref().is_some_and(|attached| attached.socket.writable);
        if connection.wants_client_bytes() || connection.wants_attached_bytes() || retry_write {
            if connection.awaits_admission() {
                return self.admission.queue(connection);
            }
            connection.queued = true;
            self.ready.push_back(connection.token);
        }
    }

    /// The connection whose tickets have been held back longest, and when its patience ends.
    fn next_held_ticket(&mut self) -> Option<(u64, usize)> {
        loop {
            let (due_ms, bits) = *self.reactor.tickets.front()?;
            let token = Token::from_bits(bits);
            if let Source::Connection { slot, .. } = token.source()
                && let Some(entry) = self.entry(slot, token)
                && entry.connection.tickets_due_ms == due_ms
            {
                return Some((due_ms, slot));
            }
            self.reactor.tickets.pop_front();
        }
    }

    /// Sends tickets alone whose first response has taken too long.
    fn release_tickets(&mut self) {
        while let Some((due_ms, slot)) = self.next_held_ticket() {
            if due_ms > self.reactor.now_ms {
                return;
            }
            self.reactor.tickets.pop_front();
            let outcome = catch_unwind(AssertUnwindSafe(|| self.check_deadlines(slot)));
            self.conclude(slot, &outcome);
        }
    }

    /// A timer of this connection has come.
    fn wake(&mut self, token: Token) {
        let Source::Connection { slot, .. } = token.source() else { return };
        let now_ms = self.reactor.now_ms;
        let Some(entry) = self.entry(slot, token) else { return };
        if entry.connection.armed_ms > now_ms {
            return; // a stale entry; the one that counts is still to come
        }
        entry.connection.armed_ms = u64::MAX;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.check_deadlines(slot)));
        self.conclude(slot, &outcome);
    }

    /// Takes the connection off the lane. Only a clean end may look like one to either side.
    pub(crate) fn end(&mut self, slot: usize, cause: Cause) {
        let Some(entry) = self.entries.try_remove(slot) else { return };
        // Dropped in the opposite order: a generation is the last.
        let Entry { generation, connection, listener, state } = *entry;
        let counters = &self.reactor.counters;
        counters.connections.subtract(1);
        if connection.is_handshaking() {
            counters.handshaking.subtract(1);
        }
        self.reactor.unfinished.forget(connection.kept);
        let lingered = matches!(connection.phase, Phase::Lingering { .. });
        let left = cause.client_left() && (S::AWAITS_LAST_BYTES || connection.attached.is_none());
        let is_stopped = cause == Cause::LaneStopped && connection.phase == Phase::Established;
        let is_plain = cause.closes_plainly()
            || S::STOPS_PLAINLY && is_stopped
            || S::TURNS_AWAY_PLAINLY && matches!(cause, Cause::HandshakeTimeout | Cause::NotTls);
        if !is_plain && !left && !lingered {
            reset_on_close(&connection.socket.fd);
        } else if connection.abandoned || is_plain && cause != Cause::Clean {
            self.buffers.discard_arrivals(&mut self.reactor.kernel, &connection.socket);
        }
        if let Some(attached) = &connection.attached
            && !is_plain
        {
            reset_on_close(&attached.socket.fd);
        }
        self.reactor.counters.ended(cause).add(1);
        let end = describe(&connection, &generation, listener, &self.reactor, cause);
        let service = &mut self.service;
        let settings = &generation.listener(listener).settings;
        let told = catch_unwind(AssertUnwindSafe(|| service.ended(state, settings, &end)));
        if told.is_err() {
            self.reactor.counters.panics.add(1);
        }
        let attached = connection.attached.and_then(Attached::into_pending);
        for pending in [connection.outgoing, connection.untaken, attached].into_iter().flatten() {
            self.buffers.outbox.pool.give_back(pending);
        }
    }

    /// Lets the service know of a handshake that has failed, before the client has taken the alert.
    fn report_refusal(&mut self, slot: usize) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let Phase::Lingering { cause, .. } = entry.connection.phase else { return };
        if entry.state.is_some() {
            return;
        }
        let Entry { connection, generation, listener, state } = &mut **entry;
        let end = describe(connection, generation, *listener, &self.reactor, cause);
        let settings = &generation.listener(*listener).settings;
        let service = &mut self.service;
        let reported = catch_unwind(AssertUnwindSafe(|| service.refused(state, settings, &end)));
        if reported.is_err() {
            self.reactor.counters.panics.add(1);
        }
    }

    pub(crate) fn read_mail(&mut self) {
        self.letters.silence_bell();
        // What a letter is about has come before it.
        self.fetch();
        while let Some(mail) = self.letters.take() {
            match mail {
                Mail::Answer(number) => self.reactor.counters.answered.set(number),
                Mail::Discard => self.inlet.discard(),
                Mail::Drain(limit) => self.begin_drain(to_ms(limit)),
                Mail::Provide(context) => self.replicas.provide(&context, &self.resources),
                // A lane that drains accepts nothing any more, whatever is published.
                Mail::Publish(_) if self.drain_until_ms.is_some() => {}
                Mail::Publish(publication) => self.publish(*publication),
                Mail::Run(work) => work(self.reactor.now_ms),
                Mail::Stop => self.drain_until_ms = Some(0),
                Mail::Tickets(root) => self.resources.tickets.replace(root),
                Mail::Withdraw(id) => self.replicas.withdraw(id),
            }
        }
    }

    /// Takes what is handed over; it waits for the publication that names it.
    fn fetch(&mut self) {
        if self.inlet.fetch().is_err() {
            // Nobody is there any more who could give something.
            self.reactor.unwatch(&self.inlet);
        }
    }

    fn share_engine_counters(&self) {
        let keys = RefCell::borrow(&self.resources.keys).counters();
        self.reactor.counters.keys_decoded.set(keys.decoded);
        self.reactor.counters.keys_evicted.set(keys.evictions);
        self.reactor.counters.keys_failed.set(keys.failures);
        self.reactor.counters.keys_opened.set(keys.opened);
        self.reactor.counters.store_failures.set(keys.store_failures);
        let by_ended_lists = self.resources.by_ended_lists.get();
        self.reactor.counters.clients_by_ended_lists.set(by_ended_lists);
    }
}
