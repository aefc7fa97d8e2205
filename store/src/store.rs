//! The public part of a store: which certificates there are, for which names, until when.

use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use heed::{AnyTls, RoTxn};
use sealane_engine::certificates::{CertificateDigest, KeyType, StoreId};

use crate::error::{FORMAT, Fault, StoreError};
use crate::seal::SealingKeyId;
use crate::tables::{Tables, digest_of_expiry_key, expiry_key};

/// An open store without the keys to its seals. A process opens a store once and shares it.
pub struct Store {
    id: StoreId,
    path: PathBuf,
    pub(crate) tables: Tables,
}

impl Store {
    /// Opens the store in the folder `path`.
    ///
    /// # Errors
    /// There is none, it has another format, or the system refuses.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        match path.join(DATA_FILE).try_exists() {
            Ok(true) => Self::of(path, Tables::open(path)),
            Ok(false) => Err(StoreError::Absent { path: path.into() }),
            Err(error) => Err(StoreError::system(path, error)),
        }
    }

    /// Opens the store in the folder `path`; makes it, and the folder for this user alone, if it is
    /// missing.
    ///
    /// # Errors
    /// It has another format, or the system refuses.
    pub fn open_or_create(path: &Path) -> Result<Self, StoreError> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StoreError::system(path, error));
            }
            _ => {}
        }
        Self::of(path, Tables::create(path))
    }

    fn of(path: &Path, tables: Result<Option<Tables>, Fault>) -> Result<Self, StoreError> {
        let tables = tables.map_err(|fault| fault.at(path))?;
        let tables = tables.ok_or_else(|| StoreError::Absent { path: path.into() })?;
        let (format, id) = tables.identity().map_err(|fault| fault.at(path))?;
        if format != FORMAT {
            return Err(StoreError::Format { path: path.into(), found: format });
        }
        Ok(Self { id, path: path.into(), tables })
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
            keys.take(count_max)
                .map(|entry| self.listed(txn, digest_of_expiry_key(entry?.0)?))
                .collect()
        })
    }

    /// Serves nothing for these names any more, in one transaction; a certificate goes with the
    /// last name it is served for.
    ///
    /// # Errors
    /// It cannot be written; then nothing is removed.
    pub fn remove(&self, names: &[String]) -> Result<Removed, StoreError> {
        let mut removed = Removed::default();
        self.write(|txn| {
            for name in names {
                let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                let served = self.tables.unplace(txn, &name)?;
                if served.is_empty() {
                    removed.unknown.push(name);
                    continue;
                }
                removed.names += 1;
                for digest in served {
                    removed.certificates += u64::from(self.tables.drop_if_unserved(txn, digest)?);
                }
            }
            Ok(())
        })?;
        Ok(removed)
    }

    /// Runs `read` in a transaction of its own.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&RoTxn<'_, AnyTls>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let txn = self.tables.env.read_txn().map_err(|error| Fault::from(error).at(&self.path))?;
        read(&txn).map_err(|fault| fault.at(&self.path))
    }

    /// Runs `write` in a transaction of its own, which is committed if all went well.
    pub(crate) fn write<T>(
        &self,
        write: impl FnOnce(&mut heed::RwTxn<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let write = || {
            let mut txn = self.tables.env.write_txn()?;
            let written = write(&mut txn)?;
            txn.commit()?;
            Ok(written)
        };
        write().map_err(|fault: Fault| fault.at(&self.path))
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

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A certificate without its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
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

/// The file in the folder that holds the store, as LMDB calls it.
pub const DATA_FILE: &str = "data.mdb";
