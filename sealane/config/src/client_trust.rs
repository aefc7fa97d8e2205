//! The table `listener.clients`: whose certificates a listener asks its clients for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sealane_engine::client_certificates::{
    CLIENT_NAMES_MAX, CRLS_MAX, ClientName, ClientRoots, ClientRules,
};
use sealane_engine::policy::ClientCertificates;
use sealane_operator::key::{Bool, Choice, Group, Key, Or, PathKind, Set, Span, TableKind, Text};
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
pub(crate) fn clients(table: &Table<'_>) -> Option<ClientTrust> {
    let demand = table.get(&CERTIFICATES);
    let roots = match demand {
        Some(_) => table.required(&ROOTS, "roots = [\"/etc/sealane/clients.pem\"]"),
        None => table.value(&ROOTS),
    };
    let roots = roots.and_then(|v| v.set(ROOTS.kind.1, root));
    let crls = table.read(&CRLS);
    let (names, cut_revoked) = (table.value(&NAMES), table.value(&CUT_REVOKED));
    let allow_other_names = table.value(&ALLOW_OTHER_NAMES);
    let rules = ClientRules {
        accept_ended_lists: table.get(&ON_EXPIRED_CRL),
        cut_revoked: cut_revoked.as_ref().and_then(|v| CUT_REVOKED.read(v)).unwrap_or(false),
        names: names.as_ref().and_then(|v| NAMES.read(v)).unwrap_or_default(),
        proof_age_max: Some(table.get(&PROOF_AGE_MAX)),
    };
    let allows = allow_other_names.as_ref().and_then(|v| ALLOW_OTHER_NAMES.read(v));
    let allows = allows.unwrap_or(false);
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

const URI_REMEDY: &str = "write one such as \"URI:spiffe://prod/db\" or \"URI:spiffe://prod/*\"";

const REQUIRED: Option<ClientDemand> = Some(ClientDemand::Required);

pub(crate) static CLIENTS: Key<TableKind> = Key::new("clients", TableKind(&GROUP), "");

static GROUP: Group = Group::new(
    "listener.clients",
    "Client certificates (mTLS). Clients are asked only if certificates is \"asked\" or \
     \"required\".",
    &[
        &CERTIFICATES,
        &ROOTS,
        &CRLS,
        &NAMES,
        &ON_EXPIRED_CRL,
        &CUT_REVOKED,
        &ALLOW_OTHER_NAMES,
        &PROOF_AGE_MAX,
    ],
);

static CERTIFICATES: Key<Or<Choice<Option<ClientDemand>>>> = Key::new(
    "certificates",
    Or(
        Choice(&[
            ("off", None),
            (ClientDemand::Asked.name(), Some(ClientDemand::Asked)),
            (ClientDemand::Required.name(), Some(ClientDemand::Required)),
        ]),
        None,
    ),
    "\"asked\" accepts every client; the log and the PROXY header have the result of the \
     validation. With \"required\" the handshake fails without a certificate that the roots \
     issued.",
);

static ROOTS: Key<Set<PathKind>> = Key::new(
    "roots",
    Set(PathKind, 64),
    "Files with the CA certificates that issue client certificates, in PEM. Required unless \
     certificates is \"off\".",
)
.examples(&["[\"/etc/sealane/clients.pem\"]"]);

static CRLS: Key<Set<PathKind>> = Key::new(
    "crls",
    Set(PathKind, CRLS_MAX),
    "Certificate revocation lists in PEM: files, or folders with *.crl, *.pem or HASH.r0. With a \
     list, every certificate of a chain needs the list of its issuer. A new list takes effect as \
     soon as it is there. Session tickets stay valid, and each resumption is checked with the \
     lists of that moment.",
)
.examples(&["[\"/etc/sealane/crls\"]"])
.without("no certificate is revoked");

static NAMES: Key<Set<Text<ClientName>>> = Key::new(
    "names",
    Set(Text("\"DNS:NAME\", \"URI:URI\" or \"CN:NAME\"", client_name), CLIENT_NAMES_MAX),
    "Names of which the client's certificate must have one: \"DNS:\" and a host name (*. for any \
     one label), \"URI:\" and a URI (ending in /* for all that begin so), \"CN:\" and the common \
     name.",
)
.examples(&["[\"DNS:*.svc.example\", \"URI:spiffe://prod/*\", \"CN:batch\"]"])
.without("every name");

static ON_EXPIRED_CRL: Key<Or<Choice<bool>>> = Key::new(
    "on_expired_crl",
    Or(Choice(&[("accept", true), ("refuse", false)]), false),
    "Whether clients of a CA with an expired list are refused, or accepted and counted.",
);

static CUT_REVOKED: Key<Or<Bool>> = Key::new(
    "cut_revoked",
    Or(Bool, false),
    "Whether a new list also ends established connections of revoked certificates, within a \
     second.",
);

static ALLOW_OTHER_NAMES: Key<Or<Bool>> = Key::new(
    "allow_other_names",
    Or(Bool, false),
    "A name, route or protocol of this listener with a weaker demand must not lead to the same \
     backend: a client could ask for that name in TLS, and for this one in its HTTP request. True \
     allows it. Set it only if the backend itself checks the client certificate in the PROXY \
     header.",
);

static PROOF_AGE_MAX: Key<Or<Span>> = Key::new(
    "proof_age_max",
    Or(Span(Duration::from_mins(1)..=Duration::from_hours(7 * 24)), Duration::from_hours(24)),
    "How long after a full handshake sessions resume. Then the client has to prove again that it \
     holds its key.",
);
