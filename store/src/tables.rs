//! The tables of the database, and the few operations that keep them in agreement.
//!
//! Whatever writes does so in one transaction of its caller's, so that a reader sees all of it or
//! nothing.

use std::collections::HashMap;
use std::path::Path;

use heed::types::{Bytes, Str, U64, Unit};
use heed::{AnyTls, Database, Env, EnvOpenOptions, RoTxn, RwTxn, byteorder::BE};
use sealane_engine::certificates::{
    AskedName, CertificateDigest, Gone, KeyType, StoreId, StoredCertificate,
};
use sha2::{Digest as _, Sha256};

use crate::error::{FORMAT, Fault};
use crate::record::{KEY_TYPE_BYTES, Record, key_type_bytes, key_type_from};
use crate::seal::{SealingKeyError, SealingKeyId};
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
    /// The format's number and the store's identity.
    meta: Database<Str, Bytes>,
    /// Name to a list of kinds of key, each with the digest that is served for it.
    pub(crate) names: Database<Str, Bytes>,
    /// Sealing key to how many private keys are sealed with it.
    pub(crate) sealed_with: Database<Bytes, U64<BE>>,
}

impl Tables {
    /// Opens the database in the folder `path`; none if it has not all tables. Nothing is written,
    /// and no writer is waited for.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, Fault> {
        Self::of(environment(path)?)
    }

    /// Opens the database in the folder `path` after making what it lacks: tables and an identity,
    /// in one transaction.
    pub(crate) fn create(path: &Path) -> Result<Option<Self>, Fault> {
        let env = environment(path)?;
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
        Self::of(env)
    }

    fn of(env: Env) -> Result<Option<Self>, Fault> {
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
        Ok(Some(Self { certificates, expiry, gone, intermediates, meta, names, sealed_with, env }))
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
        // A client may ask for ".", and LMDB takes no empty key.
        let entries = if name.is_empty() { None } else { self.names.get(txn, name)? };
        let Some(entries) = entries else { return Ok(Vec::new()) };
        let (entries, []) = entries.as_chunks::<ENTRY_BYTES>() else {
            return Err(Fault::What("the entry of a name is cut"));
        };
        entries.iter().map(entry).collect()
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
            let (_, der) = value
                .and_then(<[u8]>::split_first_chunk::<COUNT_BYTES>)
                .ok_or(Fault::What("an intermediate is missing"))?;
            chain.push(der);
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

    /// Writes a record that is not there, with what counts it; its names are not placed.
    pub(crate) fn insert(
        &self,
        txn: &mut RwTxn<'_>,
        digest: CertificateDigest,
        record: &Record<'_>,
        intermediates: &[&[u8]],
    ) -> Result<(), Fault> {
        for (hash, der) in record.intermediates.iter().zip(intermediates) {
            let uses = self.intermediate_uses(txn, hash)?.saturating_add(1);
            self.intermediates.put(txn, hash, &[&uses.to_be_bytes(), *der].concat())?;
        }
        self.certificates.put(txn, &digest.0, &record.to_bytes()?)?;
        self.expiry.put(txn, &expiry_key(record.not_after_s, digest), &())?;
        self.count_seal(txn, record.sealing_key, 1)
    }

    /// Removes a record with what counts it; its names stay.
    pub(crate) fn delete(
        &self,
        txn: &mut RwTxn<'_>,
        digest: CertificateDigest,
    ) -> Result<(), Fault> {
        let Ok(record) = self.record(txn, digest) else { return self.delete_damaged(txn, digest) };
        let Some(record) = record else { return Ok(()) };
        let (not_after_s, sealing_key) = (record.not_after_s, record.sealing_key);
        for hash in record.intermediates.clone() {
            match self.intermediate_uses(txn, &hash)? {
                0 => {}
                1 => drop(self.intermediates.delete(txn, &hash)?),
                uses => {
                    let value = self.intermediates.get(txn, &hash)?.unwrap_or_default();
                    let der = value.get(COUNT_BYTES..).unwrap_or_default();
                    let value = [&(uses - 1).to_be_bytes(), der].concat();
                    self.intermediates.put(txn, &hash, &value)?;
                }
            }
        }
        self.certificates.delete(txn, &digest.0)?;
        let was_dated = self.expiry.delete(txn, &expiry_key(not_after_s, digest))?;
        let was_counted = self.sealed_with.get(txn, &sealing_key.0)?.is_some();
        match was_dated && was_counted {
            true => self.count_seal(txn, sealing_key, -1),
            false => self.recount(txn, digest),
        }
    }

    /// Removes a record that cannot be read.
    fn delete_damaged(&self, txn: &mut RwTxn<'_>, digest: CertificateDigest) -> Result<(), Fault> {
        self.certificates.delete(txn, &digest.0)?;
        self.recount(txn, digest)
    }

    /// Forgets the dates of `digest`, which is gone, and counts anew what is sealed with which key,
    /// by looking at all.
    fn recount(&self, txn: &mut RwTxn<'_>, digest: CertificateDigest) -> Result<(), Fault> {
        let mut expiries = Vec::new();
        for entry in self.expiry.iter(txn)? {
            expiries.extend(Some(entry?.0.to_vec()).filter(|key| key.ends_with(&digest.0)));
        }
        for key in expiries {
            self.expiry.delete(txn, &key)?;
        }
        let mut counts: HashMap<SealingKeyId, i64> = HashMap::new();
        for entry in self.certificates.iter(txn)? {
            if let Ok(record) = Record::parse(entry?.1) {
                *counts.entry(record.sealing_key).or_default() += 1;
            }
        }
        self.sealed_with.clear(txn)?;
        counts.into_iter().try_for_each(|(id, count)| self.count_seal(txn, id, count))
    }

    /// Puts a sealed key in the place of another: the same certificate under another seal.
    pub(crate) fn replace_seal(
        &self,
        txn: &mut RwTxn<'_>,
        digest: CertificateDigest,
        bytes: &[u8],
        (before, after): (SealingKeyId, SealingKeyId),
    ) -> Result<(), Fault> {
        self.certificates.put(txn, &digest.0, bytes)?;
        self.count_seal(txn, before, -1)?;
        self.count_seal(txn, after, 1)
    }

    /// Serves `digest` for `name`; returns the certificate with the same kind of key that was
    /// served until now, if it is another.
    pub(crate) fn place(
        &self,
        txn: &mut RwTxn<'_>,
        name: &str,
        placed: StoredCertificate,
    ) -> Result<Option<CertificateDigest>, Fault> {
        let mut entries = self.named(txn, name)?;
        let rank = placed.key_type.rank();
        let same_kind = entries.iter().position(|entry| entry.key_type.rank() == rank);
        let before = same_kind.map(|position| entries.remove(position).digest);
        entries.push(placed);
        entries.sort_by_key(|entry| entry.key_type.rank());
        self.write_entries(txn, name, &entries)?;
        Ok(before.filter(|before| *before != placed.digest))
    }

    /// Serves nothing for `name` any more; returns what was served.
    pub(crate) fn unplace(
        &self,
        txn: &mut RwTxn<'_>,
        name: &str,
    ) -> Result<Vec<CertificateDigest>, Fault> {
        let entries = self.named(txn, name)?;
        if !entries.is_empty() {
            self.names.delete(txn, name)?;
        }
        Ok(entries.into_iter().map(|entry| entry.digest).collect())
    }

    /// Removes `digest` if it is served for no name any more, and notes that it left.
    pub(crate) fn drop_if_unserved(
        &self,
        txn: &mut RwTxn<'_>,
        digest: CertificateDigest,
    ) -> Result<bool, Fault> {
        let is_served = match self.record(txn, digest) {
            Ok(Some(record)) => !self.served_names(txn, digest, &record)?.is_empty(),
            Ok(None) => return Ok(false),
            // Its own list of names cannot be read. It stays while a name leads to it, or nobody
            // could tell what is wrong with that name.
            Err(_) => !self.some_names(txn, digest)?.is_empty(),
        };
        if is_served {
            return Ok(false);
        }
        self.delete(txn, digest)?;
        let number = self.gone.last(txn)?.map_or(0, |(number, _)| number) + 1;
        self.gone.put(txn, &number, &digest.0)?;
        if let Some(forgotten) = number.checked_sub(GONE_REMEMBERED_MAX) {
            self.gone.delete(txn, &forgotten)?;
        }
        Ok(true)
    }

    #[cfg(test)]
    pub(crate) fn intermediate_count(&self, txn: &RoTxn<'_, AnyTls>) -> Result<u64, Fault> {
        Ok(self.intermediates.len(txn)?)
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

    fn write_entries(
        &self,
        txn: &mut RwTxn<'_>,
        name: &str,
        entries: &[StoredCertificate],
    ) -> Result<(), Fault> {
        let bytes: Vec<u8> = entries
            .iter()
            .flat_map(|entry| key_type_bytes(entry.key_type).into_iter().chain(entry.digest.0))
            .collect();
        Ok(self.names.put(txn, name, &bytes)?)
    }

    fn intermediate_uses(&self, txn: &RoTxn<'_, AnyTls>, hash: &[u8; 32]) -> Result<u64, Fault> {
        let value = self.intermediates.get(txn, hash)?;
        let count = value.and_then(<[u8]>::first_chunk::<COUNT_BYTES>);
        Ok(count.map_or(0, |count| u64::from_be_bytes(*count)))
    }

    fn count_seal(&self, txn: &mut RwTxn<'_>, id: SealingKeyId, by: i64) -> Result<(), Fault> {
        let count = self.sealed_with.get(txn, &id.0)?.unwrap_or(0).saturating_add_signed(by);
        match count {
            0 => drop(self.sealed_with.delete(txn, &id.0)?),
            _ => self.sealed_with.put(txn, &id.0, &count)?,
        }
        Ok(())
    }
}

fn environment(path: &Path) -> Result<Env, Fault> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(READERS_MAX).max_dbs(TABLES_MAX);
    // SAFETY: the file is mapped, so nobody else may write to it or cut it. LMDB's lock file keeps
    // all that open it through LMDB in order, and no flag here weakens that. Its locks are the
    // process's, so a process that opened the file twice would undo its own: heed refuses a path
    // that is open, and whoever opens stores by several paths tells them apart by their files. The
    // folder belongs to one user. A remote file system is not supported, as the documentation says.
    #[allow(unsafe_code, reason = "a mapped file cannot be opened otherwise")]
    let env = unsafe { options.open(path)? };
    // Readers that were killed would keep old pages from being used again.
    env.clear_stale_readers()?;
    Ok(env)
}

/// The identity of a chain in the database. The private key has no part in it: what is written
/// beside a seal must not tell anything of what is in it.
pub(crate) fn digest_of<'a>(chain: impl Iterator<Item = &'a [u8]>) -> CertificateDigest {
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

pub(crate) fn digest_from(bytes: &[u8]) -> Result<CertificateDigest, Fault> {
    bytes.try_into().map(CertificateDigest).map_err(|_| Fault::What("a digest is cut"))
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Result<StoredCertificate, Fault> {
    let (kind, digest) = bytes.split_at(KEY_TYPE_BYTES);
    let kind = kind.try_into().map_err(|_| Fault::What("the entry of a name is cut"))?;
    let key_type: KeyType = key_type_from(kind)?;
    Ok(StoredCertificate { digest: digest_from(digest)?, key_type })
}

const COUNT_BYTES: usize = 8;
const ENTRY_BYTES: usize = KEY_TYPE_BYTES + 32;
/// Names that tell an operator which certificate is meant.
const NAMES_SHOWN_MAX: usize = 3;
const META: &str = "meta";
const META_FORMAT: &str = "format";
const META_ID: &str = "id";
/// The tables of bytes to bytes, as the fields of [`Tables`] are ordered.
const TABLES: [&str; 6] =
    ["certificates", "expiry", "gone", "intermediates", "names", "sealed_with"];
/// With the one of texts.
const TABLES_MAX: u32 = 7;
