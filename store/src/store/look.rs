//! How a store's file looks from outside, and whether it is known to be in order: [`Look`].

use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::StoreError;
use crate::pages::Metas;
use crate::regular::{open_folder, open_regular};
use crate::state::{Look, Stamp, State};

use crate::files::{DATA_FILE, LOCK_FILE};
use crate::store::Store;

impl Store {
    /// How the file at the store's path looks now, and whether that is how the last change of
    /// Sealane's left it; none while a process is about to change it. Nothing is read through the
    /// map, and nobody is waited for.
    ///
    /// # Errors
    /// The system's.
    pub fn look(&self) -> Result<Option<Look>, StoreError> {
        let folder = open_folder(&self.path).and_then(|folder| {
            match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) => Ok(None),
                locked => Ok(locked.map(|()| Some(folder))?),
            }
        });
        match folder.map_err(|error| StoreError::system(&self.path, error))? {
            Some(_lock) => self.look_between_changes().map(Some),
            None => Ok(None),
        }
    }

    /// Whether the store in the folder `path` was found in order and changed by Sealane alone
    /// since, so that it may be served while it is examined once more.
    ///
    /// False while a process is about to change it.
    pub fn is_vouched(path: &Path) -> bool {
        let vouched = || {
            let folder = open_folder(path).ok()?;
            rustix::fs::flock(&folder, FlockOperation::NonBlockingLockShared).ok()?;
            vouched_state(path)
        };
        vouched().is_some()
    }

    /// The same, and takes that back until [`Self::vouch`] says it again: a process that ends by a
    /// fault which nobody saw, as of a disk that gives back other bytes, has the next one examine
    /// first. False also where the folder cannot be written.
    pub fn take_vouched(path: &Path) -> bool {
        let take = || {
            let folder = open_folder(path).ok()?;
            rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
            let known = vouched_state(path)?;
            State { is_vouched: false, ..known }.write(path).ok()?;
            // The machine may be what ends next.
            folder.sync_all().ok()
        };
        take().is_some()
    }

    /// Notes that the file was found in order when it looked like `examined`, if nobody but Sealane
    /// has changed it since. Returns false, and notes nothing, while a process is about to change
    /// it.
    ///
    /// # Errors
    /// The system's.
    pub fn vouch(&self, examined: Stamp) -> Result<bool, StoreError> {
        let system = |error| StoreError::system(&self.path, error);
        let folder = open_folder(&self.path).map_err(system)?;
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(false),
            locked => locked.map_err(|error| system(error.into()))?,
        }
        let look = self.look_between_changes()?;
        if look.is_open_file && (look.is_ours || look.stamp == examined) {
            self.note_in_order()?;
        }
        Ok(true)
    }

    pub(crate) fn look_between_changes(&self) -> Result<Look, StoreError> {
        let system = |error| StoreError::system(&self.path, error);
        let file = open_regular(&self.path.join(DATA_FILE)).map_err(system)?;
        let stamp = Stamp::from(&file.metadata().map_err(system)?);
        let known = State::read(&self.path).map_err(system)?.filter(|known| known.id == self.id);
        let metas = Metas::read(&file).ok();
        // No commit of ours makes it shorter. Without our word for it, its end may be missing only
        // if that is free, which a check finds out.
        let is_whole = metas.is_some_and(|metas| match known {
            Some(known) => stamp.len >= known.stamp.len,
            None => metas.is_long_enough(stamp.len),
        });
        let is_ours = known.is_some_and(|known| known.stamp == stamp);
        let lock = Stamp::of(&self.path.join(LOCK_FILE)).ok();
        let has_its_lock = self.guard.has_its_lock(lock);
        let is_vouched = is_ours && known.is_some_and(|known| known.is_vouched);
        let is_open_file = self.guard.is_open_file(stamp);
        Ok(Look { has_its_lock, is_open_file, is_ours, is_vouched, is_whole, stamp })
    }
}

/// What the folder `path` remembers, if the file there is known to be in order.
fn vouched_state(path: &Path) -> Option<State> {
    let known = State::read(path).ok()??;
    let stamp = Stamp::of(&path.join(DATA_FILE)).ok()?;
    (known.is_vouched && known.stamp == stamp).then_some(known)
}
