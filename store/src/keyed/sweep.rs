//! All private keys, one after the other: sealed anew, or looked at.

use std::ops::Bound;

use heed::{AnyTls, RoTxn, RwTxn};
use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::{CertificateDigest, OpenedCertificate};

use crate::error::{Fault, StoreError};
use crate::examine::tables_agree;
use crate::row::{Row, digest_from};

use super::KeyedStore;

impl KeyedStore {
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

/// Names with a problem that are told one by one.
const PROBLEMS_TOLD_MAX: usize = 1000;
