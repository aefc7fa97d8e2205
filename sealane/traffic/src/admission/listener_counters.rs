//! What lanes count of a listener.

use std::sync::Arc;

use sealane_engine::session::ServerSession;
use sealane_lanes::cause::{Blame, Cause};
use sealane_lanes::counters::Counter;

/// What lanes count of a listener; kept across generations.
#[derive(Clone, Default)]
pub struct ListenerCounters {
    /// Tells it from others in tables of lanes; counted from 1, the same in every generation.
    pub number: u32,
    /// By lane.
    pub lanes: Vec<Arc<LaneListenerCounters>>,
}

impl ListenerCounters {
    /// Those of the listener that has this number, with nothing counted yet by any of `lanes`.
    pub fn new(number: u32, lanes: usize) -> Self {
        Self { number, lanes: (0..lanes).map(|_| Arc::default()).collect() }
    }
}

/// What one lane counts of one listener.
#[derive(Default)]
#[repr(align(128))]
pub struct LaneListenerCounters {
    /// Connections that came, but for those beyond the lane's own limit, which belong to no
    /// listener.
    pub accepted: Counter,
    /// Connections that were let in and are open.
    pub open: Counter,
    /// Completed handshakes that resumed no session.
    pub full_handshakes: Counter,
    /// Completed handshakes that resumed a session.
    pub resumed_handshakes: Counter,
    /// Plaintext received from clients whose connections have ended.
    pub received_bytes: Counter,
    /// Plaintext sent to clients whose connections have ended.
    pub sent_bytes: Counter,
    ends: [Counter; Blame::ALL.len()],
}

impl LaneListenerCounters {
    /// How many connections somebody brought to their end.
    pub fn ended(&self, blame: Blame) -> &Counter {
        &self.ends[blame as usize]
    }

    /// Counts the end of a connection.
    pub fn note_ended(&self, cause: Cause) {
        self.ended(cause.blame()).add(1);
    }

    /// Counts a completed handshake.
    pub fn note_handshake(&self, session: &ServerSession) {
        match session.resumed() {
            true => self.resumed_handshakes.add(1),
            false => self.full_handshakes.add(1),
        }
    }
}
