//! The end of a lane, in order: stop accepting, let connections finish, cut the rest.

use crate::cause::Cause;
use crate::connection::Connection;
use crate::connection::phase::Phase;
use crate::kernel::Kernel;
use crate::lane::connections::Connections;
use crate::service::{LaneEnd, Service};

/// A lane that accepts no more.
pub(super) struct Drain {
    /// The end of it; 0 is a stop at once.
    until_ms: u64,
    /// When clients end that have not sent a byte, if they have not ended yet.
    silence_until_ms: Option<u64>,
}

/// Connections that move bytes up to this long before the end of a drain are cut with a reset; a
/// quieter one is at rest and gets a clean end. So long a client may take, too, to send its
/// first byte.
const QUIET_MS: u64 = 1_000;

impl Drain {
    /// Begins a drain that takes at most `limit_ms`.
    pub(super) fn begin<S: Service, K: Kernel>(
        limit_ms: u64,
        connections: &mut Connections<S, K>,
    ) -> Self {
        let now_ms = connections.reactor().now_ms;
        // Bytes of a client may still lie in the kernel, as with those accepted just now.
        for slot in connections.slots(Connection::is_silent) {
            if let Some(entry) = connections.in_slot(slot) {
                entry.connection.socket.readable = true;
                connections.drive(slot);
            }
        }
        // A client that has sent nothing loses nothing, unless it was accepted just now.
        let is_late = |connection: &Connection| connection.accepted_ms() + QUIET_MS <= now_ms;
        connections.end_where(Cause::LaneStopped, |each| each.is_silent() && is_late(each));
        Self {
            until_ms: now_ms.saturating_add(limit_ms),
            silence_until_ms: Some(now_ms + QUIET_MS),
        }
    }

    /// A stop at once, also within a drain.
    pub(super) fn stop(before: Option<Self>) -> Self {
        Self { until_ms: 0, silence_until_ms: before.and_then(|drain| drain.silence_until_ms) }
    }

    /// Whether the lane stops at once.
    pub(super) fn is_stop(&self) -> bool {
        self.until_ms == 0
    }

    /// When it has something to do next.
    pub(super) fn due_ms(&self) -> u64 {
        self.silence_until_ms.map_or(self.until_ms, |silence_ms| silence_ms.min(self.until_ms))
    }

    /// Ends the connections whose time has come. Returns the end of the lane, if this was the last.
    pub(super) fn go_on<S: Service, K: Kernel>(
        &mut self,
        connections: &mut Connections<S, K>,
    ) -> Option<LaneEnd> {
        let now_ms = connections.reactor().now_ms;
        // A client that has sent nothing by the end of the drain is not cut, either.
        let is_over = |silence_ms: u64| silence_ms.min(self.until_ms) <= now_ms;
        if self.silence_until_ms.is_some_and(is_over) {
            self.silence_until_ms = None;
            connections.end_where(Cause::LaneStopped, Connection::is_silent);
        }
        if connections.len() == 0 {
            return Some(LaneEnd { cut: 0 });
        }
        if now_ms < self.until_ms {
            return None;
        }
        if self.until_ms > 0 {
            end_quiet(connections);
        }
        let cut = connections.len();
        connections.end_where(Cause::LaneStopped, |_| true);
        Some(LaneEnd { cut })
    }
}

/// Ends connections at rest cleanly; a stream that is still moving must not look complete.
fn end_quiet<S: Service, K: Kernel>(connections: &mut Connections<S, K>) {
    let now_ms = connections.reactor().now_ms;
    for slot in connections.slots(|connection| {
        connection.phase == Phase::Established
            && !connection.has_pending()
            && connection.times.active_ms + QUIET_MS <= now_ms
    }) {
        connections.end_cleanly(slot);
    }
}
