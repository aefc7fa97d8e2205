//! What a name leads to: a row of certificates, and a proof that a process with a sealing key
//! wrote it for this name of this store.
//!
//! Whoever can write to the file but has no sealing key can take rows out, or put back older ones,
//! but not lead a name to another certificate.

use heed::RwTxn;
use sealane_engine::certificates::{CertificateDigest, StoreId, StoredCertificate};

use crate::error::Fault;
use crate::record::key_type_bytes;
use crate::row::Row;
use crate::seal::SealingKeys;
use crate::tables::Tables;

/// Rows with their proofs.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'k> {
    pub(crate) keys: &'k SealingKeys,
    pub(crate) store: StoreId,
    pub(crate) tables: &'k Tables,
}

impl Rows<'_> {
    /// What is served for exactly `name`, the cheapest kind of key first.
    pub(crate) fn named(
        self,
        txn: &heed::RoTxn<'_, heed::AnyTls>,
        name: &str,
    ) -> Result<Vec<StoredCertificate>, Fault> {
        match self.tables.row(txn, name)? {
            Some(row) => self.proven(name, &row),
            None => Ok(Vec::new()),
        }
    }

    /// The certificates of a row that was written for `name`.
    pub(crate) fn proven(self, name: &str, row: &Row<'_>) -> Result<Vec<StoredCertificate>, Fault> {
        let parts = [self.store.0.as_slice(), row.entries.as_flattened(), name.as_bytes()];
        match self.keys.proves(&row.proof, &parts) {
            true => row.certificates(),
            false => Err(Fault::What("a name was led elsewhere by somebody without a sealing key")),
        }
    }

    /// Serves `placed` for `name`; returns the certificate with the same kind of key that was
    /// served until now, if it is another.
    pub(crate) fn place(
        self,
        txn: &mut RwTxn<'_>,
        name: &str,
        placed: StoredCertificate,
    ) -> Result<Option<CertificateDigest>, Fault> {
        // Of a row that nobody proves nothing is kept.
        let mut entries = self.named(txn, name).unwrap_or_default();
        let rank = placed.key_type.rank();
        let same_kind = entries.iter().position(|entry| entry.key_type.rank() == rank);
        let before = same_kind.map(|position| entries.remove(position).digest);
        entries.push(placed);
        entries.sort_by_key(|entry| entry.key_type.rank());
        self.write(txn, name, &entries)?;
        Ok(before.filter(|before| *before != placed.digest))
    }

    /// Lets the current sealing key prove the row of `name`, if there is one.
    pub(crate) fn reprove(self, txn: &mut RwTxn<'_>, name: &str) -> Result<(), Fault> {
        match self.tables.row(txn, name)? {
            Some(row) if row.sealing_key() != self.keys.current() => {
                let entries = self.proven(name, &row)?;
                self.write(txn, name, &entries)
            }
            _ => Ok(()),
        }
    }

    /// Writes a row whose certificates the caller knows to be right.
    pub(crate) fn write(
        self,
        txn: &mut RwTxn<'_>,
        name: &str,
        entries: &[StoredCertificate],
    ) -> Result<(), Fault> {
        let mut bytes: Vec<u8> = entries
            .iter()
            .flat_map(|entry| key_type_bytes(entry.key_type).into_iter().chain(entry.digest.0))
            .collect();
        let proof = self.keys.prove(&[self.store.0.as_slice(), &bytes, name.as_bytes()])?;
        bytes.extend(proof.to_bytes());
        Ok(self.tables.names.put(txn, name, &bytes)?)
    }
}
