//! The generation that a lane serves, made its own, with the resources that its contexts share.

use std::rc::Rc;
use std::sync::Arc;

use sealane_engine::context::{Context, ContextId, LaneContext, LaneResources};
use sealane_engine::provider::SelfTests;
use sealane_engine::tickets::{TicketRoot, UnixSeconds};

use crate::replica::LaneGeneration;
use crate::replica::contexts::{ListenerContexts, Replicas};
use crate::service::Service;
use crate::shared::counters::Counters;
use crate::shared::generation::Generation;

/// The generation that a lane serves: none before the first.
pub(super) struct Served<T> {
    current: Option<Rc<LaneGeneration<T>>>,
    resources: LaneResources,
    replicas: Replicas,
}

impl<T> Served<T> {
    pub(super) fn new(resources: LaneResources) -> Self {
        Self { current: None, resources, replicas: Replicas::new() }
    }

    pub(super) fn current(&self) -> Option<&Rc<LaneGeneration<T>>> {
        self.current.as_ref()
    }

    /// A replica of `generation` that the lane and its service can serve.
    pub(super) fn prepare<S: Service<Settings = T>>(
        &mut self,
        generation: Arc<Generation<T>>,
        service: &mut S,
    ) -> Option<Rc<LaneGeneration<T>>> {
        // The control plane has materialised it before, so this fails only for want of memory or
        // random bytes; the lane then goes on with the one before, and the gauge shows it.
        let made = LaneGeneration::materialise(generation, &mut self.replicas, &self.resources);
        let replica = made.ok()?;
        if self.current.is_none() && !replica.warm_up(&mut SelfTests::default()) {
            return None;
        }
        let is_ready = service.prepare(&replica.generation, &self.resources.clock);
        is_ready.then(|| Rc::new(replica))
    }

    /// Serves `replica` from now on.
    pub(super) fn replace(&mut self, replica: Rc<LaneGeneration<T>>) {
        self.current = Some(replica);
        self.settle();
    }

    /// Lets keys go whose certificates no context has that is served now.
    fn settle(&mut self) {
        let listeners = self.current.as_ref().map(|current| current.all_contexts());
        self.replicas.settle(listeners.unwrap_or_default(), &self.resources);
    }

    /// Sets the clock of tickets and certificates, once per turn.
    pub(super) fn set_time(&mut self, now: UnixSeconds) {
        if self.replicas.is_unsettled && self.resources.clock.now() != Some(now) {
            self.settle();
        }
        // An error means that the clock and the ticket root contradict each other: the lane then
        // issues no tickets, and the control plane, which sees the same, reports it.
        let _ = self.resources.tell_time(now);
    }

    pub(super) fn replace_tickets(&self, root: TicketRoot) {
        self.resources.tickets.replace(root);
    }

    pub(super) fn provide(&mut self, context: &Arc<Context>) {
        self.replicas.provide(context, &self.resources);
    }

    pub(super) fn withdraw(&mut self, id: ContextId) {
        self.replicas.withdraw(id);
    }

    pub(super) fn provided(&self, id: ContextId) -> Option<Rc<LaneContext>> {
        self.replicas.provided(id)
    }

    /// Whether a context resets clients whose certificates have been revoked.
    pub(super) fn cuts_revoked(&self) -> bool {
        let contexts = self.current.iter().flat_map(|current| current.all_contexts());
        contexts.flat_map(ListenerContexts::all).any(|context| context.cuts_revoked())
    }

    /// Publishes the counts of the engine.
    pub(super) fn share_counters(&self, counters: &Counters) {
        let keys = self.resources.keys.borrow().counters();
        counters.keys_decoded.set(keys.decoded);
        counters.keys_evicted.set(keys.evictions);
        counters.keys_failed.set(keys.failures);
        counters.keys_opened.set(keys.opened);
        counters.store_failures.set(keys.store_failures);
        counters.clients_by_ended_lists.set(self.resources.by_ended_lists.get());
    }
}
