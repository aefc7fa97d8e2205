//! The deadlines of a connection: which comes first, and the end that it brings.

use std::time::Duration;

use sealane_engine::session::Session;

use crate::cause::Cause;
use crate::connection::phase::{Direction, Phase};
use crate::kernel::Kernel;
use crate::reactor::to_ms;
use crate::service::Service;
use crate::shared::timeouts::Timeouts;
use crate::turn::Turn;

impl<S: Service, K: Kernel> Turn<'_, S, K> {
    /// Acts on the deadlines that have passed and arms the next one.
    ///
    /// # Errors
    /// The cause that ends the connection.
    pub(crate) fn keep_deadlines(&mut self) -> Result<(), Cause> {
        self.check_deadlines()?;
        self.finished()
    }

    /// Arms the connection's own deadline.
    pub(crate) fn arm_deadline(&mut self) {
        let (due_ms, _) = self.own_deadline();
        self.link().arm(due_ms);
    }

    fn check_deadlines(&mut self) -> Result<(), Cause> {
        let now_ms = self.reactor.now_ms;
        if self.entry.connection.times.tickets_due_ms <= now_ms {
            self.release_tickets()?;
        }
        if self.entry.connection.times.service_due_ms <= now_ms {
            self.entry.connection.times.service_due_ms = u64::MAX;
            self.with_state(|service, state, link, settings| {
                service.deadline(state, link, settings)
            })?;
        }
        let (due_ms, cause) = self.own_deadline();
        if due_ms <= now_ms {
            return if cause == Cause::LimitAge { self.end_of_age() } else { Err(cause) };
        }
        let connection = &self.entry.connection;
        let next_ms = connection.times.service_due_ms.min(due_ms);
        self.link().arm(next_ms);
        Ok(())
    }

    /// Ends a connection that is as old as it may be: the client gets close_notify. The attached
    /// socket's peer sees a reset, because the rest of the client's stream does not come.
    fn end_of_age(&mut self) -> Result<(), Cause> {
        let connection = &mut self.entry.connection;
        // Without TLS a FIN would say that nothing is missing.
        let Some(session) = connection.tls.session_mut() else { return Err(Cause::LimitAge) };
        if connection.outward == Direction::Open {
            let closed = session.close(&mut self.buffers.outbox.wire);
            closed.map_err(|error| Cause::of_session(&error, true))?;
        }
        self.link().linger(Cause::LimitAge)
    }

    /// The first deadline of this connection, and the cause that it ends with.
    pub(crate) fn own_deadline(&self) -> (u64, Cause) {
        let connection = &self.entry.connection;
        let listener = self.entry.generation.listener(self.entry.listener);
        let preamble = listener.preamble.unwrap_or(Duration::MAX);
        let handshake = self.timeouts().handshake;
        let since_accept = |timeout| connection.accepted_ms().saturating_add(to_ms(timeout));
        match connection.phase {
            Phase::Established => self.deadline_when_established(),
            Phase::Preamble if preamble < handshake => {
                (since_accept(preamble), Cause::PreambleTimeout)
            }
            Phase::Handshake | Phase::Hello | Phase::Preamble | Phase::Waiting => {
                (since_accept(handshake), Cause::HandshakeTimeout)
            }
            Phase::Lingering { cause, until_ms, .. } => (until_ms, cause),
        }
    }

    fn timeouts(&self) -> Timeouts {
        self.entry.generation.listener(self.entry.listener).timeouts
    }

    fn deadline_when_established(&self) -> (u64, Cause) {
        let connection = &self.entry.connection;
        let timeouts = self.timeouts();
        // A peer that is not read from is not silent: its clock starts when it is read again.
        let since = |waits: bool, heard_ms| if waits { self.reactor.now_ms } else { heard_ms };
        let waits = connection.untaken.is_some() || connection.attached_has_pending();
        let client_ms = since(waits, connection.times.client_ms);
        let backend_ms = since(connection.outgoing.is_some(), connection.times.backend_ms);
        let client = timeouts.client.filter(|_| connection.inward == Direction::Open);
        let backend = timeouts.backend.filter(|_| connection.outward == Direction::Open);
        let half_closed = connection.is_half_closed().then_some(timeouts.half_closed);
        let age = self.entry.generation.generation.limits.connection_age_max;
        let mut first = (u64::MAX, Cause::Idle);
        for (since_ms, timeout, cause) in [
            (connection.times.active_ms, Some(timeouts.idle), Cause::Idle),
            (connection.times.active_ms, half_closed, Cause::HalfClosed),
            (client_ms, client, Cause::ClientTimeout),
            (backend_ms, backend, Cause::BackendTimeout),
            (connection.accepted_ms(), age, Cause::LimitAge),
        ] {
            let due_ms = since_ms.saturating_add(timeout.map_or(u64::MAX, to_ms));
            if due_ms < first.0 {
                first = (due_ms, cause);
            }
        }
        first
    }

    /// The first response has taken too long for the tickets: they leave alone.
    fn release_tickets(&mut self) -> Result<(), Cause> {
        let connection = &mut self.entry.connection;
        connection.times.tickets_due_ms = u64::MAX;
        if let Some(session) = connection.tls.session_mut() {
            session.release_held(&mut self.buffers.outbox.wire);
        }
        self.link().transmit()
    }
}
