//! The keys of the agent's file: what each is called, what it may be, and its default.

use std::collections::HashMap;
use std::path::Path;

use sealane_operator::reader::{self, Table, Value};
use sealane_operator::{Mistake, store_key};

use super::Settings;
use super::authority::{AUTHORITIES_MAX, authority};
use super::certificate::{CERTIFICATES_MAX, Issued, certificate};

/// Reads `text`, the contents of `file`.
pub(super) fn parse(file: &Path, text: &str) -> (Option<Settings>, Vec<Mistake>) {
    reader::read(file, text, settings)
}

fn settings(top: &mut Table<'_>) -> Option<Settings> {
    let store = top.required("store", "store = \"/var/lib/sealane/store\"");
    let store = store.and_then(|value| value.path());
    let key = top.required("store_key", "[store_key] with file, credential or command");
    let key = key.and_then(|value| value.table(store_key));
    let push = top.value("push").map(|value| value.table(super::push::push));
    let on_demand = top.value("on_demand");
    // Whoever has certificates pushed may obtain none, and who has them on demand list none.
    let (is_pushed, is_demanded) = (push.is_some(), on_demand.is_some());
    let certificates = match is_pushed || is_demanded {
        true => top.value("certificate"),
        false => top.required("certificate", "[[certificate]] with names and a challenge"),
    };
    let authorities = match is_pushed && !is_demanded && certificates.is_none() {
        true => top.value("authority"),
        false => top.required("authority", "[[authority]] with the directory of a CA"),
    };
    let has_none = (authorities.is_none() && is_pushed).then(Vec::new);
    let authorities = authorities.map_or(has_none, |value| {
        let mut directories = HashMap::new();
        let read = |value: Value<'_>| value.table(|table| authority(table, &mut directories));
        value.list(AUTHORITIES_MAX, read)
    });
    let on_demand = on_demand.map(|value| {
        let at = value.clone();
        value.table(|table| super::on_demand::on_demand(table, &at, store.as_deref()))
    });
    let has_none = (certificates.is_none() && (is_pushed || is_demanded)).then(Vec::new);
    let certificates = certificates.map_or(has_none, |value| {
        let mut sets = HashMap::new();
        let read = |value: Value<'_>| {
            let at = value.clone();
            value.table(|table| certificate(table, &at, &mut sets))
        };
        value.list(CERTIFICATES_MAX, read)
    });
    let fleet = top.table("fleet", super::fleet::fleet);
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
        on_demand: on_demand.map_or(Some(None), |read| read.map(Some))?,
        push: push.map_or(Some(None), |push| push.map(Some))?,
        store: store?,
        store_key: key?,
    })
}
