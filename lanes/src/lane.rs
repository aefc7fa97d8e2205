//! The event loop of one core.

mod accept;
mod admission;
pub mod arena;
mod connections;
mod drain;
mod fair_queue;
mod handshakes;
mod orders;
mod served;
mod standing;
pub mod start;
mod sweep;
pub mod thread;

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::epoll::Event;
use sealane_engine::context::{ContextId, LaneContext, LaneResources};
use sealane_engine::tickets::UnixSeconds;

use crate::connection::phase::Phase;
use crate::connection::token::{ConnectionId, Source, Token};
use crate::kernel::{Address, Kernel};
use crate::lane::accept::Listeners;
use crate::lane::admission::TURN_US;
use crate::lane::connections::Connections;
use crate::lane::drain::Drain;
use crate::lane::orders::LAST_ORDERS_MAX;
use crate::lane::served::Served;
use crate::lane::sweep::Sweep;
use crate::reactor::{Reactor, to_ms};
use crate::service::{LaneEnd, Service};
use crate::shared::generation::Publication;
use crate::shared::handover::Inlet;
use crate::shared::mailbox::{Inbox, Mail};
use crate::shared::orders::{Chosen, ORDERS_MAX, Order};
use crate::turn::client_hello::Decision;

/// One lane: a thread's event loop and all that it owns.
pub(crate) struct Lane<S: Service, K: Kernel> {
    connections: Connections<S, K>,
    listeners: Listeners,
    served: Served<S::Settings>,
    letters: Inbox<S::Settings>,
    inlet: Inlet,
    /// There once the lane accepts no more.
    drain: Option<Drain>,
    /// The look for clients whose certificates have been revoked, if there is one.
    sweep: Option<Sweep>,
}

/// Events taken from the kernel in one turn.
const EVENTS_MAX: usize = 512;

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
            connections: Connections::new(reactor, service),
            listeners: Listeners::new(),
            served: Served::new(resources),
            letters,
            inlet,
            drain: None,
            sweep: None,
        })
    }

    /// Whether it has a generation.
    pub(crate) fn serves(&self) -> bool {
        self.served.current().is_some()
    }

    /// Runs until a drain or a stop has ended the last connection.
    pub(crate) fn run(mut self) -> LaneEnd {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut due = Vec::new();
        let mut orders_left = false;
        self.listeners.pause_and_resume(&mut self.connections);
        loop {
            let mut timeout_ms = if orders_left { Some(0) } else { self.timeout_ms() };
            if timeout_ms != Some(0) && !self.connections.service().may_sleep() {
                timeout_ms = Some(0);
            }
            self.connections.reactor().wait(&mut events, timeout_ms);
            self.connections.service().after_wait();
            self.read_clocks();
            self.connections.reactor().counters.turns.add(1);
            for event in &events {
                self.handle(event);
            }
            self.connections.run_ready();
            handshakes::run(&mut self.connections);
            self.connections.release_tickets();
            self.connections.reactor_mut().advance_timers(&mut due);
            for bits in due.drain(..) {
                self.connections.wake(Token::from_bits(bits));
            }
            self.cut_revoked();
            orders_left = self.take_orders();
            self.listeners.pause_and_resume(&mut self.connections);
            self.served.share_counters(&self.connections.reactor().counters);
            let end = self.drain.as_mut().and_then(|drain| drain.go_on(&mut self.connections));
            self.connections.service().turn_ended();
            if let Some(end) = end {
                self.connections.service().stopped(end);
                return end;
            }
        }
    }

    fn timeout_ms(&mut self) -> Option<u64> {
        if !self.connections.is_idle() {
            return Some(0);
        }
        let tickets = self.connections.tickets_due_ms();
        let reactor = self.connections.reactor();
        let until = self
            .listeners
            .paused_until_ms()
            .chain(self.drain.as_ref().map(Drain::due_ms))
            .chain(tickets)
            .chain(self.sweep.as_ref().map(Sweep::due_ms))
            .map(|at_ms| at_ms.saturating_sub(reactor.now_ms))
            .min();
        [reactor.wheel.wait_ms(reactor.now_ms), until].into_iter().flatten().min()
    }

    fn read_clocks(&mut self) {
        self.connections.reactor_mut().read_clock();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.served.set_time(UnixSeconds(unix.as_secs()));
    }

    fn handle(&mut self, event: &Event) {
        let token = Token::from_bits({ event.data }.u64());
        match token.source() {
            Source::Bell => self.read_mail(),
            Source::Door => self.fetch(),
            // The service has emptied its bell, and is asked for orders at the end of the turn.
            Source::Orders => {}
            Source::Listener(index) => {
                self.listeners.take(index, &self.served, &mut self.connections);
            }
            Source::Connection { attachment, .. } => {
                let flags = event.flags;
                self.connections.note(token, attachment, flags);
            }
        }
    }

    fn read_mail(&mut self) {
        self.letters.silence_bell();
        // The sockets of a letter have come before it.
        self.fetch();
        while let Some(mail) = self.letters.take() {
            match mail {
                Mail::Answer(number) => self.connections.reactor().counters.answered.set(number),
                Mail::Discard => self.inlet.discard(),
                Mail::Drain(limit) => {
                    self.listeners.close(|_| true, &self.served, &mut self.connections);
                    self.inlet.discard();
                    self.drain = Some(Drain::begin(to_ms(limit), &mut self.connections));
                }
                Mail::Provide(context) => self.served.provide(&context),
                // A lane that drains accepts nothing any more, whatever is published.
                Mail::Publish(_) if self.drain.is_some() => {}
                Mail::Publish(publication) => self.publish(*publication),
                Mail::Run(work) => work(self.connections.reactor().now_ms),
                Mail::Stop => self.drain = Some(Drain::stop(self.drain.take())),
                Mail::Tickets(root) => self.served.replace_tickets(root),
                Mail::Withdraw(id) => self.served.withdraw(id),
            }
        }
    }

    /// Takes the sockets that are handed over; they wait for the publication that names them.
    fn fetch(&mut self) {
        if self.inlet.fetch().is_err() {
            // The control plane is gone.
            self.connections.reactor().unwatch(&self.inlet);
        }
    }

    /// Serves a new generation from now on, its new listeners opened, and those that it lacks
    /// closed. One that the lane cannot make its own changes nothing.
    pub(crate) fn publish(&mut self, publication: Publication<S::Settings>) {
        let Publication { generation, parcel } = publication;
        let sockets = self.inlet.open(parcel);
        let prepared = self.served.prepare(generation, self.connections.service());
        let Some(replica) = prepared else { return };
        let keeps = |key: &Address| {
            // A new socket takes the place of the one before.
            let is_new = sockets.iter().any(|(new, _)| new == key);
            let mut listeners = replica.generation.listeners.iter();
            !is_new && listeners.any(|listener| listener.keys.contains(key))
        };
        self.listeners.close(|key| !keeps(key), &self.served, &mut self.connections);
        self.served.replace(Rc::clone(&replica));
        self.listeners.open(&replica, sockets, self.connections.reactor());
        let limits = &replica.generation.limits;
        self.connections.limit_unfinished_bytes(limits.unfinished_bytes_max);
        let reactor = self.connections.reactor();
        reactor.counters.generation.set(replica.generation.number);
        // With the generation a revocation list may be new.
        self.sweep = self.served.cuts_revoked().then(|| Sweep::new(reactor.now_ms));
    }

    /// Goes on with the sweep, if it is time.
    fn cut_revoked(&mut self) {
        let now_ms = self.connections.reactor().now_ms;
        let is_due = |sweep: &mut Sweep| sweep.due_ms() <= now_ms;
        if let Some(sweep) = self.sweep.take_if(is_due)
            && let Some(current) = self.served.current()
        {
            self.sweep = sweep.go_on(&mut self.connections, current);
        }
    }

    /// Takes the waiting orders, within the limits of a turn for their number and for the time of
    /// hellos. Returns whether some may be left.
    fn take_orders(&mut self) -> bool {
        let is_stopped = self.drain.as_ref().is_some_and(Drain::is_stop);
        let mut until_us = None;
        for _ in 0..if is_stopped { LAST_ORDERS_MAX } else { ORDERS_MAX } {
            match self.connections.service().next_order() {
                Some(Order::Close(id)) => orders::close(&mut self.connections, id),
                Some(Order::Choose(id, chosen)) => {
                    let now_us = || self.connections.reactor().now_us();
                    let until_us = *until_us.get_or_insert_with(|| now_us() + TURN_US);
                    self.choose(id, chosen);
                    if !is_stopped && self.connections.reactor().now_us() >= until_us {
                        return true;
                    }
                }
                Some(Order::Command(id, command)) => {
                    orders::command(&mut self.connections, id, command);
                }
                Some(Order::Visit(from)) => {
                    self.connections.visit(from);
                    return true;
                }
                None => return false,
            }
        }
        true
    }

    fn choose(&mut self, id: ConnectionId, chosen: Chosen) {
        if !orders::is_in(&self.connections, id, Phase::Waiting) {
            return;
        }
        let decision = match chosen {
            Chosen::Context(context) => match self.provided(context) {
                Some(context) => Decision::Context(context),
                None => Decision::Unknown,
            },
            Chosen::Listener => Decision::Listener,
            Chosen::Refuse => Decision::Refuse,
        };
        // Mail may have come between: it can end connections.
        orders::choose(&mut self.connections, id, decision);
    }

    /// The context of this id; the mail that brings it may still lie in the lane's queue.
    fn provided(&mut self, id: ContextId) -> Option<Rc<LaneContext>> {
        let known = self.served.provided(id);
        if known.is_some() {
            return known;
        }
        self.read_mail();
        self.served.provided(id)
    }
}
