//! What the folder remembers of its store beside the database: how often it was changed, how the
//! file looked after the last change, and whether it is known to be in order since.
//!
//! By the first an older copy of the file is noticed, by the second a change that was not made by
//! Sealane, and by the third a start need not wait until all of it was read. It is a text of a few
//! lines, replaced whole after each commit. Whoever can write to the folder can write it too: it is
//! there for mistakes, not for attackers.

use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sealane_engine::certificates::StoreId;

use crate::group::replace_file;
use crate::regular::open_regular;

/// What is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) id: StoreId,
    pub(crate) generation: u64,
    /// Whether the file was found in order, and only Sealane has changed it since.
    pub(crate) is_vouched: bool,
    pub(crate) stamp: Stamp,
}

/// How a file looks from outside. The kernel sets the time of its last change, and nobody else can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    changed_ns: i128,
    /// The device and the number of the file there.
    pub file: (u64, u64),
    /// Bytes.
    pub(crate) len: u64,
}

/// What can be seen of the file from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Whether the lock file is the one that is open, and no shorter. If not, others may write
    /// what is read here, and a read may end the process.
    pub has_its_lock: bool,
    /// Whether the file at the store's path is the one that is open.
    pub is_open_file: bool,
    /// Whether the last change was Sealane's.
    pub is_ours: bool,
    /// Whether it was found in order, and all changes since were Sealane's.
    pub is_vouched: bool,
    /// Whether its length and its first pages are those of a store. If not, a read of the map may
    /// end the process.
    pub is_whole: bool,
    /// How it looks.
    pub stamp: Stamp,
}

impl Stamp {
    /// The identity of the file at `path`.
    ///
    /// # Errors
    /// The system's.
    pub fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|facts| Self::from(&facts))
    }
}

impl From<&Metadata> for Stamp {
    fn from(facts: &Metadata) -> Self {
        let changed_ns = i128::from(facts.ctime()) * 1_000_000_000 + i128::from(facts.ctime_nsec());
        Self { changed_ns, file: (facts.dev(), facts.ino()), len: facts.len() }
    }
}

impl State {
    /// What the folder `path` remembers; none if it remembers nothing that can be read.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        let file = match open_regular(&path.join(STATE_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = String::new();
        match file.take(STATE_BYTES_MAX).read_to_string(&mut text) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
            read => read?,
        };
        Ok(Self::parse(&text))
    }

    /// Puts it in the place of what the folder `path` remembers.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        replace_file(path, STATE_FILE, self.to_text().as_bytes())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let id = u128::from_str_radix(value("store")?, 16).ok()?;
        let generation = value("changes")?.parse().ok()?;
        let mut file = value("file")?.splitn(4, ' ');
        let mut number = || file.next();
        let stamp = Stamp {
            file: (number()?.parse().ok()?, number()?.parse().ok()?),
            len: number()?.parse().ok()?,
            changed_ns: number()?.parse().ok()?,
        };
        let is_vouched = value("examined") == Some("yes");
        Some(Self { id: StoreId(id.to_be_bytes()), generation, is_vouched, stamp })
    }

    fn to_text(self) -> String {
        let Stamp { changed_ns, file: (device, inode), len } = self.stamp;
        format!(
            "# By this sealane notices an older copy of data.mdb, and changes it did not make.\n\
             # To take an older copy on purpose, remove this file.\n\
             store {:032x}\nchanges {}\nfile {device} {inode} {len} {changed_ns}\n\
             examined {}\n",
            u128::from_be_bytes(self.id.0),
            self.generation,
            if self.is_vouched { "yes" } else { "no" },
        )
    }
}

/// A few numbers.
const STATE_BYTES_MAX: u64 = 4096;
/// What the folder remembers stands here.
pub const STATE_FILE: &str = "state";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_anything_else_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(State::read(folder.path()).unwrap(), None);
        let stamp = Stamp::of(folder.path()).unwrap();
        for is_vouched in [true, false] {
            let state = State { id: StoreId([0xab; 16]), generation: 7, is_vouched, stamp };
            state.write(folder.path()).unwrap();
            assert_eq!(State::read(folder.path()).unwrap(), Some(state));
        }
        // As earlier versions wrote it.
        let earlier = State::parse("store 1\nchanges 1\nfile 1 2 3 4\n");
        assert!(earlier.is_some_and(|state| !state.is_vouched));
        for text in ["", "store 1\n", "store x\nchanges 1\nfile 1 2 3 4\n"] {
            assert_eq!(State::parse(text), None, "{text:?}");
        }
        fs::write(folder.path().join(STATE_FILE), [0xff; 100]).unwrap();
        assert_eq!(State::read(folder.path()).unwrap(), None);
    }
}
