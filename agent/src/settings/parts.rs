//! Values that several tables of the agent's file have: roots, challenges and commands.

use std::collections::HashMap;
use std::path::PathBuf;

use sealane_operator::reader::{Table, Value};
use sealane_operator::{Place, Problem, value};

/// Authorities that are trusted to vouch for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootSource {
    /// Those in a PEM file.
    File(PathBuf),
    /// Those that the system trusts.
    System,
}

/// A way to show that a name is the operator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A record of DNS, which a command makes and takes away: its path, then its arguments.
    Dns01(Vec<String>),
    /// An answer over HTTP, which `sealane serve` gives out of the store.
    Http01,
    /// A handshake, which `sealane serve` makes out of the store.
    TlsAlpn01,
}

/// How names are shown, among which these are wildcards.
pub(super) fn challenge(table: &mut Table<'_>, wildcards: &[Value<'_>]) -> Option<Challenge> {
    let command = table.value("dns_command");
    let is_dns = table
        .required("challenge", "challenge = \"http-01\", \"tls-alpn-01\" or \"dns-01\"")
        .and_then(|value| value.choice(&CHALLENGES));
    if let (Some(false), Some(command)) = (is_dns.map(|kind| kind == Kind::Dns01), &command) {
        let what = "means nothing without challenge = \"dns-01\"";
        command.wrong(Problem::new(what, "remove it, or change the challenge"));
    }
    let challenge = is_dns.and_then(|kind| match kind {
        Kind::Dns01 => {
            if command.is_none() {
                table.required("dns_command", "dns_command = [\"/etc/sealane/dns-hook\"]");
            }
            let words =
                |value: &Value<'_>| value.list(COMMAND_WORDS_MAX, |word| word.parsed(value::word));
            command.as_ref().and_then(words).map(Challenge::Dns01)
        }
        Kind::Http01 => Some(Challenge::Http01),
        Kind::TlsAlpn01 => Some(Challenge::TlsAlpn01),
    });
    if is_dns.is_some_and(|kind| kind != Kind::Dns01) {
        for wildcard in wildcards {
            let what = "a wildcard, which CAs issue for a record of DNS alone";
            let remedy = "write challenge = \"dns-01\" and dns_command, or name each host";
            wildcard.wrong(Problem::new(what, remedy));
        }
    }
    challenge
}

pub(super) fn root_source(value: &Value<'_>) -> Option<RootSource> {
    match value.as_text() {
        Some("system") => Some(RootSource::System),
        _ => value.path().map(RootSource::File),
    }
}

/// Notes that `key` is at `at` and before.
pub(super) fn refuse_second<K: std::hash::Hash + Eq>(
    seen: &mut HashMap<K, Place>,
    key: K,
    at: &Value<'_>,
    what: &str,
) {
    if let Some(first) = seen.get(&key) {
        let what = format!("{what}: the same is at {first}");
        at.wrong(Problem::new(what, "remove one of the two"));
        return;
    }
    seen.insert(key, at.place());
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dns01,
    Http01,
    TlsAlpn01,
}

const CHALLENGES: [(&str, Kind); 3] =
    [("http-01", Kind::Http01), ("tls-alpn-01", Kind::TlsAlpn01), ("dns-01", Kind::Dns01)];

/// Words of a command.
pub(super) const COMMAND_WORDS_MAX: usize = 64;
/// Sources of roots for one CA.
pub(super) const ROOTS_MAX: usize = 16;
