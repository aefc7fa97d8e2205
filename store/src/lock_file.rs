//! LMDB's lock file: who reads at this moment, and which commit LMDB noted last.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::READERS_MAX;
use crate::error::Fault;
use crate::files::LOCK_FILE;
use crate::regular::{begun_file, open_regular_to_write};
use crate::state::Stamp;

/// The lock file of a database that is open. LMDB maps it; we read it as a file.
pub(crate) struct LockFile(File);

impl LockFile {
    /// That of the database in `folder`.
    pub(crate) fn open(folder: &Path) -> Result<Self, Fault> {
        let file = open_regular_to_write(&folder.join(LOCK_FILE));
        Ok(Self(file.map_err(heed::Error::Io)?))
    }

    /// Those that read at this moment, in whatever process.
    pub(crate) fn readers(&self) -> Result<Vec<Reader>, Fault> {
        let table = self.beginning(READERS_HEADER + READER_BYTES * READERS_MAX as usize)?;
        let (places, _) = table.get(READERS_HEADER..).unwrap_or_default().as_chunks();
        Ok(places.iter().filter_map(Reader::read).collect())
    }

    /// The commit that LMDB noted last.
    pub(crate) fn last_commit(&self) -> Result<Option<u64>, Fault> {
        let header = self.beginning(READERS_HEADER)?;
        let noted = header.get(LAST_COMMIT..).and_then(|bytes| bytes.first_chunk());
        Ok(noted.copied().map(u64::from_ne_bytes))
    }

    /// How it looks.
    pub(crate) fn stamp(&self) -> Result<Stamp, Fault> {
        Ok(Stamp::from(&self.0.metadata().map_err(heed::Error::Io)?))
    }

    /// Makes it at least `len` bytes long, with zeros.
    pub(crate) fn lengthen(&self, len: u64) -> Result<(), Fault> {
        let lengthened = self.0.metadata().and_then(|facts| match facts.len() < len {
            true => self.0.set_len(len),
            false => Ok(()),
        });
        Ok(lengthened.map_err(heed::Error::Io)?)
    }

    /// The first bytes of the file, at most `len`.
    fn beginning(&self, len: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; len];
        let mut read = 0;
        // Shared memory to LMDB, and a file to us: the kernel shows both the same bytes.
        while read < len {
            match self.0.read_at(&mut bytes[read..], read as u64).map_err(heed::Error::Io)? {
                0 => break,
                more => read += more,
            }
        }
        bytes.truncate(read);
        match bytes.first_chunk().copied().map(u32::from_ne_bytes) {
            Some(LOCK_MAGIC) => Ok(bytes),
            _ => Err(Fault::What("its lock file is not LMDB's")),
        }
    }
}

/// Whether LMDB's lock file, if there is one, is long enough for the readers that it says there
/// were: LMDB believes it, and goes through all of them. To close the file undoes the locks of this
/// process, so this is for one that has no store open.
pub(crate) fn check(folder: &Path) -> Result<(), Fault> {
    let Some((file, len)) = begun_file(&folder.join(LOCK_FILE)).map_err(heed::Error::Io)? else {
        return Ok(());
    };
    let mut header = [0; READERS_HEADER];
    if len < (READERS_HEADER + READER_BYTES) as u64 {
        return Err(Fault::Lock("its lock file is cut"));
    }
    file.read_exact_at(&mut header, 0).map_err(heed::Error::Io)?;
    let (magic, rest) = header.split_first_chunk().unwrap_or((&[0; 4], &[]));
    let readers = rest.get(READERS_COUNT - 4..).and_then(<[u8]>::first_chunk);
    let readers = readers.copied().map_or(u32::MAX, u32::from_ne_bytes);
    let end = READERS_HEADER as u64 + READER_BYTES as u64 * u64::from(readers);
    // With another beginning LMDB refuses it, or makes it anew.
    match u32::from_ne_bytes(*magic) == LOCK_MAGIC && end > len {
        true => Err(Fault::Lock("its lock file has other readers than it says")),
        false => Ok(()),
    }
}

/// A thread that reads, in whatever process.
pub(crate) struct Reader {
    pub(crate) process: u32,
    /// The state that it reads.
    pub(crate) transaction: u64,
}

impl Reader {
    /// A place in LMDB's list; none if nobody reads there.
    fn read(place: &[u8; READER_BYTES]) -> Option<Self> {
        let transaction = u64::from_ne_bytes(*place.first_chunk()?);
        let process = u32::from_ne_bytes(*place.get(8..)?.first_chunk()?);
        (process != 0 && transaction != u64::MAX).then_some(Self { process, transaction })
    }
}

/// Bytes before the first reader: four numbers and a lock, and another lock, each padded to a cache
/// line. A lock has 40 bytes, but 48 with glibc on arm64.
const fn readers_header(lock_bytes: usize) -> usize {
    let numbers_bytes = (READERS_COUNT + 4).next_multiple_of(8);
    (numbers_bytes + lock_bytes).next_multiple_of(READER_BYTES)
        + lock_bytes.next_multiple_of(READER_BYTES)
}

/// Where it says which commit it noted last.
const LAST_COMMIT: usize = 8;
const LOCK_MAGIC: u32 = 0xBEEF_C0DE;
/// A place in the list of readers: LMDB gives each its own cache line.
const READER_BYTES: usize = 64;
/// Where it says how many places were ever taken.
const READERS_COUNT: usize = 16;
/// What stands before the first reader.
const READERS_HEADER: usize = readers_header(size_of::<libc::pthread_mutex_t>());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    #[test]
    fn the_list_of_readers_begins_where_lmdb_has_it() {
        assert_eq!((readers_header(40), readers_header(48)), (128, 192));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let tables = Store::open_or_create(&path).unwrap().tables;
        let lock_file = std::fs::read(path.join(LOCK_FILE)).unwrap();
        assert_eq!(lock_file.len(), READERS_HEADER + READER_BYTES * READERS_MAX as usize);
        // This thread reads, and others whose place is not the first.
        let txn = tables.env.read_txn().unwrap();
        std::thread::scope(|scope| {
            let reads = || drop(tables.env.read_txn().unwrap());
            scope.spawn(reads).join().unwrap();
        });
        let found = tables.readers().unwrap();
        let found: Vec<_> = found.iter().map(|each| (each.process, each.transaction)).collect();
        assert_eq!(found, [(std::process::id(), txn.id() as u64)]);
    }
}
