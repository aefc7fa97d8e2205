//! The certificate stores of a configuration: opened once in the process, joined with their keys.
//!
//! A store is never reloaded: what is imported is served by the next hello. What a reload reads
//! again is where the sealing keys come from.

mod key_source;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use sealane_engine::certificates::{CertificateIndex, ListenerStore};
use sealane_store::{KeyedStore, Store, StoreError};

use crate::config::{Config, Listener};

pub use key_source::{KeySourceError, create_key_file, sealing_keys};

/// The stores that are open, by folder. The database allows a process to open one only once, so
/// listeners and generations share it; the last one to let go closes it.
#[derive(Debug, Default)]
pub struct Stores {
    open: HashMap<PathBuf, Weak<Store>>,
}

impl Stores {
    /// The store in the folder `path`.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn open(&mut self, path: &Path) -> Result<Arc<Store>, StoreError> {
        let folder = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Some(open) = self.open.get(&folder).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let store = Arc::new(Store::open(path)?);
        self.open.insert(folder, Arc::downgrade(&store));
        Ok(store)
    }

    /// The store of `listener`, if it has one, with every private key in it open to `config`'s
    /// sealing keys.
    ///
    /// # Errors
    /// The store or its keys cannot be had.
    pub fn of(
        &mut self,
        config: &Config,
        listener: &Listener,
    ) -> Result<Option<KeyedStore>, ListenerStoreError> {
        let (Some(path), Some(source)) = (&listener.store, &config.store_key) else {
            return Ok(None);
        };
        let store = self.open(path)?;
        Ok(Some(KeyedStore::new(store, sealing_keys(source)?)?))
    }

    /// Forgets stores that nothing uses any more.
    pub fn prune(&mut self) {
        self.open.retain(|_, store| store.strong_count() > 0);
    }
}

/// Why a listener cannot serve from its store.
#[derive(Debug, thiserror::Error)]
pub enum ListenerStoreError {
    /// The sealing keys cannot be had.
    #[error("store_key: {0}")]
    Key(#[from] KeySourceError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// `store` as `listener` serves it beside the files of `index`.
pub fn listener_store(
    store: KeyedStore,
    listener: &Listener,
    index: &CertificateIndex,
) -> ListenerStore {
    let in_files = !index.default_certificates().is_empty();
    let default_name = listener.default_certificate.as_deref().filter(|_| !in_files);
    ListenerStore { certificates: Arc::new(store), default_name: default_name.map(Box::from) }
}

/// What an operator should know of the store that `listener` serves from.
pub fn warnings(store: &KeyedStore, listener: &Listener, index: &CertificateIndex) -> Vec<String> {
    let path = store.store().path().display();
    let mut warnings = Vec::new();
    if store.store().summary().is_ok_and(|summary| summary.certificates == 0) {
        warnings.push(format!("{path}: the store is empty; import certificates into it"));
    }
    if let Some(name) = &listener.default_certificate
        && index.default_certificates().is_empty()
        && !store.store().covers(name).unwrap_or(false)
    {
        warnings.push(format!(
            "default certificate {name:?}: it is in no file and not yet in {path}; until it is \
             imported, unknown names are refused"
        ));
    }
    warnings
}
