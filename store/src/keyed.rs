//! A store together with the keys to its seals: what serves, and what writes private keys.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use heed::{AnyTls, RoTxn, RwTxn, WithTls};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use sealane_engine::certificates::{
    Certificate, CertificateDigest, CertificateStore, EncodedKey, Gone, Inventory, InventoryEntry,
    InventoryFailure, OpenedCertificate, StoreFailure, StoreId, StoreView, StoredCertificate,
};
use sha2::{Digest as _, Sha256};

use crate::error::{Fault, StoreError};
use crate::examine::tables_agree;
use crate::names::{Row, Rows};
use crate::record::Record;
use crate::removal::AHEAD_S_MAX;
use crate::seal::{NONCE_BYTES, OpenError, Sealed, SealingKeyId, SealingKeys};
use crate::store::{Listed, Store};
use crate::tables::{Tables, chain_digest, digest_from};

/// A store whose private keys can be opened, all of them.
#[derive(Debug)]
pub struct KeyedStore {
    keys: SealingKeys,
    store: Arc<Store>,
}

impl KeyedStore {
    /// Joins a store with its keys.
    ///
    /// # Errors
    /// Some private key is sealed with a key that is not among `keys`, or the store cannot be read.
    pub fn new(store: Arc<Store>, keys: SealingKeys) -> Result<Self, StoreError> {
        let missing = store.summary()?.sealed_with.into_iter().find(|(id, _)| !keys.has(*id));
        match missing {
            Some((id, count)) => {
                Err(StoreError::KeyMissing { path: store.path().into(), count, id })
            }
            None => Ok(Self { keys, store }),
        }
    }

    /// The key that seals.
    pub fn current_key(&self) -> SealingKeyId {
        self.keys.current()
    }

    /// The public part.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Adds certificates in one transaction. Of two with one kind of key the later one is served
    /// for the names they have in common, and one that is served for no name any more is removed.
    /// One that is served already keeps the time at which it was put, but where the store
    /// [may lack](crate::Store::is_behind) what others have.
    ///
    /// `now_s` is Unix time.
    ///
    /// # Errors
    /// One has no name, or the store cannot be written; then nothing is added, but with
    /// [`StoreError::NotNoted`].
    pub fn import(
        &self,
        certificates: &[Arc<Certificate>],
        now_s: i64,
    ) -> Result<Imported, StoreError> {
        self.import_with(certificates, now_s, |_| Ok(()))
    }

    /// The same with `more`, which is written in the same transaction.
    pub(crate) fn import_with(
        &self,
        certificates: &[Arc<Certificate>],
        now_s: i64,
        more: impl FnOnce(&mut RwTxn<'_>) -> Result<(), Fault>,
    ) -> Result<Imported, StoreError> {
        check_names(certificates)?;
        let mut imported = Imported::default();
        self.store.write(|txn| {
            for one in certificates {
                let put_s = self.later_than_all(txn, one, now_s)?;
                self.import_one(txn, one, Put::New(put_s), &mut imported)?;
            }
            more(txn)
        })?;
        Ok(imported)
    }

    /// When a certificate is put that is put now: later than what it takes names from, and than the
    /// words of their removal, whatever the clock says.
    fn later_than_all(
        &self,
        txn: &RwTxn<'_>,
        certificate: &Certificate,
        now_s: i64,
    ) -> Result<i64, Fault> {
        let digest = chain_digest(certificate.chain());
        let mut put_s = now_s;
        for name in certificate.names() {
            for entry in self.rows().named(txn, name).unwrap_or_default() {
                let is_same_kind = entry.key_type.rank() == certificate.key_type().rank();
                if is_same_kind
                    && entry.digest != digest
                    && let Ok(Some(record)) = self.tables().record(txn, entry.digest)
                    // Its seal is bound to the time.
                    && self.open_key(entry.digest, &record).is_ok()
                {
                    put_s = put_s.max(record.imported_s.saturating_add(1));
                }
            }
            let word = self.tables().removal(txn, name)?;
            // Nobody proves a word.
            if let Some(word) = word.filter(|word| word.at_s <= now_s.saturating_add(AHEAD_S_MAX)) {
                put_s = put_s.max(word.at_s.saturating_add(1));
            }
        }
        Ok(put_s)
    }

    /// Seals the next private keys that are not sealed with the current key anew, at most
    /// `count_max` in one transaction, and with the first of them all entries. What is left is
    /// counted in the answer; an interrupted run is simply begun again.
    ///
    /// # Errors
    /// A private key does not open, or the store cannot be written; what earlier calls did stays.
    pub fn reseal(
        &self,
        after: Option<CertificateDigest>,
        count_max: usize,
    ) -> Result<Resealed, StoreError> {
        self.store.write(|txn| self.reseal_some(txn, after, count_max))
    }

    /// Opens every private key from the certificate behind `after` on, at most `count_max`, and
    /// calls `problem` with whatever is wrong; returns where to go on. The first call tells also of
    /// names that nobody with a sealing key wrote, and of tables that do not agree.
    ///
    /// # Errors
    /// The store cannot be read at all.
    pub fn verify(
        &self,
        after: Option<CertificateDigest>,
        count_max: usize,
        provider: &CryptoProvider,
        mut problem: impl FnMut(String),
    ) -> Result<Option<CertificateDigest>, StoreError> {
        let digests = self.store.read(|txn| self.digests_after(txn, after, count_max))?;
        if after.is_none() {
            self.store.read(|txn| self.tell_unproven(txn, &mut problem))?;
        }
        for digest in &digests {
            // The key is decoded outside of the transaction, which others wait for to end.
            let opened = self.store.read(|txn| self.open_and_check(txn, *digest));
            let checked = opened.map_err(|error| error.to_string()).and_then(|opened| {
                let Some((label, opened)) = opened else { return Ok(()) };
                opened.decode(&label, provider).map(drop).map_err(|error| error.to_string())
            });
            if let Err(wrong) = checked {
                let names = self.store.read(|txn| self.tables().some_names(txn, *digest))?;
                problem(format!("{}: {wrong}", names.join(", ")));
            }
        }
        Ok(digests.last().copied())
    }

    /// Calls `problem` with names whose rows no holder of a sealing key wrote, and with what the
    /// tables do not agree in.
    fn tell_unproven(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        problem: &mut impl FnMut(String),
    ) -> Result<(), Fault> {
        let mut told = 0;
        for entry in self.tables().names.iter(txn)? {
            let (name, row) = entry?;
            let wrong = Row::parse(row).and_then(|row| self.rows().proven(name, &row)).err();
            if let Some(wrong) = wrong {
                problem(format!("{name}: {}; import its certificate again", wrong.text()));
                told += 1;
            }
            if told == PROBLEMS_TOLD_MAX {
                break;
            }
        }
        if let Err(wrong) = tables_agree(self.tables(), txn) {
            problem(wrong.text());
        }
        Ok(())
    }

    /// Imports one; whether it is served for any name then.
    pub(crate) fn import_one(
        &self,
        txn: &mut RwTxn<'_>,
        certificate: &Certificate,
        put: Put,
        imported: &mut Imported,
    ) -> Result<bool, Fault> {
        let digest = chain_digest(certificate.chain());
        let record = self.tables().record(txn, digest).ok().flatten();
        let here_s = record.map(|record| record.imported_s);
        let is_newer = here_s.is_none_or(|here_s| here_s < put.at_s());
        let is_whole = self.is_whole(txn, digest, certificate).unwrap_or(false);
        // What all machines have stays as it is; of what others have, or removed, nobody knows here
        // while this one may lack it.
        let has_news =
            is_newer && (matches!(put, Put::Elsewhere(_)) || self.tables().is_behind(txn)?);
        if is_whole {
            imported.unchanged += 1;
        }
        if is_whole && !has_news {
            return Ok(true);
        }
        let put_s = here_s.map_or(put.at_s(), |here_s| here_s.max(put.at_s()));
        // One that is damaged, or sealed with an old key, makes room for itself.
        self.tables().delete(txn, digest)?;
        self.insert(txn, digest, certificate, put_s)?;
        let placed = StoredCertificate { digest, key_type: certificate.key_type() };
        let mut replaced = BTreeSet::new();
        for name in certificate.names() {
            if matches!(put, Put::Elsewhere(_)) && self.is_over(txn, name, certificate, put_s)? {
                continue;
            }
            replaced.extend(self.rows().place(txn, name, placed)?.map(|before| before.0));
        }
        match (is_whole, replaced.is_empty()) {
            (true, _) => {}
            (false, true) => imported.added += 1,
            (false, false) => imported.replaced += 1,
        }
        for before in replaced {
            self.tables().drop_if_unserved(txn, CertificateDigest(before))?;
        }
        let may_be_over = matches!(put, Put::Elsewhere(_));
        Ok(!(may_be_over && self.tables().drop_if_unserved(txn, digest)?))
    }

    /// Whether a certificate that was put at `put_s` is served no more for `name`: it was removed
    /// since, or one with the same kind of key was put later; of two at once the one holds that
    /// begins later, ends later, or has the greater digest, in this order.
    fn is_over(
        &self,
        txn: &RwTxn<'_>,
        name: &str,
        certificate: &Certificate,
        put_s: i64,
    ) -> Result<bool, Fault> {
        if self.tables().removal(txn, name)?.is_some_and(|word| word.at_s >= put_s) {
            return Ok(true);
        }
        let kind = certificate.key_type().rank();
        let digest = chain_digest(certificate.chain());
        let new = (put_s, certificate.not_before_s(), certificate.not_after_s(), digest.0);
        // What cannot be read, or is proven by nobody, makes room.
        for entry in self.rows().named(txn, name).unwrap_or_default() {
            if entry.key_type.rank() == kind
                && let Ok(Some(record)) = self.tables().record(txn, entry.digest)
                && (record.imported_s, record.not_before_s, record.not_after_s, entry.digest.0)
                    > new
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn insert(
        &self,
        txn: &mut RwTxn<'_>,
        digest: CertificateDigest,
        certificate: &Certificate,
        put_s: i64,
    ) -> Result<(), Fault> {
        let chain: Vec<&[u8]> = certificate.chain().collect();
        let (leaf, intermediates) = chain.split_first().ok_or(Fault::What("an empty chain"))?;
        let unsealed = Record {
            key_type: certificate.key_type(),
            not_before_s: certificate.not_before_s(),
            not_after_s: certificate.not_after_s(),
            imported_s: put_s,
            sealing_key: self.keys.current(),
            nonce: [0; NONCE_BYTES],
            sealed_key: &[],
            label: beginning(certificate.label()),
            names: certificate.names().iter().map(|name| &**name).collect(),
            leaf,
            intermediates: intermediates.iter().map(|der| Sha256::digest(der).into()).collect(),
        };
        let sealed = self.seal(digest, &unsealed, certificate.key())?;
        let record = unsealed.with_seal(&sealed);
        self.tables().insert(txn, digest, &record, intermediates)
    }

    /// Seals the key of the record `unsealed`, whose seal, if it has one, does not matter.
    pub(crate) fn seal(
        &self,
        digest: CertificateDigest,
        unsealed: &Record<'_>,
        key: &EncodedKey,
    ) -> Result<Sealed, Fault> {
        Ok(self.keys.seal(key, &self.bound(digest, unsealed)?)?)
    }

    /// What the seal of a record is bound to: the store, the chain, and the rest of the record.
    fn bound(&self, digest: CertificateDigest, record: &Record<'_>) -> Result<Vec<u8>, Fault> {
        let record = record.unsealed_digest()?;
        Ok([self.store.id().0.as_slice(), &digest.0, &record].concat())
    }

    /// Whether `certificate` is there as it would be written now: sealed with the current key, its
    /// key and its chain undamaged, and served for all of its names.
    fn is_whole(
        &self,
        txn: &RwTxn<'_>,
        digest: CertificateDigest,
        certificate: &Certificate,
    ) -> Result<bool, Fault> {
        let Some(record) = self.tables().record(txn, digest)? else { return Ok(false) };
        let served = self.proven_names(txn, digest, &record)?;
        let validity = (certificate.not_before_s(), certificate.not_after_s());
        Ok(record.sealing_key == self.keys.current()
            && record.key_type == certificate.key_type()
            && (record.not_before_s, record.not_after_s) == validity
            && served.iter().copied().eq(certificate.names().iter().map(|name| &**name))
            && self.open_record(txn, digest, &record).is_ok())
    }

    fn reseal_some(
        &self,
        txn: &mut RwTxn<'_>,
        after: Option<CertificateDigest>,
        count_max: usize,
    ) -> Result<Resealed, Fault> {
        let digests = self.digests_after(txn, after, count_max)?;
        let mut resealed = if after.is_none() { self.reseal_kept(txn)? } else { 0 };
        for digest in &digests {
            let Some(record) = self.tables().record(txn, *digest)? else { continue };
            let before = record.sealing_key;
            if before == self.keys.current() {
                continue;
            }
            let sealed = self.seal(*digest, &record, &self.open_key(*digest, &record)?)?;
            let names: Vec<String> = record.names.iter().map(|name| (*name).to_owned()).collect();
            let bytes = record.with_seal(&sealed).to_bytes()?;
            self.tables().replace_seal(txn, *digest, &bytes, (before, sealed.id))?;
            // A row goes over with the first of its certificates.
            names.iter().try_for_each(|name| self.rows().reprove(txn, name))?;
            resealed += 1;
        }
        Ok(Resealed { last: digests.last().copied(), resealed, seen: digests.len() })
    }

    fn digests_after(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        after: Option<CertificateDigest>,
        count_max: usize,
    ) -> Result<Vec<CertificateDigest>, Fault> {
        let from = after.as_ref().map_or(Bound::Unbounded, |last| Bound::Excluded(&last.0[..]));
        let range = self.tables().certificates.range(txn, &(from, Bound::Unbounded))?;
        range.take(count_max).map(|entry| digest_from(entry?.0)).collect()
    }

    fn open_and_check(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        digest: CertificateDigest,
    ) -> Result<Option<(String, OpenedCertificate)>, Fault> {
        // It may have been removed meanwhile.
        let Some(record) = self.tables().record(txn, digest)? else { return Ok(None) };
        let label = record.label.to_owned();
        Ok(Some((label, self.open_record(txn, digest, &record)?)))
    }

    fn open_record(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        digest: CertificateDigest,
        record: &Record<'_>,
    ) -> Result<OpenedCertificate, Fault> {
        let key = self.open_key(digest, record)?;
        let chain = self.tables().chain(txn, record)?;
        if chain_digest(chain.iter().copied()) != digest {
            return Err(Fault::What("a chain is not the one that its private key was sealed for"));
        }
        let chain = chain.into_iter().map(|der| CertificateDer::from(der.to_vec())).collect();
        Ok(OpenedCertificate { chain, key })
    }

    pub(crate) fn open_key(
        &self,
        digest: CertificateDigest,
        record: &Record<'_>,
    ) -> Result<EncodedKey, Fault> {
        let bound = self.bound(digest, record)?;
        let opened = self.keys.open(record.sealing_key, &record.nonce, record.sealed_key, &bound);
        opened.map_err(|error| match error {
            OpenError::Damaged => Fault::What("a private key's seal is broken"),
            OpenError::KeyMissing => Fault::What("a private key is sealed with another key"),
        })
    }

    /// The names of `record` whose rows lead to it and are proven.
    fn proven_names<'t>(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        digest: CertificateDigest,
        record: &Record<'t>,
    ) -> Result<Vec<&'t str>, Fault> {
        let mut served = Vec::new();
        for name in &record.names {
            let found = self.rows().named(txn, name)?;
            if found.iter().any(|entry| entry.digest == digest) {
                served.push(*name);
            }
        }
        Ok(served)
    }

    pub(crate) fn rows(&self) -> Rows<'_> {
        Rows { keys: &self.keys, store: self.store.id(), tables: self.tables() }
    }

    pub(crate) fn keys(&self) -> &SealingKeys {
        &self.keys
    }

    fn tables(&self) -> &Tables {
        &self.store.tables
    }
}

impl CertificateStore for KeyedStore {
    fn id(&self) -> StoreId {
        self.store.id()
    }

    fn view(&self) -> Result<Box<dyn StoreView + '_>, StoreFailure> {
        if self.store.is_withdrawn() {
            return Err(StoreFailure);
        }
        let txn = self.tables().env.read_txn().map_err(|_| StoreFailure)?;
        Ok(Box::new(View { keyed: self, txn }))
    }

    fn inventory(&self, entries_max: usize) -> Result<Inventory, InventoryFailure> {
        let unreadable = |error: StoreError| InventoryFailure(Box::new(error));
        let summary = self.store.summary().map_err(unreadable)?;
        let soonest = self.store.by_expiry(None, entries_max).map_err(unreadable)?;
        let entry = |each: &Listed| {
            InventoryEntry::new(&each.label, each.key_type, &each.names, each.not_after_s)
        };
        Ok(Inventory {
            certificates: summary.certificates,
            names: summary.names,
            soonest: soonest.iter().map(entry).collect(),
        })
    }
}

/// One read transaction. LMDB keeps a place for each thread that reads: a line that only this
/// thread writes, taken under a lock by the thread's first transaction and by no later one.
struct View<'s> {
    keyed: &'s KeyedStore,
    txn: RoTxn<'s, WithTls>,
}

impl StoreView for View<'_> {
    fn version(&self) -> u64 {
        self.txn.id() as u64
    }

    fn named(&self, name: &str) -> Result<Vec<StoredCertificate>, StoreFailure> {
        self.keyed.rows().named(&self.txn, name).map_err(|_| StoreFailure)
    }

    fn open(&self, digest: CertificateDigest) -> Result<OpenedCertificate, StoreFailure> {
        let tables = self.keyed.tables();
        let record = tables.record(&self.txn, digest).ok().flatten().ok_or(StoreFailure)?;
        self.keyed.open_record(&self.txn, digest, &record).map_err(|_| StoreFailure)
    }

    fn challenge(&self, name: &str) -> Result<Option<OpenedCertificate>, StoreFailure> {
        self.keyed.challenge_in(&self.txn, name).map_err(|_| StoreFailure)
    }

    fn gone_since(&self, seen: Option<u64>) -> Result<Gone, StoreFailure> {
        self.keyed.tables().gone_since(&self.txn, seen).map_err(|_| StoreFailure)
    }
}

/// When a certificate was put that comes into the store, in Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// Now: whatever is served for its names makes room.
    New(i64),
    /// On another machine, then: it makes room for what was put later.
    Elsewhere(i64),
}

impl Put {
    fn at_s(self) -> i64 {
        match self {
            Self::New(at_s) | Self::Elsewhere(at_s) => at_s,
        }
    }
}

/// What became of certificates that were imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Those for names that nothing was served for with this kind of key.
    pub added: u64,
    /// Those that took a name from another.
    pub replaced: u64,
    /// Those that were there already.
    pub unchanged: u64,
}

/// What one call of [`KeyedStore::reseal`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resealed {
    /// Where the next call goes on; none if all have been seen.
    pub last: Option<CertificateDigest>,
    /// Private keys and entries sealed anew.
    pub resealed: u64,
    /// Certificates looked at.
    pub seen: usize,
}

/// Each certificate is served for a name.
pub(crate) fn check_names<'c>(
    certificates: impl IntoIterator<Item = &'c Arc<Certificate>>,
) -> Result<(), StoreError> {
    match certificates.into_iter().find(|each| each.names().is_empty()) {
        Some(nameless) => Err(StoreError::NoName { label: nameless.label().to_owned() }),
        None => Ok(()),
    }
}

/// The beginning of a label, as much as is worth keeping.
fn beginning(label: &str) -> &str {
    let mut end = label.len().min(LABEL_BYTES_MAX);
    while !label.is_char_boundary(end) {
        end -= 1;
    }
    &label[..end]
}

const LABEL_BYTES_MAX: usize = 1024;
/// Names with a problem that are told one by one.
const PROBLEMS_TOLD_MAX: usize = 1000;
