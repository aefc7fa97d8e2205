//! The table `listener.clients`: whose certificates a listener asks its clients for.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sealane_engine::client_certificates::{
    CLIENT_NAMES_MAX, CRLS_MAX, ClientName, ClientRoots, ClientRules,
};
use sealane_engine::policy::ClientCertificates;
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::value;

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
pub(crate) fn client_name(text: &str) -> Result<ClientName, Problem> {
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

/// What is asked of clients, if anything is.
pub(crate) fn clients(table: &mut Table<'_>) -> Option<ClientTrust> {
    let demand = table.value("certificates").and_then(|v| v.choice(&DEMANDS)).unwrap_or(None);
    let roots = match demand {
        Some(_) => table.required("roots", "roots = [\"/etc/sealane/clients.pem\"]"),
        None => table.value("roots"),
    };
    let roots = roots.and_then(|v| v.set(ROOT_FILES_MAX, root));
    let crls = table.value("crls").and_then(|v| v.set(CRLS_MAX, Value::path));
    let (names, cut_revoked) = (table.value("names"), table.value("cut_revoked"));
    let allow_other_names = table.value("allow_other_names");
    let read_names = |v: &Value<'_>| v.set(CLIENT_NAMES_MAX, |v| v.parsed(client_name));
    let rules = ClientRules {
        accept_ended_lists: table
            .value("on_expired_crl")
            .and_then(|v| v.choice(&ON_EXPIRED_CRL))
            .unwrap_or(false),
        cut_revoked: cut_revoked.as_ref().and_then(Value::boolean).unwrap_or(false),
        names: names.as_ref().and_then(read_names).unwrap_or_default(),
        proof_age_max: table.duration("proof_age_max", PROOF_AGE).or(Some(PROOF_AGE_MAX_DEFAULT)),
    };
    let allows = allow_other_names.as_ref().and_then(Value::boolean).unwrap_or(false);
    if let Some(written) = allow_other_names.filter(|_| allows && demand != REQUIRED) {
        let what = "means nothing unless client certificates are required";
        written.wrong(Problem::new(what, "remove it, or set certificates = \"required\""));
    }
    let demand = demand?;
    if demand == ClientDemand::Asked {
        let is_cut = cut_revoked.filter(|_| rules.cut_revoked);
        for written in [names, is_cut].into_iter().flatten() {
            let what = "everybody is let in where certificates are only asked for";
            written.wrong(Problem::new(what, "remove it, or say certificates = \"required\""));
        }
    }
    let crls = crls.unwrap_or_default();
    Some(ClientTrust { allow_other_names: allows, crls, demand, roots: roots?, rules })
}

fn root(written: &Value<'_>) -> Option<PathBuf> {
    if written.as_text() == Some("system") {
        written.wrong(Problem::new(
            "\"system\" would let in whoever has any web certificate",
            "name the authority of your clients",
        ));
        return None;
    }
    written.path()
}

/// For how long after a full handshake sessions resume.
pub(crate) const PROOF_AGE_MAX_DEFAULT: Duration = Duration::from_hours(24);

const URI_REMEDY: &str = "write one such as \"URI:spiffe://prod/db\" or \"URI:spiffe://prod/*\"";

const REQUIRED: Option<ClientDemand> = Some(ClientDemand::Required);

const DEMANDS: [(&str, Option<ClientDemand>); 3] = [
    ("off", None),
    (ClientDemand::Asked.name(), Some(ClientDemand::Asked)),
    (ClientDemand::Required.name(), Some(ClientDemand::Required)),
];

const ON_EXPIRED_CRL: [(&str, bool); 2] = [("accept", true), ("refuse", false)];

const PROOF_AGE: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(7 * 24);

/// Files with the authorities of one listener's clients.
const ROOT_FILES_MAX: usize = 64;
