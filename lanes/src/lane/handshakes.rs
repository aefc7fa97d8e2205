//! The handshakes of a lane: the work on them in a turn, and how many may be in flight.

use std::collections::VecDeque;

use crate::cause::Cause;
use crate::connection::token::{Source, Token};
use crate::kernel::Kernel;
use crate::lane::admission::handshakes_us;
use crate::lane::connections::Connections;
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
    let waiting = connections.admission().len();
    if waiting > 1 {
        return run_timed(connections, waiting);
    }
    if let Some(slot) = next(connections) {
        connections.drive(slot);
    }
}

fn run_timed<S: Service, K: Kernel>(connections: &mut Connections<S, K>, waiting: usize) {
    let mut now_us = connections.reactor().now_us();
    let established_us = now_us.saturating_sub(connections.reactor().now_ms * 1_000);
    let until_us = now_us + handshakes_us(established_us);
    for _ in 0..waiting {
        let Some(slot) = next(connections) else { return };
        connections.drive(slot);
        let began_us = std::mem::replace(&mut now_us, connections.reactor().now_us());
        connections.admission().note_cost(now_us - began_us);
        if now_us >= until_us {
            return;
        }
    }
}

/// The next connection that is still there and has not been served in another way.
fn next<S: Service, K: Kernel>(connections: &mut Connections<S, K>) -> Option<usize> {
    loop {
        let token = Token::from_bits(connections.admission().next()?);
        if let Source::Connection { slot, .. } = token.source()
            && let Some(entry) = connections.entry(slot, token)
            && std::mem::take(&mut entry.connection.queued)
        {
            return Some(slot);
        }
    }
}
