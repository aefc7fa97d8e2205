//! A generation as the control plane publishes it, and the replica that a lane makes of it.

use std::sync::Arc;
use std::time::Duration;

use sealane_engine::context::{Context, ContextError, LaneResources};
use sealane_engine::provider::SelfTests;

use crate::kernel::Address;
use crate::kernel::liveness::Liveness;
use crate::kernel::reuseport::Steer;
use crate::lane::replicas::{ListenerContexts, Replicas};
use crate::shared::handover::Parcel;
use crate::shared::limits::Limits;
use crate::shared::timeouts::Timeouts;

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
    /// The listener's number in the configuration, for logs.
    pub number: u32,
    /// Where it listens, which identifies it across generations: a lane keeps the sockets of a
    /// listener whose key comes again.
    pub keys: Vec<Address>,
    /// If connections begin with a preamble, which the service reads, such as a PROXY header or the
    /// request to begin with TLS: from accept to its end. More than the whole handshake may take is
    /// as much.
    pub preamble: Option<Duration>,
    /// What clients speak who ask for no name of [`Listener::named`].
    pub speech: Speech,
    /// What clients get that ask for certain names; of two with the same pattern the later counts.
    /// Without a meaning where clients are not expected to speak TLS.
    pub named: Vec<Named>,
    /// How the kernel finds out that its clients are gone. Whoever binds its sockets has them so
    /// already; those that a lane keeps are changed.
    pub liveness: Liveness,
    /// How clients are spread over the lanes; the sockets have it as they have `liveness`.
    pub steer: Steer,
    /// How long its connections may take, and be still.
    pub timeouts: Timeouts,
    /// What the service needs to know.
    pub settings: Arc<S>,
}

/// What is spoken on a listener, behind the preamble if there is one.
pub enum Speech {
    /// Bytes as they come, which the service gets as plaintext.
    Plain,
    /// TLS between the client and whoever is attached: the service gets the ciphertext, from the
    /// ClientHello on.
    Sealed,
    /// TLS that ends here, under these settings and with these certificates. A lane that has a
    /// replica of this very context in use makes no other.
    Tls(Arc<Context>),
}

/// What clients get that ask for some server names.
pub struct Named {
    /// A name, or `*.` before a name for exactly one more label. An exact name goes first.
    pub pattern: Box<str>,
    /// By which the service tells such a client: see [`Link::name_number`]. The number 0 is that of
    /// clients whose name is none of these.
    ///
    /// [`Link::name_number`]: crate::connection::link::Link::name_number
    pub number: u32,
    /// What ends its TLS; without it the service gets the ciphertext: [`Speech::Sealed`].
    pub context: Option<Arc<Context>>,
}

/// A generation, and which sockets are new in it, for one lane.
pub struct Publication<S> {
    /// What to serve from now on.
    pub generation: Arc<Generation<S>>,
    /// Freshly bound sockets, which the lane has been handed.
    pub parcel: Parcel,
}

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

    use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
    use sealane_engine::context::ContextId;
    use sealane_engine::policy::{Group, Policy};
    use sealane_engine::provider::{ProviderChoice, lane_provider};
    use sealane_engine::tickets::{TicketRoot, UnixSeconds};

    use super::*;

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
