//! The keys above the first table of the agent's file, and how the whole is read.

use std::collections::HashMap;
use std::path::Path;

use sealane_operator::key::{FileKeys, Group, Key, PathKind, TableKind};
use sealane_operator::reader::{self, Table, Value};
use sealane_operator::{Mistake, SECRET_KEYS, store_key};

use super::Settings;
use super::authority::{AUTHORITY, authority};
use super::certificate::{CERTIFICATE, Issued, certificate};
use super::fleet::{FLEET, fleet};
use super::on_demand::{ON_DEMAND, on_demand};
use super::push::{PUSH, push};

/// Reads `text`, the contents of `file`.
pub(super) fn parse(file: &Path, text: &str) -> (Option<Settings>, Vec<Mistake>) {
    reader::read(file, text, &KEYS, settings)
}

fn settings(top: &Table<'_>) -> Option<Settings> {
    let store = top.required(&STORE, "store = \"/var/lib/sealane/store\"");
    let store = store.and_then(|value| value.path());
    let key = top.required(&STORE_KEY, "[store_key] with file, credential or command");
    let key = key.and_then(|value| value.table(STORE_KEY.kind.0, store_key));
    let push = top.value(&PUSH).map(|value| value.table(PUSH.kind.0, push));
    let demanded = top.value(&ON_DEMAND);
    // With [push] the agent may obtain no certificate, and with [on_demand] it may list none.
    let (is_pushed, is_demanded) = (push.is_some(), demanded.is_some());
    let certificates = match is_pushed || is_demanded {
        true => top.value(&CERTIFICATE),
        false => top.required(&CERTIFICATE, "[[certificate]] with names and a challenge"),
    };
    let authorities = match is_pushed && !is_demanded && certificates.is_none() {
        true => top.value(&AUTHORITY),
        false => top.required(&AUTHORITY, "[[authority]] with the directory of a CA"),
    };
    let has_none = (authorities.is_none() && is_pushed).then(Vec::new);
    let authorities = authorities.map_or(has_none, |value| {
        let mut directories = HashMap::new();
        value.list(AUTHORITY.kind.1, |value| {
            value.table(AUTHORITY.kind.0, |table| authority(table, &mut directories))
        })
    });
    let demanded = demanded.map(|value| {
        value.table(ON_DEMAND.kind.0, |table| on_demand(table, &value, store.as_deref()))
    });
    let has_none = (certificates.is_none() && (is_pushed || is_demanded)).then(Vec::new);
    let certificates = certificates.map_or(has_none, |value| {
        let mut sets = HashMap::new();
        value.list(CERTIFICATE.kind.1, |value: Value<'_>| {
            value.table(CERTIFICATE.kind.0, |table| certificate(table, &value, &mut sets))
        })
    });
    let fleet = top.subtable(&FLEET, fleet);
    let (mut each, mut lists) = (Vec::new(), Vec::new());
    for issued in certificates? {
        match issued {
            Issued::One(certificate) => each.push(certificate),
            Issued::List(list) => lists.push(list),
        }
    }
    Some(Settings {
        authorities: authorities?,
        certificates: each,
        fleet,
        lists,
        on_demand: demanded.map_or(Some(None), |read| read.map(Some))?,
        push: push.map_or(Some(None), |push| push.map(Some))?,
        store: store?,
        store_key: key?,
    })
}

/// The keys of the agent's file.
pub(super) static KEYS: FileKeys = FileKeys { top: &TOP, page: "docs/agent-configuration.md" };

static TOP: Group = Group::new(
    "",
    "Keys above the first [table].",
    &[&STORE, &STORE_KEY, &AUTHORITY, &CERTIFICATE, &ON_DEMAND, &FLEET, &PUSH],
);

static STORE: Key<PathKind> = Key::new(
    "store",
    PathKind,
    "The folder of the certificate store, which `certificates = [\"store:PATH\"]` names in \
     sealane.toml. The agent makes it if there is none. It also has the keys of ACME accounts and \
     orders in progress, sealed.",
)
.examples(&["\"/var/lib/sealane/store\""])
.required()
.restart();

static STORE_KEY: Key<TableKind> = Key::new("store_key", TableKind(&STORE_KEY_GROUP), "");

static STORE_KEY_GROUP: Group = Group::new(
    "store_key",
    "The keys that seal the private keys in the store, one on each line; the first one seals. The \
     same as in sealane.toml. Required. One of the three sources. A change takes effect at the \
     next start.",
    &SECRET_KEYS,
)
.restart();
