//! Conditions, as far as Sealane can decide by the same values: the server name, a protocol, the
//! client's network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sealane_config::network::network;
use sealane_config::value;

use super::super::files::Files;
use super::syntax::Statement;

/// The subject of a condition, and the values for which it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// A protocol that was agreed on.
    Alpn(Vec<String>),
    /// Nothing: it always holds.
    Always,
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

/// Whether a condition uses one of these `fetches`, by their names.
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
    let positive = |term: Condition| (!term.is_negated).then_some(term.test);
    let alternatives = terms(rest, acls, files)?.into_iter();
    alternatives.map(|tests| tests.into_iter().map(positive).collect()).collect()
}

/// A test that must hold, or must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) is_negated: bool,
    pub(super) test: Test,
}

/// The condition behind `if` or `unless`, if it can be written as one.
pub(super) fn single(words: &[String], acls: &Acls<'_>, files: &Files) -> Option<Condition> {
    let Some((first, rest)) = words.split_first() else {
        return Some(Condition { is_negated: false, test: Test::Always });
    };
    let is_unless = match first.as_str() {
        "if" => false,
        "unless" => true,
        _ => return None,
    };
    let alternatives = terms(rest, acls, files)?;
    let is_one = |is_negated| {
        let mut terms = alternatives.iter().flatten();
        terms.all(|term| term.is_negated == is_negated)
    };
    // One of several tests holds, or none of several does.
    let is_negated = match alternatives.len() {
        1 if is_one(true) => true,
        _ if is_one(false) && alternatives.iter().all(|tests| tests.len() == 1) => false,
        _ => return None,
    };
    let mut tests = alternatives.into_iter().flatten().map(|term| term.test);
    let first = tests.next()?;
    let test = tests.try_fold(first, joined)?;
    Some(Condition { is_negated: is_negated != is_unless, test })
}

/// The tests of a condition: one of several lists, each of which holds where all of its parts do.
fn terms(words: &[String], acls: &Acls<'_>, files: &Files) -> Option<Vec<Vec<Condition>>> {
    let mut alternatives = vec![Vec::new()];
    let mut words = words.iter();
    let mut is_negated = false;
    while let Some(word) = words.next() {
        let bare = word.trim_start_matches('!');
        is_negated ^= (word.len() - bare.len()) % 2 == 1;
        let test = match bare {
            // The `!` may be a separate word.
            "" | "and" | "&&" => continue,
            "or" | "||" => {
                alternatives.push(Vec::new());
                continue;
            }
            "{" => {
                let inner: Vec<_> =
                    words.by_ref().take_while(|word| *word != "}").cloned().collect();
                test(&inner)?
            }
            name => named(name, acls, files)?,
        };
        alternatives.last_mut()?.push(Condition { is_negated, test });
        is_negated = false;
    }
    let is_whole = alternatives.iter().all(|tests| !tests.is_empty());
    (is_whole && alternatives.len() <= ALTERNATIVES_MAX).then_some(alternatives)
}

/// The test with a name: an `acl`, or one that HAProxy predefines.
fn named(name: &str, acls: &Acls<'_>, files: &Files) -> Option<Test> {
    let Some(named) = acls.get(name) else {
        return match name {
            "LOCALHOST" => Some(Test::Source(vec!["127.0.0.0/8".to_owned()])),
            "TRUE" => Some(Test::Always),
            _ => None,
        };
    };
    let values = named.iter().map(|acl| acl.words.len()).sum();
    if !files.spend(values) {
        return None;
    }
    let mut named = named.iter();
    let first = test(named.next()?.words.get(2..)?)?;
    // Of one name, any may hold.
    named.try_fold(first, |sum, acl| joined(sum, test(acl.words.get(2..)?)?))
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
        (Test::Always, _) | (_, Test::Always) => Some(Test::Always),
        (Test::Hello, Test::Hello) => Some(Test::Hello),
        _ => None,
    }
}

/// The test in brackets, or behind the name of an `acl`.
fn test(words: &[String]) -> Option<Test> {
    let (fetch, rest) = words.split_first()?;
    let (fetch, converters) = fetch.split_once(',').unwrap_or((fetch, ""));
    if !["", "lower"].contains(&converters) {
        return None;
    }
    let (mut method, mut named_files) = (None, Vec::new());
    let mut values = Vec::new();
    let mut rest = rest.iter().map(String::as_str);
    let mut has_flags = true;
    while let Some(word) = rest.next() {
        match word {
            "--" if has_flags => has_flags = false,
            "-i" | "-n" if has_flags => {}
            "-f" if has_flags => named_files.push(format!("file:{}", rest.next()?)),
            "-m" if has_flags => method = Some(rest.next()?),
            flag if has_flags && flag.starts_with('-') => return None,
            value => {
                has_flags = false;
                values.push(value.to_owned());
            }
        }
    }
    if fetch == "src" {
        let is_network = converters.is_empty() && method.is_none_or(|method| method == "ip");
        let networks = values.iter().map(|value| network_text(value)).collect::<Option<Vec<_>>>();
        let networks = [named_files, networks.filter(|_| is_network)?].concat();
        return (!networks.is_empty()).then_some(Test::Source(networks));
    }
    let method = method.unwrap_or("str");
    let (fetch, method) = match fetch.strip_suffix("_end") {
        Some(bare) => (bare, "end"),
        None => (fetch, method),
    };
    if values.is_empty() || !named_files.is_empty() {
        return None;
    }
    match fetch {
        "req.ssl_hello_type" | "req_ssl_hello_type" if values == ["1"] => Some(Test::Hello),
        "req.ssl_sni" | "req_ssl_sni" => names(values, method, true),
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

/// A network as Sealane writes it; HAProxy takes masks, and bits behind a prefix.
fn network_text(text: &str) -> Option<String> {
    let Some((address, mask)) = text.split_once('/') else {
        return network(text).ok().map(|network| network.to_string());
    };
    let prefix = match mask.parse::<Ipv4Addr>().map(Ipv4Addr::to_bits) {
        Ok(bits) if bits.leading_ones() == bits.count_ones() => bits.leading_ones(),
        Ok(_) => return None,
        Err(_) => mask.parse().ok()?,
    };
    let first: IpAddr = match address.parse().ok()? {
        IpAddr::V4(v4) => {
            let behind = u32::MAX.checked_shr(prefix).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & !behind).into()
        }
        IpAddr::V6(v6) => {
            let behind = u128::MAX.checked_shr(prefix).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & !behind).into()
        }
    };
    network(&format!("{first}/{prefix}")).ok().map(|network| network.to_string())
}

/// Parts of a condition of which one must hold.
const ALTERNATIVES_MAX: usize = 256;
