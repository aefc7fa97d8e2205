//! Where programs of this machine are: [`on_path`], [`installed`].

use std::{env, path::PathBuf};

use sealane_lab_model::error::Error;

/// The path of the program `name`.
///
/// # Errors
/// [`Error::Missing`] with the Debian package that brings it.
pub fn installed(name: &str, package: &str) -> Result<PathBuf, Error> {
    on_path(name).ok_or_else(|| Error::Missing {
        program: name.to_owned(),
        remedy: format!("apt-get install {package}"),
    })
}

/// Where the program `name` is, if it is installed.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        // Debian keeps servers where a shell without a login does not look.
        .chain(SERVER_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

const SERVER_FOLDERS: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];
