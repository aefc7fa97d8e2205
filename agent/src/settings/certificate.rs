//! The tables `[[certificate]]`: certificates that the agent obtains and renews.

use std::collections::HashMap;
use std::path::PathBuf;

use sealane_operator::key::{Group, Key, PathKind, Set, TableList, Text};
use sealane_operator::reader::{Readable as _, Table, Value};
use sealane_operator::{Place, value};

use super::parts::{CHALLENGE, Challenge, DNS_COMMAND, challenge, refuse_second};

/// A certificate that is to be there at all times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCertificate {
    /// How it is shown that the names are the operator's.
    pub challenge: Challenge,
    /// The names, in the order written.
    pub names: Vec<String>,
}

/// A file with a certificate to a line: its names, parted by spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameList {
    /// How it is shown that the names are the operator's.
    pub challenge: Challenge,
    /// The file.
    pub file: PathBuf,
}

/// What a table of certificates stands for.
pub(super) enum Issued {
    One(WantedCertificate),
    List(NameList),
}

/// Reads a table, which is at `at`.
pub(super) fn certificate(
    table: &Table<'_>,
    at: &Value<'_>,
    sets: &mut HashMap<Vec<String>, Place>,
) -> Option<Issued> {
    if let Some(list) = table.value(&NAMES_FROM) {
        table.refuse(&[NAMES.name], "has no place beside names_from", "keep one of the two");
        let file = list.path();
        let challenge = challenge(table, &[]);
        return Some(Issued::List(NameList { challenge: challenge?, file: file? }));
    }
    let written = table.required(&NAMES, "names = [\"www.example.com\"], or names_from");
    let mut wildcards = Vec::new();
    let names = written.as_ref().and_then(|value| {
        value.set(NAMES.kind.1, |each| {
            let name = NAMES.kind.0.read(each)?;
            if name.starts_with('*') {
                wildcards.push(each.clone());
            }
            Some(name)
        })
    });
    let challenge = challenge(table, &wildcards);
    let names = names?;
    let mut set = names.clone();
    set.sort();
    refuse_second(sets, set, at, &names.join(", "));
    Some(Issued::One(WantedCertificate { challenge: challenge?, names }))
}

/// Names of one certificate.
pub const NAMES_MAX: usize = 100;

pub(super) static CERTIFICATE: Key<TableList> =
    Key::new("certificate", TableList(&GROUP, 100_000), "");

static GROUP: Group = Group::new(
    "certificate",
    "Certificates that the agent obtains and renews. Required, unless there is [push] or \
     [on_demand]. A table has names or names_from.",
    &[&NAMES, &NAMES_FROM, &CHALLENGE, &DNS_COMMAND],
)
.example(
    "[[certificate]]\nnames = [\"example.com\", \"www.example.com\"]\nchallenge = \"http-01\"\n",
);

static NAMES: Key<Set<Text<String>>> = Key::new(
    "names",
    Set(Text("host name", value::host_name), NAMES_MAX),
    "The names of one certificate. \"*.example.com\" is a wildcard, which needs \"dns-01\".",
)
.examples(&["[\"example.com\", \"www.example.com\"]"]);

static NAMES_FROM: Key<PathKind> = Key::new(
    "names_from",
    PathKind,
    "Instead of names: a file with a certificate on each line, its names separated by spaces. Text \
     behind a # is a comment. A file has up to 1,000,000 lines. A change takes effect at a reload.",
)
.examples(&["\"/etc/sealane/names\""])
.alternative();
