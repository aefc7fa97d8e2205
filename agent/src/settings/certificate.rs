//! The tables `[[certificate]]`: certificates that the agent obtains and renews.

use std::collections::HashMap;
use std::path::PathBuf;

use sealane_operator::reader::{Table, Value};
use sealane_operator::{Place, value};

use super::parts::{Challenge, challenge, refuse_second};

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

pub(super) fn certificate(
    table: &mut Table<'_>,
    at: &Value<'_>,
    sets: &mut HashMap<Vec<String>, Place>,
) -> Option<Issued> {
    if let Some(list) = table.value("names_from") {
        table.refuse(&["names"], "has no place beside names_from", "keep one of the two");
        let file = list.path();
        let challenge = challenge(table, &[]);
        return Some(Issued::List(NameList { challenge: challenge?, file: file? }));
    }
    let written = table.required("names", "names = [\"www.example.com\"], or names_from");
    let mut wildcards = Vec::new();
    let names = written.as_ref().and_then(|value| {
        value.set(NAMES_MAX, |each| {
            let name = each.parsed(value::host_name)?;
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

/// Tables of certificates of one file.
pub(super) const CERTIFICATES_MAX: usize = 100_000;
/// Names of one certificate.
pub const NAMES_MAX: usize = 100;
