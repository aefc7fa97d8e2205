//! Copies of a store: made while it is served and changed, and put back while it is served.
//!
//! The file of a store that is served keeps its place for good: whoever has it mapped would not see
//! another one there. So a copy is put back entry by entry, in one transaction, and the next hello
//! gets what is in it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use heed::{CompactionOption, PutFlags, RwTxn};

use crate::error::{Fault, StoreError};
use crate::row::digest_from;
use crate::store::{Store, lock_folder};
use crate::tables::Tables;

impl Store {
    /// Writes the store as it is at this moment to the new file `to`, for this user alone, and
    /// waits until the disk has it. Others go on to change the store meanwhile. Nothing that was
    /// deleted is in the copy, unless it stood in a page that is still used.
    ///
    /// # Errors
    /// There is a file already, or the system refuses; a new file is worth nothing then.
    pub fn back_up(&self, to: &Path) -> Result<(), StoreError> {
        if self.is_withdrawn() {
            return Err(StoreError::Withdrawn { path: self.path().into() });
        }
        let system = |error| StoreError::system(to, error);
        let file = File::options().write(true).create_new(true).mode(0o600).open(to);
        let mut file = file.map_err(system)?;
        match self.tables.env.copy_to_file(&mut file, CompactionOption::Enabled) {
            Err(heed::Error::Io(error)) => Err(system(error)),
            Err(error) => Err(Fault::from(error).at(self.path())),
            Ok(()) => file.sync_all().map_err(system),
        }
    }

    /// Puts what is in `copy` in the place of all that is in this store, in one transaction, after
    /// `keep` was done while nobody could write. Returns false, and does neither, if `copy` is not
    /// one of this store: then the seals in it are bound to another.
    ///
    /// # Errors
    /// That of `keep`, or the store cannot be written; nothing is changed, but with
    /// [`StoreError::NotNoted`].
    pub fn replace<E: From<StoreError>>(
        &self,
        copy: &Self,
        keep: impl FnOnce() -> Result<(), E>,
    ) -> Result<bool, E> {
        if copy.id() != self.id() {
            return Ok(false);
        }
        let lock = lock_folder(self.path())?;
        keep()?;
        self.write_locked(&lock, |txn| take_over(&self.tables, txn, &copy.tables))?;
        Ok(true)
    }
}

/// Puts the entries of `from` in the place of those of `tables`, and notes which certificates left.
fn take_over(tables: &Tables, txn: &mut RwTxn<'_>, from: &Tables) -> Result<(), Fault> {
    let source = from.env.read_txn()?;
    let is_of_fleet = tables.is_of_fleet(txn)? || from.is_of_fleet(&source)?;
    let mut gone = Vec::new();
    for entry in tables.certificates.iter(txn)? {
        let (digest, _) = entry?;
        if from.certificates.get(&source, digest)?.is_none() {
            gone.push(digest_from(digest)?);
        }
    }
    for (to, from) in tables.of_what_is_served().into_iter().zip(from.of_what_is_served()) {
        to.clear(txn)?;
        for entry in from.iter(&source)? {
            let (key, value) = entry?;
            to.put_with_flags(txn, PutFlags::APPEND, key, value)?;
        }
    }
    // The seals were counted with the table that counts them.
    tables.take_over_kept(txn, from, &source)?;
    tables.take_over_removals(txn, from, &source)?;
    if is_of_fleet {
        tables.set_put_back(txn)?;
    }
    gone.into_iter().try_for_each(|digest| tables.note_gone(txn, digest))
}
