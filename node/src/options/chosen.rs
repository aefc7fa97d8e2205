//! Names of versions, suites, groups and schemes.

use sealane_engine::policy::{Group, Scheme, Suite, Versions};

use super::Mistake;

pub(super) fn versions(
    min: Option<&str>,
    max: Option<&str>,
    mistakes: &mut Vec<Mistake>,
) -> Versions {
    let mut known = |field: &'static str, name: Option<&str>, unset: &'static str| match name
        .unwrap_or(unset)
    {
        "TLSv1.2" => false,
        "TLSv1.3" => true,
        other => {
            let message = format!("{field}: {other:?} is not offered; use TLSv1.2 or TLSv1.3");
            mistakes.push(Mistake::of_value(field, message));
            unset == "TLSv1.3"
        }
    };
    match (known("minVersion", min, "TLSv1.2"), known("maxVersion", max, "TLSv1.3")) {
        (false, false) => Versions::Tls12,
        (false, true) => Versions::Tls12AndTls13,
        (true, true) => Versions::Tls13,
        (true, false) => {
            let message = "minVersion is above maxVersion; exchange them".to_owned();
            mistakes.push(Mistake::of_value("minVersion", message));
            Versions::Tls13
        }
    }
}

pub(super) fn suites(names: &[String], mistakes: &mut Vec<Mistake>) -> Vec<Suite> {
    known("suites", names, &Suite::ALL, Suite::name, mistakes)
}

pub(super) fn groups(names: &[String], mistakes: &mut Vec<Mistake>) -> Vec<Group> {
    known("groups", names, &Group::ALL, Group::name, mistakes)
}

pub(super) fn schemes(names: &[String], mistakes: &mut Vec<Mistake>) -> Vec<Scheme> {
    known("schemes", names, &Scheme::ALL, Scheme::name, mistakes)
}

/// Protocols as they stand in the handshake.
pub(super) fn alpn(names: &[String], mistakes: &mut Vec<Mistake>) -> Vec<Vec<u8>> {
    let bytes = |name: &String| {
        let bytes: Option<Vec<u8>> = name.chars().map(|c| u8::try_from(c).ok()).collect();
        bytes.filter(|bytes| (1..=ALPN_BYTES_MAX).contains(&bytes.len()))
    };
    let mut protocols = Vec::with_capacity(names.len());
    for name in names {
        match bytes(name) {
            Some(bytes) => protocols.push(bytes),
            None => {
                let message = format!(
                    "alpn: {name:?} is no protocol's name; give 1 to {ALPN_BYTES_MAX} bytes"
                );
                mistakes.push(Mistake::of_value("alpn", message));
            }
        }
    }
    protocols
}

/// The values of `names`, in their order, each once.
fn known<T: Copy + PartialEq>(
    field: &'static str,
    names: &[String],
    all: &[T],
    name_of: fn(T) -> &'static str,
    mistakes: &mut Vec<Mistake>,
) -> Vec<T> {
    let mut chosen = Vec::with_capacity(names.len());
    for name in names {
        match all.iter().find(|one| name_of(**one).eq_ignore_ascii_case(name)) {
            Some(one) if chosen.contains(one) => {}
            Some(one) => chosen.push(*one),
            None => {
                let offered: Vec<_> = all.iter().map(|one| name_of(*one)).collect();
                let offered = offered.join(", ");
                let message = format!("{field}: {name:?} is not offered; there is {offered}");
                mistakes.push(Mistake::of_value(field, message));
            }
        }
    }
    chosen
}

/// The largest count in a byte.
const ALPN_BYTES_MAX: usize = 255;
