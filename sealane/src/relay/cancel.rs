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
    /// Whether it came without TLS, so that no server name leads to one route.
    is_clear: bool,
}

/// Backends that one request is sent to, one after the other.
const ASKED_MAX: usize = 64;

impl CancelRequest {
    pub(super) fn new(bytes: &[u8], is_clear: bool) -> Self {
        Self { bytes: bytes.into(), sent: 0, asked: 0, is_clear }
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
        while self.relayed.cancel().is_some_and(|request| request.asked < ASKED_MAX) {
            if self.connect().is_ok() {
                return Ok(());
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
