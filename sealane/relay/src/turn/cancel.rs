//! A request to cancel a query, on its way from backend to backend.

use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;

use super::RelayTurn;

impl<K: Kernel> RelayTurn<'_, '_, K> {
    /// Sends the rest of the request to the backend, which then gets the time of a connect to end.
    pub(crate) fn send_cancel(&mut self) -> Result<(), Cause> {
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
    pub(crate) fn cancel_at_next(&mut self) -> Result<(), Cause> {
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
