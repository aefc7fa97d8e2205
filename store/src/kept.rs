//! What whoever fills a store keeps in it beside certificates: accounts with an authority, orders
//! that are under way, answers to its challenges, ticket roots of a fleet. Each entry is sealed,
//! and bound to its name.
//!
//! Entries stand in the table of what the store is, so versions that do not know them pass them
//! over. There are a few for each order in flight, not for each certificate.

use std::sync::Arc;

use heed::{AnyTls, RoTxn, RwTxn};
use sealane_engine::certificates::{
    Certificate, CertificateDigest, OpenedCertificate, PemContents,
};
use zeroize::Zeroizing;

use crate::error::{Fault, StoreError};
use crate::keyed::{Imported, KeyedStore, Put, check_names};
use crate::removal::Removal;
use crate::seal::{OpenError, SealedEntry};
use crate::tables::{Tables, chain_digest};

/// What stands before the token in the name of an answer to a challenge of kind `http-01`: a key
/// authorization (RFC 8555, section 8.3).
pub const HTTP_01: &str = "challenge/http-01/";
/// What stands before the name in the name of an answer to a challenge of kind `tls-alpn-01`: a
/// certificate (RFC 8737, section 3) and its private key, in PEM.
pub const TLS_ALPN_01: &str = "challenge/tls-alpn-01/";
/// The name of the entry with the roots of ticket keys, in their text form, that machines share.
pub const TICKET_ROOTS: &str = "tickets/roots";
/// Bytes of an entry's name, at most: what LMDB takes of a key.
pub const KEPT_NAME_BYTES_MAX: usize = 511 - PREFIX.len();
/// Bytes of an entry, at most: an order of 100 names with its private key takes a tenth.
pub const KEPT_BYTES_MAX: usize = 256 << 10;

/// An entry: its name, and what it holds.
pub type KeptEntry = (String, Zeroizing<Vec<u8>>);

/// A change of an entry: its name, and what it is to hold; none removes it.
pub type KeptChange<'c> = (&'c str, Option<&'c [u8]>);

impl KeyedStore {
    /// The entry `name`, opened.
    ///
    /// # Errors
    /// It is damaged or sealed with a key that is not at hand, or the store cannot be read.
    pub fn kept(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
        self.store().read(|txn| self.kept_in(txn, name))
    }

    /// The entries whose names begin with `prefix`, in their order, behind the one named `after`,
    /// at most `count_max`.
    ///
    /// # Errors
    /// As of [`Self::kept`].
    pub fn kept_under(
        &self,
        prefix: &str,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<KeptEntry>, StoreError> {
        self.store().read(|txn| {
            let mut found = Vec::new();
            for entry in self.store().tables.kept(txn, prefix)? {
                let (name, sealed) = entry?;
                if after.is_some_and(|after| name <= after) {
                    continue;
                }
                if found.len() == count_max {
                    break;
                }
                found.push((name.to_owned(), self.open_entry(name, sealed)?));
            }
            Ok(found)
        })
    }

    /// The names of entries that begin with `prefix`, in their order, behind `after`, at most
    /// `count_max`; whether they open or not.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn kept_names(
        &self,
        prefix: &str,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<String>, StoreError> {
        self.store().read(|txn| {
            let all = self.store().tables.kept(txn, prefix)?;
            let names = all.map(|entry| Ok(entry?.0));
            let is_behind =
                |name: &Result<&str, Fault>| name.as_ref().map_or(true, |name| after < Some(*name));
            names.filter(is_behind).take(count_max).map(|name| Ok(name?.to_owned())).collect()
        })
    }

    /// Imports `certificates` as [`Self::import`] does, and makes `changes` of entries, all in one
    /// transaction.
    ///
    /// # Errors
    /// A certificate has no name, a change is too long, or the store cannot be written; then
    /// nothing is changed, but with [`StoreError::NotNoted`].
    pub fn keep(
        &self,
        certificates: &[Arc<Certificate>],
        now_s: i64,
        changes: &[KeptChange<'_>],
    ) -> Result<Imported, StoreError> {
        check_lengths(changes)?;
        self.import_with(certificates, now_s, |txn| self.change_entries(txn, changes))
    }

    /// Takes over what other machines have, in one transaction: certificates with when each was
    /// put, and words of removed names. In whatever order they come, each name is served by what
    /// was put last, or by nothing if it was removed since. Returns which of the certificates are
    /// served for no name, and not kept.
    ///
    /// # Errors
    /// As of [`Self::keep`].
    pub fn take_over(
        &self,
        certificates: &[(Arc<Certificate>, i64)],
        removals: &[Removal],
        changes: &[KeptChange<'_>],
    ) -> Result<Vec<CertificateDigest>, StoreError> {
        check_lengths(changes)?;
        check_names(certificates.iter().map(|(certificate, _)| certificate))?;
        let (mut imported, mut unserved) = (Imported::default(), Vec::new());
        self.store().write(|txn| {
            for removal in removals {
                self.apply_removal(txn, removal)?;
            }
            for (certificate, put_s) in certificates {
                let put = Put::Elsewhere(*put_s);
                if !self.import_one(txn, certificate, put, &mut imported)? {
                    unserved.push(chain_digest(certificate.chain()));
                }
            }
            self.change_entries(txn, changes)
        })?;
        Ok(unserved)
    }

    fn change_entries(&self, txn: &mut RwTxn<'_>, changes: &[KeptChange<'_>]) -> Result<(), Fault> {
        changes.iter().try_for_each(|(name, value)| self.change_entry(txn, name, *value))
    }

    /// Seals every entry anew that is not sealed with the current key; returns how many.
    pub(crate) fn reseal_kept(&self, txn: &mut RwTxn<'_>) -> Result<u64, Fault> {
        let mut opened = Vec::new();
        for entry in self.store().tables.kept(txn, "")? {
            let (name, sealed) = entry?;
            if SealedEntry::parse(sealed).map(|sealed| sealed.id) != Some(self.current_key()) {
                opened.push((name.to_owned(), self.open_entry(name, sealed)?));
            }
        }
        for (name, value) in &opened {
            self.change_entry(txn, name, Some(value))?;
        }
        Ok(opened.len() as u64)
    }

    /// The certificate with which the challenge `tls-alpn-01` of `name` is answered now, if there
    /// is one.
    pub(crate) fn challenge_in(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        name: &str,
    ) -> Result<Option<OpenedCertificate>, Fault> {
        if name.len() > KEPT_NAME_BYTES_MAX - TLS_ALPN_01.len() {
            return Ok(None);
        }
        let pem = self.kept_in(txn, &[TLS_ALPN_01, name].concat())?;
        pem.map(|pem| opened_pem(&pem)).transpose()
    }

    fn kept_in(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        name: &str,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, Fault> {
        let sealed = self.store().tables.kept_entry(txn, name)?;
        sealed.map(|sealed| self.open_entry(name, sealed)).transpose()
    }

    fn open_entry(&self, name: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Fault> {
        let sealed = SealedEntry::parse(sealed).ok_or(Fault::What("an entry is cut"))?;
        let opened = self.keys().open_entry(&sealed, &self.bound_entry(name));
        opened.map_err(|error| match error {
            OpenError::Damaged => Fault::What("an entry's seal is broken"),
            OpenError::KeyMissing => Fault::What("an entry is sealed with another key"),
        })
    }

    fn change_entry(
        &self,
        txn: &mut RwTxn<'_>,
        name: &str,
        value: Option<&[u8]>,
    ) -> Result<(), Fault> {
        let sealed = match value {
            Some(value) => Some(self.keys().seal_entry(value, &self.bound_entry(name))?),
            None => None,
        };
        self.store().tables.put_kept(txn, name, sealed.as_deref())
    }

    /// What the seal of an entry is bound to: the store and the entry's name.
    fn bound_entry(&self, name: &str) -> Vec<u8> {
        [self.store().id().0.as_slice(), name.as_bytes()].concat()
    }
}

impl Tables {
    /// The sealed entry `name` of what is kept beside certificates.
    pub(crate) fn kept_entry<'t>(
        &self,
        txn: &'t RoTxn<'_, AnyTls>,
        name: &str,
    ) -> Result<Option<&'t [u8]>, Fault> {
        Ok(self.meta.get(txn, &[PREFIX, name].concat())?)
    }

    /// The entries whose names begin with `prefix`, in their order, sealed.
    pub(crate) fn kept<'t>(
        &self,
        txn: &'t RoTxn<'_, AnyTls>,
        prefix: &str,
    ) -> Result<impl Iterator<Item = Result<(&'t str, &'t [u8]), Fault>> + use<'t>, Fault> {
        let entries = self.meta.prefix_iter(txn, &[PREFIX, prefix].concat())?;
        Ok(entries.map(|entry| {
            let (name, sealed) = entry?;
            Ok((name.strip_prefix(PREFIX).unwrap_or(name), sealed))
        }))
    }

    /// Puts a sealed entry in the place of the one that has its name; none removes that.
    pub(crate) fn put_kept(
        &self,
        txn: &mut RwTxn<'_>,
        name: &str,
        sealed: Option<&[u8]>,
    ) -> Result<(), Fault> {
        let key = [PREFIX, name].concat();
        let before = self.meta.get(txn, &key)?.and_then(SealedEntry::parse);
        if let Some(before) = before.map(|before| before.id) {
            self.count_seal(txn, before, -1)?;
        }
        let Some(sealed) = sealed else {
            self.meta.delete(txn, &key)?;
            return Ok(());
        };
        self.meta.put(txn, &key, sealed)?;
        SealedEntry::parse(sealed).map_or(Ok(()), |sealed| self.count_seal(txn, sealed.id, 1))
    }

    /// Puts the entries of `from` in the place of all that are here; their seals are not counted.
    pub(crate) fn take_over_kept(
        &self,
        txn: &mut RwTxn<'_>,
        from: &Self,
        source: &RoTxn<'_, AnyTls>,
    ) -> Result<(), Fault> {
        let here = self.kept(txn, "")?.map(|entry| Ok([PREFIX, entry?.0].concat()));
        for key in here.collect::<Result<Vec<_>, Fault>>()? {
            self.meta.delete(txn, &key)?;
        }
        for entry in from.kept(source, "")? {
            let (name, sealed) = entry?;
            self.meta.put(txn, &[PREFIX, name].concat(), sealed)?;
        }
        Ok(())
    }
}

fn check_lengths(changes: &[KeptChange<'_>]) -> Result<(), StoreError> {
    for (name, value) in changes {
        let len = value.map_or(0, <[u8]>::len);
        if name.is_empty() || name.len() > KEPT_NAME_BYTES_MAX || len > KEPT_BYTES_MAX {
            return Err(StoreError::KeptTooLong { name: (*name).to_owned(), len });
        }
    }
    Ok(())
}

/// The first certificate and private key of `pem`.
fn opened_pem(pem: &[u8]) -> Result<OpenedCertificate, Fault> {
    let wrong = || Fault::What("the answer to a challenge is not a certificate with its key");
    let PemContents { certificates, key } = PemContents::parse("", pem).map_err(|_| wrong())?;
    let leaf = certificates.into_iter().next().ok_or_else(wrong)?;
    Ok(OpenedCertificate { chain: vec![leaf.into()], key: key.ok_or_else(wrong)? })
}

/// What stands before the name of an entry among the facts of the store.
const PREFIX: &str = "kept/";
