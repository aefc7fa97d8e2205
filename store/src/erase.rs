//! Erases what was deleted: LMDB only marks pages as free, and what stood in them could be read,
//! and opened with an old sealing key, until they are used again.
//!
//! Nothing takes the file's place, so whoever serves from it notices nothing. What no state of the
//! database leads to is given back to the file system, or filled with zeros where that cannot be;
//! gaps in used pages are filled too. LMDB never reads either. It is done while no process writes,
//! and after the last one that reads an older state.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::error::{Fault, StoreError};
use crate::group::replace_file;
use crate::pages::{META_PAGES, Metas, PageFault, Use, Visitors, Walk};
use crate::store::{Store, lock_folder};

impl Store {
    /// Notes that something is about to be deleted, until it is erased.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn note_erasure_due(&self) -> Result<(), StoreError> {
        let noted = replace_file(self.path(), ERASURE_DUE, b"");
        noted.map_err(|error| StoreError::system(self.path(), error))
    }

    /// Whether something was deleted that is not erased: a process ended before it did.
    #[must_use]
    pub fn is_erasure_due(&self) -> bool {
        self.path().join(ERASURE_DUE).exists()
    }

    /// Erases whatever was deleted from the file. A crash meanwhile harms nothing; done again, it
    /// erases the rest.
    ///
    /// # Errors
    /// A process reads an old state for too long, the file is damaged, or the system refuses.
    pub fn erase_deleted(&self) -> Result<(), StoreError> {
        // LMDB keeps two states; what was deleted before these two commits is in neither.
        self.write(|_| Ok(()))?;
        self.write(|_| Ok(()))?;
        let lock = lock_folder(self.path())?;
        // Others than ours may write without our lock, but not without LMDB's.
        let txn =
            self.tables.env.write_txn().map_err(|error| Fault::from(error).at(self.path()))?;
        let file = self.tables.data_file().map_err(|fault| fault.at(self.path()))?;
        let before = self.look_between_changes()?;
        let erased = self
            .await_readers(&file)
            .and_then(|()| erase(&file).map_err(|fault| StoreError::of_pages(self.path(), fault)));
        txn.abort();
        erased?;
        match fs::remove_file(self.path().join(ERASURE_DUE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::system(self.path(), error));
            }
            _ => {}
        }
        self.note_state(&before).map_err(StoreError::after_commit)?;
        drop(lock);
        Ok(())
    }

    /// Waits until nobody reads a state older than the two that are kept.
    fn await_readers(&self, file: &File) -> Result<(), StoreError> {
        let of_pages = |fault| StoreError::of_pages(self.path(), fault);
        let metas = Metas::read(file).map_err(of_pages)?;
        let kept = metas.older.map_or(metas.newest.transaction, |older| older.transaction);
        let until = Instant::now() + READERS_WAIT;
        loop {
            let cleared = self.tables.env.clear_stale_readers();
            cleared.map_err(|error| Fault::from(error).at(self.path()))?;
            let readers = self.tables.readers().map_err(|fault| fault.at(self.path()))?;
            let Some(behind) = readers.into_iter().find(|reader| reader.transaction < kept) else {
                return Ok(());
            };
            if Instant::now() >= until {
                let (path, process) = (self.path().into(), behind.process);
                return Err(StoreError::ReaderStays { path, process });
            }
            std::thread::sleep(READERS_TICK);
        }
    }
}

fn erase(file: &File) -> Result<(), PageFault> {
    let metas = Metas::read(file)?;
    let page_bytes = metas.page_bytes() as u64;
    let mut fill = |page: u64, part: Range<usize>, bytes: &[u8]| {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        file.write_all_at(&vec![0; part.len()], page * page_bytes + part.start as u64)
    };
    let mut live = Vec::new();
    for meta in std::iter::once(&metas.newest).chain(&metas.older) {
        let visitors = Visitors { on_gap: Some(&mut fill), ..Visitors::default() };
        let uses = Walk::run(file, meta, visitors)?;
        live.resize(live.len().max(uses.len()), false);
        live.iter_mut().zip(uses).for_each(|(live, used)| *live |= used == Use::Live);
    }
    live.iter_mut().take(META_PAGES).for_each(|meta| *meta = true);
    // Behind the last page stands what a transaction wrote that was never committed.
    let end = file.metadata().map_err(PageFault::System)?.len();
    let mut from = 0;
    for (number, _) in (0_u64..).zip(&live).filter(|(_, live)| **live) {
        empty(file, from..end.min(number * page_bytes)).map_err(PageFault::System)?;
        from = (number + 1) * page_bytes;
    }
    empty(file, from..end).map_err(PageFault::System)?;
    file.sync_all().map_err(PageFault::System)
}

/// Makes a part of the file read as zeros, without a block if the file system can do that.
fn empty(file: &File, part: Range<u64>) -> io::Result<()> {
    if part.is_empty() {
        return Ok(());
    }
    let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, holes, part.start, part.end - part.start) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        done => return Ok(done?),
    }
    let zeros = vec![0; ZEROS_BYTES];
    let mut at = part.start;
    while at < part.end {
        let len = zeros.len().min(usize::try_from(part.end - at).unwrap_or(usize::MAX));
        file.write_all_at(&zeros[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

/// The file that is there from before something is deleted until it is erased.
const ERASURE_DUE: &str = "erase";
/// How often the list of readers is looked at.
const READERS_TICK: Duration = Duration::from_millis(5);
/// Readers take microseconds, a list of certificates milliseconds. A test has one that stays.
const READERS_WAIT: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 10_000 });
const ZEROS_BYTES: usize = 1 << 20;
