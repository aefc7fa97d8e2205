//! A lane's own replica of a generation.

pub(crate) mod contexts;

use std::sync::Arc;

use sealane_engine::context::{ContextError, LaneResources};
use sealane_engine::provider::SelfTests;

use crate::replica::contexts::{ListenerContexts, Replicas};
use crate::shared::generation::{Generation, Listener};

/// A lane's own replica of a generation; the last connection under it frees it.
pub(crate) struct LaneGeneration<S> {
    /// By position in [`Generation::listeners`]. Dropped first: what they are made from is freed
    /// by the control plane, which opened the files in it.
    contexts: Vec<ListenerContexts>,
    pub(crate) generation: Arc<Generation<S>>,
}

impl<S> LaneGeneration<S> {
    pub(crate) fn materialise(
        generation: Arc<Generation<S>>,
        replicas: &mut Replicas,
        resources: &LaneResources,
    ) -> Result<Self, ContextError> {
        let contexts = generation
            .listeners
            .iter()
            .map(|listener| replicas.of_listener(listener, resources))
            .collect::<Result<_, _>>()?;
        Ok(Self { contexts, generation })
    }

    /// The listener at `position`; an entry only ever holds a position of its own generation.
    pub(crate) fn listener(&self, position: usize) -> &Listener<S> {
        &self.generation.listeners[position]
    }

    /// Pays for the first use of the cryptography of every context; returns whether it works.
    pub(crate) fn warm_up(&self, tests: &mut SelfTests) -> bool {
        let mut contexts = self.contexts.iter().flat_map(ListenerContexts::all);
        contexts.all(|context| context.warm_up(tests).is_ok())
    }

    /// The TLS contexts of all listeners.
    pub(crate) fn all_contexts(&self) -> &[ListenerContexts] {
        &self.contexts
    }

    /// The TLS contexts of the listener at `position`.
    pub(crate) fn contexts(&self, position: usize) -> &ListenerContexts {
        &self.contexts[position]
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
    use sealane_engine::context::{Context, ContextId};
    use sealane_engine::policy::{Group, Policy};
    use sealane_engine::provider::{ProviderChoice, lane_provider};
    use sealane_engine::tickets::{TicketRoot, UnixSeconds};

    use super::*;
    use crate::kernel::liveness::Liveness;
    use crate::kernel::reuseport::Steer;
    use crate::shared::generation::{Named, Speech};
    use crate::shared::limits::Limits;
    use crate::shared::timeouts::Timeouts;

    fn context(groups: &[Group]) -> Arc<Context> {
        let provider = lane_provider(ProviderChoice::Auto, groups).unwrap().crypto;
        let index = IndexBuilder::new(&provider, 0).finish(DefaultCertificate::First).index;
        Arc::new(Context {
            id: ContextId::fresh(),
            policy: Policy { groups: groups.to_vec(), ..Policy::default() },
            certificates: Arc::new(index),
            key_log: false,
            store: None,
            provider: ProviderChoice::Auto,
            tickets: 0,
        })
    }

    #[test]
    fn start_exchanges_one_key_in_each_group() {
        let listener = |number| Listener {
            number,
            keys: Vec::new(),
            preamble: None,
            speech: Speech::Tls(context(&[Group::X25519, Group::Secp256r1])),
            named: (0..20)
                .map(|number| Named {
                    pattern: format!("{number}.test").into(),
                    number,
                    context: Some(context(&[Group::Secp256r1, Group::Secp384r1])),
                })
                .collect(),
            liveness: Liveness::default(),
            steer: Steer::Connection,
            timeouts: Timeouts::default(),
            settings: Arc::new(()),
        };
        let listeners = (0..20).map(listener).collect();
        let generation = Arc::new(Generation { number: 1, limits: Limits::default(), listeners });
        let now = UnixSeconds(1_000_000);
        let root = TicketRoot::generate(Duration::from_secs(600), now, |bytes| bytes.fill(1));
        let resources = LaneResources::new(root.unwrap(), now, NonZeroUsize::MIN);
        let generation =
            LaneGeneration::materialise(generation, &mut Replicas::new(), &resources).unwrap();
        let mut tests = SelfTests::default();
        assert!(generation.warm_up(&mut tests));
        assert_eq!(tests.exchanges(), 3, "of 420 contexts");
    }
}
