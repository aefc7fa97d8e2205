//! What can be wrong with a store, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::{DATA_FILE, LOCK_FILE};
use crate::pages::PageFault;
use crate::record::RecordError;
use crate::seal::{SealingKeyError, SealingKeyId};
use crate::state::STATE_FILE;
use crate::{KEPT_BYTES_MAX, KEPT_NAME_BYTES_MAX, MAP_BYTES, READERS_MAX};

/// Why a store does not do what it was asked for; `path` is the store's. The fault is the
/// operator's unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none.
    #[error(
        "{}: no certificate store; make one with: sealane certificates import --store PATH \
         --key-file KEY --create FILES", path.display()
    )]
    Absent {
        /// Where it should be.
        path: PathBuf,
    },
    /// The file is not what it was when it was written.
    #[error(
        "{}: damaged: {what}; import the certificate again, or restore a backup with: sealane \
         certificates restore", path.display()
    )]
    Damaged {
        /// The store.
        path: PathBuf,
        /// What is damaged.
        what: String,
    },
    /// The store was made by another version of Sealane.
    #[error("{}: format {found}, this Sealane reads {FORMAT}; {}", path.display(), remedy(*found))]
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
    /// An entry is longer than a store keeps: a fault of whoever fills it.
    #[error(
        "{name:.64}: an entry of {len} bytes; a store keeps {KEPT_BYTES_MAX}, under a name of 1 to \
         {KEPT_NAME_BYTES_MAX}"
    )]
    KeptTooLong {
        /// The entry.
        name: String,
        /// How many bytes it has.
        len: usize,
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
    /// LMDB's lock file cannot be trusted with its list of readers.
    #[error(
        "{}: {what}; stop whatever uses the store, remove {LOCK_FILE} from the folder, and run \
         this again", path.display()
    )]
    LockDamaged {
        /// The store.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The lock file is not the one that was opened, or shorter: LMDB has it in memory.
    #[error(
        "{}: {LOCK_FILE} in it was cut or replaced, so this process and others would mislead each \
         other; restart Sealane", path.display()
    )]
    LockLost {
        /// The store.
        path: PathBuf,
    },
    /// A certificate that no client can ask for.
    #[error("{label}: no host name in it; a store serves certificates by name")]
    NoName {
        /// Where the certificate comes from.
        label: String,
    },
    /// The store was changed, and the folder does not remember it: that is told as a change of
    /// somebody else's, and costs a check.
    #[error(
        "{}: changed, but {STATE_FILE} next to it cannot be written: {source}; {}, and run this \
         again", path.display(), system_remedy(source)
    )]
    NotNoted {
        /// The store.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
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
    /// A process reads an old state of it and does not end, so that what was deleted stays.
    #[error(
        "{}: process {process} still reads an older state of it, so old keys are still in the \
         file; end that process and run this again", path.display()
    )]
    ReaderStays {
        /// The store.
        path: PathBuf,
        /// The process that reads.
        process: u32,
    },
    /// Another process has a file open that was here before.
    #[error(
        "{}: another process still serves the file that was here before; stop that process, and \
         run this again", path.display()
    )]
    OpenElsewhere {
        /// The store.
        path: PathBuf,
    },
    /// Every reader's place is taken.
    #[error("{}: more than {READERS_MAX} threads read it; stop some", path.display())]
    ReadersFull {
        /// The store.
        path: PathBuf,
    },
    /// Another file took the place of the one that is open.
    #[error(
        "{}: another file took the place of {DATA_FILE} meanwhile, and nothing was written to it; \
         run this again", path.display()
    )]
    Replaced {
        /// The store.
        path: PathBuf,
    },
    /// An older copy took the place of the store.
    #[error(
        "{}: an older copy of the store: {found} changes, and there were {known}; put the newest \
         copy there, or, if this one is meant, remove {STATE_FILE} from the folder", path.display()
    )]
    RolledBack {
        /// The store.
        path: PathBuf,
        /// Changes that the file has seen.
        found: u64,
        /// Changes that were seen before.
        known: u64,
    },
    /// A private key cannot be sealed: a fault of the system, or of Sealane.
    #[error(transparent)]
    Seal(#[from] SealingKeyError),
    /// The system refuses.
    #[error(
        "{}: {source}; {}", path.display(), system_remedy(source)
    )]
    System {
        /// The store.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The store was found damaged while it was served.
    #[error(
        "{}: damaged, so nothing is read from it; restore a backup with: sealane certificates \
         restore", path.display()
    )]
    Withdrawn {
        /// The store.
        path: PathBuf,
    },
}

impl StoreError {
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.into(), what: what.into() }
    }

    pub(crate) fn of_pages(path: &Path, fault: PageFault) -> Self {
        Fault::from(fault).at(path)
    }

    /// The same of something that was tried when a change was already made.
    pub(crate) fn after_commit(self) -> Self {
        match self {
            Self::System { path, source } => Self::NotNoted { path, source },
            other => other,
        }
    }

    pub(crate) fn system(path: &Path, source: io::Error) -> Self {
        Self::System { path: path.into(), source }
    }
}

/// Why an operation inside a transaction failed; the store adds its path.
#[derive(Debug)]
pub(crate) enum Fault {
    Database(heed::Error),
    Lock(&'static str),
    Page(String),
    Record(RecordError),
    Seal(SealingKeyError),
    What(&'static str),
}

impl Fault {
    /// What is wrong, without the store's path.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Database(error) => error.to_string(),
            Self::Page(what) => what,
            Self::Record(error) => error.to_string(),
            Self::Seal(error) => error.to_string(),
            Self::Lock(what) | Self::What(what) => what.to_owned(),
        }
    }

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
            Self::Lock(what) => StoreError::LockDamaged { path: path(), what },
            Self::Seal(error) => error.into(),
            damaged => StoreError::damaged(&path(), damaged.text()),
        }
    }
}

impl From<heed::Error> for Fault {
    fn from(error: heed::Error) -> Self {
        Self::Database(error)
    }
}

impl From<PageFault> for Fault {
    fn from(fault: PageFault) -> Self {
        match fault {
            PageFault::System(error) => Self::Database(heed::Error::Io(error)),
            damaged @ PageFault::Damaged { .. } => Self::Page(damaged.to_string()),
        }
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

fn remedy(found: u32) -> &'static str {
    match found {
        1 => {
            "stop what serves from it, and rewrite it with: sealane certificates reseal, with the \
             sealing keys it has"
        }
        _ => "use the version that made it",
    }
}

/// The format that this version reads and writes. In format 1 neither names nor dates were proven.
pub(crate) const FORMAT: u32 = 2;

/// The remedy for a refusal of the system.
fn system_remedy(source: &io::Error) -> &'static str {
    // LMDB reports a write that was cut short by a full disk in this way.
    if rustix::io::Errno::from_io_error(source) == Some(rustix::io::Errno::IO) {
        return "make room on its disk; if it is not full, check the disk";
    }
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on its disk",
        _ => "see that the folder is there and this user may write in it",
    }
}
