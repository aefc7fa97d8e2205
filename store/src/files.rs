//! The files of a store's folder.

/// The file in the folder that holds the store, as LMDB calls it.
pub const DATA_FILE: &str = "data.mdb";
/// The file next to it by which processes know each other's readers.
pub(crate) const LOCK_FILE: &str = "lock.mdb";
