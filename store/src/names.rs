//! What a name leads to: a row of certificates, and a proof that a process with a sealing key
//! wrote it for this name of this store.
//!
//! Whoever can write to the file but has no sealing key can take rows out, or put back older ones,
//! but not lead a name to another certificate.

use heed::RwTxn;
use sealane_engine::certificates::{CertificateDigest, KeyType, StoreId, StoredCertificate};

use crate::error::Fault;
use crate::record::{KEY_TYPE_BYTES, key_type_bytes, key_type_from};
use crate::seal::{PROOF_BYTES, Proof, SealingKeyId, SealingKeys};
use crate::tables::{Tables, digest_from};

/// A row that borrows from the database's page.
pub(crate) struct Row<'t> {
    entries: &'t [[u8; ENTRY_BYTES]],
    proof: Proof,
}

impl<'t> Row<'t> {
    /// Reads what [`Rows::write`] writes.
    pub(crate) fn parse(bytes: &'t [u8]) -> Result<Self, Fault> {
        let cut = || Fault::What("the entry of a name is cut");
        let (entries, proof) = bytes.split_last_chunk::<PROOF_BYTES>().ok_or_else(cut)?;
        match entries.as_chunks() {
            ([], _) => Err(cut()),
            (entries, []) => Ok(Self { entries, proof: Proof::parse(*proof) }),
            _ => Err(cut()),
        }
    }

    /// Reads a row of the format before this one, which proved nothing.
    pub(crate) fn parse_unproven(bytes: &[u8]) -> Result<Vec<StoredCertificate>, Fault> {
        match bytes.as_chunks() {
            (entries, []) => entries.iter().map(entry).collect(),
            _ => Err(Fault::What("the entry of a name is cut")),
        }
    }

    /// The certificates, whoever wrote them there.
    pub(crate) fn certificates(&self) -> Result<Vec<StoredCertificate>, Fault> {
        self.entries.iter().map(entry).collect()
    }

    /// What proves it.
    pub(crate) fn sealing_key(&self) -> SealingKeyId {
        self.proof.id
    }
}

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

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Result<StoredCertificate, Fault> {
    let (kind, digest) = bytes.split_at(KEY_TYPE_BYTES);
    let kind = kind.try_into().map_err(|_| Fault::What("the entry of a name is cut"))?;
    let key_type: KeyType = key_type_from(kind)?;
    Ok(StoredCertificate { digest: digest_from(digest)?, key_type })
}

const ENTRY_BYTES: usize = KEY_TYPE_BYTES + 32;
