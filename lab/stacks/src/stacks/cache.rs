//! Where built stacks lie: one folder per name, each with its library and a note on its build.
//!
//! ```text
//! $XDG_CACHE_HOME/sealane/stacks/openssl@3.5/lib/libssl.so.3
//!                                           /lib/libcrypto.so.3
//!                                           /build.txt
//! ```

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use sealane_lab_model::error::Error;
use sha2::{Digest, Sha256};

/// The folder of all built stacks, whether it exists or not.
///
/// # Errors
/// [`Error::Unsupported`] if neither `XDG_CACHE_HOME` nor `HOME` is set.
pub(crate) fn folder() -> Result<PathBuf, Error> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let none = || Error::Unsupported("no folder for built stacks; set HOME".into());
    Ok(cache.ok_or_else(none)?.join("sealane").join("stacks"))
}

/// The folder of the stack `name`, whether it was built or not.
///
/// # Errors
/// What [`folder`] says.
pub(crate) fn folder_of(name: &str) -> Result<PathBuf, Error> {
    Ok(folder()?.join(name))
}

/// The library of the built stack `name`, if it was built.
pub(crate) fn library(name: &str, file: &str) -> Option<PathBuf> {
    let path = folder_of(name).ok()?.join(LIBRARY_FOLDER).join(file);
    path.exists().then_some(path)
}

/// What was said of the build that `library` comes from; empty if it is not from here.
pub(super) fn note(library: &Path) -> String {
    let folder = library.parent().and_then(Path::parent);
    let text = folder.and_then(|folder| fs::read_to_string(folder.join(NOTE)).ok());
    text.unwrap_or_default().trim().to_owned()
}

/// SHA-256 of a file, in hex.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn sha256(path: &Path) -> Result<String, Error> {
    let bytes = fs::read(path).map_err(Error::file(path))?;
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The part of [`Identity::build`](sealane_lab_model::library::Identity) about the file that the
/// cryptography comes from.
pub(super) fn libcrypto(path: &Path) -> String {
    let sha256 = sha256(path).unwrap_or_default();
    format!("libcrypto: {} sha256 {sha256}", path.display())
}

/// In a built stack's folder.
pub(crate) const LIBRARY_FOLDER: &str = "lib";
/// How it was built, one line.
pub(crate) const NOTE: &str = "build.txt";
