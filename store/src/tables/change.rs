//! What changes with a certificate that comes or goes: its record, and all that counts it.

use std::collections::HashMap;

use heed::{AnyTls, RoTxn, RwTxn};
use sealane_engine::certificates::CertificateDigest;

use crate::GONE_REMEMBERED_MAX;
use crate::error::Fault;
use crate::record::Record;
use crate::seal::{SealedEntry, SealingKeyId};

use super::{COUNT_BYTES, Tables, expiry_key};

impl Tables {
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
        for entry in self.kept(txn, "")? {
            if let Some(sealed) = SealedEntry::parse(entry?.1) {
                *counts.entry(sealed.id).or_default() += 1;
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
        self.note_gone(txn, digest)?;
        Ok(true)
    }

    /// Notes that `digest` left.
    pub(crate) fn note_gone(
        &self,
        txn: &mut RwTxn<'_>,
        digest: CertificateDigest,
    ) -> Result<(), Fault> {
        let number = self.gone.last(txn)?.map_or(0, |(number, _)| number) + 1;
        self.gone.put(txn, &number, &digest.0)?;
        if let Some(forgotten) = number.checked_sub(GONE_REMEMBERED_MAX) {
            self.gone.delete(txn, &forgotten)?;
        }
        Ok(())
    }

    fn intermediate_uses(&self, txn: &RoTxn<'_, AnyTls>, hash: &[u8; 32]) -> Result<u64, Fault> {
        let value = self.intermediates.get(txn, hash)?;
        let count = value.and_then(<[u8]>::first_chunk::<COUNT_BYTES>);
        Ok(count.map_or(0, |count| u64::from_be_bytes(*count)))
    }

    pub(crate) fn count_seal(
        &self,
        txn: &mut RwTxn<'_>,
        id: SealingKeyId,
        by: i64,
    ) -> Result<(), Fault> {
        let count = self.sealed_with.get(txn, &id.0)?.unwrap_or(0).saturating_add_signed(by);
        match count {
            0 => drop(self.sealed_with.delete(txn, &id.0)?),
            _ => self.sealed_with.put(txn, &id.0, &count)?,
        }
        Ok(())
    }
}
