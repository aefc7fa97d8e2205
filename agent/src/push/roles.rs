//! Who a client is, and what it may do: [`Client`], [`Rights`].

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use tokio::sync::Semaphore;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::FromDer as _;

use crate::settings::{NamePattern, PushRole, PushVerb};

/// The roles of a listener, and room for connections of each client.
#[derive(Debug)]
pub(super) struct Roles {
    roles: Vec<(Arc<PushRole>, Arc<Semaphore>)>,
    /// Room for all clients that have no role.
    others: Arc<Semaphore>,
}

impl Roles {
    pub(super) fn new(roles: &[PushRole]) -> Self {
        let room = || Arc::new(Semaphore::new(CONNECTIONS_EACH_MAX));
        let each = roles.iter().map(|role| (Arc::new(role.clone()), room()));
        Self { roles: each.collect(), others: room() }
    }

    /// What a client may do, and where its connections have room.
    pub(super) fn of(&self, client: Client) -> (Rights, Arc<Semaphore>) {
        let is_its = |(role, _): &&(Arc<PushRole>, _)| client.is_called(&role.client);
        let its = || self.roles.iter().filter(is_its);
        let room = its().next().map_or(&self.others, |(_, room)| room);
        let roles = its().map(|(role, _)| Arc::clone(role)).collect();
        (Rights { client, roles }, Arc::clone(room))
    }
}

/// Who a client is: the names in its certificate.
///
/// They are the DNS names and URIs among its alternative names. The common name counts only in a
/// certificate without alternative names of any kind, as with servers (RFC 6125, section 6.4.4): an
/// authority that issues alternative names checks those, and not the rest of the subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Client {
    names: Vec<String>,
}

impl Client {
    /// The one that has shown this chain, which was verified.
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Self {
        let leaf = chain.first().and_then(|der| X509Certificate::from_der(der).ok());
        let Some((_, leaf)) = leaf else { return Self::default() };
        let alternative = leaf.subject_alternative_name().ok().flatten();
        let has_some = leaf.extensions().iter().any(|one| one.oid == OID_X509_EXT_SUBJECT_ALT_NAME);
        let names = alternative.iter().flat_map(|extension| &extension.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
            _ => None,
        });
        let mut names: Vec<String> = names.collect();
        // Names that cannot be read are names, too.
        if !has_some {
            let common = leaf.subject().iter_common_name().filter_map(|name| name.as_str().ok());
            names.extend(common.map(str::to_owned));
        }
        Self { names }
    }

    fn is_called(&self, name: &str) -> bool {
        self.names.iter().any(|its| match its.contains("://") {
            true => its == name,
            false => its.eq_ignore_ascii_case(name),
        })
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.names[..] {
            [] => f.write_str("a client without a name"),
            // Whatever its authority has put there goes on one line, which is not too long: it
            // stands in the log, and beside each certificate in the store.
            names => {
                let all = names.join(", ");
                match all.char_indices().nth(CLIENT_CHARS_MAX) {
                    Some((end, _)) => write!(f, "{:?} and more", &all[..end]),
                    None => write!(f, "{all:?}"),
                }
            }
        }
    }
}

/// What a client may do.
#[derive(Clone, Debug)]
pub(super) struct Rights {
    client: Client,
    roles: Vec<Arc<PushRole>>,
}

impl Rights {
    pub(super) fn may(&self, verb: PushVerb, name: &str) -> bool {
        let means = |role: &Arc<PushRole>| role.names.iter().any(|names| names.matches(name));
        self.roles.iter().any(|role| role.may.contains(&verb) && means(role))
    }

    /// The first of its roles, by which it is told from other clients; none has none.
    pub(super) fn role(&self) -> &str {
        self.roles.first().map_or("", |role| &role.client)
    }

    /// How many certificates that role may have in the store.
    pub(super) fn certificates_max(&self) -> usize {
        self.roles.first().map_or(0, |role| role.certificates_max)
    }

    /// Why it may do this with no name at all, if so.
    pub(super) fn refuse(&self, verb: PushVerb) -> Option<String> {
        if self.roles.iter().any(|role| role.may.contains(&verb)) {
            return None;
        }
        let word = verb.word();
        Some(match &self.roles[..] {
            [] => format!(
                "{} has no role here; whoever runs this machine adds [[push.role]] with that \
                 client, and its names, to the agent's file",
                self.client
            ),
            _ => format!(
                "{} may not {word}: {}; whoever runs this machine adds \"{word}\" to `may` of that \
                 role",
                self.client,
                self.told()
            ),
        })
    }

    /// Why it may not do this with `name`.
    pub(super) fn refuse_name(&self, verb: PushVerb, name: &str) -> String {
        // No name is longer, but what is asked for may be.
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        format!(
            "{} may not {} {name:?}: {}; ask for other names, or whoever runs this machine adds it \
             to `names` of that role",
            self.client,
            verb.word(),
            self.told()
        )
    }

    fn told(&self) -> String {
        let roles = self.roles.iter().map(|role| {
            let verbs: Vec<_> = role.may.iter().map(|verb| verb.word()).collect();
            let mut names: Vec<_> =
                role.names.iter().take(NAMES_TOLD_MAX).map(NamePattern::written).collect();
            let more = role.names.len() - names.len();
            names.extend((more > 0).then(|| format!("and {more} more")));
            format!("role {:?} may {} {}", role.client, verbs.join(", "), names.join(", "))
        });
        roles.collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

/// Characters of a client's names that are told.
const CLIENT_CHARS_MAX: usize = 200;
/// Connections of a client at a time.
pub(super) const CONNECTIONS_EACH_MAX: usize = 16;
/// Characters of a name of DNS.
const NAME_CHARS_MAX: usize = 253;
/// Names of a role that are told to whoever asks for another.
const NAMES_TOLD_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_is_called_and_asks_for_is_told_on_a_line_of_bounded_length() {
        let names = (0..10_000).map(|number| format!("ä{number}.test\n")).collect();
        let client = Client { names };
        let told = client.to_string();
        assert!(
            told.starts_with("\"ä0.test\\n, ä1.test") && told.ends_with("\" and more"),
            "{told}"
        );
        assert!(told.len() < 3 * CLIENT_CHARS_MAX && !told.contains('\n'), "{told}");
        let (rights, _) = Roles::new(&[]).of(client);
        let told = rights.refuse_name(PushVerb::Get, &"x".repeat(100_000));
        assert!(told.len() < 1_000, "{told}");
        assert_eq!(Client { names: vec!["a.test".into()] }.to_string(), "\"a.test\"");
    }

    #[test]
    fn names_that_cannot_be_read_are_none_and_those_of_hosts_have_no_case() {
        let chain = |content: &[u8]| {
            let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(rcgen::DnType::CommonName, "reader");
            let names = rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 17], content.to_vec());
            params.custom_extensions = vec![names];
            let key = rcgen::KeyPair::generate().unwrap();
            [params.self_signed(&key).unwrap().der().clone()]
        };
        // A sequence of one DNS name, and one that is longer than it says.
        let client = Client::of(&chain(b"\x30\x06\x82\x04a.tt"));
        assert!(client.is_called("A.TT") && !client.is_called("reader"), "{client}");
        assert_eq!(Client::of(&chain(b"\x30\x46\x82\x04a.tt")), Client::default());
        let uri = Client { names: vec!["spiffe://a.test/B".into()] };
        assert!(uri.is_called("spiffe://a.test/B") && !uri.is_called("spiffe://a.test/b"));
    }
}
