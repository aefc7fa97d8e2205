//! The handshakes of a lane: the work on them in a turn, and how many may be in flight.

use std::collections::VecDeque;

use crate::cause::Cause;
use crate::connection::phase::Phase;
use crate::connection::token::{ConnectionId, Source, Token};
use crate::kernel::Kernel;
use crate::lane::admission::{Admission, handshakes_us};
use crate::lane::connections::Connections;
use crate::lane::fair_queue::Place;
use crate::lane::standing::Host;
use crate::service::Service;

/// The order in which handshakes in flight began.
pub(super) struct Handshakes {
    /// Oldest first; some have moved on.
    order: VecDeque<u64>,
}

/// Ended handshakes that may stand behind a slow one.
const STALE_HANDSHAKES_MAX: usize = 16_384;

impl Handshakes {
    pub(super) fn new() -> Self {
        Self { order: VecDeque::new() }
    }

    /// Adds the connection of `bits`, and resets the oldest handshake in flight while there are
    /// more than `handshakes_max`.
    pub(super) fn add<S: Service, K: Kernel>(
        &mut self,
        bits: u64,
        handshakes_max: usize,
        connections: &mut Connections<S, K>,
    ) {
        self.order.push_back(bits);
        if self.order.len() > handshakes_max.saturating_add(STALE_HANDSHAKES_MAX) {
            self.order.retain(|bits| connections.is_handshaking(*bits));
        }
        while let Some(&bits) = self.order.front() {
            let token = Token::from_bits(bits);
            let Source::Connection { slot, .. } = token.source() else { return };
            let in_flight = connections.is_handshaking(bits);
            let count = connections.reactor().counters.handshaking.value();
            if in_flight && count <= handshakes_max as u64 {
                return;
            }
            self.order.pop_front();
            if in_flight {
                connections.end(slot, Cause::LimitHandshakes);
            }
        }
    }
}

/// Works on handshakes for [`handshakes_us`]. A single one is not timed.
pub(super) fn run<S: Service, K: Kernel>(connections: &mut Connections<S, K>) {
    let has_waited = connections.reactor().counters.hellos_waiting.value() > 0;
    if connections.admission().len() > 1 || has_waited {
        line_up(connections);
        run_timed(connections);
        connections.report_waiting();
    } else if let Some(next) = connections.admission().next()
        && let Some(slot) = take(connections, next.bits)
    {
        connections.drive(slot);
    }
}

/// Gives the hellos that came since the last turn their places, and lets those give way that are
/// too many.
fn line_up<S: Service, K: Kernel>(connections: &mut Connections<S, K>) {
    let now_ms = connections.reactor().now_ms;
    while let Some(bits) = connections.admission().arrival() {
        let slot = Token::from_bits(bits).slot();
        let Some(host) = connections.waiting(bits).map(|waiting| Host::of(waiting.address)) else {
            continue;
        };
        let is_behind = connections.admission().is_behind();
        let offers_session = is_behind && connections.offers_session(slot);
        let place = connections.admission().place(host, offers_session, now_ms);
        connections.admission().line_up(bits, place, now_ms);
    }
    connections.drop_gone_hellos();
    while let Some(gone) = connections.admission().evict() {
        if let Some(slot) = take(connections, gone.bits) {
            connections.end(slot, Cause::LimitHandshakeQueue);
        }
    }
}

fn run_timed<S: Service, K: Kernel>(connections: &mut Connections<S, K>) {
    let mut now_us = connections.reactor().now_us();
    let established_us = now_us.saturating_sub(connections.reactor().now_ms * 1_000);
    let until_us = now_us + handshakes_us(established_us);
    while let Some(next) = connections.admission().next() {
        let Some(slot) = take(connections, next.bits) else { continue };
        match next.waited {
            Some((_, since_ms)) if Admission::is_late(since_ms, connections.reactor().now_ms) => {
                connections.end(slot, Cause::LimitHandshakeWait);
                now_us = connections.reactor().now_us();
            }
            Some((place, _)) => {
                connections.drive(slot);
                let began_us = std::mem::replace(&mut now_us, connections.reactor().now_us());
                note_hello(connections, next.bits, place, now_us - began_us);
            }
            None => {
                connections.drive(slot);
                now_us = connections.reactor().now_us();
            }
        }
        if now_us >= until_us {
            return;
        }
    }
}

/// Notes the cost of a hello, and its client, if a session has begun and waits for it now.
fn note_hello<S: Service, K: Kernel>(
    connections: &mut Connections<S, K>,
    bits: u64,
    place: Place,
    cost_us: u64,
) {
    let now_ms = connections.reactor().now_ms;
    let connection = connections.named(ConnectionId::from_bits(bits));
    let answered = connection
        .filter(|connection| connection.phase == Phase::Handshake && !connection.awaits_hello())
        .map(|connection| Host::of(connection.address));
    connections.admission().note_hello(place, cost_us, answered, now_ms);
}

/// The slot of a connection that still waits, and that from now on does not.
fn take<S: Service, K: Kernel>(connections: &mut Connections<S, K>, bits: u64) -> Option<usize> {
    let waiting = connections.waiting(bits)?;
    waiting.queued = false;
    Some(Token::from_bits(bits).slot())
}
