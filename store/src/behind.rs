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

    /// Since when it may lack what the other machines of its fleet have, in Unix time; none if that
    /// is not known, or it lacks nothing.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn behind_since(&self) -> Result<Option<i64>, StoreError> {
        self.read(|txn| {
            let since = self.tables.meta.get(txn, BEHIND)?;
            Ok(since.and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes))
        })
    }

    /// Notes that it may lack what the other machines of its fleet have, from now on, if it is not
    /// noted already.
    ///
    /// `now_s` is Unix time.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_behind(&self, now_s: i64) -> Result<(), StoreError> {
        match self.is_behind()? {
            true => Ok(()),
            false => {
                self.write(|txn| Ok(self.tables.meta.put(txn, BEHIND, &now_s.to_be_bytes())?))
            }
        }
    }

    /// The same of one that comes from a copy, if the copy is of a machine of a fleet: since when
    /// is not known.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_put_back(&self) -> Result<(), StoreError> {
        match self.read(|txn| self.tables.is_of_fleet(txn))? {
            true => self.write(|txn| self.tables.set_put_back(txn)),
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

    pub(crate) fn set_put_back(&self, txn: &mut RwTxn<'_>) -> Result<(), Fault> {
        Ok(self.meta.put(txn, BEHIND, &[])?)
    }
}

/// The entry by which a machine of a fleet knows the cluster that its store was filled from.
pub const FLEET_CLUSTER: &str = "fleet/cluster";

/// What is there while it may lack something: since when, or nothing.
const BEHIND: &str = "behind";
