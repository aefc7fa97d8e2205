//! Certificates at rest: an embedded database in which private keys are sealed.
//!
//! ```text
//!   sealane certificates import                    a lane, for one hello
//!        |  one write transaction                       |  one read transaction, in the map
//!        v                                              v
//!   names:         www.example.com  -->  kind of key, digest        (one entry per kind of key)
//!   certificates:  digest           -->  leaf, sealed key, names, dates     [`record::Record`]
//!   intermediates: SHA-256          -->  DER, kept once however many chains it is in
//! ```
//!
//! [`Store`] is the public part: names, dates, chains. [`KeyedStore`] adds the [`SealingKeys`] and
//! with them the private keys; it is what a listener serves from, as the engine's
//! [`CertificateStore`](sealane_engine::certificates::CertificateStore). What one process commits
//! is what the next hello of another sees: there is nothing to reload.
#![deny(unsafe_code)]

mod agreement;
mod backup;
mod behind;
mod erase;
mod error;
mod examine;
mod files;
mod group;
mod kept;
mod keyed;
mod lock_file;
mod migrate;
mod names;
mod pages;
mod pem;
mod record;
mod regular;
mod removal;
mod row;
mod seal;
mod served;
mod state;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod unlocked;
mod word;

pub use agreement::Examined;
pub use behind::FLEET_CLUSTER;
pub use error::StoreError;
pub use examine::examine;
pub use files::DATA_FILE;
pub use group::{NAMES_SOCKET, Sharing};
pub use kept::{
    HTTP_01, KEPT_BYTES_MAX, KEPT_NAME_BYTES_MAX, KeptChange, KeptEntry, TICKET_ROOTS, TLS_ALPN_01,
};
pub use keyed::sweep::Resealed;
pub use keyed::{Imported, KeyedStore};
pub use pem::pem_text;
pub use record::{Record, RecordError};
pub use removal::{AHEAD_S_MAX, Removal};
pub use seal::{SealingKeyError, SealingKeyId, SealingKeys, UnsealError};
pub use served::{READ_BYTES_MAX, ReadBack, SCANNED_MAX, Served};
pub use state::{Look, STATE_FILE, Stamp};
pub use store::{Listed, Removed, Store, Summary};
pub use tables::chain_digest;
pub use word::WORD_BYTES_MAX;

/// Bytes of the file's map: the most that a store can grow to. Address space, not memory.
pub const MAP_BYTES: usize = 16 << 30;
/// Threads of all processes that read one store at the same time: lanes, control threads and
/// commands.
pub const READERS_MAX: u32 = 4096;
/// Certificates that left a store and are remembered as such, so that lanes drop their keys. A lane
/// that missed more drops all of its keys.
pub const GONE_REMEMBERED_MAX: u64 = 1024;
