//! A lane's listeners: taking connections off their queues.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;

use rustix::io::Errno;
use sealane_file_table::Descriptor;
use slab::Slab;

use crate::cause::Cause;
use crate::connection::Connection;
use crate::connection::phase::Phase;
use crate::connection::token::{ConnectionId, SLOTS_MAX, Token};
use crate::kernel::liveness::Liveness;
use crate::kernel::reuseport::Steer;
use crate::kernel::{Address, Kernel, reset_on_close};
use crate::lane::connections::Connections;
use crate::lane::handshakes::Handshakes;
use crate::lane::served::Served;
use crate::reactor::Reactor;
use crate::replica::LaneGeneration;
use crate::service::{EndedConnection, Service};
use crate::shared::generation::{Listener, Speech};
use crate::turn::Entry;

/// The listening sockets of a lane, and the handshakes that come of them.
pub(super) struct Listeners {
    sockets: Slab<LaneListener>,
    handshakes: Handshakes,
}

impl Listeners {
    pub(super) fn new() -> Self {
        Self { sockets: Slab::new(), handshakes: Handshakes::new() }
    }

    /// When the listeners that pause go on.
    pub(super) fn paused_until_ms(&self) -> impl Iterator<Item = u64> {
        self.sockets.iter().filter_map(|(_, listener)| listener.paused_until_ms)
    }

    /// Takes connections off the queue of a listener that an event has reported.
    pub(super) fn take<S: Service, K: Kernel>(
        &mut self,
        index: usize,
        served: &Served<S::Settings>,
        connections: &mut Connections<S, K>,
    ) {
        self.accept(index, ACCEPTS_MAX, served, connections);
    }

    /// Takes connections off a listener's queue, at most a batch.
    ///
    /// A call that finds the queue empty is wasted, so one connection is taken for one event. Only
    /// when the queue is still not empty in the very next turn do batches grow.
    fn accept<S: Service, K: Kernel>(
        &mut self,
        index: usize,
        accepts_max: usize,
        served: &Served<S::Settings>,
        connections: &mut Connections<S, K>,
    ) {
        let turn = connections.reactor().counters.turns.value();
        let Some(listener) = self.sockets.get_mut(index) else { return };
        listener.batch = if listener.full_batch_turn + 1 == turn {
            (listener.batch * 2).min(ACCEPTS_MAX)
        } else {
            1
        };
        for _ in 0..listener.batch.min(accepts_max) {
            let Some((fd, address)) = listener.accept(connections) else { return };
            connections.reactor().counters.accepted.add(1);
            let Some(current) = served.current() else { continue };
            let client = NewClient { fd, address, listener: listener.position };
            if let Some(bits) = client.admit(current, connections) {
                let handshakes_max = current.generation.limits.handshakes_max;
                self.handshakes.add(bits, handshakes_max, connections);
            }
        }
        listener.full_batch_turn = turn;
    }

    /// Listens where `replica` wants it from now on: on the sockets of before, and on `sockets`.
    pub(super) fn open<T, K: Kernel>(
        &mut self,
        replica: &LaneGeneration<T>,
        mut sockets: Vec<(Address, Descriptor)>,
        reactor: &Reactor<K>,
    ) {
        for (position, listener) in replica.generation.listeners.iter().enumerate() {
            for key in &listener.keys {
                let known = self.sockets.iter_mut().find(|(_, listener)| listener.key == *key);
                if let Some((_, known)) = known {
                    known.keep(position, listener);
                } else if let Some(at) = sockets.iter().position(|(socket, _)| socket == key) {
                    let (key, fd) = sockets.swap_remove(at);
                    self.watch(LaneListener::new(fd, key, position, listener), reactor);
                }
            }
        }
    }

    fn watch<K: Kernel>(&mut self, listener: LaneListener, reactor: &Reactor<K>) {
        let vacant = self.sockets.vacant_entry();
        let token = Token::listener(vacant.key()).bits();
        if reactor.watch_level(&listener.fd, token).is_err() {
            reactor.counters.accept_errors.add(1);
            return;
        }
        vacant.insert(listener);
    }

    /// Closes listeners, but first takes the connections that the kernel has completed for them.
    pub(super) fn close<S: Service, K: Kernel>(
        &mut self,
        closes: impl Fn(&Address) -> bool,
        served: &Served<S::Settings>,
        connections: &mut Connections<S, K>,
    ) {
        let closing: Vec<usize> = self
            .sockets
            .iter()
            .filter(|(_, listener)| closes(&listener.key))
            .map(|(index, _)| index)
            .collect();
        for index in closing {
            for _ in 0..LAST_ACCEPTS_MAX {
                let before = connections.reactor().counters.accepted.value();
                self.accept(index, 1, served, connections);
                if connections.reactor().counters.accepted.value() == before {
                    break;
                }
            }
            // The queue of a unix socket is watched through a copy for as long as any lane has one.
            if let Some(listener) = self.sockets.try_remove(index) {
                connections.reactor().unwatch(&listener.fd);
            }
        }
    }

    /// Lets listeners rest while the service does not accept, and go on when their pause is over.
    pub(super) fn pause_and_resume<S: Service, K: Kernel>(
        &mut self,
        connections: &mut Connections<S, K>,
    ) {
        let accepts = connections.service().accepts();
        let reactor = connections.reactor();
        let now_ms = reactor.now_ms;
        for (index, listener) in &mut self.sockets {
            if !accepts && (listener.rests || listener.paused_until_ms.is_none()) {
                if !listener.rests {
                    reactor.unwatch(&listener.fd);
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
                if reactor.watch_level(&listener.fd, token).is_err() {
                    listener.paused_until_ms = Some(now_ms + ACCEPT_PAUSE_MS);
                }
            }
        }
    }
}

/// A listening socket of this lane.
struct LaneListener {
    fd: Descriptor,
    key: Address,
    /// In the generation that is served now.
    position: usize,
    /// How many connections to take at most in the next turn that brings any.
    batch: usize,
    /// The turn that took a whole batch last.
    full_batch_turn: u64,
    /// When to accept again after accept4(2) failed for want of descriptors, or when to ask the
    /// service again that does not accept.
    paused_until_ms: Option<u64>,
    /// Whether it pauses on the service's account.
    rests: bool,
    /// The setting of its socket, and so of its clients' sockets.
    liveness: Liveness,
    /// The setting of all sockets of its address.
    steer: Steer,
}

/// Connections taken from one listener's queue in one turn.
const ACCEPTS_MAX: usize = 64;
/// How long a listener rests when the process has no descriptor left.
const ACCEPT_PAUSE_MS: u64 = 100;
/// How long a listener rests at a time when the service accepts no more.
const REST_MS: u64 = 5;
/// Connections that are taken from the queue of a listener that closes: its whole backlog.
const LAST_ACCEPTS_MAX: usize = 4096;

impl LaneListener {
    /// `fd` was bound as `listener`, at `position` of its generation, wants it.
    fn new<S>(fd: Descriptor, key: Address, position: usize, listener: &Listener<S>) -> Self {
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

    /// Serves `listener` at `position` of a new generation from now on.
    fn keep<S>(&mut self, position: usize, listener: &Listener<S>) {
        self.position = position;
        // They were validated, and a unix socket has no such options.
        if let Address::Tcp(address) = &self.key {
            let _ = listener.liveness.apply(&self.fd, Some(self.liveness));
            let _ = listener.steer.apply(&self.fd, address.is_ipv6(), Some(self.steer));
        }
        (self.liveness, self.steer) = (listener.liveness, listener.steer);
    }

    /// Takes one connection off the queue.
    fn accept<S: Service, K: Kernel>(
        &mut self,
        connections: &mut Connections<S, K>,
    ) -> Option<(Descriptor, Option<SocketAddr>)> {
        let error = match connections.reactor_mut().kernel.accept(self.fd.as_fd()) {
            Ok(accepted) => return Some(accepted),
            Err(error) => error,
        };
        let errno = Errno::from_io_error(&error);
        if matches!(errno, Some(Errno::MFILE | Errno::NFILE)) {
            connections.service().out_of_descriptors();
        }
        // The queue is empty, the client gave up before it was accepted, or a signal came: whatever
        // is left is reported again.
        let passing = [Errno::AGAIN, Errno::CONNABORTED, Errno::INTR];
        if !errno.is_some_and(|errno| passing.contains(&errno)) {
            let reactor = connections.reactor();
            reactor.counters.accept_errors.add(1);
            self.paused_until_ms = Some(reactor.now_ms + ACCEPT_PAUSE_MS);
            reactor.unwatch(&self.fd);
        }
        None
    }
}

/// A client that has been accepted, and is not yet admitted.
struct NewClient {
    fd: Descriptor,
    address: Option<SocketAddr>,
    /// The listener's position in the generation.
    listener: usize,
}

impl NewClient {
    /// Makes it a connection under `current`, unless a limit or the service refuses that. Returns
    /// the token's bits of a connection that has begun.
    fn admit<S: Service, K: Kernel>(
        self,
        current: &Rc<LaneGeneration<S::Settings>>,
        connections: &mut Connections<S, K>,
    ) -> Option<u64> {
        let limits = &current.generation.limits;
        let listener = current.listener(self.listener);
        let admitted = if connections.len() >= limits.connections_max.min(SLOTS_MAX) {
            Err(Cause::LimitConnections)
        // Behind a preamble the client has another address.
        } else if listener.preamble.is_none()
            && !matches!(listener.speech, Speech::Plain)
            && connections.turns_away(self.address)
        {
            Err(Cause::LimitHandshakeQueue)
        } else {
            connections.service().admits(self.address, &listener.settings)
        };
        if let Err(cause) = admitted {
            reset_on_close(&self.fd);
            connections.reactor().counters.ended(cause).add(1);
            self.reject(cause, current, connections);
            return None;
        }
        let (phase, speaks_first) = match (listener.preamble, &listener.speech) {
            (Some(_), _) => (Phase::Preamble, false),
            (None, Speech::Plain) => (Phase::Hello, true),
            (None, Speech::Sealed | Speech::Tls(_)) => (Phase::Hello, false),
        };
        let token = connections.next_token().bits();
        let reactor = connections.reactor_mut();
        let (now_ms, now_us) = (reactor.now_ms, reactor.now_us());
        let poll = reactor.poll.as_fd();
        let is_watched = reactor.kernel.watch(poll, self.fd.as_fd(), token, false).is_ok();
        reactor.counters.connections.add(1);
        reactor.counters.handshaking.add(1);
        let mut connection = Connection::new(token, self.fd, self.address, now_us, now_ms);
        connection.socket.is_watched = is_watched;
        connection.phase = phase;
        let generation = Rc::clone(current);
        let entry = Entry { connection, generation, listener: self.listener, state: None };
        let slot = connections.insert(entry);
        if !is_watched {
            // The service has admitted it, and so has to hear of its end.
            connections.reactor().counters.accept_errors.add(1);
            connections.end(slot, Cause::Internal);
            return None;
        }
        let id = ConnectionId::from_bits(token);
        connections.service().accepted(id, self.address, &listener.settings);
        connections.begin(slot, speaks_first);
        Some(token)
    }

    /// Reports a client to the service that was reset before it had a connection.
    fn reject<S: Service, K: Kernel>(
        &self,
        cause: Cause,
        current: &LaneGeneration<S::Settings>,
        connections: &mut Connections<S, K>,
    ) {
        let listener = current.listener(self.listener);
        let end = EndedConnection {
            id: ConnectionId::from_bits(connections.next_token().bits()),
            cause,
            client: self.address,
            listener: listener.number,
            generation: current.generation.number,
            lane: connections.reactor().number,
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
        connections.service().rejected(&listener.settings, &end);
    }
}
