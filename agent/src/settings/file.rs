//! The keys of the agent's file: what each is called, what it may be, and its default.

use std::collections::HashMap;
use std::path::Path;

use sealane_operator::reader::{self, Table, Value};
use sealane_operator::{Mistake, Place, Problem, store_key, value};

use super::parts::{ROOTS_MAX, challenge, root_source};
use super::{
    Authority, ExternalAccount, KeyKind, NAMES_MAX, NameList, RootSource, Settings,
    WantedCertificate,
};

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

fn authority(table: &mut Table<'_>, directories: &mut HashMap<String, Place>) -> Option<Authority> {
    let written = table.required("directory", DIRECTORY_EXAMPLE);
    let directory = written.as_ref().and_then(|value| value.parsed(directory_url));
    if let (Some(written), Some(directory)) = (&written, &directory) {
        refuse_second(directories, directory.clone(), written, directory);
    }
    match table.required("agree_to_terms", "agree_to_terms = true, once you have read them") {
        Some(agreed) if agreed.boolean() == Some(false) => {
            let what = "is false, and no CA has an account for whoever does not agree";
            agreed.wrong(Problem::new(what, "read its terms and write true, or remove the table"));
        }
        _ => {}
    }
    let contact = table
        .value("contact")
        .and_then(|value| value.set(CONTACTS_MAX, |each| each.parsed(contact_url)));
    let roots = table.value("roots").and_then(|value| value.set(ROOTS_MAX, root_source));
    let key = table.value("key").and_then(|value| value.choice(&KEYS));
    let profile = table.value("profile").and_then(|value| value.parsed(profile_name));
    let external_account = table.table("external_account", external_account);
    Some(Authority {
        contact: contact.unwrap_or_default(),
        directory: directory?,
        external_account,
        key: key.unwrap_or_default(),
        profile,
        roots: roots.unwrap_or_else(|| vec![RootSource::System]),
    })
}

fn external_account(table: &mut Table<'_>) -> Option<ExternalAccount> {
    let kid = table.required("kid", "kid = \"...\", as the CA has told it");
    let kid = kid.and_then(|value| value.parsed(value::word));
    let file = table.required("key_file", "key_file = \"/etc/sealane/eab.key\"");
    let key_file = file.and_then(|value| value.path());
    Some(ExternalAccount { kid: kid?, key_file: key_file? })
}

/// What a table of certificates stands for.
enum Issued {
    One(WantedCertificate),
    List(NameList),
}

fn certificate(
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

fn refuse_second<K: std::hash::Hash + Eq>(
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

fn directory_url(text: &str) -> Result<String, Problem> {
    let host = text.strip_prefix("https://").and_then(|rest| rest.split('/').next());
    let is_url = text.parse::<http::Uri>().is_ok() && host.is_some_and(|host| !host.is_empty());
    match is_url {
        true => Ok(text.to_owned()),
        false => {
            let what = format!("{text:?} is not a URL that begins with https://");
            Err(Problem::new(what, format!("write the CA's, such as {DIRECTORY_EXAMPLE}")))
        }
    }
}

fn contact_url(text: &str) -> Result<String, Problem> {
    let is_address = text.split_once(':').is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.contains(char::is_whitespace)
    });
    match is_address {
        true => Ok(text.to_owned()),
        false => {
            let what = format!("{text:?} is not a URL of somebody");
            Err(Problem::new(what, "write it with mailto:, such as \"mailto:ops@example.com\""))
        }
    }
}

fn profile_name(text: &str) -> Result<String, Problem> {
    match text.is_empty() {
        true => Err(Problem::new("is empty", "name a profile of the CA, or remove the key")),
        false => Ok(text.to_owned()),
    }
}

const DIRECTORY_EXAMPLE: &str =
    "directory = \"https://acme-v02.api.letsencrypt.org/directory\", which is Let's Encrypt's";
const KEYS: [(&str, KeyKind); 3] =
    [("p256", KeyKind::P256), ("p384", KeyKind::P384), ("rsa2048", KeyKind::Rsa2048)];

/// Authorities that are asked one after the other.
const AUTHORITIES_MAX: usize = 8;
/// Tables of certificates of one file.
const CERTIFICATES_MAX: usize = 100_000;
/// URLs that a CA may write to.
const CONTACTS_MAX: usize = 8;
