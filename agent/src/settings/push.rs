//! The table `[push]`: who may put certificates into the store over TCP.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

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
pub(super) fn push(table: &mut Table<'_>) -> Option<PushSettings> {
    let address = table.required("address", "address = \"10.0.0.5:8443\"");
    let address = address.and_then(|value| value.parsed(socket_address));
    let mut file = |key, example: &str| table.required(key, example).and_then(|value| value.path());
    let certificate = file("certificate", "certificate = \"/etc/sealane/push.pem\"");
    let key = file("key", "key = \"/etc/sealane/push.key\"");
    let files = |all: Value<'_>| all.set(FILES_MAX, Value::path);
    let roots = table.required("client_roots", "client_roots = [\"/etc/sealane/deployers.pem\"]");
    let roots = roots.and_then(files);
    let revoked = table.value("revocation_lists").map(files);
    let roles = table.required("role", "[[push.role]] with a client and its names");
    let roles = roles.and_then(|value| {
        let mut seen = HashMap::new();
        value.list(ROLES_MAX, |each| {
            let at = each.clone();
            each.table(|table| role(table, &at, &mut seen))
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

fn role(
    table: &mut Table<'_>,
    at: &Value<'_>,
    seen: &mut HashMap<String, Place>,
) -> Option<PushRole> {
    let client =
        table.required("client", "client = \"deployer.example.com\", as its certificate has");
    let client = client.and_then(|value| value.parsed(value::word));
    let names = table.required("names", "names = [\"*.customer.example\", \"example.com\"]");
    let names = names.and_then(|all| all.set(NAMES_MAX, |each| each.parsed(pattern)));
    let may = match table.value("may") {
        Some(all) => all.set(VERBS.len(), |each| each.choice(&VERBS)),
        None => Some(VERBS.map(|(_, verb)| verb).to_vec()),
    };
    let certificates_max = match table.value("certificates_max") {
        Some(value) => value.count(1..=usize::MAX),
        None => Some(CERTIFICATES_MAX_DEFAULT),
    };
    if let Some(client) = &client {
        if let Some(first) = seen.get(client) {
            let what = format!("{client} has a role at {first} already");
            at.wrong(Problem::new(what, "write all that it may into one"));
            return None;
        }
        seen.insert(client.clone(), at.place());
    }
    Some(PushRole {
        certificates_max: certificates_max?,
        client: client?,
        may: may?,
        names: names?,
    })
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

const VERBS: [(&str, PushVerb); 3] =
    [("put", PushVerb::Put), ("get", PushVerb::Get), ("delete", PushVerb::Delete)];
/// Certificates of a role without `certificates_max`.
const CERTIFICATES_MAX_DEFAULT: usize = 100_000;
/// Files with authorities, or with what they have revoked.
const FILES_MAX: usize = 16;
/// Names of one role.
const NAMES_MAX: usize = 1_000;
/// Roles of one listener. Each has connections of its own.
const ROLES_MAX: usize = 64;

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
