//! Whether a store may lack what the other machines of its fleet have. Then it does not know what
//! holds there, and what is imported is put anew, also where it is served here already.

use heed::{AnyTls, RoTxn, RwTxn};

use crate::error::{Fault, StoreError};
use crate::store::Store;
use crate::tables::Tables;

impl Store {
    /// Whether it may lack what the other machines of its fleet have; never without a fleet.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_behind(&self) -> Result<bool, StoreError> {
        self.read(|txn| self.tables.is_behind(txn))
    }

    /// Notes that it may lack what the other machines of its fleet have.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_behind(&self) -> Result<(), StoreError> {
        match self.is_behind()? {
            true => Ok(()),
            false => self.write(|txn| self.tables.set_behind(txn)),
        }
    }

    /// The same of one that comes from a copy, if the copy is of a machine of a fleet.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_put_back(&self) -> Result<(), StoreError> {
        match self.read(|txn| self.tables.is_of_fleet(txn))? {
            true => self.note_behind(),
            false => Ok(()),
        }
    }

    /// Notes that it has what the other machines have, if it is still as it was when it had been
    /// changed `generation` times.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_abreast(&self, generation: u64) -> Result<(), StoreError> {
        if !self.is_behind()? || self.generation()? != generation {
            return Ok(());
        }
        self.write(|txn| {
            if self.tables.generation(txn)? == generation {
                self.tables.meta.delete(txn, BEHIND)?;
            }
            Ok(())
        })
    }
}

impl Tables {
    pub(crate) fn is_behind(&self, txn: &RoTxn<'_, AnyTls>) -> Result<bool, Fault> {
        Ok(self.meta.get(txn, BEHIND)?.is_some())
    }

    pub(crate) fn is_of_fleet(&self, txn: &RoTxn<'_, AnyTls>) -> Result<bool, Fault> {
        Ok(self.kept_entry(txn, FLEET_CLUSTER)?.is_some())
    }

    pub(crate) fn set_behind(&self, txn: &mut RwTxn<'_>) -> Result<(), Fault> {
        Ok(self.meta.put(txn, BEHIND, &[])?)
    }
}

/// The entry by which a machine of a fleet knows the cluster that its store was filled from.
pub const FLEET_CLUSTER: &str = "fleet/cluster";

/// What is there, with nothing in it, while it may lack something.
const BEHIND: &str = "behind";
