//! The tables of the database, and the few operations that keep them in agreement.
//!
//! Whatever writes does so in one transaction of its caller's, so that a reader sees all of it or
//! nothing.

mod change;

use std::fs::File;
use std::path::Path;

use heed::types::{Bytes, Str, U64, Unit};
use heed::{AnyTls, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, byteorder::BE};
use sealane_engine::certificates::{
    AskedName, CertificateDigest, Gone, StoreId, StoredCertificate,
};
use sha2::{Digest as _, Sha256};

use crate::error::{FORMAT, Fault};
use crate::files::{DATA_FILE, LOCK_FILE};
use crate::group::share_with_group;
use crate::lock_file::{LockFile, Reader};

use crate::pages::{Metas, Visitors, Walk};
use crate::record::Record;
use crate::regular::begun_file;
use crate::row::{Row, digest_from};
use crate::seal::SealingKeyError;
use crate::state::STATE_FILE;
use crate::unlocked::unlock;
use crate::{GONE_REMEMBERED_MAX, MAP_BYTES, READERS_MAX};

/// An open database.
pub(crate) struct Tables {
    pub(crate) env: Env,
    /// Digest to [`Record`].
    pub(crate) certificates: Database<Bytes, Bytes>,
    /// Last second of validity and digest, so that the first to expire is found first.
    pub(crate) expiry: Database<Bytes, Unit>,
    /// Number to digest of a certificate that left.
    gone: Database<U64<BE>, Bytes>,
    /// SHA-256 to the number of chains that an intermediate is in, and its DER.
    intermediates: Database<Bytes, Bytes>,
    /// The format's number and the store's identity; what is kept beside certificates too.
    pub(crate) meta: Database<Str, Bytes>,
    /// Name to a [`Row`]: kinds of key, each with the digest that is served for it.
    pub(crate) names: Database<Str, Bytes>,
    /// Sealing key to how many private keys and entries are sealed with it.
    pub(crate) sealed_with: Database<Bytes, U64<BE>>,
    /// LMDB's lock file, unless it was opened without. LMDB locks it for the process, and whoever
    /// closes it once unlocks it, so it is opened after `env`, and closed after it.
    pub(crate) lock_file: Option<LockFile>,
}

impl Tables {
    /// Opens the database in the folder `path`; none if it has not all tables. Nothing is written,
    /// and no writer is waited for.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, Fault> {
        Self::of(environment(path, EnvFlags::empty())?, path)
    }

    /// The same without a trace in LMDB's lock file, while the folder's lock keeps writers away. It
    /// may be another's: that of a file which was here before, and which a process still serves.
    pub(crate) fn open_to_examine(path: &Path) -> Result<Option<Self>, Fault> {
        Self::of(environment(path, EnvFlags::READ_ONLY | EnvFlags::NO_LOCK)?, path)
    }

    /// Opens the database in the folder `path` after making what it lacks: tables and an identity,
    /// in one transaction.
    pub(crate) fn create(path: &Path) -> Result<Option<Self>, Fault> {
        let env = environment(path, EnvFlags::empty())?;
        let mut txn = env.write_txn()?;
        for name in TABLES {
            env.create_database::<Bytes, Bytes>(&mut txn, Some(name))?;
        }
        let meta: Database<Str, Bytes> = env.create_database(&mut txn, Some(META))?;
        if meta.get(&txn, META_FORMAT)?.is_none() {
            let mut id = [0; 16];
            getrandom::fill(&mut id).map_err(|_| SealingKeyError::NoRandomBytes)?;
            meta.put(&mut txn, META_FORMAT, &FORMAT.to_be_bytes())?;
            meta.put(&mut txn, META_ID, &id)?;
        }
        txn.commit()?;
        Self::of(env, path)
    }

    fn of(env: Env, path: &Path) -> Result<Option<Self>, Fault> {
        let has_lock = env.flags()?.is_some_and(|flags| !flags.contains(EnvFlags::NO_LOCK));
        let lock_file = has_lock.then(|| LockFile::open(path)).transpose()?;
        let txn = env.read_txn()?;
        let [certificates, expiry, gone, intermediates, names, sealed_with] = TABLES;
        let (
            Some(certificates),
            Some(expiry),
            Some(gone),
            Some(intermediates),
            Some(meta),
            Some(names),
            Some(sealed_with),
        ) = (
            env.open_database(&txn, Some(certificates))?,
            env.open_database(&txn, Some(expiry))?,
            env.open_database(&txn, Some(gone))?,
            env.open_database(&txn, Some(intermediates))?,
            env.open_database(&txn, Some(META))?,
            env.open_database(&txn, Some(names))?,
            env.open_database(&txn, Some(sealed_with))?,
        )
        else {
            return Ok(None);
        };
        // Only this makes the tables known to later transactions.
        txn.commit()?;
        Ok(Some(Self {
            certificates,
            env,
            expiry,
            gone,
            intermediates,
            lock_file,
            meta,
            names,
            sealed_with,
        }))
    }

    /// The file, as LMDB has it open.
    pub(crate) fn data_file(&self) -> Result<File, Fault> {
        Ok(self.env.try_clone_inner_file()?)
    }

    /// Those that read at this moment, in whatever process.
    pub(crate) fn readers(&self) -> Result<Vec<Reader>, Fault> {
        self.lock_file.as_ref().map_or(Ok(Vec::new()), LockFile::readers)
    }

    /// Whether LMDB's lock file is that of the file that is open. It is not if another process has
    /// a file open that was here before: then each would mislead the other.
    pub(crate) fn has_lock_of_its_own(&self) -> Result<bool, Fault> {
        if self.is_locked_as_committed()? {
            return Ok(true);
        }
        // Perhaps a commit is being noted, or one was not because its process was killed then. LMDB
        // mends that for the next writer, and lets no other commit meanwhile.
        let txn = self.env.write_txn()?;
        let is_own = self.is_locked_as_committed();
        txn.abort();
        is_own
    }

    /// Whether LMDB's lock file names the last commit in the file.
    fn is_locked_as_committed(&self) -> Result<bool, Fault> {
        let Some(lock_file) = &self.lock_file else { return Ok(false) };
        let committed = Metas::read(&self.data_file()?)?.newest.transaction;
        Ok(lock_file.last_commit()? == Some(committed))
    }

    /// How often the store was changed.
    pub(crate) fn generation(&self, txn: &RoTxn<'_, AnyTls>) -> Result<u64, Fault> {
        let generation = self.meta.get(txn, META_GENERATION)?;
        let generation = generation.map(|bytes| bytes.try_into().map(u64::from_be_bytes));
        generation.unwrap_or(Ok(0)).map_err(|_| Fault::What("its count of changes is cut"))
    }

    /// Counts a change.
    pub(crate) fn count_change(&self, txn: &mut RwTxn<'_>) -> Result<u64, Fault> {
        let generation = self.generation(txn)?.saturating_add(1);
        self.meta.put(txn, META_GENERATION, &generation.to_be_bytes())?;
        Ok(generation)
    }

    /// Notes that all of it is in the format that this version writes.
    pub(crate) fn set_format(&self, txn: &mut RwTxn<'_>) -> Result<(), Fault> {
        Ok(self.meta.put(txn, META_FORMAT, &FORMAT.to_be_bytes())?)
    }

    /// The format and the identity of the store.
    pub(crate) fn identity(&self) -> Result<(u32, StoreId), Fault> {
        let txn = self.env.read_txn()?;
        let format = self.meta.get(&txn, META_FORMAT)?.and_then(|bytes| bytes.try_into().ok());
        let id = self.meta.get(&txn, META_ID)?.and_then(|bytes| bytes.try_into().ok());
        match (format, id) {
            (Some(format), Some(id)) => Ok((u32::from_be_bytes(format), StoreId(id))),
            _ => Err(Fault::What("its identity is cut")),
        }
    }

    /// What is served for exactly `name`, the cheapest kind of key first.
    pub(crate) fn named(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        name: &str,
    ) -> Result<Vec<StoredCertificate>, Fault> {
        self.row(txn, name)?.map_or(Ok(Vec::new()), |row| row.certificates())
    }

    /// The row of exactly `name`.
    pub(crate) fn row<'t>(
        &self,
        txn: &'t RoTxn<'_, AnyTls>,
        name: &str,
    ) -> Result<Option<Row<'t>>, Fault> {
        // A client may ask for ".", and LMDB takes no empty key.
        let bytes = if name.is_empty() { None } else { self.names.get(txn, name)? };
        bytes.map(Row::parse).transpose()
    }

    /// What a client gets that asks for `server_name`: the exact name hides a wildcard.
    pub(crate) fn find(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        server_name: &str,
    ) -> Result<Vec<StoredCertificate>, Fault> {
        let Some(mut name) = AskedName::new(server_name) else { return Ok(Vec::new()) };
        let exact = self.named(txn, name.exact())?;
        match name.wildcard() {
            Some(wildcard) if exact.is_empty() => self.named(txn, wildcard),
            _ => Ok(exact),
        }
    }

    /// The record `digest`.
    pub(crate) fn record<'t>(
        &self,
        txn: &'t RoTxn<'_, AnyTls>,
        digest: CertificateDigest,
    ) -> Result<Option<Record<'t>>, Fault> {
        Ok(self.certificates.get(txn, &digest.0)?.map(Record::parse).transpose()?)
    }

    /// The chain of a record, the server's own certificate first.
    pub(crate) fn chain<'t>(
        &self,
        txn: &'t RoTxn<'_, AnyTls>,
        record: &Record<'t>,
    ) -> Result<Vec<&'t [u8]>, Fault> {
        let mut chain = vec![record.leaf];
        for digest in &record.intermediates {
            let value = self.intermediates.get(txn, digest)?;
            chain.push(chain_part(value.ok_or(Fault::What("an intermediate is missing"))?)?);
        }
        Ok(chain)
    }

    /// The names of `record` for which it is the one that is served.
    pub(crate) fn served_names<'t>(
        &self,
        txn: &'t RoTxn<'_, AnyTls>,
        digest: CertificateDigest,
        record: &Record<'t>,
    ) -> Result<Vec<&'t str>, Fault> {
        let mut served = Vec::new();
        for name in &record.names {
            if self.named(txn, name)?.iter().any(|entry| entry.digest == digest) {
                served.push(*name);
            }
        }
        Ok(served)
    }

    /// The tables of what is served, in bytes: without what the store is, and what left it.
    pub(crate) fn of_what_is_served(&self) -> [Database<Bytes, Bytes>; 5] {
        [
            self.certificates,
            self.expiry.remap_data_type(),
            self.intermediates,
            self.names.remap_key_type(),
            self.sealed_with.remap_data_type(),
        ]
    }

    /// Reads every entry of every table, as lanes may come to do.
    pub(crate) fn sweep(&self, txn: &RoTxn<'_, AnyTls>) -> Result<(), Fault> {
        for table in [
            self.certificates,
            self.expiry.remap_data_type(),
            self.intermediates,
            self.gone.remap_key_type(),
            self.names.remap_key_type(),
            self.sealed_with.remap_data_type(),
            self.meta.remap_key_type(),
        ] {
            for entry in table.iter(txn)? {
                let (_, value) = entry?;
                // The last byte may be on a page that nothing else is on.
                std::hint::black_box(value.last());
            }
        }
        Ok(())
    }

    /// A few of the names that `digest` is served for, found without its record.
    pub(crate) fn some_names(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        digest: CertificateDigest,
    ) -> Result<Vec<String>, Fault> {
        let mut names = Vec::new();
        for entry in self.names.iter(txn)? {
            let (name, value) = entry?;
            if value.windows(digest.0.len()).any(|part| part == digest.0) {
                names.push(name.to_owned());
            }
            if names.len() == NAMES_SHOWN_MAX {
                break;
            }
        }
        Ok(names)
    }

    /// The certificates that left after the one numbered `seen`.
    pub(crate) fn gone_since(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        seen: Option<u64>,
    ) -> Result<Gone, Fault> {
        let last = self.gone.last(txn)?.map_or(0, |(number, _)| number);
        let missed = last.saturating_sub(seen.unwrap_or(last));
        if missed > GONE_REMEMBERED_MAX {
            return Ok(Gone { digests: None, last });
        }
        let after = self.gone.range(txn, &(last - missed + 1..=last))?;
        let digests = after.map(|entry| digest_from(entry?.1));
        Ok(Gone { digests: Some(digests.collect::<Result<_, _>>()?), last })
    }

    #[cfg(test)]
    pub(crate) fn intermediate_count(&self, txn: &RoTxn<'_, AnyTls>) -> Result<u64, Fault> {
        Ok(self.intermediates.len(txn)?)
    }

    #[cfg(test)]
    pub(crate) fn set_format_1(&self, txn: &mut RwTxn<'_>) -> Result<(), Fault> {
        Ok(self.meta.put(txn, META_FORMAT, &1_u32.to_be_bytes())?)
    }

    #[cfg(test)]
    pub(crate) fn damage_intermediate(&self, store: &crate::Store, hash: [u8; 32]) {
        let damage = |txn: &mut RwTxn<'_>| {
            let mut value = self.intermediates.get(txn, &hash)?.unwrap_or_default().to_vec();
            if let Some(last) = value.last_mut() {
                *last ^= 1;
            }
            Ok(self.intermediates.put(txn, &hash, &value)?)
        };
        store.write(damage).unwrap();
    }
}

/// Whether the file at `path`, if there is one, is as long as it says. LMDB maps more than the
/// file, and whoever reads behind the end of a file is ended by the system.
fn check_length(path: &Path) -> Result<(), Fault> {
    let Some((file, len)) = begun_file(&path.join(DATA_FILE)).map_err(heed::Error::Io)? else {
        return Ok(());
    };
    let metas = Metas::read(&file)?;
    // The end may be missing, but only if it is free.
    match metas.is_long_enough(len) {
        true => Ok(()),
        false => Ok(Walk::run(&file, &metas.newest, Visitors::default()).map(drop)?),
    }
}

fn environment(path: &Path, flags: EnvFlags) -> Result<Env, Fault> {
    check_length(path)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(READERS_MAX).max_dbs(TABLES_MAX);
    // SAFETY: the file is mapped, so nobody else may write to it or cut it. LMDB's lock file keeps
    // all that open it through LMDB in order; who opens it without that lock, which is a flag,
    // reads only, and has the folder's lock, without which nobody writes. LMDB's locks are those of
    // the table of open files, so whoever opened the file twice would undo its own: heed refuses a
    // path that is open, and whoever opens stores by several paths tells them apart by their files.
    // The folder belongs to one user, or to a group of users that trust each other (`group`). A
    // remote file system is not supported, as the documentation says.
    #[allow(unsafe_code, reason = "a mapped file cannot be opened otherwise")]
    let env = unsafe { options.flags(flags).open(path)? };
    unlock(&path.join(DATA_FILE));
    // Who only reads makes none.
    if !flags.contains(EnvFlags::READ_ONLY) {
        for name in [DATA_FILE, LOCK_FILE, STATE_FILE] {
            share_with_group(path, name).map_err(heed::Error::Io)?;
        }
    }
    // Readers that were killed would keep old pages from being used again.
    env.clear_stale_readers()?;
    Ok(env)
}

/// The identity of a chain in the database. The private key has no part in it: what is written
/// beside a seal must not tell anything of what is in it.
#[must_use]
pub fn chain_digest<'a>(chain: impl Iterator<Item = &'a [u8]>) -> CertificateDigest {
    let mut hash = Sha256::new_with_prefix(b"sealane stored certificate 1");
    for der in chain {
        hash.update((der.len() as u64).to_be_bytes());
        hash.update(der);
    }
    CertificateDigest(hash.finalize().into())
}

/// The key of the table `expiry`: times sort as numbers, those before 1970 first.
pub(crate) fn expiry_key(not_after_s: i64, digest: CertificateDigest) -> Vec<u8> {
    let sortable = not_after_s.cast_unsigned() ^ (1 << 63);
    [sortable.to_be_bytes().as_slice(), &digest.0].concat()
}

/// The digest in a key of the table `expiry`.
pub(crate) fn digest_of_expiry_key(key: &[u8]) -> Result<CertificateDigest, Fault> {
    digest_from(key.get(8..).unwrap_or_default())
}

/// The DER of an intermediate's entry.
pub(crate) fn chain_part(value: &[u8]) -> Result<&[u8], Fault> {
    let parts = value.split_first_chunk::<COUNT_BYTES>();
    parts.map(|(_, der)| der).ok_or(Fault::What("the entry of an intermediate is cut"))
}

const COUNT_BYTES: usize = 8;
/// Names that tell an operator which certificate is meant.
const NAMES_SHOWN_MAX: usize = 3;
const META: &str = "meta";
const META_FORMAT: &str = "format";
const META_GENERATION: &str = "generation";
const META_ID: &str = "id";
pub(crate) const CERTIFICATES: &str = "certificates";
pub(crate) const EXPIRY: &str = "expiry";
pub(crate) const GONE: &str = "gone";
pub(crate) const INTERMEDIATES: &str = "intermediates";
pub(crate) const NAMES: &str = "names";
pub(crate) const SEALED_WITH: &str = "sealed_with";
/// The tables of bytes to bytes, as the fields of [`Tables`] are ordered.
const TABLES: [&str; 6] = [CERTIFICATES, EXPIRY, GONE, INTERMEDIATES, NAMES, SEALED_WITH];
/// With the one of texts.
const TABLES_MAX: u32 = 7;
