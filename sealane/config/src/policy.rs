//! The keys of a listener for TLS: versions, suites, groups, schemes, ALPN.

use std::collections::BTreeMap;

use sealane_engine::policy::{AlpnMismatch, Group, Policy, Scheme, Suite, UnknownNames, Versions};
use sealane_operator::key::{Bool, ByName, Choice, Key, Or, Set, Text};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Readable as _, Table, Value};

use crate::value::{self, AlpnProtocol};

/// The policy of a listener that is written `at` a place.
pub(crate) fn policy(table: &Table<'_>, at: &Value<'_>) -> Policy {
    let default = Policy::default();
    let own = Policy {
        alpn: table.value(&ALPN).and_then(|v| alpn(&v, &ALPN)).unwrap_or_default(),
        unknown_names: table.get(&UNKNOWN_NAMES),
        ..default
    };
    handshake(table, at, own)
}

/// The policy `default` with what is written in its place, of what can differ by name.
pub(crate) fn handshake(table: &Table<'_>, at: &Value<'_>, default: Policy) -> Policy {
    let mismatch = table.read(&ALPN_MISMATCH);
    let written_versions = table.value(&VERSIONS);
    let versions = written_versions.as_ref().and_then(|v| versions(v, &VERSIONS));
    let versions = versions.unwrap_or(default.versions);
    let groups = table.value(&GROUPS);
    let group_list = groups.as_ref().and_then(|v| GROUPS.read(v));
    let require_ems = table.read(&REQUIRE_EXTENDED_MASTER_SECRET);
    let policy = Policy {
        alpn_mismatch: mismatch.unwrap_or(default.alpn_mismatch),
        groups: group_list.unwrap_or(default.groups),
        require_extended_master_secret: require_ems
            .unwrap_or(default.require_extended_master_secret),
        schemes: table.read(&SCHEMES).unwrap_or(default.schemes),
        suites: suites(table, versions).unwrap_or(default.suites),
        versions,
        ..default
    };
    // Who writes neither has what is told of above.
    if let Some(place) = table.value(&SUITES).or(written_versions)
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
        (ALPN.name, listed(protocols.collect())),
        (ALPN_MISMATCH.name, written(&ALPN_MISMATCH, policy.alpn_mismatch)),
        (GROUPS.name, listed(groups.map(|group| group.name().to_owned()).collect())),
        (
            REQUIRE_EXTENDED_MASTER_SECRET.name,
            policy.require_extended_master_secret.then(|| true.to_string()),
        ),
        (SCHEMES.name, listed(policy.schemes.iter().map(|each| each.name().to_owned()).collect())),
        (
            SUITES.name,
            listed(policy.suites.iter().map(|each| each.openssl_name().to_owned()).collect()),
        ),
        (UNKNOWN_NAMES.name, written(&UNKNOWN_NAMES, policy.unknown_names)),
        (VERSIONS.name, versions.map(str::to_owned)),
    ];
    all.into_iter().filter_map(|(key, text)| Some((key, text?))).collect()
}

/// The name of `value` among the choices of `key`, unless it is the default.
fn written<T: Copy + PartialEq + Sync>(key: &Key<Or<Choice<T>>>, value: T) -> Option<String> {
    let Or(Choice(choices), default) = &key.kind;
    let name = choices.iter().find(|(_, choice)| *choice == value)?.0;
    (value != *default).then(|| name.to_owned())
}

/// The protocol versions that are `written` for a key.
pub(crate) fn versions(written: &Value<'_>, key: &Key<Set<Choice<Versions>>>) -> Option<Versions> {
    Some(match key.read(written)?.as_slice() {
        [Versions::Tls12] => Versions::Tls12,
        [Versions::Tls13] => Versions::Tls13,
        _ => Versions::Tls12AndTls13,
    })
}

/// The application protocols that are `written` for a key.
pub(crate) fn alpn(
    written: &Value<'_>,
    key: &Key<Set<Text<AlpnProtocol>>>,
) -> Option<Vec<Vec<u8>>> {
    let protocols = key.read(written)?;
    Some(protocols.into_iter().map(|protocol| protocol.0).collect())
}

fn suites(table: &Table<'_>, versions: Versions) -> Option<Vec<Suite>> {
    let written = table.value(&SUITES)?;
    let Set(text, suites_max) = &SUITES.kind;
    let suites = written.set(*suites_max, |v| {
        let suite = text.read(v)?;
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

/// The names of the keys that `handshake` reads.
pub static HANDSHAKE_KEYS: [&str; 6] = [
    ALPN_MISMATCH.name,
    GROUPS.name,
    REQUIRE_EXTENDED_MASTER_SECRET.name,
    SCHEMES.name,
    SUITES.name,
    VERSIONS.name,
];

pub(crate) static UNKNOWN_NAMES: Key<Or<Choice<UnknownNames>>> = Key::new(
    "unknown_names",
    Or(
        Choice(&[("default", UnknownNames::ServeDefault), ("refuse", UnknownNames::Refuse)]),
        UnknownNames::ServeDefault,
    ),
    "What a client gets that asks for a name without a certificate: the default certificate, or an \
     alert.",
)
.see(&["listener.default_certificate", "listener.on_demand"]);

pub(crate) static VERSIONS: Key<Set<Choice<Versions>>> =
    Key::new("versions", Set(Choice(&VERSION_NAMES), 2), "TLS versions.")
        .without("[\"1.2\", \"1.3\"]")
        .examples(&["[\"1.2\", \"1.3\"]"]);

pub(crate) static GROUPS: Key<Set<ByName<Group>>> = Key::new(
    "groups",
    Set(ByName(&Group::ALL, Group::name), Group::ALL.len()),
    "Key exchange groups. Among these the client's order decides.",
)
.without("[\"X25519MLKEM768\", \"X25519\", \"secp256r1\", \"secp384r1\"]")
.examples(&["[\"X25519MLKEM768\", \"X25519\", \"secp256r1\", \"secp384r1\"]"]);

pub(crate) static SUITES: Key<Set<Text<Suite>>> = Key::new(
    "suites",
    Set(Text("cipher suite", suite), Suite::ALL.len()),
    "Cipher suites in order of preference, by the names of OpenSSL or IANA. Without the key, a \
     client that puts ChaCha20 first gets ChaCha20; with it, the order of the list alone counts.",
)
.without("all suites of the example, in its order")
.examples(&["[
  \"TLS_AES_128_GCM_SHA256\", \"TLS_AES_256_GCM_SHA384\", \"TLS_CHACHA20_POLY1305_SHA256\",
  \"ECDHE-ECDSA-AES128-GCM-SHA256\", \"ECDHE-RSA-AES128-GCM-SHA256\",
  \"ECDHE-ECDSA-AES256-GCM-SHA384\", \"ECDHE-RSA-AES256-GCM-SHA384\",
  \"ECDHE-ECDSA-CHACHA20-POLY1305\", \"ECDHE-RSA-CHACHA20-POLY1305\",
]"]);

pub(crate) static SCHEMES: Key<Set<ByName<Scheme>>> = Key::new(
    "schemes",
    Set(ByName(&Scheme::ALL, Scheme::name), Scheme::ALL.len()),
    "Signature schemes of handshakes.",
)
.without("all that the keys of the certificates have")
.examples(&["[
  \"ecdsa_secp256r1_sha256\", \"ecdsa_secp384r1_sha384\", \"ecdsa_secp521r1_sha512\", \"ed25519\",
  \"rsa_pkcs1_sha256\", \"rsa_pkcs1_sha384\", \"rsa_pkcs1_sha512\",
  \"rsa_pss_rsae_sha256\", \"rsa_pss_rsae_sha384\", \"rsa_pss_rsae_sha512\",
]"]);

pub(crate) static REQUIRE_EXTENDED_MASTER_SECRET: Key<Or<Bool>> = Key::new(
    "require_extended_master_secret",
    Or(Bool, false),
    "Whether clients of TLS 1.2 without extended master secret (RFC 7627) are refused: OpenSSL \
     before 1.1.0, Java before 8u161, Android 5. Otherwise they get full handshakes and no \
     resumption. Where client certificates are required they are refused in any case.",
);

pub(crate) static ALPN: Key<Set<Text<AlpnProtocol>>> = Key::new(
    "alpn",
    Set(Text(PROTOCOL, value::alpn_protocol), PROTOCOLS_MAX),
    "Application protocols (ALPN) in order of preference. With \"http/1.1\", clients that offer \
     \"http/1.0\" or \"http/0.9\" alone are accepted too.",
)
.examples(&["[\"h2\", \"http/1.1\"]"])
.without("no ALPN")
.see(&["listener.alpn_mismatch", "listener.route.alpn"]);

pub(crate) static ALPN_MISMATCH: Key<Or<Choice<AlpnMismatch>>> = Key::new(
    "alpn_mismatch",
    Or(
        Choice(&[("none", AlpnMismatch::Without), ("refuse", AlpnMismatch::Refuse)]),
        AlpnMismatch::Refuse,
    ),
    "What a client gets that offers only other protocols: \"refuse\", an alert as the standard has \
     it, or \"none\", a session without a protocol.",
);

pub(crate) const PROTOCOL: &str = "name of a protocol";
pub(crate) const PROTOCOLS_MAX: usize = 16;
pub(crate) static VERSION_NAMES: [(&str, Versions); 2] =
    [("1.2", Versions::Tls12), ("1.3", Versions::Tls13)];
