//! From format 1, in which names and dates were not proven, to the present one: in place, in one
//! transaction, with the sealing keys that the store has.

use std::sync::Arc;

use heed::RwTxn;
use sealane_engine::certificates::CertificateDigest;

use crate::error::{FORMAT, Fault, StoreError};
use crate::keyed::KeyedStore;
use crate::record::Record;
use crate::row::{Row, digest_from};
use crate::seal::SealingKeys;
use crate::store::Store;

impl KeyedStore {
    /// Joins a store with its keys, whatever format it has: one of format 1 is rewritten first, and
    /// the number of its certificates returned. Whoever serves from it must have been stopped.
    ///
    /// # Errors
    /// Its keys are not among `keys`, it has a format of the future, or it cannot be written.
    pub fn migrate(
        path: &std::path::Path,
        keys: SealingKeys,
    ) -> Result<(Self, Option<usize>), StoreError> {
        let (store, format) = Store::open_of_any_format(path)?;
        let keyed = Self::new(Arc::new(store), keys)?;
        if format == FORMAT {
            return Ok((keyed, None));
        }
        let rewritten = keyed.store().write(|txn| keyed.rewrite_format_1(txn))?;
        Ok((keyed, Some(rewritten)))
    }

    fn rewrite_format_1(&self, txn: &mut RwTxn<'_>) -> Result<usize, Fault> {
        let tables = &self.store().tables;
        let digests: Vec<CertificateDigest> = tables
            .certificates
            .iter(txn)?
            .map(|entry| digest_from(entry?.0))
            .collect::<Result<_, _>>()?;
        for digest in &digests {
            let bytes = tables.certificates.get(txn, &digest.0)?.unwrap_or_default();
            let record = Record::parse_format_1(bytes)?;
            let before = record.sealing_key;
            let key =
                self.keys().open_format_1(before, &record.nonce, record.sealed_key, &digest.0);
            let key = key.map_err(|_| Fault::What("a private key's seal is broken"))?;
            let sealed = self.seal(*digest, &record, &key)?;
            let bytes = record.with_seal(&sealed).to_bytes()?;
            tables.replace_seal(txn, *digest, &bytes, (before, sealed.id))?;
        }
        let names: Vec<String> = tables
            .names
            .iter(txn)?
            .map(|entry| Ok(entry?.0.to_owned()))
            .collect::<Result<_, Fault>>()?;
        for name in names {
            let entries = Row::parse_unproven(tables.names.get(txn, &name)?.unwrap_or_default())?;
            self.rows().write(txn, &name, &entries)?;
        }
        tables.set_format(txn)?;
        Ok(digests.len())
    }
}
