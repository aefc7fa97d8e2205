//! The certificates and keys in a folder, in the layouts of ACME clients and of operators.
//!
//! | from | in the folder |
//! |---|---|
//! | certbot, dehydrated | `fullchain.pem` and `privkey.pem`, links as a rule, with other parts |
//! | acme.sh | `fullchain.cer` and `NAME.key` in `NAME/` or `NAME_ecc/`, with other parts |
//! | lego | `NAME.crt`, `NAME.key`, `NAME.issuer.crt`, `NAME.json`, for all names in one folder |
//! | operators | `NAME.pem` with chain and key, `NAME.crt` or `NAME.cer` with `NAME.key` |
//!
//! Clients that have a folder for each name have one folder for all of those. Of its folders only
//! the files of such a client are read. Names that begin with a dot are skipped, so a volume of
//! Kubernetes is read once.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A certificate in a folder, by its files.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A file with a chain and its key.
    Both(PathBuf),
    /// A folder in the folder that cannot be looked into; it may have nothing to do with it.
    FolderClosed(PathBuf, io::Error),
    /// A chain with its key missing, which should be in this file.
    KeyMissing { chain: PathBuf, key: PathBuf },
    /// A link that leads where this user may not go.
    LinkClosed(PathBuf, io::Error),
    /// A chain and its key.
    Pair { chain: PathBuf, key: PathBuf },
}

/// Calls `each` with the certificates in `folder`, until it returns false: first its own files,
/// then those of its folders, each in the order of names. The first of two certificates for one
/// name is served, and which is first must not depend on the file system. Returns whether `each`
/// went on.
///
/// # Errors
/// It cannot be read.
pub(crate) fn visit(folder: &Path, mut each: impl FnMut(Entry) -> bool) -> io::Result<bool> {
    let Listing { files, folders, closed } = Listing::of(folder)?;
    let own = of_one_name(folder, &files);
    let first = of_one_name(folder, &files).filter(|entry| !matches!(entry, Entry::Both(_)));
    let of_files = files.iter().filter_map(|name| of_file(folder, name, &files, own.as_ref()));
    let of_folders = folders.iter().filter_map(|name| {
        let path = folder.join(name);
        match Listing::of(&path) {
            Ok(inner) => of_one_name(&path, &inner.files),
            Err(error) => Some(Entry::FolderClosed(path, error)),
        }
    });
    let closed = closed.into_iter().map(|(path, error)| Entry::LinkClosed(path, error));
    Ok(first.into_iter().chain(of_files).chain(of_folders).chain(closed).all(&mut each))
}

/// The files in folders of `folder` that it takes certificates from, existing or not. A change of
/// one of them changes its certificates.
pub(crate) fn files_of_folders_in(folder: &Path) -> Vec<PathBuf> {
    // Without a list of the folder's own files, which may be many.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let visible = entries.filter(|entry| !is_hidden(&entry.file_name()));
    let folders = visible.filter(|entry| is_folder(entry).unwrap_or(false));
    let mut paths: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        files.extend(CLIENT_FILES.map(|file| path.join(file)));
        if path.join("fullchain.cer").exists() {
            let inner = Listing::of(&path).map(|listing| listing.files).unwrap_or_default();
            files.push(path.join(key_of_acme_sh(&path, &inner)));
        }
    }
    files
}

/// Whether a folder may provide the certificate at this path in it: the file is directly in it, or
/// an ACME client keeps it in a folder for a name.
pub(crate) fn is_given(path: &Path) -> bool {
    match path.parent() {
        Some(folder) if folder == Path::new("") => kind(path).is_some_and(|k| CHAINS.contains(&k)),
        Some(folder) if folder.components().count() == 1 => {
            path.file_name().is_some_and(|name| CLIENT_FILES.iter().any(|file| name == *file))
        }
        _ => false,
    }
}

/// The names in a folder that are not hidden.
#[derive(Default)]
struct Listing {
    files: BTreeSet<OsString>,
    folders: BTreeSet<OsString>,
    /// Links that lead where this user may not go.
    closed: Vec<(PathBuf, io::Error)>,
}

impl Listing {
    fn of(folder: &Path) -> io::Result<Self> {
        let mut listing = Self::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_hidden(&name) {
                continue;
            }
            match is_folder(&entry) {
                Ok(true) => listing.folders.insert(name),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    listing.closed.push((entry.path(), error));
                    continue;
                }
                // A link without a target is a file that is missing.
                Ok(false) | Err(_) => listing.files.insert(name),
            };
        }
        Ok(listing)
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Whether it is a folder, or a link to one; only a link takes another look.
fn is_folder(entry: &fs::DirEntry) -> io::Result<bool> {
    let kind = entry.file_type()?;
    if kind.is_symlink() { Ok(fs::metadata(entry.path())?.is_dir()) } else { Ok(kind.is_dir()) }
}

/// The certificate that a client keeps in one folder for each name. If one half is missing, the
/// reader reports it.
fn of_one_name(folder: &Path, files: &BTreeSet<OsString>) -> Option<Entry> {
    let has = |name: &str| files.contains(OsStr::new(name));
    let at = |name: &str| folder.join(name);
    match (has("fullchain.pem"), has("privkey.pem")) {
        (true, true) => {
            return Some(Entry::Pair { chain: at("fullchain.pem"), key: at("privkey.pem") });
        }
        (true, false) => return Some(Entry::Both(at("fullchain.pem"))),
        (false, true) => return Some(Entry::Both(at("privkey.pem"))),
        (false, false) => {}
    }
    let chain = Some(at("fullchain.cer")).filter(|_| has("fullchain.cer"))?;
    let name = key_of_acme_sh(folder, files);
    let key = folder.join(&name);
    let is_there = files.contains(&name);
    Some(if is_there { Entry::Pair { chain, key } } else { Entry::KeyMissing { chain, key } })
}

/// The file of the key in a folder of acme.sh: called after the name that the folder is for; of a
/// folder that was renamed, the only one.
fn key_of_acme_sh(folder: &Path, files: &BTreeSet<OsString>) -> OsString {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let named = OsString::from(format!("{}.key", name.strip_suffix("_ecc").unwrap_or(&name)));
    let mut keys = files.iter().filter(|name| kind(Path::new(name)) == Some("key"));
    match (keys.next(), keys.next()) {
        (Some(only), None) => only.clone(),
        _ => named,
    }
}

/// The certificate that the file `name` makes, given the other `files` and the one that a client
/// keeps in this folder.
fn of_file(
    folder: &Path,
    name: &OsStr,
    files: &BTreeSet<OsString>,
    own: Option<&Entry>,
) -> Option<Entry> {
    let path = folder.join(name);
    let key = path.with_extension("key");
    let has = |path: &Path| path.file_name().is_some_and(|name| files.contains(name));
    let pair = || Some(Entry::Pair { chain: path.clone(), key: key.clone() });
    match (kind(&path)?, own) {
        // certbot's parts are in fullchain.pem already. Other files here are an operator's.
        ("pem", Some(Entry::Pair { key, .. })) if key.ends_with("privkey.pem") => {
            (!is_part_of_a_lineage(name)).then(|| Entry::Both(path.clone()))
        }
        ("pem", _) => Some(Entry::Both(path)),
        // The authority's own certificate, next to a chain that has it already.
        ("crt", _) if is_issuer_of_another(&path, files) => None,
        ("crt", _) if has(&key) => pair(),
        ("crt", _) => Some(Entry::KeyMissing { chain: path, key }),
        // Next to fullchain.cer it is the certificate without its chain.
        ("cer", Some(Entry::Pair { .. } | Entry::KeyMissing { .. })) => None,
        ("cer", _) if has(&key) && !has(&path.with_extension("crt")) => pair(),
        _ => None,
    }
}

/// Whether it is named like a part of a certificate of certbot or dehydrated, now or earlier:
/// `chain.pem`, `privkey-1795414762.pem`.
fn is_part_of_a_lineage(name: &OsStr) -> bool {
    let stem = Path::new(name).file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let (part, number) = stem.split_once('-').unwrap_or((stem, "0"));
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && ["cert", "chain", "fullchain", "privkey"].contains(&part)
}

/// Whether `path` is `NAME.issuer.crt` next to `NAME.crt`.
fn is_issuer_of_another(path: &Path, files: &BTreeSet<OsString>) -> bool {
    let stem = path.file_stem().map(Path::new).filter(|stem| kind(stem) == Some("issuer"));
    stem.is_some_and(|stem| files.contains(stem.with_extension("crt").as_os_str()))
}

fn kind(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

/// Extensions of files with chains.
const CHAINS: [&str; 3] = ["cer", "crt", "pem"];
/// Files of ACME clients in a folder for a name, except a key that is named after it.
const CLIENT_FILES: [&str; 3] = ["fullchain.pem", "privkey.pem", "fullchain.cer"];

#[cfg(test)]
mod tests;
