//! From a survey to what lanes serve: a context for each policy, and what each name leads to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sealane_config::{self as config, ClientTrust, Route, base_of, unconditional};
use sealane_engine::context::Context;
use sealane_engine::policy::{Policy, PolicyDigest};
use sealane_lanes::generation::{Named, Speech};
use sealane_traffic::backends::NameRoutes;

use super::Survey;

/// What lanes serve of a listener.
pub struct Contexts {
    /// What a client's name leads to.
    pub named: Vec<Named>,
    /// Where their plaintext goes, by their numbers: 0 is of clients without a route by name.
    pub names: Vec<NameRoutes>,
    /// TLS of all other clients.
    pub speech: Speech,
}

impl Contexts {
    /// Those of `survey`, which `make` makes for a policy, once for each. None if it makes none.
    pub(super) fn of(
        survey: &Survey<'_>,
        make: impl Fn(&Policy) -> Option<Arc<Context>>,
    ) -> Option<Self> {
        let listener = survey.listener;
        let mut made = Made { by_digest: HashMap::new(), make };
        let positions = positions(&listener.routes);
        let of_routes = |indexes: &[usize]| -> (Vec<&Route>, NameRoutes) {
            let routes: Vec<_> = indexes.iter().map(|i| &listener.routes[*i]).collect();
            let leading = routes_of(&routes, indexes.iter().map(|i| positions[*i]));
            (routes, leading)
        };
        let nameless: Vec<usize> =
            (0..listener.routes.len()).filter(|i| listener.routes[*i].names.is_empty()).collect();
        let (routes, own) = of_routes(&nameless);
        let speech = match policy_of(&routes, listener) {
            _ if !listener.spoken.is_tls() => Speech::Plain,
            Some((policy, asked)) if !listener.passthrough => {
                Speech::Tls(made.context(&survey.policy(&policy, asked)?)?)
            }
            _ => Speech::Sealed,
        };
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, route) in listener.routes.iter().enumerate() {
            for name in &route.names {
                by_name.entry(name).or_default().push(index);
            }
        }
        // What stands for the name itself is what would count for it without its protocols.
        let unconditional = unconditional(&listener.routes);
        for (name, indexes) in &mut by_name {
            match base_of(&unconditional, name) {
                Some(base) if indexes.contains(&base) => {}
                Some(base) => indexes.push(base),
                None => indexes.extend(&nameless),
            }
        }
        // Names of the same routes have one number, and one context.
        let mut groups: HashMap<Vec<usize>, (u32, Option<Arc<Context>>)> = HashMap::new();
        let (mut named, mut names) = (Vec::new(), vec![own]);
        for (pattern, indexes) in by_name {
            let (number, context) = match groups.get(&indexes) {
                Some((number, context)) => (*number, context.clone()),
                None => {
                    let (routes, leading) = of_routes(&indexes);
                    let context = match policy_of(&routes, listener) {
                        Some((policy, asked)) => {
                            Some(made.context(&survey.policy(&policy, asked)?)?)
                        }
                        None => None,
                    };
                    let number = u32::try_from(names.len()).ok()?;
                    names.push(leading);
                    groups.insert(indexes, (number, context.clone()));
                    (number, context)
                }
            };
            named.push(Named { pattern: pattern.into(), number, context });
        }
        Some(Self { named, names, speech })
    }

    /// Each context once.
    pub(super) fn distinct(&self) -> impl Iterator<Item = &Arc<Context>> {
        let own = match &self.speech {
            Speech::Tls(context) => Some(context),
            Speech::Plain | Speech::Sealed => None,
        };
        let named = self.named.iter().filter_map(|named| named.context.as_ref());
        let every: HashMap<_, _> =
            own.into_iter().chain(named).map(|context| (Arc::as_ptr(context), context)).collect();
        every.into_values()
    }
}

/// The contexts that are made: one for each policy.
struct Made<M> {
    by_digest: HashMap<PolicyDigest, Vec<Arc<Context>>>,
    make: M,
}

impl<M: Fn(&Policy) -> Option<Arc<Context>>> Made<M> {
    fn context(&mut self, policy: &Policy) -> Option<Arc<Context>> {
        let known = self.by_digest.entry(policy.digest()).or_default();
        if let Some(context) = known.iter().find(|context| context.policy == *policy) {
            return Some(Arc::clone(context));
        }
        let context = (self.make)(policy)?;
        known.push(Arc::clone(&context));
        Some(context)
    }
}

/// Where the destination of each route stands among those of the listener.
fn positions(routes: &[Route]) -> Vec<u32> {
    let mut last = 0;
    let of_route = |route: &Route| match route.destination {
        Some(_) => {
            last += 1;
            last
        }
        None => 0,
    };
    routes.iter().map(of_route).collect()
}

/// How TLS is ended for a name that has `routes`, and what clients are asked for; none if it is
/// passed on.
///
/// Protocols that lead somewhere are offered before those of the listener.
fn policy_of<'r>(
    routes: &[&'r Route],
    listener: &'r config::Listener,
) -> Option<(Policy, Option<&'r ClientTrust>)> {
    let (policy, asked) = match routes.iter().find(|route| route.alpn.is_empty()) {
        Some(route) => (route.policy.as_ref()?, route.clients.as_ref()),
        None => (&listener.policy, listener.clients.as_ref()),
    };
    let mut alpn: Vec<Vec<u8>> = Vec::new();
    for protocol in routes.iter().flat_map(|route| &route.alpn).chain(&listener.policy.alpn) {
        if !alpn.contains(protocol) {
            alpn.push(protocol.clone());
        }
    }
    Some((Policy { alpn, ..policy.clone() }, asked))
}

/// Where plaintext goes of a name that has `routes`, whose destinations stand at `positions`.
fn routes_of(routes: &[&Route], positions: impl Iterator<Item = u32>) -> NameRoutes {
    let mut found = NameRoutes::default();
    for (route, position) in routes.iter().zip(positions) {
        match route.alpn.is_empty() {
            true => found.otherwise = position,
            // Those of the name come before those of all names, and the first counts.
            false => {
                found.by_alpn.extend(route.alpn.iter().map(|alpn| (alpn.clone(), position)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::Path;

    use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
    use sealane_engine::context::ContextId;
    use sealane_engine::policy::{Group, Versions};
    use sealane_engine::provider::{ProviderChoice, lane_provider};

    use super::*;
    use sealane_config::Config;

    fn contexts(routes: &str) -> Contexts {
        let text = format!(
            "lanes = {}\n[[listener]]\naddress = \"127.0.0.1:1\"\ncertificates = [\"a\"]\n\
             backends = [\"127.0.0.1:2\"]\nalpn = [\"http/1.1\"]\n{routes}",
            NonZeroUsize::MIN
        );
        let config = Config::parse(Path::new("sealane.toml"), &text).unwrap();
        let survey = Survey::nothing_of(&config.listeners[0]);
        let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
        let index = IndexBuilder::new(&provider, 0).finish(DefaultCertificate::Absent).index;
        let certificates = Arc::new(index);
        let make = |policy: &Policy| {
            Some(Arc::new(Context {
                id: ContextId::fresh(),
                policy: policy.clone(),
                certificates: Arc::clone(&certificates),
                key_log: false,
                store: None,
                provider: ProviderChoice::AwsLc,
                tickets: 2,
            }))
        };
        Contexts::of(&survey, make).unwrap()
    }

    #[test]
    fn ten_thousand_routes_of_equal_settings_have_one_context() {
        let routes: String = (0..10_000)
            .map(|number| {
                format!(
                    "[[listener.route]]\nnames = [\"{number}.test\"]\n\
                     backends = [\"127.0.0.1:{}\"]\n",
                    number % 1_000 + 1
                )
            })
            .collect();
        let contexts = contexts(&routes);
        assert_eq!((contexts.named.len(), contexts.names.len()), (10_000, 10_001));
        assert_eq!(contexts.distinct().count(), 1, "the listener's own");
        let numbers: Vec<_> = contexts.named.iter().map(|named| named.number).collect();
        assert!(numbers.iter().all(|number| (1..=10_000).contains(number)));
        let last = contexts.named.iter().find(|named| &*named.pattern == "9999.test").unwrap();
        assert_eq!(contexts.names[last.number as usize].otherwise, 10_000);
    }

    #[test]
    fn a_route_by_protocol_leaves_a_name_what_its_wildcard_gives_it() {
        let contexts = contexts(
            "[[listener.route]]\nnames = [\"*.a.test\"]\nversions = [\"1.3\"]\n\
             backends = [\"127.0.0.1:3\"]\n\
             [[listener.route]]\nnames = [\"b.a.test\"]\nalpn = [\"h2\"]\n\
             backends = [\"127.0.0.1:4\"]\n",
        );
        let named = contexts.named.iter().find(|named| &*named.pattern == "b.a.test").unwrap();
        let policy = &named.context.as_ref().unwrap().policy;
        assert_eq!(policy.versions, Versions::Tls13);
        let routes = &contexts.names[named.number as usize];
        assert_eq!((&*routes.by_alpn, routes.otherwise), (&[(b"h2".to_vec(), 2)][..], 1));
    }

    #[test]
    fn names_of_the_same_routes_have_one_number_and_protocols_come_before_the_listeners() {
        let contexts = contexts(
            "[[listener.route]]\nnames = [\"a.test\", \"b.test\"]\nversions = [\"1.3\"]\n\
             [[listener.route]]\nnames = [\"a.test\", \"c.test\"]\nalpn = [\"h2\"]\n\
             backends = [\"127.0.0.1:3\"]\n\
             [[listener.route]]\nnames = [\"d.test\", \"e.test\"]\npassthrough = true\n\
             backends = [\"127.0.0.1:5\"]\n",
        );
        let seen: Vec<_> = contexts
            .named
            .iter()
            .map(|named| {
                let policy = named.context.as_ref().map(|context| &context.policy);
                let alpn = policy.map(|policy| (policy.versions, policy.alpn.concat()));
                (&*named.pattern, named.number, alpn)
            })
            .collect();
        let (h2, own) = (b"h2http/1.1".to_vec(), b"http/1.1".to_vec());
        let both = Versions::Tls12AndTls13;
        assert_eq!(
            seen,
            [
                ("a.test", 1, Some((Versions::Tls13, h2.clone()))),
                ("b.test", 2, Some((Versions::Tls13, own))),
                ("c.test", 3, Some((both, h2))),
                ("d.test", 4, None),
                ("e.test", 4, None),
            ]
        );
        assert_eq!(contexts.names[1].by_alpn, [(b"h2".to_vec(), 1)]);
        assert_eq!(contexts.names[4], NameRoutes { otherwise: 2, ..NameRoutes::default() });
    }
}
