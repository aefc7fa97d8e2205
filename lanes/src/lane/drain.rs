//! The end of a lane, in order: stop accepting, let connections finish, cut what is left.

use crate::cause::Cause;
use crate::connection::link::Link;
use crate::connection::{Connection, Direction, Phase};
use crate::kernel::Kernel;
use crate::lane::{Lane, LaneEnd};
use crate::service::Service;

/// Connections that move bytes up to this long before the end of a drain are cut with a reset; a
/// quieter one is at rest and gets a clean end. So long a client may take, too, to say its first
/// word.
const QUIET_MS: u64 = 1_000;

impl<S: Service, K: Kernel> Lane<S, K> {
    pub(crate) fn begin_drain(&mut self, limit_ms: u64) {
        self.close_listeners(|_| true);
        self.inlet.discard();
        self.drain_until_ms = Some(self.reactor.now_ms.saturating_add(limit_ms));
        self.silence_until_ms = Some(self.reactor.now_ms + QUIET_MS);
        // What a client has said may still lie in the kernel, as with those accepted just now.
        for slot in self.slots(Connection::is_silent) {
            if let Some(entry) = self.entries.get_mut(slot) {
                entry.connection.socket.readable = true;
                self.drive(slot);
            }
        }
        // A client that has not said a word loses nothing, unless it was accepted just now.
        let now_ms = self.reactor.now_ms;
        let is_late = |connection: &Connection| connection.accepted_ms() + QUIET_MS <= now_ms;
        self.end_where(Cause::LaneStopped, |each| each.is_silent() && is_late(each));
    }

    pub(crate) fn end_of_drain(&mut self) -> Option<LaneEnd> {
        let until_ms = self.drain_until_ms?;
        // Whoever has not said a word by the end of the drain is not cut, either.
        let is_over = |silence_ms: u64| silence_ms.min(until_ms) <= self.reactor.now_ms;
        if self.silence_until_ms.is_some_and(is_over) {
            self.silence_until_ms = None;
            self.end_where(Cause::LaneStopped, Connection::is_silent);
        }
        if self.entries.is_empty() {
            return Some(LaneEnd { cut: 0 });
        }
        if self.reactor.now_ms < until_ms {
            return None;
        }
        if until_ms > 0 {
            self.say_goodbye();
        }
        let cut = self.entries.len();
        self.end_where(Cause::LaneStopped, |_| true);
        Some(LaneEnd { cut })
    }

    /// Ends connections at rest cleanly; a stream that is still moving must not look complete.
    fn say_goodbye(&mut self) {
        let now_ms = self.reactor.now_ms;
        for slot in self.slots(|connection| {
            connection.phase == Phase::Established
                && !connection.has_pending()
                && connection.active_ms + QUIET_MS <= now_ms
        }) {
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            let mut link = Link {
                reactor: &mut self.reactor,
                outbox: &mut self.buffers.outbox,
                connection: &mut entry.connection,
            };
            let told = link.connection.inward != Direction::Open || link.end_attached().is_ok();
            let open = link.connection.outward == Direction::Open;
            if told && (!open || link.finish(&[]).is_ok()) {
                self.end(slot, Cause::Clean);
            }
            self.buffers.recover();
        }
    }

    fn end_where(&mut self, cause: Cause, ends: impl Fn(&Connection) -> bool) {
        for slot in self.slots(ends) {
            self.end(slot, cause);
        }
    }

    fn slots(&self, chosen: impl Fn(&Connection) -> bool) -> Vec<usize> {
        let chosen = self.entries.iter().filter(|(_, entry)| chosen(&entry.connection));
        chosen.map(|(slot, _)| slot).collect()
    }
}
