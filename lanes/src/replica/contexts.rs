//! A lane's own replicas of TLS contexts: made once for each context, however it is reached.

use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use sealane_engine::certificates::AskedName;
use sealane_engine::context::{Context, ContextError, ContextId, LaneContext, LaneResources};

use crate::shared::generation::{Listener, Speech};

/// Every replica that is in use, and those that are kept because orders may name them.
pub(crate) struct Replicas {
    /// By address: a replica holds its context, so an address that leads to one that lives cannot
    /// have been given to another context.
    known: HashMap<*const Context, Weak<LaneContext>>,
    /// How many may be known before those that are gone are forgotten.
    forget_at: usize,
    /// Whether a context has gone since [`Self::settle`] that orders could name. The lane settles
    /// that in the next second, so that many of them cost one pass.
    pub(crate) is_unsettled: bool,
    provided: HashMap<ContextId, Rc<LaneContext>>,
}

/// The replicas of one listener's contexts.
pub(crate) struct ListenerContexts {
    own: Replica,
    /// By name in lower case, or `*.` and a name.
    named: HashMap<Box<str>, Replica>,
}

/// What a name leads to.
pub(crate) struct Replica {
    /// None where TLS is passed on as it is, or not spoken.
    pub(crate) context: Option<Rc<LaneContext>>,
    pub(crate) number: u32,
}

/// Fewer are not worth looking through.
const FORGET_AT_MIN: usize = 64;

impl Replicas {
    pub(crate) fn new() -> Self {
        Self {
            known: HashMap::new(),
            forget_at: FORGET_AT_MIN,
            is_unsettled: false,
            provided: HashMap::new(),
        }
    }

    /// The replica of `context`: the one that is in use already, or a new one.
    pub(crate) fn of(
        &mut self,
        context: &Arc<Context>,
        resources: &LaneResources,
    ) -> Result<Rc<LaneContext>, ContextError> {
        let address = Arc::as_ptr(context);
        if let Some(replica) = self.known.get(&address).and_then(Weak::upgrade) {
            return Ok(replica);
        }
        if self.known.len() >= self.forget_at {
            self.known.retain(|_, replica| replica.strong_count() > 0);
            self.forget_at = (2 * self.known.len()).max(FORGET_AT_MIN);
        }
        let replica = Rc::new(LaneContext::new(context, resources)?);
        self.known.insert(address, Rc::downgrade(&replica));
        Ok(replica)
    }

    /// The replicas of what `listener` serves.
    pub(crate) fn of_listener<S>(
        &mut self,
        listener: &Listener<S>,
        resources: &LaneResources,
    ) -> Result<ListenerContexts, ContextError> {
        let own = match &listener.speech {
            Speech::Plain | Speech::Sealed => None,
            Speech::Tls(context) => Some(self.of(context, resources)?),
        };
        let mut named = HashMap::with_capacity(listener.named.len());
        for entry in &listener.named {
            let pattern = entry.pattern.strip_suffix('.').unwrap_or(&entry.pattern);
            let context = entry.context.as_ref().map(|context| self.of(context, resources));
            let replica = Replica { context: context.transpose()?, number: entry.number };
            named.insert(pattern.to_ascii_lowercase().into_boxed_str(), replica);
        }
        Ok(ListenerContexts { own: Replica { context: own, number: 0 }, named })
    }

    /// Keeps a replica of `context`. One that cannot be made leaves its id unknown.
    pub(crate) fn provide(&mut self, context: &Arc<Context>, resources: &LaneResources) {
        if let Ok(replica) = self.of(context, resources) {
            replica.set_current(true);
            self.provided.insert(context.id, replica);
        }
    }

    pub(crate) fn withdraw(&mut self, id: ContextId) {
        self.is_unsettled |= self.provided.remove(&id).is_some();
    }

    /// Tells every replica whether it is served now, by `listeners` or where an order names it, and
    /// lets the decoded keys go that only others need.
    pub(crate) fn settle(&mut self, listeners: &[ListenerContexts], resources: &LaneResources) {
        for replica in self.known.values().filter_map(Weak::upgrade) {
            replica.set_current(false);
        }
        let current: Vec<&LaneContext> = listeners
            .iter()
            .flat_map(ListenerContexts::all)
            .chain(self.provided.values())
            .map(|replica| &**replica)
            .collect();
        for replica in &current {
            replica.set_current(true);
        }
        let served = current.iter().map(|replica| &*replica.context().certificates);
        resources.keys.borrow_mut().forget_unserved(served);
        self.is_unsettled = false;
    }

    pub(crate) fn provided(&self, id: ContextId) -> Option<Rc<LaneContext>> {
        self.provided.get(&id).map(Rc::clone)
    }
}

impl ListenerContexts {
    /// The listener's own, and those for certain names.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Rc<LaneContext>> {
        let every = std::iter::once(&self.own).chain(self.named.values());
        every.filter_map(|replica| replica.context.as_ref())
    }

    /// What a client gets that asks for `server_name`: of an exact name before a wildcard for its
    /// first label, before the listener's own.
    pub(crate) fn for_name(&self, server_name: Option<&str>) -> &Replica {
        let named = if self.named.is_empty() { None } else { server_name };
        let found = named.and_then(AskedName::new).and_then(|mut name| {
            let exact = self.named.get(name.exact());
            exact.or_else(|| self.named.get(name.wildcard()?))
        });
        found.unwrap_or(&self.own)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use sealane_engine::certificates::{Certificate, DefaultCertificate, IndexBuilder};
    use sealane_engine::policy::{Group, Policy};
    use sealane_engine::provider::{ProviderChoice, lane_provider};
    use sealane_engine::tickets::{TicketRoot, UnixSeconds};

    use super::*;

    fn resources() -> LaneResources {
        let now = UnixSeconds(1_000_000);
        let root = TicketRoot::generate(Duration::from_secs(600), now, |bytes| bytes.fill(1));
        LaneResources::new(root.unwrap(), now, NonZeroUsize::MIN)
    }

    fn context() -> Arc<Context> {
        let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
        let index = IndexBuilder::new(&provider, 0).finish(DefaultCertificate::First).index;
        Arc::new(Context {
            id: ContextId::fresh(),
            policy: Policy::default(),
            certificates: Arc::new(index),
            key_log: false,
            store: None,
            provider: ProviderChoice::AwsLc,
            tickets: 0,
        })
    }

    #[test]
    fn a_context_has_one_replica_for_as_long_as_it_is_in_use() {
        let (mut replicas, resources) = (Replicas::new(), resources());
        let (one, two) = (context(), context());
        let first = replicas.of(&one, &resources).unwrap();
        assert!(Rc::ptr_eq(&first, &replicas.of(&one, &resources).unwrap()));
        assert!(!Rc::ptr_eq(&first, &replicas.of(&two, &resources).unwrap()));
        replicas.provide(&one, &resources);
        assert!(Rc::ptr_eq(&first, &replicas.provided(one.id).unwrap()));
        assert!(replicas.provided(two.id).is_none());
        let gone = Rc::downgrade(&first);
        drop(first);
        assert!(gone.upgrade().is_some(), "it is provided");
        replicas.withdraw(one.id);
        assert!(gone.upgrade().is_none() && replicas.provided(one.id).is_none());
    }

    /// A context with a certificate for `name`, and the certificate.
    fn context_for(name: &str) -> (Arc<Context>, Arc<Certificate>) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
        let mut builder = IndexBuilder::new(&provider, 0);
        builder.add(name, pem.as_bytes());
        let index = builder.finish(DefaultCertificate::First).index;
        let certificate = Arc::clone(&index.find(name)[0]);
        let certificates = Arc::new(index);
        let empty = context();
        let policy = Policy::default();
        let id = ContextId::fresh();
        (Arc::new(Context { id, policy, certificates, store: None, ..*empty }), certificate)
    }

    #[test]
    fn the_keys_that_a_lane_holds_are_those_of_contexts_that_it_serves() {
        let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
        let now = UnixSeconds(1_000_000);
        let root = TicketRoot::generate(Duration::from_secs(600), now, |bytes| bytes.fill(1));
        let resources = LaneResources::new(root.unwrap(), now, NonZeroUsize::new(8).unwrap());
        let mut replicas = Replicas::new();
        let made = ["a.test", "b.test", "c.test", "d.test"].map(context_for);
        let [own, named, ordered, _] = made.each_ref().map(|(context, _)| context);
        let listener = |own: &Arc<Context>, replicas: &mut Replicas| {
            let mut replica = |context: &Arc<Context>, number| Replica {
                context: Some(replicas.of(context, &resources).unwrap()),
                number,
            };
            let named = [("b.test".into(), replica(named, 1))].into();
            ListenerContexts { own: replica(own, 0), named }
        };
        let decode_all = || {
            let mut keys = resources.keys.borrow_mut();
            for (_, certificate) in &made {
                keys.certified_key(certificate, &provider).unwrap();
            }
        };
        let listeners = [listener(own, &mut replicas)];
        replicas.provide(ordered, &resources);
        decode_all();
        assert!(!replicas.is_unsettled);
        replicas.settle(&listeners, &resources);
        assert_eq!(resources.keys.borrow().len(), 3);
        replicas.withdraw(ordered.id);
        assert!(replicas.is_unsettled);
        replicas.settle(&listeners, &resources);
        assert_eq!((resources.keys.borrow().len(), replicas.is_unsettled), (2, false));
        let changed = [listener(named, &mut replicas)];
        replicas.settle(&changed, &resources);
        assert_eq!(resources.keys.borrow().len(), 1);
    }

    #[test]
    fn those_that_are_gone_are_forgotten_and_those_in_use_are_not() {
        let (mut replicas, resources) = (Replicas::new(), resources());
        let kept: Vec<_> = (0..3).map(|_| context()).collect();
        let held: Vec<_> =
            kept.iter().map(|context| replicas.of(context, &resources).unwrap()).collect();
        // All at once, so that each has an address of its own.
        let passing: Vec<_> = (0..3 * FORGET_AT_MIN).map(|_| context()).collect();
        for context in &passing {
            replicas.of(context, &resources).unwrap();
        }
        assert!(replicas.known.len() <= FORGET_AT_MIN, "{}", replicas.known.len());
        for (context, replica) in kept.iter().zip(&held) {
            assert!(Rc::ptr_eq(replica, &replicas.of(context, &resources).unwrap()));
        }
    }
}
