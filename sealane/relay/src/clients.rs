//! A lane's own replicas of the contexts by which it speaks TLS to backends.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::ClientConfig;
use sealane_engine::client::{ClientContext, ClientOptionsError, OptionsDigest};
use sealane_engine::session::ClientSession;
use sealane_engine::tickets::LaneClock;
use sealane_lanes::cause::Cause;
use sealane_lanes::generation::Generation;
use sealane_traffic::backends::{BackendTls, RelaySettings};

/// One replica for each context of the generation that is served, made when it is published. A
/// context that stays keeps its replica, and with it the sessions that can be resumed.
#[derive(Default)]
pub(super) struct LaneClients {
    clock: Option<Arc<LaneClock>>,
    replicas: HashMap<OptionsDigest, Arc<ClientConfig>>,
}

impl LaneClients {
    /// Makes what `generation` needs, and drops what it does not.
    ///
    /// # Errors
    /// A context cannot be replicated on this machine; nothing has changed then.
    pub(super) fn prepare(
        &mut self,
        generation: &Generation<RelaySettings>,
        clock: &Arc<LaneClock>,
    ) -> Result<(), ClientOptionsError> {
        let destinations = generation.listeners.iter().flat_map(|l| &l.settings.destinations);
        let backends = destinations.flat_map(|destination| &destination.backends);
        let mut replicas = HashMap::new();
        for context in backends.filter_map(|backend| Some(&backend.tls.as_ref()?.context)) {
            let digest = context.digest();
            if replicas.contains_key(&digest) {
                continue;
            }
            let replica = match self.replicas.get(&digest) {
                Some(replica) => Arc::clone(replica),
                None => context.replica(Arc::clone(clock))?,
            };
            replicas.insert(digest, replica);
        }
        self.clock = Some(Arc::clone(clock));
        self.replicas = replicas;
        Ok(())
    }

    /// Begins a session with a backend.
    ///
    /// # Errors
    /// This machine cannot: a fault of ours.
    pub(super) fn begin(&mut self, tls: &BackendTls) -> Result<ClientSession, Cause> {
        let config = self.replica(&tls.context)?;
        ClientSession::new(config, tls.name.clone()).map_err(|_| Cause::Internal)
    }

    fn replica(&mut self, context: &Arc<ClientContext>) -> Result<Arc<ClientConfig>, Cause> {
        let digest = context.digest();
        if let Some(replica) = self.replicas.get(&digest) {
            return Ok(Arc::clone(replica));
        }
        // A connection of an earlier generation fails over. What is made for it goes with the next
        // generation.
        let clock = self.clock.as_ref().ok_or(Cause::Internal)?;
        let replica = context.replica(Arc::clone(clock)).map_err(|_| Cause::Internal)?;
        self.replicas.insert(digest, Arc::clone(&replica));
        Ok(replica)
    }
}
