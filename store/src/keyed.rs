//! A store together with the keys to its seals: what serves, and what writes private keys.

mod removal;
pub(crate) mod sweep;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

use heed::{AnyTls, RoTxn, RwTxn};
use rustls::pki_types::CertificateDer;
use sealane_engine::certificates::{
    Certificate, CertificateDigest, EncodedKey, OpenedCertificate, StoredCertificate,
};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::error::{Fault, StoreError};
use crate::names::Rows;
use crate::record::Record;
use crate::removal::AHEAD_S_MAX;
use crate::seal::{NONCE_BYTES, OpenError, Sealed, SealingKeyId, SealingKeys};
use crate::store::Store;
use crate::tables::{Tables, chain_digest};

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

    /// Seals a value that stays outside of the store, for the place where it is used.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn seal_beside(&self, place: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let sealed = self.keys.seal_for(place, value);
        sealed.map_err(|error| Fault::from(error).at(self.store.path()))
    }

    /// Opens a value that [`Self::seal_beside`] sealed for a place; none if it did not.
    pub fn open_beside(&self, place: &str, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.keys.open_at(place, sealed).ok()
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
        check_names(certificates)?;
        if self.has_all(certificates)? {
            let unchanged = certificates.len() as u64;
            return Ok(Imported { unchanged, ..Imported::default() });
        }
        self.import_with(certificates, now_s, |_| Ok(()))
    }

    /// Whether all of them are there as they would be written now, so nothing has to be written.
    fn has_all(&self, certificates: &[Arc<Certificate>]) -> Result<bool, StoreError> {
        self.store.read(|txn| {
            if self.tables().is_behind(txn)? {
                return Ok(false);
            }
            // The write reports the error of a certificate that cannot be read.
            let is_whole = |each: &Arc<Certificate>| {
                let digest = chain_digest(each.chain());
                self.is_whole(txn, digest, each).unwrap_or(false)
            };
            Ok(certificates.iter().all(is_whole))
        })
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
        let here_s = record.as_ref().map(|record| record.imported_s);
        // Perhaps sealed with an old key.
        let is_here = record.is_some_and(|record| self.open_record(txn, digest, &record).is_ok());
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
        let mut may_be_unserved = false;
        for name in certificate.names() {
            let is_over = match put {
                Put::Elsewhere(_) => self.is_over(txn, name, certificate, put_s)?,
                Put::New(now_s) => self.is_outlived(txn, name, certificate, now_s)?,
            };
            if is_over {
                may_be_unserved = true;
                continue;
            }
            replaced.extend(self.rows().place(txn, name, placed)?.map(|before| before.0));
        }
        let is_unserved = may_be_unserved && self.tables().drop_if_unserved(txn, digest)?;
        match (is_whole, replaced.is_empty()) {
            (true, _) => {}
            (false, _) if is_unserved => imported.unchanged += 1,
            (false, false) => imported.replaced += 1,
            // It was sealed again, or put later.
            (false, true) if is_here => imported.unchanged += 1,
            (false, true) => imported.added += 1,
        }
        for before in replaced {
            self.tables().drop_if_unserved(txn, CertificateDigest(before))?;
        }
        Ok(!is_unserved)
    }

    /// Whether a certificate has expired, and one of its kind of key that is served for `name` has
    /// not: the expired one does not replace it, in either order of import.
    fn is_outlived(
        &self,
        txn: &RwTxn<'_>,
        name: &str,
        certificate: &Certificate,
        now_s: i64,
    ) -> Result<bool, Fault> {
        if certificate.not_after_s() >= now_s {
            return Ok(false);
        }
        let kind = certificate.key_type().rank();
        // A row that cannot be read, or has no valid proof, makes room.
        let placed = self.rows().named(txn, name).unwrap_or_default();
        let same_kind = placed.iter().find(|entry| entry.key_type.rank() == kind);
        let record = same_kind.map(|entry| self.tables().record(txn, entry.digest)).transpose()?;
        Ok(record.flatten().is_some_and(|record| record.not_after_s >= now_s))
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
        // A row that cannot be read, or has no valid proof, makes room.
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
        txn: &RoTxn<'_, AnyTls>,
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
