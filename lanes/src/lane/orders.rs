//! Orders: what another thread decides about a lane's connections, by way of its service.
//!
//! The lane takes them after the events of a turn, so that an order finds its connection as the
//! service last saw it. One for a connection that is gone, or has no service any more, is dropped.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use sealane_engine::context::{ContextId, LaneContext};

use crate::cause::Cause;
use crate::connection::Phase;
use crate::connection::token::Token;
use crate::kernel::Kernel;
use crate::lane::admission::TURN_US;
use crate::lane::{Entry, Lane};
use crate::service::Service;
use crate::turn::client_hello::Decision;

/// What a service wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order<C> {
    /// Resets the connection, however far it has come, and its backend's; it ends as
    /// [`Cause::ServiceReset`].
    Close(ConnectionId),
    /// Answers [`Choice::Wait`]; without a hello that waits it is dropped.
    Choose(ConnectionId, Chosen),
    /// Calls the service's `command` for an established connection.
    Command(ConnectionId, C),
    /// Shows the service the open connections of [`VISITS_MAX`] slots, from this one on. It is the
    /// last order of its turn.
    Visit(usize),
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
    /// [`Mail::Provide`]: crate::shared::mailbox::Mail::Provide
    Context(ContextId),
    /// The listener's own certificate, as with [`Choice::Listener`].
    Listener,
    /// None: the client gets the fatal alert `unrecognized_name`.
    Refuse,
}

/// An open connection, as it is shown to a service that asks.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// By which orders name it.
    pub id: ConnectionId,
    /// From accept until now.
    pub age_ms: u64,
    /// Plaintext bytes sent to the client.
    pub sent_bytes: u64,
    /// The client's address, if the kernel told, or the preamble.
    pub client: Option<SocketAddr>,
    /// Plaintext bytes received from the client.
    pub received_bytes: u64,
    /// Whether its handshake is complete, or there is none.
    pub is_established: bool,
    /// The server name that the client asked for.
    pub server_name: Option<&'a str>,
}

/// Slots of connections that are looked at by one [`Order::Visit`].
pub const VISITS_MAX: usize = 1024;
/// Orders that are taken in one turn; what is left waits for the next one.
pub const ORDERS_MAX: usize = 1024;
/// Orders that are taken at most when the lane is stopped at once.
const LAST_ORDERS_MAX: usize = 64 * ORDERS_MAX;

impl<S: Service, K: Kernel> Lane<S, K> {
    /// Takes the waiting orders, within the limits of a turn for their number and for the time of
    /// hellos. Returns whether some may be left.
    pub(crate) fn take_orders(&mut self) -> bool {
        let is_stopped = self.drain_until_ms == Some(0);
        let mut until_us = None;
        for _ in 0..if is_stopped { LAST_ORDERS_MAX } else { ORDERS_MAX } {
            match self.service.next_order() {
                Some(Order::Close(id)) => self.close(id),
                Some(Order::Choose(id, chosen)) => {
                    let until_us = *until_us.get_or_insert_with(|| self.reactor.now_us() + TURN_US);
                    self.choose(id, chosen);
                    if !is_stopped && self.reactor.now_us() >= until_us {
                        return true;
                    }
                }
                Some(Order::Command(id, command)) => self.command(id, command),
                Some(Order::Visit(from)) => {
                    self.visit(from);
                    return true;
                }
                None => return false,
            }
        }
        true
    }

    fn close(&mut self, id: ConnectionId) {
        let Some(entry) = self.named(id) else { return };
        let cause = match entry.connection.phase {
            // It has had its last message already.
            Phase::Lingering { cause, .. } => cause,
            _ => Cause::ServiceReset,
        };
        self.end(id.slot(), cause);
    }

    fn visit(&mut self, from: usize) {
        let last = self.entries.capacity();
        let Self { service, entries, reactor, .. } = self;
        for slot in from..last.min(from.saturating_add(VISITS_MAX)) {
            let Some(entry) = entries.get(slot) else { continue };
            let connection = &entry.connection;
            let seen = Seen {
                id: ConnectionId(connection.token),
                age_ms: reactor.now_ms.saturating_sub(connection.accepted_ms()),
                sent_bytes: connection.sent_bytes,
                client: connection.address,
                received_bytes: connection.received_bytes,
                is_established: !connection.is_handshaking(),
                server_name: connection.server_name.as_deref(),
            };
            let settings = &entry.generation.listener(entry.listener).settings;
            service.seen(entry.state.as_ref(), settings, &seen);
        }
        let next = from.saturating_add(VISITS_MAX);
        service.visited((next < last).then_some(next));
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
    use crate::connection::token::SLOTS_MAX;

    #[test]
    fn an_id_is_two_words_of_32_bits() {
        let last = Token::connection(SLOTS_MAX - 1, u32::MAX);
        let id = ConnectionId(last.bits());
        assert_eq!((id.slot(), id.bits() >> 32), (SLOTS_MAX - 1, u32::MAX.into()));
        assert_eq!(id.bits() & u64::from(u32::MAX), SLOTS_MAX as u64 - 1);
        assert_eq!(ConnectionId::from_bits(id.bits()), id);
    }
}
