//! Notices that configuration or certificates have changed on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use sealane_config::{Address, Config, KeySource, RootPlace};
use sealane_listeners as listener;
use sealane_store::DATA_FILE;

/// Watches the folders of everything that a configuration names.
///
/// Folders rather than files, because files are replaced by renaming, and links by relinking. An
/// event is only a hint: what counts is whether the [`fingerprint`] differs.
pub(super) struct FileWatch {
    watcher: RecommendedWatcher,
    folders: BTreeSet<Folder>,
}

/// A folder by path and inode: another folder in its place has to be watched anew.
type Folder = (PathBuf, u64);

impl FileWatch {
    /// Calls `hint` from a thread of its own whenever something may have changed.
    pub(super) fn new(hint: impl Fn() + Send + 'static) -> notify::Result<Self> {
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error may hide a change, so it is a hint as well.
            if event.map_or(true, |event| !matches!(event.kind, EventKind::Access(_))) {
                hint();
            }
        })?;
        Ok(Self { watcher, folders: BTreeSet::new() })
    }

    /// Watches only the paths that `config` names and the `faulty` ones; returns the folders that
    /// cannot be watched.
    pub(super) fn follow(
        &mut self,
        config_file: Option<&Path>,
        config: &Config,
        faulty: Vec<PathBuf>,
    ) -> Vec<String> {
        let mut paths = sources(config_file, config);
        paths.extend(faulty);
        let wanted: BTreeSet<Folder> = paths
            .iter()
            .flat_map(|path| folders_of(path))
            .map(|folder| {
                let inode = inode(&folder);
                (folder, inode)
            })
            .collect();
        for (folder, _) in self.folders.difference(&wanted) {
            // A folder that is gone is no longer watched anyway.
            let _ = self.watcher.unwatch(folder);
        }
        let mut failed = Vec::new();
        for (folder, _) in wanted.difference(&self.folders) {
            if let Err(error) = self.watcher.watch(folder, RecursiveMode::NonRecursive) {
                failed.push(format!("cannot watch {}: {error}", folder.display()));
            }
        }
        self.folders = wanted;
        failed
    }
}

/// Changes whenever a file that `config` names, or its content, does: names, sizes, inodes and
/// times of change go in.
pub(super) fn fingerprint(config_file: Option<&Path>, config: &Config) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in sources(config_file, config) {
        hash_all_at(&path, &mut hasher);
    }
    hasher.finish()
}

/// The same for the materials of listeners and stores alone.
pub(super) fn fingerprint_of_materials(config: &Config) -> u64 {
    let mut hasher = DefaultHasher::new();
    materials(config).iter().for_each(|path| hash_all_at(path, &mut hasher));
    hasher.finish()
}

/// Whether [`fingerprint_of_materials`] covers the file or folder `path`.
pub(super) fn is_material(config: &Config, path: &Path) -> bool {
    materials(config).iter().any(|material| path.starts_with(material))
}

/// How stores, ticket roots and the folders of unix sockets look, which are not followed while they
/// are in order.
pub(super) fn unfollowed(config: &Config) -> BTreeMap<PathBuf, u64> {
    let root = config.tickets.root.as_ref().and_then(|root| match root {
        RootPlace::File(path) => Some(path.as_path()),
        RootPlace::Store(_) => None,
    });
    // Only the data file of a store: readers of the store change other files in its folder.
    let stores = config.stores().map(|path| (path.to_owned(), look_at(&path.join(DATA_FILE))));
    let addresses = config.listeners.iter().flat_map(|listener| &listener.addresses);
    let sockets = addresses.filter_map(|address| match address {
        Address::Tcp(_) => None,
        Address::Unix(path) => {
            let mut hasher = DefaultHasher::new();
            hash_file(&parent(path), &mut hasher);
            Some((path.clone(), hasher.finish()))
        }
    });
    let root = root.map(|path| (path.to_owned(), look_at(path)));
    stores.chain(root).chain(sockets).collect()
}

fn look_at(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_all_at(path, &mut hasher);
    hasher.finish()
}

fn hash_all_at(path: &Path, hasher: &mut DefaultHasher) {
    hash_file(path, hasher);
    let Ok(entries) = std::fs::read_dir(path) else { return };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().for_each(|file| hash_file(file, hasher));
}

fn hash_file(path: &Path, hasher: &mut DefaultHasher) {
    path.hash(hasher);
    if let Ok(facts) = std::fs::metadata(path) {
        (facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()).hash(hasher);
        facts.ctime_nsec().hash(hasher);
    }
}

fn sources(config_file: Option<&Path>, config: &Config) -> BTreeSet<PathBuf> {
    let mut paths = materials(config);
    paths.extend(config_file.map(Path::to_path_buf));
    paths.extend(config.included.iter().cloned());
    paths
}

/// The files and folders of listeners, and the file with the key to stores.
fn materials(config: &Config) -> BTreeSet<PathBuf> {
    let mut paths: BTreeSet<PathBuf> = config.listeners.iter().flat_map(listener::files).collect();
    if let Some(KeySource::File(path)) = &config.store_key {
        paths.insert(path.clone());
    }
    paths
}

/// The folders in which a change of what stands at `path` shows: its own, and that of every link on
/// the way, because links are moved from one folder to the next.
fn folders_of(path: &Path) -> Vec<PathBuf> {
    let own = if path.is_dir() { path.to_path_buf() } else { parent(path) };
    let own = own.canonicalize().unwrap_or(own);
    let links = path.ancestors().filter(|ancestor| ancestor.is_symlink()).map(parent);
    std::iter::once(own).chain(links).collect()
}

fn inode(folder: &Path) -> u64 {
    std::fs::metadata(folder).map_or(0, |facts| facts.ino())
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
