//! Orders of another thread, carried out on the connections that they name.

use crate::cause::Cause;
use crate::connection::phase::Phase;
use crate::connection::token::ConnectionId;
use crate::kernel::Kernel;
use crate::lane::connections::Connections;
use crate::service::Service;
use crate::shared::orders::ORDERS_MAX;
use crate::turn::client_hello::Decision;

/// Orders that are taken at most when the lane is stopped at once.
pub(super) const LAST_ORDERS_MAX: usize = 64 * ORDERS_MAX;

/// Resets a connection.
pub(super) fn close<S: Service, K: Kernel>(connections: &mut Connections<S, K>, id: ConnectionId) {
    let Some(connection) = connections.named(id) else { return };
    let cause = match connection.phase {
        // It has had its last message already.
        Phase::Lingering { cause, .. } => cause,
        _ => Cause::ServiceReset,
    };
    connections.end(id.slot(), cause);
}

/// Calls the service's `command` for an established connection.
pub(super) fn command<S: Service, K: Kernel>(
    connections: &mut Connections<S, K>,
    id: ConnectionId,
    command: S::Command,
) {
    if !is_in(connections, id, Phase::Established) {
        return;
    }
    connections.run(id.slot(), |mut turn| {
        turn.with_state(|service, state, link, settings| {
            service.command(state, link, command, settings)
        })?;
        turn.offer_untaken()?;
        turn.finished()
    });
}

/// Answers a hello that waits.
pub(super) fn choose<S: Service, K: Kernel>(
    connections: &mut Connections<S, K>,
    id: ConnectionId,
    decision: Decision,
) {
    if connections.named(id).is_some() {
        connections.run(id.slot(), |mut turn| turn.answer_hello(decision));
    }
}

/// Whether the connection is still there and in this phase.
pub(super) fn is_in<S: Service, K: Kernel>(
    connections: &Connections<S, K>,
    id: ConnectionId,
    phase: Phase,
) -> bool {
    connections.named(id).is_some_and(|connection| connection.phase == phase)
}
