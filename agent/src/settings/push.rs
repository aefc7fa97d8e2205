//! The table `[push]`: who may put certificates into the store over TCP.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use sealane_operator::key::{
    Choice, Count, Group, Key, Or, PathKind, Set, TableKind, TableList, Text,
};
use sealane_operator::reader::{Table, Value};
use sealane_operator::{Place, Problem, value};

use super::identity::Identity;

/// A listener for clients that push certificates, and what each of them may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushSettings {
    /// Where it listens.
    pub address: SocketAddr,
    /// Files with the authorities that vouch for clients.
    pub client_roots: Vec<PathBuf>,
    /// What it shows clients.
    pub identity: Identity,
    /// Files with what those authorities have revoked.
    pub revocation_lists: Vec<PathBuf>,
    /// What clients may do; at least one.
    pub roles: Vec<PushRole>,
}

/// What a client may do, with which names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRole {
    /// How many certificates it may have in the store.
    pub certificates_max: usize,
    /// A name in the client's certificate.
    pub client: String,
    /// What it may do.
    pub may: Vec<PushVerb>,
    /// The names that it may do that with.
    pub names: Vec<NamePattern>,
}

/// Something that a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushVerb {
    /// Certificates are removed.
    Delete,
    /// Certificates are shown.
    Get,
    /// Certificates are stored.
    Put,
}

impl PushVerb {
    /// The word for it in settings and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Get => "get",
            Self::Put => "put",
        }
    }
}

/// Names of servers that are meant together, all in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePattern {
    /// Every name.
    All,
    /// All names below this one, however deep, wildcards too; not itself.
    Below(String),
    /// This name alone.
    Exact(String),
}

impl NamePattern {
    /// Whether it means `name`, as it stands in a certificate or a request.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        match self {
            Self::All => true,
            Self::Below(parent) => name
                .strip_suffix(parent.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            Self::Exact(exact) => name == *exact,
        }
    }

    /// How it is written in settings.
    #[must_use]
    pub fn written(&self) -> String {
        match self {
            Self::All => "*".into(),
            Self::Below(parent) => format!("*.{parent}"),
            Self::Exact(exact) => exact.clone(),
        }
    }
}

/// Reads the table.
pub(super) fn push(table: &Table<'_>) -> Option<PushSettings> {
    let address = table.required(&ADDRESS, "address = \"10.0.0.5:8443\"");
    let address = address.and_then(|value| ADDRESS.read(&value));
    let file = |key, example: &str| table.required(key, example).and_then(|value| value.path());
    let certificate = file(&CERTIFICATE, "certificate = \"/etc/sealane/push.pem\"");
    let key = file(&KEY, "key = \"/etc/sealane/push.key\"");
    let roots = table.required(&CLIENT_ROOTS, "client_roots = [\"/etc/sealane/deployers.pem\"]");
    let roots = roots.and_then(|files| CLIENT_ROOTS.read(&files));
    let revoked = table.value(&REVOCATION_LISTS).map(|files| REVOCATION_LISTS.read(&files));
    let roles = table.required(&ROLE, "[[push.role]] with a client and its names");
    let roles = roles.and_then(|value| {
        let mut seen = HashMap::new();
        value.list(ROLE.kind.1, |each| {
            let at = each.clone();
            each.table(ROLE.kind.0, |table| role(table, &at, &mut seen))
        })
    });
    Some(PushSettings {
        address: address?,
        client_roots: roots?,
        identity: Identity { certificate: certificate?, key: key? },
        revocation_lists: revoked.unwrap_or_else(|| Some(Vec::new()))?,
        roles: roles?,
    })
}

fn role(table: &Table<'_>, at: &Value<'_>, seen: &mut HashMap<String, Place>) -> Option<PushRole> {
    let client =
        table.required(&CLIENT, "client = \"deployer.example.com\", as its certificate has");
    let client = client.and_then(|value| CLIENT.read(&value));
    let names = table.required(&NAMES, "names = [\"*.customer.example\", \"example.com\"]");
    let names = names.and_then(|all| NAMES.read(&all));
    let may = match table.value(&MAY) {
        Some(all) => MAY.read(&all),
        None => Some(VERBS.map(|(_, verb)| verb).to_vec()),
    };
    let certificates_max = table.get(&CERTIFICATES_MAX);
    if let Some(client) = &client {
        if let Some(first) = seen.get(client) {
            let what = format!("{client} has a role at {first} already");
            at.wrong(Problem::new(what, "write all that it may into one"));
            return None;
        }
        seen.insert(client.clone(), at.place());
    }
    Some(PushRole { certificates_max, client: client?, may: may?, names: names? })
}

fn socket_address(text: &str) -> Result<SocketAddr, Problem> {
    text.parse().map_err(|_| {
        let what = format!("{text:?} is no address with a port");
        Problem::new(what, "write one of this machine, such as \"10.0.0.5:8443\" or \"[::]:8443\"")
    })
}

fn pattern(text: &str) -> Result<NamePattern, Problem> {
    if text == "*" {
        return Ok(NamePattern::All);
    }
    let name = value::host_name(text)?;
    Ok(match name.strip_prefix("*.") {
        Some(parent) => NamePattern::Below(parent.to_owned()),
        None => NamePattern::Exact(name),
    })
}

static VERBS: [(&str, PushVerb); 3] =
    [("put", PushVerb::Put), ("get", PushVerb::Get), ("delete", PushVerb::Delete)];

pub(super) static PUSH: Key<TableKind> = Key::new("push", TableKind(&GROUP), "");

static GROUP: Group = Group::new(
    "push",
    "The push API: clients with a certificate put certificates into the store over TCP. Off \
     without this table. docs/push-certificates.md explains it. To add or remove the table, \
     restart the agent.",
    &[&ADDRESS, &CERTIFICATE, &KEY, &CLIENT_ROOTS, &REVOCATION_LISTS, &ROLE],
);

static ADDRESS: Key<Text<SocketAddr>> =
    Key::new("address", Text("\"ADDRESS:PORT\"", socket_address), "An address of this machine.")
        .examples(&["\"10.0.0.5:8443\""])
        .required()
        .restart();

static CERTIFICATE: Key<PathKind> =
    Key::new("certificate", PathKind, "The certificate chain of the API's server, in PEM.")
        .examples(&["\"/etc/sealane/push.pem\""])
        .required();

static KEY: Key<PathKind> = Key::new(
    "key",
    PathKind,
    "The private key of the certificate, in PEM. Other users must not be able to read it.",
)
.examples(&["\"/etc/sealane/push.key\""])
.required();

static CLIENT_ROOTS: Key<Set<PathKind>> =
    Key::new("client_roots", Set(PathKind, 16), "PEM files with the CAs of client certificates.")
        .examples(&["[\"/etc/sealane/deployers.pem\"]"])
        .required();

static REVOCATION_LISTS: Key<Set<PathKind>> = Key::new(
    "revocation_lists",
    Set(PathKind, 16),
    "PEM files with the certificate revocation lists (CRLs) of these CAs.",
)
.examples(&["[\"/etc/sealane/deployers.crl\"]"])
.without("no list");

static ROLE: Key<TableList> = Key::new("role", TableList(&ROLE_GROUP, 64), "");

static ROLE_GROUP: Group = Group::new(
    "push.role",
    "What one client may do. At least one table.",
    &[&CLIENT, &NAMES, &MAY, &CERTIFICATES_MAX],
)
.example(
    "[[push.role]]\nclient = \"deployer.example.com\"\n\
     names = [\"*.customer.example\", \"example.com\"]\nmay = [\"put\", \"get\"]\n",
);

static CLIENT: Key<Text<String>> = Key::new(
    "client",
    Text("text", value::word),
    "A DNS name or a URI in the client's certificate, or the common name of a certificate without \
     alternative names.",
)
.examples(&["\"deployer.example.com\""])
.required();

static NAMES: Key<Set<Text<NamePattern>>> = Key::new(
    "names",
    Set(Text("host name, \"*.NAME\" or \"*\"", pattern), 1_000),
    "The client may handle certificates for these names. \"*.NAME\" is all names below NAME, at \
     any depth, and \"*\" is all names.",
)
.examples(&["[\"*.customer.example\", \"example.com\"]"])
.required();

static MAY: Key<Set<Choice<PushVerb>>> = Key::new(
    "may",
    Set(Choice(&VERBS), VERBS.len()),
    "What the client may do: store, read and remove certificates.",
)
.examples(&["[\"put\", \"get\", \"delete\"]"])
.without("[\"put\", \"get\", \"delete\"]");

static CERTIFICATES_MAX: Key<Or<Count>> = Key::new(
    "certificates_max",
    Or(Count(1..=1_000_000_000), 100_000),
    "How many certificates of this role the store may have.",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_names_below_it_however_deep_and_nothing_that_only_ends_like_it() {
        let means = |text: &str, name: &str| pattern(text).unwrap().matches(name);
        for name in ["a.customer.example", "*.customer.example", "B.a.Customer.example."] {
            assert!(means("*.customer.example", name), "{name}");
        }
        for name in ["customer.example", ".customer.example", "evilcustomer.example", "example", ""]
        {
            assert!(!means("*.customer.example", name), "{name}");
        }
        assert!(means("Example.com", "example.COM"));
        assert!(!means("example.com", "www.example.com"));
        assert!(!means("example.com", "*.example.com"));
        assert!(means("*", "anything.at.all"));
        assert!(pattern("*.*").is_err());
        for text in ["*", "*.a.test", "a.test"] {
            assert_eq!(pattern(text).unwrap().written(), text);
        }
    }
}
