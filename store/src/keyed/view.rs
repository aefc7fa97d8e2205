//! What lanes read of a store: the engine's [`CertificateStore`], in one transaction at a time.

use heed::{RoTxn, WithTls};
use sealane_engine::certificates::{
    CertificateDigest, CertificateStore, Gone, Inventory, InventoryEntry, InventoryFailure,
    OpenedCertificate, StoreFailure, StoreId, StoreView, StoredCertificate,
};

use crate::error::StoreError;
use crate::store::Listed;

use super::KeyedStore;

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
