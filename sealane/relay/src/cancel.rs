//! Requests to cancel a query of PostgreSQL: each backend gets them, because only the server that
//! has the query knows its key. The others take no notice.

use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;

use super::turn::RelayTurn;

/// A request to cancel a query, and how far it has come.
pub(super) struct CancelRequest {
    bytes: Box<[u8]>,
    /// Bytes that the backend has which is asked now.
    sent: usize,
    /// Backends that were asked.
    asked: usize,
    /// Connections that were tried.
    attempts: usize,
    /// When no other connection is tried, in milliseconds of the lane; none after the first alone.
    until_ms: Option<u64>,
    /// Whether it came without TLS, so that no server name leads to one route.
    is_clear: bool,
}

/// Connections that are tried for one request, one after the other.
const ATTEMPTS_MAX: usize = 64;

/// How long backends are tried for one request after the first, in milliseconds. Each that does
/// not answer takes one or two connect timeouts of it.
const ATTEMPTS_MS_MAX: u64 = 30_000;

/// The requests that a lane forwards: each costs it up to [`ATTEMPTS_MAX`] connections, and clients
/// need no certificate to send one.
#[derive(Default)]
pub(super) struct CancelBudget {
    second: u64,
    taken: u32,
}

/// Requests that a lane forwards in a second; it drops the others.
const CANCELS_PER_SECOND_MAX: u32 = 20;

impl CancelBudget {
    /// Counts a request, if it may be forwarded.
    pub(super) fn take(&mut self, now_ms: u64) -> bool {
        let second = now_ms / 1_000;
        if self.second != second {
            *self = Self { second, taken: 0 };
        }
        let is_left = self.taken < CANCELS_PER_SECOND_MAX;
        self.taken += u32::from(is_left);
        is_left
    }
}

impl CancelRequest {
    pub(super) fn new(bytes: &[u8], is_clear: bool) -> Self {
        Self { bytes: bytes.into(), sent: 0, asked: 0, attempts: 0, until_ms: None, is_clear }
    }

    /// Counts another connection to a backend, if there may be one.
    fn take_attempt(&mut self, now_ms: u64) -> bool {
        let until_ms = *self.until_ms.get_or_insert(now_ms.saturating_add(ATTEMPTS_MS_MAX));
        let is_left = self.attempts < ATTEMPTS_MAX && now_ms < until_ms;
        self.attempts += usize::from(is_left);
        is_left
    }

    /// Begins with another backend.
    pub(super) fn restart(&mut self) {
        self.sent = 0;
        self.asked += 1;
    }
}

impl<K: Kernel> RelayTurn<'_, '_, K> {
    /// Sends the rest of the request to the backend, which then gets the time of a connect to end.
    pub(super) fn send_cancel(&mut self) -> Result<(), Cause> {
        let Some(request) = self.relayed.cancel() else { return Ok(()) };
        let (rest, asked) = (request.bytes[request.sent..].to_vec(), request.asked);
        if rest.is_empty() {
            return Ok(());
        }
        let taken = self.send(&rest)?;
        if let Some(request) = self.relayed.cancel_mut().filter(|request| request.asked == asked) {
            request.sent += taken;
            if taken == rest.len() {
                self.link.set_deadline(self.settings.connect_timeout);
            }
        }
        Ok(())
    }

    /// Goes on to the next backend; the client's connection ends when there is none.
    pub(super) fn cancel_at_next(&mut self) -> Result<(), Cause> {
        if let Some(index) = self.relayed.backend.take().map(usize::from) {
            self.destination.of_lane(index, self.lane).active.subtract(1);
        }
        self.link.detach();
        let now_ms = self.link.now_ms();
        while self.relayed.cancel_mut().is_some_and(|request| request.take_attempt(now_ms)) {
            match self.connect() {
                Ok(()) => return Ok(()),
                Err(Cause::LimitDescriptors) => return Err(Cause::LimitDescriptors),
                Err(_) => {}
            }
            if !self.has_next_destination() {
                break;
            }
        }
        self.link.clear_deadline();
        self.link.finish(&[])
    }

    fn has_next_destination(&mut self) -> bool {
        let next = self.relayed.destination.saturating_add(1);
        let index = usize::try_from(next).unwrap_or(usize::MAX);
        let is_clear = self.relayed.cancel().is_some_and(|request| request.is_clear);
        let Some(destination) = self.settings.destinations.get(index).filter(|_| is_clear) else {
            return false;
        };
        (self.destination, self.relayed.destination, self.relayed.tried) = (destination, next, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_second_are_bounded() {
        let mut budget = CancelBudget::default();
        let taken =
            |budget: &mut CancelBudget, now_ms| (0..100).filter(|_| budget.take(now_ms)).count();
        assert_eq!(taken(&mut budget, 5_000), 20);
        assert_eq!(taken(&mut budget, 5_999), 0);
        assert_eq!(taken(&mut budget, 6_000), 20);
        let mut request = CancelRequest::new(b"", true);
        assert_eq!((0..100).filter(|_| request.take_attempt(5_000)).count(), 64);
        let mut request = CancelRequest::new(b"", true);
        let taken = [5_000, 34_999, 35_000].map(|now_ms| request.take_attempt(now_ms));
        assert_eq!(taken, [true, true, false]);
    }
}
