//! What can be wrong with a store, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::record::RecordError;
use crate::seal::{SealingKeyError, SealingKeyId};
use crate::{MAP_BYTES, READERS_MAX};

/// Why a store does not do what it was asked for; `path` is the store's. The fault is the
/// operator's unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none.
    #[error(
        "{}: no certificate store; make one with: sealane certificates import --store PATH \
         --create FILES", path.display()
    )]
    Absent {
        /// Where it should be.
        path: PathBuf,
    },
    /// The file is not what it was when it was written.
    #[error(
        "{}: damaged: {what}; import the certificate again, or restore a backup", path.display()
    )]
    Damaged {
        /// The store.
        path: PathBuf,
        /// What is damaged.
        what: String,
    },
    /// It was made by another version of Sealane.
    #[error(
        "{}: format {found}, this Sealane reads {FORMAT}; use the version that made it",
        path.display()
    )]
    Format {
        /// The store.
        path: PathBuf,
        /// The format it says it has.
        found: u32,
    },
    /// The map is used up.
    #[error("{}: full: a store holds at most {MAP_BYTES} bytes; use a second one", path.display())]
    Full {
        /// The store.
        path: PathBuf,
    },
    /// Some private keys were sealed with a key that is not given.
    #[error(
        "{}: {count} private keys are sealed with the sealing key {id}, which is not given; add it \
         below the current one, or name the right source of sealing keys", path.display()
    )]
    KeyMissing {
        /// The store.
        path: PathBuf,
        /// Private keys that stay closed.
        count: u64,
        /// The sealing key that would open them.
        id: SealingKeyId,
    },
    /// A certificate that no client can ask for.
    #[error("{label}: no host name in it; a store serves certificates by name")]
    NoName {
        /// Where the certificate comes from.
        label: String,
    },
    /// A process with the same number uses it, in another PID namespace.
    #[error(
        "{}: a process with the number of this one uses it in another container; let them share \
         one PID namespace, or run this in that container", path.display()
    )]
    NumberTaken {
        /// The store.
        path: PathBuf,
    },
    /// This process has it open by its path; if that was not by mistake, it was another file.
    #[error(
        "{}: this process has the store open that was here before; restart Sealane, and replace no \
         store while it is served", path.display()
    )]
    OpenAlready {
        /// The store.
        path: PathBuf,
    },
    /// Every reader's place is taken.
    #[error("{}: more than {READERS_MAX} threads read it; stop some", path.display())]
    ReadersFull {
        /// The store.
        path: PathBuf,
    },
    /// A private key cannot be sealed: a fault of the system, or of Sealane.
    #[error(transparent)]
    Seal(#[from] SealingKeyError),
    /// The system refuses.
    #[error(
        "{}: {source}; see that the folder is there and this user may write in it", path.display()
    )]
    System {
        /// The store.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl StoreError {
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.into(), what: what.into() }
    }

    pub(crate) fn system(path: &Path, source: io::Error) -> Self {
        Self::System { path: path.into(), source }
    }
}

/// Why an operation inside a transaction failed; the store adds its path.
#[derive(Debug)]
pub(crate) enum Fault {
    Database(heed::Error),
    Record(RecordError),
    Seal(SealingKeyError),
    What(&'static str),
}

impl Fault {
    pub(crate) fn at(self, path: &Path) -> StoreError {
        let path = || path.to_path_buf();
        match self {
            Self::Database(heed::Error::EnvAlreadyOpened) => {
                StoreError::OpenAlready { path: path() }
            }
            // LMDB locks a byte of its lock file for each process number; only that fails so.
            Self::Database(heed::Error::Io(source))
                if source.kind() == io::ErrorKind::WouldBlock =>
            {
                StoreError::NumberTaken { path: path() }
            }
            Self::Database(heed::Error::Io(source)) => StoreError::System { path: path(), source },
            Self::Database(heed::Error::Mdb(heed::MdbError::MapFull)) => {
                StoreError::Full { path: path() }
            }
            Self::Database(heed::Error::Mdb(heed::MdbError::ReadersFull)) => {
                StoreError::ReadersFull { path: path() }
            }
            Self::Database(error) => StoreError::damaged(&path(), error.to_string()),
            Self::Record(error) => StoreError::damaged(&path(), error.to_string()),
            Self::Seal(error) => error.into(),
            Self::What(what) => StoreError::damaged(&path(), what),
        }
    }
}

impl From<heed::Error> for Fault {
    fn from(error: heed::Error) -> Self {
        Self::Database(error)
    }
}

impl From<RecordError> for Fault {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl From<SealingKeyError> for Fault {
    fn from(error: SealingKeyError) -> Self {
        Self::Seal(error)
    }
}

/// The format that this version reads and writes.
pub(crate) const FORMAT: u32 = 1;
