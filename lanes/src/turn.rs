//! A connection's turn: what it borrows from its lane, each part apart from the others, and what of
//! that its service is lent.

pub(crate) mod client_hello;
mod deadlines;
mod plain;
mod progress;

use std::rc::Rc;

use sealane_engine::buffer::Buffer;

use crate::cause::Cause;
use crate::connection::Connection;
use crate::connection::buffers::Buffers;
use crate::connection::link::Link;
use crate::kernel::Kernel;
use crate::reactor::Reactor;
use crate::replica::LaneGeneration;
use crate::service::Service;

/// One connection, with what it borrows from its lane for a turn.
pub(crate) struct Turn<'a, S: Service, K: Kernel> {
    pub(crate) reactor: &'a mut Reactor<K>,
    pub(crate) buffers: &'a mut Buffers,
    pub(crate) service: &'a mut S,
    pub(crate) entry: &'a mut Entry<S>,
}

/// A connection with its generation and what the service keeps for it.
pub(crate) struct Entry<S: Service> {
    pub(crate) connection: Connection,
    pub(crate) generation: Rc<LaneGeneration<S::Settings>>,
    /// The listener's position in the generation.
    pub(crate) listener: usize,
    pub(crate) state: Option<S::Connection>,
}

/// The service, and what it is lent for a call about the connection.
pub(crate) struct Call<'a, S: Service, K: Kernel> {
    pub(crate) service: &'a mut S,
    pub(crate) state: &'a mut S::Connection,
    pub(crate) link: Link<'a, K>,
    pub(crate) received: &'a mut Buffer,
    pub(crate) plain: &'a mut Buffer,
    pub(crate) settings: &'a S::Settings,
}

impl<S: Service, K: Kernel> Turn<'_, S, K> {
    pub(crate) fn link(&mut self) -> Link<'_, K> {
        let outbox = &mut self.buffers.outbox;
        Link { reactor: self.reactor, outbox, connection: &mut self.entry.connection }
    }

    /// Calls the service, if the connection has got as far as having one.
    pub(crate) fn with_state(
        &mut self,
        call: impl FnOnce(
            &mut S,
            &mut S::Connection,
            &mut Link<'_, K>,
            &S::Settings,
        ) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        let Some(lent) = self.call() else { return Ok(()) };
        let Call { service, state, mut link, settings, .. } = lent;
        call(service, state, &mut link, settings)
    }

    /// Lends the service what it needs for a call, if the connection has got as far as having one.
    pub(crate) fn call(&mut self) -> Option<Call<'_, S, K>> {
        let Entry { connection, generation, listener, state } = &mut *self.entry;
        let Buffers { received, plain, outbox } = &mut *self.buffers;
        Some(Call {
            service: self.service,
            state: state.as_mut()?,
            link: Link { reactor: self.reactor, outbox, connection },
            received,
            plain,
            settings: &generation.listener(*listener).settings,
        })
    }
}
