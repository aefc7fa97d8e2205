//! The connections of a lane, each in its slot, with all that they borrow for a turn.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::event::epoll::EventFlags;
use sealane_engine::hello::{self, Peek};
use slab::Slab;

use crate::cause::Cause;
use crate::connection::Connection;
use crate::connection::attached::Attached;
use crate::connection::buffers::Buffers;
use crate::connection::phase::Phase;
use crate::connection::token::{ConnectionId, SLOTS_MAX, Source, Token};
use crate::connection::unfinished::{Unfinished, Wait};
use crate::kernel::{Kernel, reset_on_close};
use crate::lane::admission::Admission;
use crate::lane::standing::Host;
use crate::reactor::Reactor;
use crate::replica::LaneGeneration;
use crate::service::{EndedConnection, Service};
use crate::shared::orders::{Seen, VISITS_MAX};
use crate::turn::{Entry, Turn};

/// The connections of one lane.
pub(super) struct Connections<S: Service, K: Kernel> {
    reactor: Reactor<K>,
    buffers: Buffers,
    service: S,
    /// Boxed, so that the slab's spare room costs a pointer for each slot.
    entries: Slab<Box<Entry<S>>>,
    /// Distinguishes the connections that have one slot after each other; counts all of them.
    slot_generation: u32,
    /// Connections with work left from this turn, behind their handshake.
    ready: VecDeque<u64>,
    admission: Admission,
    unfinished: Unfinished,
}

/// Bytes of a hello that are looked at before it is read: what it offers comes at the end.
const PEEK_BYTES_MAX: usize = 4096;

impl<S: Service, K: Kernel> Connections<S, K> {
    pub(super) fn new(reactor: Reactor<K>, service: S) -> Self {
        Self {
            reactor,
            buffers: Buffers::new(),
            service,
            entries: Slab::new(),
            slot_generation: 0,
            ready: VecDeque::new(),
            admission: Admission::new(),
            unfinished: Unfinished::new(),
        }
    }

    pub(super) fn reactor(&self) -> &Reactor<K> {
        &self.reactor
    }

    pub(super) fn reactor_mut(&mut self) -> &mut Reactor<K> {
        &mut self.reactor
    }

    pub(super) fn service(&mut self) -> &mut S {
        &mut self.service
    }

    pub(super) fn admission(&mut self) -> &mut Admission {
        &mut self.admission
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The slots that have been used so far, at least.
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Whether no connection has work left.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.admission.is_idle()
    }

    /// Allows the connections to keep so many bytes in all that wait for their rest.
    pub(super) fn limit_unfinished_bytes(&mut self, bytes_max: usize) {
        self.unfinished.limit(bytes_max);
    }

    /// The token of the next connection.
    pub(super) fn next_token(&mut self) -> Token {
        self.slot_generation = self.slot_generation.wrapping_add(1);
        let slot = self.entries.vacant_key().min(SLOTS_MAX - 1);
        Token::connection(slot, self.slot_generation)
    }

    /// Puts a connection into the slot of the last [`Self::next_token`].
    pub(super) fn insert(&mut self, entry: Entry<S>) -> usize {
        self.entries.insert(Box::new(entry))
    }

    pub(super) fn in_slot(&mut self, slot: usize) -> Option<&mut Entry<S>> {
        self.entries.get_mut(slot).map(|entry| &mut **entry)
    }

    /// The connection of `token`, if it is still there.
    pub(super) fn entry(&mut self, slot: usize, token: Token) -> Option<&mut Entry<S>> {
        let entry = self.entries.get_mut(slot)?;
        (entry.connection.token == token.client().bits()).then_some(entry)
    }

    /// The connection of `id`, if it is still there.
    pub(super) fn named(&self, id: ConnectionId) -> Option<&Connection> {
        let connection = &self.entries.get(id.slot())?.connection;
        (connection.token == id.bits()).then_some(connection)
    }

    /// Arms the first deadline of a connection. Where nothing is awaited from the client, the
    /// service gets it at once.
    pub(super) fn begin(&mut self, slot: usize, speaks_first: bool) {
        let Some(mut turn) = self.turn(slot) else { return };
        turn.arm_deadline();
        if speaks_first {
            self.run(slot, |mut turn| turn.hand_over());
        }
    }

    /// The slots whose connections are `chosen`.
    pub(super) fn slots(&self, chosen: impl Fn(&Connection) -> bool) -> Vec<usize> {
        let chosen = self.entries.iter().filter(|(_, entry)| chosen(&entry.connection));
        chosen.map(|(slot, _)| slot).collect()
    }

    pub(super) fn end_where(&mut self, cause: Cause, ends: impl Fn(&Connection) -> bool) {
        for slot in self.slots(ends) {
            self.end(slot, cause);
        }
    }

    /// Runs the loop's part for one event about a connection.
    pub(super) fn note(&mut self, token: Token, attachment: Option<u8>, flags: EventFlags) {
        let slot = token.slot();
        let Some(entry) = self.entry(slot, token) else { return };
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
            let waited = std::mem::take(&mut entry.connection.queued);
            // Only a client that leaves gets here before its session has begun.
            let has_left = waited && entry.connection.awaits_hello();
            self.reactor.counters.left_waiting.add(u64::from(has_left));
        }
        self.drive(slot);
    }

    /// Gives every connection that had work left one more turn.
    pub(super) fn run_ready(&mut self) {
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

    /// The turn of a connection, if it is still there.
    fn turn(&mut self, slot: usize) -> Option<Turn<'_, S, K>> {
        let entry = self.entries.get_mut(slot)?;
        Some(Turn {
            reactor: &mut self.reactor,
            buffers: &mut self.buffers,
            service: &mut self.service,
            entry,
        })
    }

    /// Does what the connection's sockets allow, once in each direction, and ends it if that fails.
    pub(super) fn drive(&mut self, slot: usize) {
        let phase = |entries: &Slab<Box<Entry<S>>>| {
            entries.get(slot).map(|entry| (entry.connection.phase, entry.connection.token))
        };
        let before = phase(&self.entries);
        self.run(slot, |mut turn| turn.step());
        if let Some((Phase::Handshake, token)) = before
            && phase(&self.entries) == Some((Phase::Established, token))
            && let Some(entry) = self.entries.get(slot)
        {
            let host = Host::of(entry.connection.address);
            self.admission.note_completed(host, self.reactor.now_ms);
        }
    }

    /// Runs `work` for a connection, and ends the connection if that fails.
    pub(super) fn run(
        &mut self,
        slot: usize,
        work: impl FnOnce(Turn<'_, S, K>) -> Result<(), Cause>,
    ) {
        // A panic is a fault of ours; it costs this connection and no other.
        let outcome = catch_unwind(AssertUnwindSafe(|| match self.turn(slot) {
            Some(turn) => work(turn),
            None => Ok(()),
        }));
        let cause = match outcome {
            Ok(Ok(())) => match self.watch_attached(slot) {
                Ok(()) => {
                    self.report_refusal(slot);
                    self.queue(slot);
                    return self.limit_unfinished(slot);
                }
                Err(_) => Cause::Internal,
            },
            Ok(Err(cause)) => cause,
            Err(_) => {
                self.reactor.counters.panics.add(1);
                Cause::Internal
            }
        };
        // The rest of this connection in the lane's buffers must not reach another.
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
                && entry.connection.times.tickets_due_ms == due_ms
            {
                return Some((due_ms, slot));
            }
            self.reactor.tickets.pop_front();
        }
    }

    /// When the first of the tickets that are held back leave alone.
    pub(super) fn tickets_due_ms(&mut self) -> Option<u64> {
        self.next_held_ticket().map(|(due_ms, _)| due_ms)
    }

    /// Sends tickets alone whose first response has taken too long.
    pub(super) fn release_tickets(&mut self) {
        while let Some((due_ms, slot)) = self.next_held_ticket() {
            if due_ms > self.reactor.now_ms {
                return;
            }
            self.reactor.tickets.pop_front();
            self.run(slot, |mut turn| turn.keep_deadlines());
        }
    }

    /// Looks at a connection whose timer has come.
    pub(super) fn wake(&mut self, token: Token) {
        let Source::Connection { slot, .. } = token.source() else { return };
        let now_ms = self.reactor.now_ms;
        let Some(entry) = self.entry(slot, token) else { return };
        if entry.connection.times.armed_ms > now_ms {
            return; // a stale entry; the one that counts is still to come
        }
        entry.connection.times.armed_ms = u64::MAX;
        self.run(slot, |mut turn| turn.keep_deadlines());
    }

    /// Takes the connection off the lane. Only a clean end may look like one to either side.
    pub(super) fn end(&mut self, slot: usize, cause: Cause) {
        let Some(entry) = self.entries.try_remove(slot) else { return };
        // Dropped in the opposite order: a generation is the last.
        let Entry { generation, connection, listener, state } = *entry;
        let counters = &self.reactor.counters;
        counters.connections.subtract(1);
        if connection.is_handshaking() {
            counters.handshaking.subtract(1);
        }
        self.unfinished.forget(connection.kept);
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
        let reported = catch_unwind(AssertUnwindSafe(|| service.ended(state, settings, &end)));
        if reported.is_err() {
            self.reactor.counters.panics.add(1);
        }
        let attached = connection.attached.and_then(Attached::into_pending);
        for pending in [connection.outgoing, connection.untaken, attached].into_iter().flatten() {
            self.buffers.outbox.pool.give_back(pending);
        }
    }

    /// Ends a connection at rest cleanly, unless one of its sides cannot be reached.
    pub(super) fn end_cleanly(&mut self, slot: usize) {
        if self.turn(slot).is_some_and(|mut turn| turn.finish_both()) {
            self.end(slot, Cause::Clean);
        }
        self.buffers.recover();
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

    /// Notes how many bytes the connection keeps after a turn, and resets those that have waited
    /// longest while all keep more than they may.
    fn limit_unfinished(&mut self, slot: usize) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let connection = &mut entry.connection;
        let bytes = connection.unfinished_len();
        if !self.unfinished.note(connection.token, &mut connection.kept, bytes) {
            return;
        }
        let entries = &self.entries;
        self.unfinished.drop_stale(|wait| waiting_slot(entries, *wait).is_none());
        while let Some(oldest) = self.unfinished.oldest_over_limit() {
            if let Some(slot) = waiting_slot(&self.entries, oldest) {
                self.end(slot, Cause::LimitUnfinished);
            }
        }
    }

    /// Forgets hellos of clients that left, if they are many.
    pub(super) fn drop_gone_hellos(&mut self) {
        let entries = &self.entries;
        self.admission.drop_gone(entries.len(), |bits| {
            let entry = entries.get(Token::from_bits(bits).slot());
            entry.is_some_and(|entry| entry.connection.token == bits && entry.connection.queued)
        });
    }

    /// Publishes how many hellos wait, and how long one takes.
    pub(super) fn report_waiting(&self) {
        self.reactor.counters.hellos_waiting.set(self.admission.hellos_waiting() as u64);
        self.reactor.counters.hello_us.set(self.admission.hello_us());
    }

    /// The connection of these bits, if its next step waits for its turn.
    pub(super) fn waiting(&mut self, bits: u64) -> Option<&mut Connection> {
        let token = Token::from_bits(bits);
        let Source::Connection { slot, .. } = token.source() else { return None };
        let connection = &mut self.entry(slot, token)?.connection;
        connection.queued.then_some(connection)
    }

    /// Whether a new client from this address would give way at once to the hellos that wait.
    pub(super) fn turns_away(&mut self, address: Option<SocketAddr>) -> bool {
        self.admission.turns_away(Host::of(address), self.reactor.now_ms)
    }

    /// Whether the client's hello offers a session, by a look at the bytes that its socket has.
    pub(super) fn offers_session(&mut self, slot: usize) -> bool {
        let Some(entry) = self.entries.get(slot) else { return false };
        let hello_bytes_max = entry.generation.generation.limits.hello_bytes_max;
        let socket = entry.connection.socket.fd.as_fd();
        self.buffers.received.clear();
        let room = self.buffers.received.spare_mut();
        let room_len = room.len().min(PEEK_BYTES_MAX);
        let Ok(len) = self.reactor.kernel.peek(socket, &mut room[..room_len]) else { return false };
        let peeked = hello::peek_record(&room[..len], hello_bytes_max);
        matches!(peeked, Peek::Hello(hello) if hello.offers_session)
    }

    /// Whether the connection of these bits is still in its handshake.
    pub(super) fn is_handshaking(&self, bits: u64) -> bool {
        let Source::Connection { slot, .. } = Token::from_bits(bits).source() else { return false };
        let connection = self.entries.get(slot).map(|entry| &entry.connection);
        connection.is_some_and(|c| c.token == bits && c.is_handshaking())
    }

    /// Shows the service the open connections of [`VISITS_MAX`] slots, from this one on.
    pub(super) fn visit(&mut self, from: usize) {
        let last = self.entries.capacity();
        for slot in from..last.min(from.saturating_add(VISITS_MAX)) {
            let Some(entry) = self.entries.get(slot) else { continue };
            let connection = &entry.connection;
            let seen = Seen {
                id: ConnectionId::from_bits(connection.token),
                age_ms: self.reactor.now_ms.saturating_sub(connection.accepted_ms()),
                sent_bytes: connection.sent_bytes,
                client: connection.address,
                received_bytes: connection.received_bytes,
                is_established: !connection.is_handshaking(),
                server_name: connection.hello.server_name.as_deref(),
            };
            let settings = &entry.generation.listener(entry.listener).settings;
            self.service.seen(entry.state.as_ref(), settings, &seen);
        }
        let next = from.saturating_add(VISITS_MAX);
        self.service.visited((next < last).then_some(next));
    }
}

/// Where the connection is that still waits so.
fn waiting_slot<S: Service>(entries: &Slab<Box<Entry<S>>>, wait: Wait) -> Option<usize> {
    let Source::Connection { slot, .. } = Token::from_bits(wait.token()).source() else {
        return None;
    };
    let connection = &entries.get(slot)?.connection;
    (connection.token == wait.token() && wait.goes_on(connection.kept)).then_some(slot)
}

/// The connection as its service is given it at its end.
fn describe<'a, T, K: Kernel>(
    connection: &'a Connection,
    generation: &LaneGeneration<T>,
    listener: usize,
    reactor: &Reactor<K>,
    cause: Cause,
) -> EndedConnection<'a> {
    let refused = connection.failed.refused.as_deref();
    EndedConnection {
        id: ConnectionId::from_bits(connection.token),
        cause,
        client: connection.address,
        listener: generation.listener(listener).number,
        generation: generation.generation.number,
        lane: reactor.number,
        server_name: connection.hello.server_name.as_deref(),
        session: connection.tls.session(),
        distrust: refused.map(|refused| &refused.distrust),
        refused_certificate: refused.and_then(|refused| refused.certificate.as_deref()),
        offered: connection.hello.offered,
        ja4: connection.hello.ja4.as_deref(),
        failure: connection.failed.failure.as_deref().copied(),
        handshake_us: connection.times.handshake_us.map(u64::from),
        duration_ms: reactor.now_us().saturating_sub(connection.times.accepted_us).div_ceil(1_000),
        received_bytes: connection.received_bytes,
        sent_bytes: connection.sent_bytes,
    }
}
