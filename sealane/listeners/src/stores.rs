//! The certificate stores of a configuration: opened once in the process, joined with their keys.
//!
//! A store is never reloaded: what is imported is served by the next hello. What a reload reads
//! again is where the sealing keys come from, and a file that somebody else changed.

pub mod examination;
mod opened;
mod owner;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealane_config::Config;
use sealane_engine::certificates::StoreId;
use sealane_engine::policy::Group;
use sealane_engine::provider::{Provider, ProviderChoice, ProviderError, lane_provider};
use sealane_store::{DATA_FILE, KeyedStore, SealingKeys, Stamp, Store, StoreError};

use examination::{Examination, Refused, examine_apart};
use opened::Opened;

pub use owner::become_owner_of;
pub use sealane_operator::{KeySourceError, create_key_file, sealing_keys};

/// The cryptography that checks what is put into a store: it takes whatever a lane may take.
///
/// # Errors
/// None runs here.
pub fn checking_provider() -> Result<Provider, ProviderError> {
    lane_provider(ProviderChoice::Auto, &Group::ALL)
        .or_else(|_| lane_provider(ProviderChoice::AwsLc, &Group::ALL))
}

/// The keys to the stores of `config`, read once for all of them; none if it has no store.
///
/// # Errors
/// They cannot be had.
pub fn keys_of(config: &Config) -> Result<Option<SealingKeys>, KeySourceError> {
    let has_store = config.stores().next().is_some();
    config.store_key.as_ref().filter(|_| has_store).map(sealing_keys).transpose()
}

/// The stores that are open, by file. The database allows a process to open one only once, so
/// listeners and generations share it; the last one to let go closes it.
#[derive(Debug, Default)]
pub struct Stores {
    /// Whether a store that was in order when Sealane last changed it is opened at once, and
    /// examined beside.
    examines_beside: bool,
    /// The most changes that each store was seen with: one that has less is an older copy.
    generations: HashMap<StoreId, u64>,
    open: HashMap<FileId, Opened>,
}

/// Device and inode: two paths may lead to one file, and another file may take the place of one.
type FileId = (u64, u64);

impl Stores {
    /// Those of a process that serves: it does not wait for an examination of what is known to be
    /// in order.
    pub fn of_a_server() -> Self {
        Self { examines_beside: true, ..Self::default() }
    }

    /// The store in the folder `path`.
    ///
    /// # Errors
    /// There is none, it cannot be opened, or the one that is open was replaced.
    pub fn open(&mut self, path: &Path) -> Result<Arc<Store>, StoreError> {
        let file = Stamp::of(&path.join(DATA_FILE)).map(|stamp| stamp.file);
        let open = file.as_ref().ok().and_then(|file| self.open.get(file));
        if let Some(open) = open.and_then(Opened::store) {
            return Ok(open);
        }
        let store = Arc::new(Store::open(path)?);
        if let Ok(file) = file {
            self.open.insert(file, Opened::new(&store));
        }
        Ok(store)
    }

    /// Begins the checks that [`Self::of`] will wait for, so that they are made beside whatever
    /// else a start or a reload has to do.
    pub fn begin_checks(&self, config: &Config) -> Checks {
        let mut checks = Checks::default();
        for path in config.stores() {
            if checks.begun.contains_key(path) || checks.vouched.contains_key(path) {
                continue;
            }
            let stamp = stamp(path);
            if self.is_in_order(stamp) {
                continue;
            }
            if self.examines_beside && Store::is_vouched(path) {
                checks.vouched.insert(path.into(), stamp);
            } else {
                checks.begun.insert(path.into(), (stamp, Examination::begin(path)));
            }
        }
        checks
    }

    /// The store in the folder `path`, if there are keys, with every private key in it open to
    /// them. Its file was found in order by another process since somebody else changed it, by one
    /// of `checks` or now.
    ///
    /// # Errors
    /// The store cannot be had, is damaged or older than it was, or needs another key.
    pub fn of(
        &mut self,
        path: &Path,
        keys: Option<&SealingKeys>,
        checks: &mut Checks,
    ) -> Result<Option<Arc<KeyedStore>>, StoreRefused> {
        let store = self.examined(path, checks)?;
        let Some(keys) = keys else { return Ok(None) };
        Ok(Some(Arc::new(KeyedStore::new(store, keys.clone())?)))
    }

    fn examined(&mut self, path: &Path, checks: &mut Checks) -> Result<Arc<Store>, StoreRefused> {
        // Looked at first: what changes after that is looked at again.
        let (stamp, found) = match (checks.begun.remove(path), checks.vouched.remove(path)) {
            (Some((stamp, examination)), _) => {
                examination?.wait()?;
                (stamp, Found::Examined)
            }
            // Not before: a start that fails otherwise has read nothing of it.
            (None, Some(stamp)) if Store::take_vouched(path) => (stamp, Found::Vouched),
            (None, Some(stamp)) => {
                examine_apart(path)?;
                (stamp, Found::Examined)
            }
            (None, None) => {
                let stamp = stamp(path);
                match self.is_in_order(stamp) {
                    true => (stamp, Found::Before),
                    false => {
                        examine_apart(path)?;
                        (stamp, Found::Examined)
                    }
                }
            }
        };
        let store = self.open(path)?;
        let known = self.generations.entry(store.id()).or_default();
        opened::take_into_service(&store, known)?;
        if let Some(stamp) = stamp
            && let Some(open) = self.open.get_mut(&stamp.file)
        {
            open.note_judged(stamp);
            match found {
                Found::Before => {}
                Found::Examined => open.note_examined(stamp),
                Found::Vouched => open.examine_beside(&store, stamp),
            }
        }
        Ok(store)
    }

    fn is_in_order(&self, stamp: Option<Stamp>) -> bool {
        let known = stamp.and_then(|stamp| self.open.get(&stamp.file));
        known.is_some_and(Opened::is_in_order)
    }

    /// Looks at the files from outside. One that was not changed by Sealane is examined by another
    /// process, and withdrawn if it is damaged or older than it was: its listeners serve their
    /// files until it is in order again. A check that fails is no damage: it is made again. Returns
    /// what an operator should know.
    pub fn look_after(&mut self) -> Vec<String> {
        let Self { generations, open, .. } = self;
        let mut said = Vec::new();
        for open in open.values_mut() {
            let Some(id) = open.store().map(|store| store.id()) else { continue };
            said.extend(open.look_after(generations.entry(id).or_default()));
        }
        said
    }

    /// Forgets stores that nothing uses any more.
    pub fn prune(&mut self) {
        self.open.retain(|_, open| open.store().is_some());
    }
}

/// Checks of stores that were begun before anybody waits for them. Those that nobody waited for are
/// ended with it.
#[derive(Debug, Default)]
pub struct Checks {
    /// With how the file looked before.
    begun: HashMap<PathBuf, (Option<Stamp>, Result<Examination, Refused>)>,
    /// Stores for which no check is waited, with how their files look.
    vouched: HashMap<PathBuf, Option<Stamp>>,
}

/// How it is known that a store is in order.
#[derive(Clone, Copy)]
enum Found {
    /// The store is open, and was before.
    Before,
    Examined,
    /// The folder says that it was in order when Sealane last changed it.
    Vouched,
}

fn stamp(path: &Path) -> Option<Stamp> {
    Stamp::of(&path.join(DATA_FILE)).ok()
}

/// Why a listener has no store to serve from.
#[derive(Debug, thiserror::Error)]
pub enum StoreRefused {
    /// The store is not in order.
    #[error(transparent)]
    Examined(#[from] Refused),
    /// The store does not open.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_store_is_opened_once_by_whatever_path_and_not_mixed_up_with_its_successor() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        drop(Store::open_or_create(&path("store")).unwrap());
        // A second name for the file, as a second mount of the folder would be.
        fs::create_dir(path("other")).unwrap();
        fs::hard_link(path("store").join(DATA_FILE), path("other").join(DATA_FILE)).unwrap();
        let mut stores = Stores::default();
        let store = stores.open(&path("store")).unwrap();
        assert!(Arc::ptr_eq(&store, &stores.open(&path("other")).unwrap()));

        fs::rename(path("store"), path("before")).unwrap();
        drop(Store::open_or_create(&path("restored")).unwrap());
        fs::rename(path("restored"), path("store")).unwrap();
        let error = stores.open(&path("store")).unwrap_err().to_string();
        assert!(error.contains("restart Sealane"), "{error}");
        drop(store);
        stores.prune();
        stores.open(&path("store")).unwrap();
    }
}
