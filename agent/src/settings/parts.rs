//! Values that several tables of the agent's file have: roots, challenges and commands.

use std::collections::HashMap;
use std::path::PathBuf;

use sealane_operator::key::{Choice, Either, Key, List, PathKind, Set, Text, Word};
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
pub(super) fn challenge(table: &Table<'_>, wildcards: &[Value<'_>]) -> Option<Challenge> {
    let command = table.value(&DNS_COMMAND);
    let is_dns = table
        .required(&CHALLENGE, "challenge = \"http-01\", \"tls-alpn-01\" or \"dns-01\"")
        .and_then(|value| CHALLENGE.read(&value));
    if let (Some(false), Some(command)) = (is_dns.map(|kind| kind == Kind::Dns01), &command) {
        let what = "means nothing without challenge = \"dns-01\"";
        command.wrong(Problem::new(what, "remove it, or change the challenge"));
    }
    let challenge = is_dns.and_then(|kind| match kind {
        Kind::Dns01 => {
            if command.is_none() {
                table.required(&DNS_COMMAND, "dns_command = [\"/etc/sealane/dns-hook\"]");
            }
            command.as_ref().and_then(|words| DNS_COMMAND.read(words)).map(Challenge::Dns01)
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

/// The roots of a table, if it has them.
pub(super) fn roots(table: &Table<'_>, key: &'static Key<Roots>) -> Option<Vec<RootSource>> {
    table.value(key).and_then(|all| all.set(key.kind.1, root_source))
}

fn root_source(value: &Value<'_>) -> Option<RootSource> {
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

/// "system" or paths.
pub(super) type Roots = Set<Either<Word, PathKind>>;

/// A program and its arguments.
pub(super) type Program = List<Text<String>>;

/// A key for roots.
pub(super) const fn roots_key(doc: &'static str) -> Key<Roots> {
    Key::new("roots", Set(Either(Word("system"), PathKind), 16), doc)
        .examples(&["[\"system\"]"])
        .without("[\"system\"]")
}

/// A key for a program.
pub(super) const fn program_key(name: &'static str, doc: &'static str) -> Key<Program> {
    Key::new(name, List(Text("text", value::word), 64), doc)
}

pub(super) static CHALLENGE: Key<Choice<Kind>> = Key::new(
    "challenge",
    Choice(&[("http-01", Kind::Http01), ("tls-alpn-01", Kind::TlsAlpn01), ("dns-01", Kind::Dns01)]),
    "How the CA verifies that the names are yours. \"http-01\" needs a listener on port 80 with \
     `plain = \"redirect\"` and `acme_responder = \"store:PATH\"`. \"tls-alpn-01\" needs a \
     listener on port 443 with `certificates = [\"store:PATH\"]`. \"dns-01\" needs dns_command, \
     and is the only one for wildcards.",
)
.examples(&["\"http-01\""])
.required();

pub(super) static DNS_COMMAND: Key<Program> = program_key(
    "dns_command",
    "For \"dns-01\": a program and its arguments. It is called without a shell, with `present NAME \
     VALUE` to add the TXT record NAME with VALUE, and with `cleanup NAME VALUE` to remove it. It \
     returns when all servers of the zone have the record, within 120 seconds. Other records of \
     the same name stay.",
)
.examples(&["[\"/etc/sealane/dns-hook\"]"])
.without("no program")
.alternative();

/// A challenge without its program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Dns01,
    Http01,
    TlsAlpn01,
}
