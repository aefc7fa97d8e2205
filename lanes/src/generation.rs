//! A generation as the control plane publishes it, and the replica that a lane makes of it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use sealane_engine::context::{Context, LaneContext, LaneResources};

use crate::limits::Limits;

/// A complete, validated set of listeners; a lane takes it whole.
pub struct Generation<S> {
    /// Counts up with every publication.
    pub number: u64,
    /// Limits of each lane.
    pub limits: Limits,
    /// All listeners; one that is missing here closes.
    pub listeners: Vec<Listener<S>>,
}

/// One listener of a generation.
pub struct Listener<S> {
    /// Its number in the configuration, for logs.
    pub number: u32,
    /// What identifies it across generations: a lane keeps the sockets of a listener whose key
    /// comes again.
    pub keys: Vec<ListenerKey>,
    /// Its TLS settings and certificates.
    pub context: Arc<Context>,
    /// What the service needs to know.
    pub settings: Arc<S>,
}

/// A listening address of a generation: the same key means the same sockets.
pub type ListenerKey = std::net::SocketAddr;

/// A generation together with the sockets that are new in it, for one lane.
pub struct Publication<S> {
    /// What to serve from now on.
    pub generation: Arc<Generation<S>>,
    /// Freshly bound sockets of this lane.
    pub sockets: Vec<(ListenerKey, OwnedFd)>,
}

/// A lane's own replica of a generation; the last connection under it frees it.
pub(crate) struct LaneGeneration<S> {
    pub(crate) generation: Arc<Generation<S>>,
    /// By position in [`Generation::listeners`].
    pub(crate) contexts: Vec<LaneContext>,
}

impl<S> LaneGeneration<S> {
    pub(crate) fn materialise(
        generation: Arc<Generation<S>>,
        resources: &LaneResources,
    ) -> Result<Self, sealane_engine::context::ContextError> {
        let contexts = generation
            .listeners
            .iter()
            .map(|listener| LaneContext::new(&listener.context, resources))
            .collect::<Result<_, _>>()?;
        Ok(Self { generation, contexts })
    }

    /// The listener at `position`; an entry only ever holds a position of its own generation.
    pub(crate) fn listener(&self, position: usize) -> &Listener<S> {
        &self.generation.listeners[position]
    }

    /// The TLS context of the listener at `position`.
    pub(crate) fn context(&self, position: usize) -> &LaneContext {
        &self.contexts[position]
    }
}
