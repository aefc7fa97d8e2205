//! Whose certificates a listener asks its clients for: [`ClientTrust`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sealane_engine::client_certificates::{ClientName, ClientRoots, ClientRules};
use sealane_engine::policy::ClientCertificates;

use super::mistake::Problem;
use super::value;

/// What clients are asked for, and by what it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTrust {
    /// Whether other names may lead to the same backends with a looser demand.
    pub allow_other_names: bool,
    /// Files and folders with revocation lists; none: nothing is revoked.
    pub crls: Vec<PathBuf>,
    /// Whether they must have a certificate.
    pub demand: ClientDemand,
    /// Files with the authorities that may issue them; at least one.
    pub roots: Vec<PathBuf>,
    /// What else is asked.
    pub rules: ClientRules,
}

/// Whether clients must have a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientDemand {
    /// They may: who has none, or one that nobody vouches for, is let in all the same.
    Asked,
    /// Without one that the roots vouch for the handshake fails.
    Required,
}

impl ClientDemand {
    /// The mode as written in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Required => "required",
        }
    }

    /// The demand of a policy.
    pub fn of(self, roots: Arc<ClientRoots>) -> ClientCertificates {
        match self {
            Self::Asked => ClientCertificates::Asked(roots),
            Self::Required => ClientCertificates::Required(roots),
        }
    }
}

/// Reads a name that a client's certificate may have, behind its kind.
pub(super) fn client_name(text: &str) -> Result<ClientName, Problem> {
    let wrong = |what: &str, remedy: &str| Err(Problem::new(format!("{text:?} {what}"), remedy));
    match text.split_once(':') {
        Some(("CN", name)) if !name.is_empty() => Ok(ClientName::CommonName(name.into())),
        Some(("DNS", name)) => {
            value::host_name(name).map(|name| ClientName::Dns(name.into_boxed_str()))
        }
        Some(("URI", uri)) if uri.contains(':') => {
            let front = uri.strip_suffix('*').unwrap_or(uri);
            // What begins alike may be another domain: spiffe://prod* is spiffe://prod.evil too.
            let is_whole = front.len() == uri.len() || front.ends_with('/');
            match is_whole && !front.contains('*') {
                true => Ok(ClientName::Uri(uri.into())),
                false => wrong("has a * elsewhere than behind its last /", URI_REMEDY),
            }
        }
        Some(("URI", _)) => wrong("has no URI with a scheme", URI_REMEDY),
        _ => wrong("is not a name of a client", "write \"DNS:NAME\", \"URI:URI\" or \"CN:NAME\""),
    }
}

/// For how long after a full handshake sessions resume.
pub(super) const PROOF_AGE_MAX_DEFAULT: Duration = Duration::from_hours(24);

const URI_REMEDY: &str = "write one such as \"URI:spiffe://prod/db\" or \"URI:spiffe://prod/*\"";
