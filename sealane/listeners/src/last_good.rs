//! The policy for a material that cannot be used as it is: [`Reading::settle`] decides for all of
//! them.
//!
//! A material that is in order is used. One with a fault keeps its last good state for as long as
//! the process runs, and its neighbours are read as they are. Where there is no last good state, as
//! at a start, the listener goes on without it and fails closed: see [`Fault::without`]. A fault in
//! something that the configuration names for the first time since the start is a mistake of the
//! configuration, and refuses a reload whole.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use sealane_config::network::Network;
use sealane_config::{ChallengeSource, Config, KeySource};
use sealane_engine::certificates::CertificateIndex;
use sealane_engine::client::{ClientIdentity, Roots};
use sealane_sandbox as sandbox;
use sealane_store::{KeyedStore, SealingKeys};

use super::{Reading, Survey, files, said_of};

/// The last good state of all materials.
#[derive(Clone, Default)]
pub struct LastGood {
    /// Files with authorities of clients.
    pub(super) authorities: ByPath<Arc<[u8]>>,
    /// Certificates of files.
    pub(super) certificates: Vec<Arc<CertificateIndex>>,
    /// Own certificates for backends, by the file with the chain.
    pub(super) identities: ByPath<ClientIdentity>,
    /// Files with revocation lists of clients.
    pub(super) lists: ByPath<Arc<[u8]>>,
    /// Files and folders with revocation lists of which one was never in order, so that none of
    /// them counted.
    pub(super) lost_lists: HashSet<PathBuf>,
    /// Files with networks.
    pub(super) networks: ByPath<Arc<[Network]>>,
    /// Files with authorities of backends.
    pub(super) roots: ByPath<Roots>,
    /// Keys to stores, by their source.
    pub(super) sealing_keys: ByPath<SealingKeys>,
    /// Open stores.
    pub(super) stores: ByPath<Arc<KeyedStore>>,
    /// The names in the last configuration; none before the first start.
    named: Option<Named>,
}

impl LastGood {
    /// Whether the configuration that is served names neither `path` nor a folder around it.
    pub fn is_new(&self, path: &Path) -> bool {
        let path = absolute(path).unwrap_or_else(|_| path.to_owned());
        let is_in = |named: &Named| path.ancestors().any(|around| named.paths.contains(around));
        self.named.as_ref().is_some_and(|named| !is_in(named))
    }

    /// Whether the configuration that is served does not name exactly `source`.
    fn is_newly_named(&self, source: &Path) -> bool {
        let source = absolute(source).unwrap_or_else(|_| source.to_owned());
        self.named.as_ref().is_some_and(|named| !named.paths.contains(&source))
    }

    /// Whether lists of `source`, a file or a folder, count.
    pub(super) fn has_lists_in_force(&self, source: &Path) -> bool {
        !self.lost_lists.contains(source) && self.lists.keys().any(|path| is_at(source, path))
    }

    /// Whether a configuration was served.
    pub(super) fn has_served(&self) -> bool {
        self.named.is_some()
    }
}

/// Whether `path` is the file `source`, or in the folder `source`.
pub(super) fn is_at(source: &Path, path: &Path) -> bool {
    path == source || path.parent() == Some(source)
}

/// Materials by the files or folders that they come from.
pub(super) type ByPath<T> = HashMap<PathBuf, T>;

/// The paths and default certificates that a configuration names.
#[derive(Clone, Default)]
struct Named {
    /// Names of default certificates, each with its listener.
    defaults: HashSet<(String, String)>,
    paths: HashSet<PathBuf>,
}

impl Named {
    fn by(config: &Config) -> Self {
        let mut named = Self::default();
        let mut paths: Vec<PathBuf> = config.stores().map(Path::to_owned).collect();
        paths.extend(config.store_key.as_ref().map(key_path));
        for listener in &config.listeners {
            paths.extend(files(listener));
            if let Some(ChallengeSource::Folder(folder)) = &listener.acme_responder {
                paths.push(folder.clone());
            }
            let default = listener.default_certificate.clone();
            named.defaults.extend(default.map(|name| (listener.name.clone(), name)));
        }
        named.paths.extend(paths.iter().filter_map(|path| absolute(path).ok()));
        named
    }
}

/// Where sealing keys come from, as a path.
pub(super) fn key_path(source: &KeySource) -> PathBuf {
    match source {
        KeySource::File(path) => path.clone(),
        KeySource::Command(_) | KeySource::Credential(_) => source.to_string().into(),
    }
}

/// A material that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The listener that needs it; none if it belongs to the process.
    pub listener: Option<String>,
    /// The file or folder.
    pub path: PathBuf,
    /// The problem and the remedy.
    pub text: String,
    /// The effect of the fault; none while the last good state is served.
    pub without: Option<&'static str>,
}

impl Fault {
    /// A fault of a material of the process, which goes on without it.
    pub fn of_process(path: &Path, text: String, without: &'static str) -> Self {
        Self { listener: None, path: path.to_owned(), text, without: Some(without) }
    }

    /// The problem, without its effect.
    pub fn finding(&self) -> String {
        match &self.listener {
            Some(listener) => said_of(listener, &self.text),
            None => self.text.clone(),
        }
    }

    /// The consequence.
    pub fn consequence(&self) -> &'static str {
        self.without.unwrap_or("its last good state is served")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; meanwhile {}", self.finding(), self.consequence())
    }
}

/// A material after the decision about it.
pub(super) struct Settled<T, E> {
    /// The error, if there was one.
    pub(super) error: Option<E>,
    /// Whether the value is the last good one.
    pub(super) is_kept: bool,
    /// The value that is used, if there is one.
    pub(super) value: Option<T>,
}

/// A fault that was found, before it is decided whether it refuses a reload.
pub(super) struct Found {
    pub(super) is_kept: bool,
    pub(super) path: PathBuf,
    /// The configured path: the file, or the folder around it.
    pub(super) source: PathBuf,
    pub(super) text: String,
    /// The effect if the material is missing.
    pub(super) without: &'static str,
}

impl Reading<'_, '_> {
    /// Decides which state of the material at `path` is used: the one that was `read`, else the
    /// last good one, else none.
    pub(super) fn settle<T: Clone, E>(
        &mut self,
        of: fn(&mut LastGood) -> &mut ByPath<T>,
        path: &Path,
        read: Result<T, E>,
    ) -> Settled<T, E> {
        let (value, error) = match read {
            Ok(value) => (Some(value), None),
            Err(error) => (of(self.around.last_good).get(path).cloned(), Some(error)),
        };
        if let Some(value) = &value {
            of(&mut self.good).insert(path.to_owned(), value.clone());
        }
        Settled { is_kept: error.is_some() && value.is_some(), error, value }
    }

    /// Whether the configuration names a default certificate of `listener` for the first time since
    /// the start.
    pub(super) fn is_new_default(&self, listener: &str, default: &str) -> bool {
        let of_listener = (listener.to_owned(), default.to_owned());
        let named = self.around.last_good.named.as_ref();
        named.is_some_and(|named| !named.defaults.contains(&of_listener))
    }

    /// The fault that was found, or the mistake of the configuration that it is.
    pub(super) fn judge(&self, listener: Option<&str>, found: Found) -> Result<Fault, String> {
        let Found { is_kept, path, source, text, without } = found;
        let text = sandbox::outside(&path).map_or(text, |problem| problem.to_string());
        if !is_kept && self.around.last_good.is_newly_named(&source) {
            return Err(text);
        }
        let without = (!is_kept).then_some(without);
        Ok(Fault { listener: listener.map(str::to_owned), path, text, without })
    }

    /// The materials that were in order, for the next reading.
    pub(super) fn into_last_good(self, surveys: &[Survey<'_>]) -> LastGood {
        let certificates = surveys.iter().filter_map(|survey| survey.certificates.clone());
        LastGood {
            certificates: certificates.collect(),
            named: Some(Named::by(self.config)),
            ..self.good
        }
    }
}

impl Survey<'_> {
    /// Notes a fault, or a mistake of the configuration.
    pub(super) fn note(&mut self, reading: &Reading<'_, '_>, found: Found) {
        match reading.judge(Some(&self.listener.name), found) {
            Ok(fault) => self.faults.push(fault),
            Err(mistake) => self.errors.push(mistake),
        }
    }

    /// Notes a fault of something that is used as it is.
    pub(super) fn note_used(&mut self, found: Found) {
        let Found { path, text, without, .. } = found;
        let listener = Some(self.listener.name.clone());
        self.faults.push(Fault { listener, path, text, without: Some(without) });
    }
}

#[cfg(test)]
mod tests;
