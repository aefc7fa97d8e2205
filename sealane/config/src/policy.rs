//! The keys of a listener for TLS: versions, suites, groups, schemes, ALPN.

use std::collections::BTreeMap;

use sealane_engine::policy::{AlpnMismatch, Group, Policy, Scheme, Suite, UnknownNames, Versions};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

use crate::value;

/// The policy of a listener that is written `at` a place.
pub(crate) fn policy(table: &mut Table<'_>, at: &Value<'_>) -> Policy {
    let default = Policy::default();
    let unknown_names = table.value("unknown_names").and_then(|v| v.choice(&UNKNOWN_NAMES));
    let own = Policy {
        alpn: alpn(table).unwrap_or_default(),
        unknown_names: unknown_names.unwrap_or(default.unknown_names),
        ..default
    };
    handshake(table, at, own)
}

/// The policy `default` with what is written in its place, of what can differ by name.
pub(crate) fn handshake(table: &mut Table<'_>, at: &Value<'_>, default: Policy) -> Policy {
    let mismatch = table.value("alpn_mismatch").and_then(|v| v.choice(&ALPN_MISMATCH));
    let written_versions = table.value("versions");
    let versions = versions(table).unwrap_or(default.versions);
    let groups = table.value("groups");
    let choices = Group::ALL.map(|group| (group.name(), group));
    let group_list = groups.as_ref().and_then(|v| v.set(choices.len(), |v| v.choice(&choices)));
    let require_ems = table.value(REQUIRE_EXTENDED_MASTER_SECRET).and_then(|v| v.boolean());
    let policy = Policy {
        alpn_mismatch: mismatch.unwrap_or(default.alpn_mismatch),
        groups: group_list.unwrap_or(default.groups),
        require_extended_master_secret: require_ems
            .unwrap_or(default.require_extended_master_secret),
        schemes: schemes(table).unwrap_or(default.schemes),
        suites: suites(table, versions).unwrap_or(default.suites),
        versions,
        ..default
    };
    // Who writes neither has what is told of above.
    if let Some(place) = table.value("suites").or(written_versions)
        && let Some(problem) = version_without_suite(&policy.suites, versions)
    {
        place.wrong(problem);
    }
    if policy.groups == [Group::X25519MlKem768] && policy.versions != Versions::Tls13 {
        groups.as_ref().unwrap_or(at).wrong(Problem::new(
            "TLS 1.2 has no group to use, X25519MLKEM768 is for TLS 1.3",
            "add \"X25519\", or say versions = [\"1.3\"]",
        ));
    }
    policy
}

/// The settings of `policy` that differ from their defaults, by their keys and about as they are
/// written.
pub fn chosen_policy(policy: &Policy) -> BTreeMap<&'static str, String> {
    let default = Policy::default();
    let listed = |names: Vec<String>| (!names.is_empty()).then(|| names.join(", "));
    let groups = policy.groups.iter().filter(|_| policy.groups != default.groups);
    let protocols = policy.alpn.iter().map(|protocol| protocol.escape_ascii().to_string());
    let versions = match policy.versions {
        Versions::Tls12 => Some("1.2"),
        Versions::Tls12AndTls13 => None,
        Versions::Tls13 => Some("1.3"),
    };
    let all = [
        ("alpn", listed(protocols.collect())),
        ("alpn_mismatch", written(&ALPN_MISMATCH, policy.alpn_mismatch, default.alpn_mismatch)),
        ("groups", listed(groups.map(|group| group.name().to_owned()).collect())),
        (
            REQUIRE_EXTENDED_MASTER_SECRET,
            policy.require_extended_master_secret.then(|| true.to_string()),
        ),
        ("schemes", listed(policy.schemes.iter().map(|each| each.name().to_owned()).collect())),
        (
            "suites",
            listed(policy.suites.iter().map(|each| each.openssl_name().to_owned()).collect()),
        ),
        ("unknown_names", written(&UNKNOWN_NAMES, policy.unknown_names, default.unknown_names)),
        ("versions", versions.map(str::to_owned)),
    ];
    all.into_iter().filter_map(|(key, text)| Some((key, text?))).collect()
}

/// The name of `value` among `choices`, unless it is the default.
fn written<T: Copy + PartialEq>(choices: &[(&str, T)], value: T, default: T) -> Option<String> {
    let mut names = choices.iter().filter(|(_, choice)| *choice == value && value != default);
    names.next().map(|(name, _)| (*name).to_owned())
}

/// The protocol versions in `versions`.
pub(crate) fn versions(table: &mut Table<'_>) -> Option<Versions> {
    let versions = table.value("versions")?.set(2, |v| v.choice(&VERSIONS))?;
    Some(match versions.as_slice() {
        [Versions::Tls12] => Versions::Tls12,
        [Versions::Tls13] => Versions::Tls13,
        _ => Versions::Tls12AndTls13,
    })
}

/// The application protocols in `alpn`.
pub(crate) fn alpn(table: &mut Table<'_>) -> Option<Vec<Vec<u8>>> {
    table.value("alpn")?.set(ALPN_MAX, |v| Some(v.parsed(value::alpn_protocol)?.0))
}

fn suites(table: &mut Table<'_>, versions: Versions) -> Option<Vec<Suite>> {
    let written = table.value("suites")?;
    let suites = written.set(Suite::ALL.len(), |v| {
        let suite = v.parsed(suite)?;
        let (is_tls13, version) = (suite.is_tls13(), if suite.is_tls13() { "1.3" } else { "1.2" });
        let is_spoken = versions != if is_tls13 { Versions::Tls12 } else { Versions::Tls13 };
        if !is_spoken {
            let what = format!("TLS {version}, for which this suite is, is not among versions");
            v.wrong(Problem::new(what, "remove it, or add the version"));
        }
        is_spoken.then_some(suite)
    })?;
    Some(suites)
}

/// A version that is spoken, although no suite of `suites`, written here or above, is for it. None
/// at all are all that there are.
fn version_without_suite(suites: &[Suite], versions: Versions) -> Option<Problem> {
    let (version, example) = [
        (Versions::Tls13, "1.2", Suite::EcdheEcdsaAes128GcmSha256),
        (Versions::Tls12, "1.3", Suite::Tls13Aes128GcmSha256),
    ]
    .into_iter()
    .find_map(|(without, version, example)| {
        let is_missing = !suites.is_empty()
            && !suites.iter().any(|suite| suite.is_tls13() == example.is_tls13());
        (is_missing && versions != without).then_some((version, example))
    })?;
    Some(Problem::new(
        format!("no suite of TLS {version} is among suites"),
        format!(
            "add one, such as {:?}, or leave TLS {version} out of versions",
            example.openssl_name()
        ),
    ))
}

fn schemes(table: &mut Table<'_>) -> Option<Vec<Scheme>> {
    let choices = Scheme::ALL.map(|scheme| (scheme.name(), scheme));
    table.value("schemes")?.set(choices.len(), |v| v.choice(&choices))
}

/// Reads a suite by the name of IANA or of OpenSSL.
fn suite(text: &str) -> Result<Suite, Problem> {
    let named = |suite: &Suite| [suite.name(), suite.openssl_name()].contains(&text);
    Suite::ALL.into_iter().find(named).ok_or_else(|| {
        let names: Vec<_> = Suite::ALL.iter().map(|suite| suite.openssl_name()).collect();
        Problem::new(
            format!("{text:?} is no suite that Sealane has"),
            format!("choose among {}", names.join(", ")),
        )
    })
}

/// What [`handshake`] reads.
pub const HANDSHAKE_KEYS: [&str; 6] =
    ["alpn_mismatch", "groups", REQUIRE_EXTENDED_MASTER_SECRET, "schemes", "suites", "versions"];

/// The key of listeners, routes and backends.
pub(crate) const REQUIRE_EXTENDED_MASTER_SECRET: &str = "require_extended_master_secret";

const ALPN_MAX: usize = 16;

const ALPN_MISMATCH: [(&str, AlpnMismatch); 2] =
    [("none", AlpnMismatch::Without), ("refuse", AlpnMismatch::Refuse)];

const UNKNOWN_NAMES: [(&str, UnknownNames); 2] =
    [("default", UnknownNames::ServeDefault), ("refuse", UnknownNames::Refuse)];

const VERSIONS: [(&str, Versions); 2] = [("1.2", Versions::Tls12), ("1.3", Versions::Tls13)];
