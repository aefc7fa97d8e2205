//! Conditions, as far as Sealane decides by what they look at: the server name, a protocol, the
//! client's network.

use std::collections::HashMap;

use super::super::files::Files;
use super::syntax::Statement;
use crate::config::value;

/// What a condition looks at, and which values it holds for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// A protocol that was agreed on.
    Alpn(Vec<String>),
    /// That the first message is a ClientHello.
    Hello,
    /// A server name, of a session or of a ClientHello.
    Names {
        /// Names, of which those that begin with `*.` stand for one label more.
        names: Vec<String>,
        /// Whether the ClientHello is looked at, and TLS passed on.
        passes_on: bool,
        /// Whether names with more labels match too, which a wildcard does not.
        is_deeper: bool,
    },
    /// Networks that the client may be from, or `file:PATH` with some.
    Source(Vec<String>),
}

/// Conditions with a name: any line of a name may hold.
pub(super) type Acls<'s> = HashMap<&'s str, Vec<&'s Statement>>;

/// Whether a condition looks at one of these by the name of what it fetches.
pub(super) fn looks_at(words: &[String], acls: &Acls<'_>, fetches: &[&str], files: &Files) -> bool {
    let fetched = |word: &String| fetches.iter().any(|fetch| word.starts_with(fetch));
    words.iter().any(|word| {
        let named = acls.get(word.trim_start_matches('!')).map_or(&[][..], Vec::as_slice);
        files.spend(named.len())
            && (fetched(word) || named.iter().any(|acl| acl.words.get(2).is_some_and(fetched)))
    })
}

/// The tests behind `if`: one of several, each of which holds where all of its parts do.
pub(super) fn read(words: &[String], acls: &Acls<'_>, files: &Files) -> Option<Vec<Vec<Test>>> {
    let (first, rest) = words.split_first()?;
    if first != "if" {
        return None;
    }
    let mut alternatives = vec![Vec::new()];
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "or" | "||" => alternatives.push(Vec::new()),
            "and" | "&&" => {}
            "{" => {
                let inner: Vec<_> =
                    words.by_ref().take_while(|word| *word != "}").cloned().collect();
                alternatives.last_mut()?.push(test(&inner)?);
            }
            name => {
                let named = acls.get(name)?;
                let values = named.iter().map(|acl| acl.words.len()).sum();
                if !files.spend(values) {
                    return None;
                }
                let mut named = named.iter();
                let first = test(named.next()?.words.get(2..)?)?;
                // Of one name, any may hold.
                let all = named.try_fold(first, |sum, acl| joined(sum, test(acl.words.get(2..)?)?));
                alternatives.last_mut()?.push(all?);
            }
        }
    }
    let is_whole = alternatives.iter().all(|tests| !tests.is_empty());
    (is_whole && alternatives.len() <= ALTERNATIVES_MAX).then_some(alternatives)
}

/// One that holds where either does.
pub(super) fn joined(one: Test, other: Test) -> Option<Test> {
    match (one, other) {
        (Test::Alpn(mut one), Test::Alpn(other)) => {
            one.extend(other);
            Some(Test::Alpn(one))
        }
        (
            Test::Names { mut names, passes_on, is_deeper },
            Test::Names { names: more, passes_on: same, is_deeper: deeper },
        ) if passes_on == same => {
            names.extend(more);
            Some(Test::Names { names, passes_on, is_deeper: is_deeper || deeper })
        }
        (Test::Source(mut one), Test::Source(other)) => {
            one.extend(other);
            Some(Test::Source(one))
        }
        (Test::Hello, Test::Hello) => Some(Test::Hello),
        _ => None,
    }
}

/// What stands in brackets, or behind the name of an `acl`.
fn test(words: &[String]) -> Option<Test> {
    let (fetch, rest) = words.split_first()?;
    let (fetch, converters) = fetch.split_once(',').unwrap_or((fetch, ""));
    if !["", "lower"].contains(&converters) {
        return None;
    }
    let (mut method, mut is_file) = ("str", false);
    let mut values = Vec::new();
    let mut rest = rest.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        match word {
            "--" | "-i" if values.is_empty() => {}
            "-f" if values.is_empty() => is_file = true,
            "-m" if values.is_empty() => method = rest.next()?,
            value => values.push(value.to_owned()),
        }
    }
    let (fetch, method) = match fetch.strip_suffix("_end") {
        Some(bare) => (bare, "end"),
        None => (fetch, method),
    };
    if values.is_empty() || is_file && fetch != "src" {
        return None;
    }
    match fetch {
        "req.ssl_hello_type" | "req_ssl_hello_type" if values == ["1"] => Some(Test::Hello),
        "req.ssl_sni" | "req_ssl_sni" => names(values, method, true),
        "src" if is_file => {
            Some(Test::Source(values.iter().map(|path| format!("file:{path}")).collect()))
        }
        "src" => Some(Test::Source(values)),
        "ssl_fc_alpn" if method == "str" => Some(Test::Alpn(values)),
        "ssl_fc_sni" => names(values, method, false),
        _ => None,
    }
}

fn names(values: Vec<String>, method: &str, passes_on: bool) -> Option<Test> {
    let names = match method {
        "str" => values,
        "end" => {
            let wildcard = |end: &String| Some(format!("*.{}", end.strip_prefix('.')?));
            values.iter().map(wildcard).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let names = names.iter().map(|name| value::host_name(name).ok()).collect::<Option<_>>()?;
    Some(Test::Names { names, passes_on, is_deeper: method == "end" })
}

/// Parts of a condition of which one must hold.
const ALTERNATIVES_MAX: usize = 256;
