//! Orders: what another thread decides about a lane's connections, by way of its service.
//!
//! The lane takes them after the events of a turn, so that an order finds its connection as the
//! service last saw it. One for a connection that is gone, or has no service any more, is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use sealane_engine::context::{ContextId, LaneContext};

use crate::connection::Phase;
use crate::hellos::Decision;
use crate::kernel::Kernel;
use crate::lane::{Entry, Lane};
use crate::service::Service;
use crate::token::Token;

/// What a service wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order<C> {
    /// Answers [`Choice::Wait`]; without a hello that waits it is dropped.
    Choose(ConnectionId, Chosen),
    /// Calls the service's `command` for an established connection.
    Command(ConnectionId, C),
}

/// Names a connection of one lane, also after its end: the next one in its place has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) u64);

impl ConnectionId {
    /// The slot in the low 32 bits, and the generation of the slot in the others.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The id of these bits. One that was never given out names no connection.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn slot(self) -> usize {
        Token::from_bits(self.0).slot()
    }
}

/// Who decides under which context a client is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The listener: by the server name among its named contexts, else its own.
    Listener,
    /// An [`Order::Choose`] that is still to come.
    Wait,
}

/// The answer to a hello that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The context of this id, which [`Mail::Provide`] has brought. If none has, the client is
    /// refused, and the connection ends as [`crate::cause::Cause::Internal`].
    ///
    /// [`Mail::Provide`]: crate::mailbox::Mail::Provide
    Context(ContextId),
    /// The listener's own certificate, as with [`Choice::Listener`].
    Listener,
    /// None: the client gets the fatal alert `unrecognized_name`.
    Refuse,
}

/// Orders that are taken in one turn; what is left waits for the next one.
pub const ORDERS_MAX: usize = 1024;
/// Orders that are taken at most when the lane is stopped at once.
const LAST_ORDERS_MAX: usize = 64 * ORDERS_MAX;

impl<S: Service, K: Kernel> Lane<S, K> {
    /// Takes the orders that are there, at most so many; returns whether some may be left.
    pub(crate) fn take_orders(&mut self) -> bool {
        let is_stopped = self.drain_until_ms == Some(0);
        for _ in 0..if is_stopped { LAST_ORDERS_MAX } else { ORDERS_MAX } {
            match self.service.next_order() {
                Some(Order::Choose(id, chosen)) => self.choose(id, chosen),
                Some(Order::Command(id, command)) => self.command(id, command),
                None => return false,
            }
        }
        true
    }

    fn command(&mut self, id: ConnectionId, command: S::Command) {
        if self.named(id).is_none_or(|entry| entry.connection.phase != Phase::Established) {
            return;
        }
        let slot = id.slot();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let Some(mut turn) = self.turn(slot) else { return Ok(()) };
            turn.with_state(|service, state, link, settings| {
                service.command(state, link, command, settings)
            })?;
            turn.offer_untaken()?;
            turn.finished()
        }));
        self.conclude(slot, &outcome);
    }

    fn choose(&mut self, id: ConnectionId, chosen: Chosen) {
        if self.named(id).is_none_or(|entry| entry.connection.phase != Phase::Waiting) {
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
        if self.named(id).is_none() {
            return;
        }
        let slot = id.slot();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.turn(slot).map_or(Ok(()), |mut turn| turn.answer_hello(decision))
        }));
        self.conclude(slot, &outcome);
    }

    fn named(&self, id: ConnectionId) -> Option<&Entry<S>> {
        let entry = self.entries.get(id.slot())?;
        (entry.connection.token == id.0).then_some(&**entry)
    }

    /// The context of this id; the mail that brings it may still lie in the lane's queue.
    fn provided(&mut self, id: ContextId) -> Option<Rc<LaneContext>> {
        if self.replicas.provided(id).is_none() {
            self.read_mail();
        }
        self.replicas.provided(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::SLOTS_MAX;

    #[test]
    fn an_id_is_two_words_of_32_bits() {
        let last = Token::connection(SLOTS_MAX - 1, u32::MAX);
        let id = ConnectionId(last.bits());
        assert_eq!((id.slot(), id.bits() >> 32), (SLOTS_MAX - 1, u32::MAX.into()));
        assert_eq!(id.bits() & u64::from(u32::MAX), SLOTS_MAX as u64 - 1);
        assert_eq!(ConnectionId::from_bits(id.bits()), id);
    }
}
