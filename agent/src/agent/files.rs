//! Files that the settings name, and that are read again once they have changed: keys, passwords,
//! certificates and roots, which an operator or a tool replaces while the agent runs.

use std::io;
use std::path::{Path, PathBuf};

use sealane_certificate_files::read_at_most;
use sealane_operator::KeySource;
use sealane_store::Stamp;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::settings::{Authority, EtcdSettings, RootSource, Settings};

/// The files as they were read last.
#[derive(Debug)]
pub(super) struct NamedFiles {
    authorities: Stamps,
    etcd: Stamps,
    /// The digest of all files of the authorities; none if one cannot be read.
    credentials: Option<[u8; 32]>,
}

impl NamedFiles {
    pub(super) fn of(settings: &Settings) -> Self {
        let etcd = settings.fleet.as_ref().map(|fleet| files_of_etcd(&fleet.etcd));
        // Stamps first: a change while they are read is seen the next time.
        Self {
            authorities: Stamps::of(files_of_authorities(settings)),
            etcd: Stamps::of(etcd.unwrap_or_default()),
            credentials: credentials_of(settings),
        }
    }

    /// Whether files of etcd look different from the last time that this was asked.
    pub(super) fn has_other_etcd(&mut self) -> bool {
        self.etcd.has_changed()
    }

    /// The same of files of authorities.
    pub(super) fn has_other_authorities(&mut self) -> bool {
        self.authorities.has_changed()
    }

    /// Whether the authorities' files can be read, and hold something else than `before`.
    pub(super) fn has_other_credentials(&self, before: &Self) -> bool {
        self.credentials.is_some() && self.credentials != before.credentials
    }
}

/// How files looked from outside.
#[derive(Debug)]
struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

impl Stamps {
    fn of(files: Vec<PathBuf>) -> Self {
        let stamped = files.into_iter().map(|file| {
            let stamp = Stamp::of(&file).ok();
            (file, stamp)
        });
        Self(stamped.collect())
    }

    /// Whether one looks different from the last time that this was asked.
    fn has_changed(&mut self) -> bool {
        let mut has_changed = false;
        for (file, before) in &mut self.0 {
            let now = Stamp::of(file).ok();
            has_changed |= now != *before;
            *before = now;
        }
        has_changed
    }
}

fn files_of_authorities(settings: &Settings) -> Vec<PathBuf> {
    let files =
        settings.authorities.iter().flat_map(|Authority { external_account, roots, .. }| {
            let key = external_account.as_ref().map(|external| external.key_file.clone());
            files_of_roots(roots).chain(key)
        });
    files.collect()
}

fn files_of_etcd(etcd: &EtcdSettings) -> Vec<PathBuf> {
    let identity = etcd.identity.iter().flat_map(|own| [own.certificate.clone(), own.key.clone()]);
    let password = etcd.login.iter().filter_map(|login| match &login.password {
        KeySource::File(path) => Some(path.clone()),
        KeySource::Command(_) | KeySource::Credential(_) => None,
    });
    files_of_roots(&etcd.roots).chain(identity).chain(password).collect()
}

fn files_of_roots(roots: &[RootSource]) -> impl Iterator<Item = PathBuf> {
    roots.iter().filter_map(|root| match root {
        RootSource::File(path) => Some(path.clone()),
        RootSource::System => None,
    })
}

fn credentials_of(settings: &Settings) -> Option<[u8; 32]> {
    let read = |file: &Path, digest: &mut Sha256| -> io::Result<()> {
        let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
        read_at_most(file, FILE_BYTES_MAX, &mut text).map_err(io::Error::other)?;
        digest.update(text.len().to_be_bytes());
        digest.update(&*text);
        Ok(())
    };
    let mut digest = Sha256::new();
    for file in files_of_authorities(settings) {
        read(&file, &mut digest).ok()?;
    }
    Some(digest.finalize().into())
}

/// Bytes of a file that are compared: roots have 4 MiB at most.
const FILE_BYTES_MAX: usize = 4 << 20;
