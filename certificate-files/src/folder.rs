//! What a folder holds: which of its files are certificates with their keys, as people and ACME
//! clients lay them down.
//!
//! | who | in the folder |
//! |---|---|
//! | certbot, dehydrated | `fullchain.pem` and `privkey.pem`, links as a rule, beside other parts |
//! | acme.sh | `fullchain.cer` and `NAME.key` in `NAME/` or `NAME_ecc/`, beside other parts |
//! | lego | `NAME.crt`, `NAME.key`, `NAME.issuer.crt`, `NAME.json`; for all names in one folder |
//! | people | `NAME.pem` with chain and key, `NAME.crt` or `NAME.cer` with `NAME.key` |
//!
//! Clients that have a folder for each name have one folder for all of those: it is read one level
//! deep. Names that begin with a dot are passed over, so a volume of Kubernetes is read once.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What makes a certificate in a folder.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A file with a chain and its key.
    Both(PathBuf),
    /// A chain whose key should be in this file, and is not there.
    KeyMissing { chain: PathBuf, key: PathBuf },
    /// A chain and its key.
    Pair { chain: PathBuf, key: PathBuf },
    /// A folder in the folder that cannot be looked into.
    Unreadable(PathBuf, io::Error),
}

/// What is in `folder`, in the order of names: the first of two certificates for one name is
/// served, and which is first must not depend on the file system.
///
/// # Errors
/// It cannot be read.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let names = names(folder)?;
    if let Some(pair @ Entry::Pair { .. }) = of_one_name(folder, &names) {
        return Ok(vec![pair]);
    }
    let mut entries = Vec::new();
    for name in &names {
        let path = folder.join(name);
        if !path.is_dir() {
            entries.extend(of_file(path, &names));
            continue;
        }
        match self::names(&path) {
            Ok(inner) => entries.extend(of_one_name(&path, &inner)),
            Err(error) => entries.push(Entry::Unreadable(path, error)),
        }
    }
    Ok(entries)
}

/// The folders in `folder` that are looked into: what changes there changes what it holds.
pub(crate) fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let names = names(folder).unwrap_or_default();
    match of_one_name(folder, &names) {
        Some(Entry::Pair { .. }) => Vec::new(),
        _ => names.iter().map(|name| folder.join(name)).filter(|path| path.is_dir()).collect(),
    }
}

/// What a client keeps for one certificate in a folder of its own.
fn of_one_name(folder: &Path, names: &BTreeSet<OsString>) -> Option<Entry> {
    let has = |name: &str| names.contains(OsStr::new(name));
    let at = |name: &str| folder.join(name);
    match (has("fullchain.pem"), has("privkey.pem"), has("fullchain.cer")) {
        (true, true, _) => Some(Entry::Pair { chain: at("fullchain.pem"), key: at("privkey.pem") }),
        (true, false, _) => Some(Entry::Both(at("fullchain.pem"))),
        (false, _, true) => {
            let chain = at("fullchain.cer");
            let key = folder.join(key_of_acme_sh(folder, names));
            let is_there = key.file_name().is_some_and(|key| names.contains(key));
            Some(if is_there {
                Entry::Pair { chain, key }
            } else {
                Entry::KeyMissing { chain, key }
            })
        }
        (false, _, false) => None,
    }
}

/// The file of the key in a folder of acme.sh: called after the name that the folder is for; of a
/// folder that was renamed, the only one.
fn key_of_acme_sh(folder: &Path, names: &BTreeSet<OsString>) -> OsString {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let named = OsString::from(format!("{}.key", name.strip_suffix("_ecc").unwrap_or(&name)));
    let mut keys = names.iter().filter(|name| kind(Path::new(name)) == Some("key"));
    match (keys.next(), keys.next()) {
        (Some(only), None) => only.clone(),
        _ => named,
    }
}

/// What the file at `path` makes, beside files of the other `names`.
fn of_file(path: PathBuf, names: &BTreeSet<OsString>) -> Option<Entry> {
    let is_there = |path: &Path| path.file_name().is_some_and(|name| names.contains(name));
    let key = path.with_extension("key");
    match kind(&path)? {
        "cer" | "crt" if is_there(&key) => Some(Entry::Pair { chain: path, key }),
        // A link to it, or the authority's own beside a chain that has it already.
        "cer" | "crt" if is_issuer_of_another(&path, names) => None,
        "cer" | "crt" => Some(Entry::KeyMissing { chain: path, key }),
        // lego writes it beside the pair, if it is asked to.
        "pem" if is_there(&key) && is_there(&path.with_extension("crt")) => None,
        "pem" => Some(Entry::Both(path)),
        _ => None,
    }
}

/// Whether `path` is `NAME.issuer.crt` beside `NAME.crt`.
fn is_issuer_of_another(path: &Path, names: &BTreeSet<OsString>) -> bool {
    let stem = path.file_stem().map(Path::new).filter(|stem| kind(stem) == Some("issuer"));
    stem.is_some_and(|stem| names.contains(stem.with_extension("crt").as_os_str()))
}

fn kind(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

/// The names in a folder that are not hidden.
fn names(folder: &Path) -> io::Result<BTreeSet<OsString>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name()));
    names
        .filter(|name| {
            !name.as_ref().is_ok_and(|name: &OsString| name.as_encoded_bytes().starts_with(b"."))
        })
        .collect()
}

#[cfg(test)]
mod tests;
