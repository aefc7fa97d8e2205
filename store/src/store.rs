//! The public part of a store: which certificates there are, for which names, until when.

mod guard;
mod look;

use std::fmt;
use std::fs::{DirBuilder, File};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use heed::{AnyTls, RoTxn};
use rustix::fs::FlockOperation;
use sealane_engine::certificates::{CertificateDigest, KeyType, StoreId};

use self::guard::Guard;
use crate::error::{FORMAT, Fault, StoreError};
use crate::files::DATA_FILE;
use crate::lock_file::LockFile;
use crate::regular::{begun_file, open_folder};
use crate::seal::SealingKeyId;
use crate::state::{Look, Stamp, State};
use crate::tables::{Tables, digest_of_expiry_key, expiry_key};

/// An open store without the keys to its seals. A process opens a store once and shares it.
pub struct Store {
    guard: Guard,
    id: StoreId,
    path: PathBuf,
    pub(crate) tables: Tables,
}

impl Store {
    /// Opens the store in the folder `path`.
    ///
    /// # Errors
    /// There is none, it has another format, it is an older copy, or the system refuses.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let (store, format) = Self::open_of_any_format(path)?;
        store.of_present_format(format)
    }

    /// The same with its format, which this version can at least rewrite.
    pub(crate) fn open_of_any_format(path: &Path) -> Result<(Self, u32), StoreError> {
        match path.join(DATA_FILE).try_exists() {
            Ok(true) => {
                let (store, format) = Self::of(path, || Tables::open(path))?;
                match store.tables.has_lock_of_its_own().map_err(|fault| fault.at(path))? {
                    true => Ok((store, format)),
                    false => Err(StoreError::OpenElsewhere { path: path.into() }),
                }
            }
            Ok(false) => Err(StoreError::Absent { path: path.into() }),
            Err(error) => Err(StoreError::system(path, error)),
        }
    }

    /// The same for whoever only reads, and has the folder's lock.
    pub(crate) fn open_to_examine(path: &Path) -> Result<(Self, u32), StoreError> {
        Self::of(path, || Tables::open_to_examine(path))
    }

    /// Opens the store in the folder `path`; makes it, and the folder for this user alone, if it is
    /// missing.
    ///
    /// # Errors
    /// It has another format, it is an older copy, or the system refuses.
    pub fn open_or_create(path: &Path) -> Result<Self, StoreError> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StoreError::system(path, error));
            }
            _ => {}
        }
        let lock = lock_folder(path)?;
        let begun = begun_file(&path.join(DATA_FILE));
        let begun = begun.map_err(|error| Fault::from(heed::Error::Io(error)).at(path))?;
        let (store, format) = Self::of(path, || Tables::create(path))?;
        let store = store.of_present_format(format)?;
        match begun {
            // Nobody can have damaged it.
            None => store.note_in_order()?,
            Some(_) => store.note_state(&store.look_between_changes()?)?,
        }
        drop(lock);
        Ok(store)
    }

    fn of(
        path: &Path,
        open: impl FnOnce() -> Result<Option<Tables>, Fault>,
    ) -> Result<(Self, u32), StoreError> {
        // Read first: whoever changes the store meanwhile makes it newer than this.
        let known = State::read(path).map_err(|error| StoreError::system(path, error))?;
        let tables = open().map_err(|fault| fault.at(path))?;
        let tables = tables.ok_or_else(|| StoreError::Absent { path: path.into() })?;
        let (format, id) = tables.identity().map_err(|fault| fault.at(path))?;
        let file = tables.data_file().map_err(|fault| fault.at(path))?;
        let file = file.metadata().map_err(|error| StoreError::system(path, error))?;
        let lock = tables.lock_file.as_ref().map(LockFile::stamp).transpose();
        let lock = lock.map_err(|fault| fault.at(path))?;
        let store = Self {
            guard: Guard::new(Stamp::from(&file).file, lock),
            id,
            path: path.into(),
            tables,
        };
        match known {
            Some(known) if known.id == id => store.refuse_older_than(known.generation)?,
            _ => {}
        }
        Ok((store, format))
    }

    fn of_present_format(self, format: u32) -> Result<Self, StoreError> {
        match format {
            FORMAT => Ok(self),
            _ => Err(StoreError::Format { path: self.path, found: format }),
        }
    }

    /// Refuses the store if it has seen less than `known` changes: then it is an older copy. This
    /// is asked of a store that was found in order, before it is served again.
    ///
    /// # Errors
    /// It is one, or cannot be read.
    pub fn refuse_older_than(&self, known: u64) -> Result<(), StoreError> {
        match self.generation_if_in_order()? {
            found if found < known => {
                Err(StoreError::RolledBack { path: self.path.clone(), found, known })
            }
            _ => Ok(()),
        }
    }

    /// How often it was changed.
    ///
    /// # Errors
    /// It cannot be read, or is withdrawn.
    pub fn generation(&self) -> Result<u64, StoreError> {
        self.read(|txn| self.tables.generation(txn))
    }

    /// The same, whether it is withdrawn or not, for whoever knows that it is in order.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn generation_if_in_order(&self) -> Result<u64, StoreError> {
        self.read_withdrawn(|txn| self.tables.generation(txn))
    }

    /// Lets nobody read from it any more, or again: a map of a damaged file may end the process.
    pub fn withdraw(&self, is_withdrawn: bool) {
        self.guard.withdraw(is_withdrawn);
    }

    /// Lets nobody read from it again, because its lock file was cut or replaced. That file is
    /// given its length back: LMDB writes to its map once more when a thread that read ends.
    ///
    /// # Errors
    /// The system's; then the end of such a thread may end the process.
    pub fn lose_lock(&self) -> Result<(), StoreError> {
        let len = self.guard.lose_lock();
        let lengthened = self.tables.lock_file.as_ref().map_or(Ok(()), |file| file.lengthen(len));
        lengthened.map_err(|fault| fault.at(&self.path))
    }

    /// Whether nobody may read from it.
    pub fn is_withdrawn(&self) -> bool {
        self.guard.is_withdrawn()
    }

    /// The folder that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells it from all others.
    pub fn id(&self) -> StoreId {
        self.id
    }

    /// How much is in it; this takes no longer for many certificates than for few.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn summary(&self) -> Result<Summary, StoreError> {
        self.read(|txn| {
            let sealed_with = self.tables.sealed_with.iter(txn)?.map(|entry| {
                let (id, count) = entry?;
                let id = id.try_into().map_err(|_| Fault::What("a sealing key's name is cut"))?;
                Ok((SealingKeyId(id), count))
            });
            Ok(Summary {
                certificates: self.tables.certificates.len(txn)?,
                names: self.tables.names.len(txn)?,
                sealed_with: sealed_with.collect::<Result<_, Fault>>()?,
            })
        })
    }

    /// Whether a client that asks for `server_name` is served.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn covers(&self, server_name: &str) -> Result<bool, StoreError> {
        self.read(|txn| Ok(!self.tables.find(txn, server_name)?.is_empty()))
    }

    /// What a client gets that asks for `server_name`: a certificate for each kind of key, the
    /// cheapest first.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn find(&self, server_name: &str) -> Result<Vec<Listed>, StoreError> {
        self.read(|txn| {
            let found = self.tables.find(txn, server_name)?;
            found.into_iter().map(|entry| self.listed(txn, entry.digest)).collect()
        })
    }

    /// The certificate with this digest, if it is there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn certificate(&self, digest: CertificateDigest) -> Result<Option<Listed>, StoreError> {
        self.read(|txn| match self.tables.record(txn, digest)? {
            Some(_) => self.listed(txn, digest).map(Some),
            None => Ok(None),
        })
    }

    /// The certificates that expire after the one `after`, or from the first to expire, at most
    /// `count_max`. Asking again with the last one goes on from there, so that nothing holds the
    /// database's old pages while a list is shown.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn by_expiry(
        &self,
        after: Option<&Listed>,
        count_max: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        let after = after.map(|last| expiry_key(last.not_after_s, last.digest));
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.read(|txn| {
            let keys = self.tables.expiry.range(txn, &(from, Bound::Unbounded))?;
            let listed = keys.take(count_max).map(|entry| {
                let (key, ()) = entry?;
                let listed = self.listed(txn, digest_of_expiry_key(key)?)?;
                match key == expiry_key(listed.not_after_s, listed.digest) {
                    true => Ok(listed),
                    false => Err(Fault::What("a date in the list is not its certificate's")),
                }
            });
            listed.collect()
        })
    }

    /// Runs `read` in a transaction of its own.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&RoTxn<'_, AnyTls>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        if self.is_withdrawn() {
            return Err(StoreError::Withdrawn { path: self.path.clone() });
        }
        self.read_withdrawn(read)
    }

    /// The same of a store that may be withdrawn. Its caller knows that it is in order.
    fn read_withdrawn<T>(
        &self,
        read: impl FnOnce(&RoTxn<'_, AnyTls>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let txn = self.tables.env.read_txn().map_err(|error| Fault::from(error).at(&self.path))?;
        read(&txn).map_err(|fault| fault.at(&self.path))
    }

    /// Runs `write` in a transaction of its own, which is committed if all went well. Writers take
    /// turns by a lock on the folder, so that nobody writes to a file whose place another took.
    ///
    /// # Errors
    /// The first that came up; nothing is written, but with [`StoreError::NotNoted`].
    pub(crate) fn write<T>(
        &self,
        write: impl FnOnce(&mut heed::RwTxn<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        self.write_locked(&lock_folder(&self.path)?, write)
    }

    /// The same for a caller that has the folder's lock.
    pub(crate) fn write_locked<T>(
        &self,
        _lock: &File,
        write: impl FnOnce(&mut heed::RwTxn<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        if self.is_withdrawn() {
            return Err(StoreError::Withdrawn { path: self.path.clone() });
        }
        let before = self.look_between_changes()?;
        if !before.is_open_file {
            return Err(StoreError::Replaced { path: self.path.clone() });
        }
        let write = || {
            let mut txn = self.tables.env.write_txn()?;
            let written = write(&mut txn)?;
            self.tables.count_change(&mut txn)?;
            txn.commit()?;
            Ok(written)
        };
        let written = write().map_err(|fault: Fault| fault.at(&self.path))?;
        self.note_state(&before).map_err(StoreError::after_commit)?;
        Ok(written)
    }

    /// Remembers the store as it is now, after a change of what looked like `before`. What somebody
    /// else had changed stays so until it was examined. The caller has the folder's lock.
    pub(crate) fn note_state(&self, before: &Look) -> Result<(), StoreError> {
        let known = State::read(&self.path);
        let known = known.map_err(|error| StoreError::system(&self.path, error))?;
        let foreign = known.filter(|known| known.id == self.id && !before.is_ours);
        self.note(before.is_vouched, foreign.map(|known| known.stamp))
    }

    /// Remembers that it is in order as it is now. The caller has the folder's lock.
    fn note_in_order(&self) -> Result<(), StoreError> {
        self.note(true, None)
    }

    /// Remembers it as it is now, or as it looked before somebody else changed it.
    fn note(&self, is_vouched: bool, looked: Option<Stamp>) -> Result<(), StoreError> {
        let generation = self.generation_if_in_order()?;
        let note = || {
            let now = || Stamp::of(&self.path.join(DATA_FILE));
            let stamp = looked.map_or_else(now, Ok)?;
            State { id: self.id, generation, is_vouched, stamp }.write(&self.path)
        };
        note().map_err(|error| StoreError::system(&self.path, error))
    }

    pub(crate) fn listed(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        digest: CertificateDigest,
    ) -> Result<Listed, Fault> {
        let record = self.tables.record(txn, digest)?;
        let record = record.ok_or(Fault::What("a name or a date leads to no certificate"))?;
        let served = self.tables.served_names(txn, digest, &record)?;
        Ok(Listed {
            all_names: record.names.iter().map(|name| (*name).to_owned()).collect(),
            digest,
            imported_s: record.imported_s,
            key_type: record.key_type,
            label: record.label.to_owned(),
            names: served.into_iter().map(str::to_owned).collect(),
            not_after_s: record.not_after_s,
            not_before_s: record.not_before_s,
            sealing_key: record.sealing_key,
        })
    }
}

/// Waits until no other process writes to the store in the folder `path`, and lets none begin for
/// as long as the answer lives.
pub(crate) fn lock_folder(path: &Path) -> Result<File, StoreError> {
    lock_folder_as(path, FlockOperation::LockExclusive)
}

/// The same for one that only reads, beside others that do.
pub(crate) fn share_folder(path: &Path) -> Result<File, StoreError> {
    lock_folder_as(path, FlockOperation::LockShared)
}

fn lock_folder_as(path: &Path, how: FlockOperation) -> Result<File, StoreError> {
    let lock = || {
        let folder = open_folder(path)?;
        rustix::fs::flock(&folder, how)?;
        Ok(folder)
    };
    lock().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => StoreError::Absent { path: path.into() },
        _ => StoreError::system(path, error),
    })
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A certificate without its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The names of the certificate.
    pub all_names: Vec<String>,
    /// Tells it from all others.
    pub digest: CertificateDigest,
    /// When it was imported, in Unix time.
    pub imported_s: i64,
    /// The kind of key.
    pub key_type: KeyType,
    /// Where it was imported from.
    pub label: String,
    /// The names that it is served for.
    pub names: Vec<String>,
    /// Last second of validity, in Unix time.
    pub not_after_s: i64,
    /// First second of validity, in Unix time.
    pub not_before_s: i64,
    /// What its private key is sealed with.
    pub sealing_key: SealingKeyId,
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Certificates that are gone.
    pub certificates: u64,
    /// Names that are no longer served.
    pub names: u64,
    /// Names that were not there.
    pub unknown: Vec<String>,
}

/// How much is in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Certificates.
    pub certificates: u64,
    /// Names that are served, a wildcard counted as one.
    pub names: u64,
    /// Sealing keys in use, each with how many private keys it seals.
    pub sealed_with: Vec<(SealingKeyId, u64)>,
}
