//! Certificates and keys from files and directories into a certificate index.
//!
//! [`load`] reads every source and goes on after a problem, so that one start or one check names
//! them all.
#![forbid(unsafe_code)]

mod access;
mod folder;
mod secrecy;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use folder::Entry;
use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::{
    CertificateError, CertificateIndex, CertificateWarning, DefaultCertificate, IndexBuilder,
    PEM_BYTES_MAX,
};
pub use secrecy::{Exposed, mode_for_others};
use thiserror::Error;
use zeroize::Zeroizing;

/// Reads the certificates of `sources`; `now_s` is Unix time, for warnings about validity.
pub fn load(
    sources: &[CertificateSource],
    default: DefaultCertificate<'_>,
    bounds: Bounds,
    provider: &CryptoProvider,
    now_s: i64,
) -> LoadedCertificates {
    let mut builder = IndexBuilder::new(provider, now_s).take_slow_keys();
    let Found { mut errors, exposed, passed_over } =
        find(sources, bounds.certificates, &mut builder);
    let indexed = builder.finish(default);
    // That nothing is left follows from the files that could not be read.
    let follows = |e: &CertificateError| *e == CertificateError::NoneGiven && !errors.is_empty();
    let indexed_errors: Vec<_> = indexed.errors.into_iter().filter(|e| !follows(e)).collect();
    errors.extend(indexed_errors.into_iter().map(CertificateFileError::Certificate));
    let (names, bound) = (indexed.index.name_count(), bounds.names);
    if names > bound.max {
        errors.push(CertificateFileError::TooManyNames { names, bound });
    }
    let indexed_warnings = indexed.warnings.into_iter().map(CertificateFileWarning::Certificate);
    let warnings = exposed.into_iter().map(CertificateFileWarning::Exposed);
    let passed_over = passed_over.into_iter().map(CertificateFileWarning::PassedOver);
    let warnings = warnings.chain(passed_over).chain(indexed_warnings).collect();
    LoadedCertificates { errors, index: indexed.index, warnings }
}

/// Adds the certificates of `sources`, at most so many, to those that `builder` has. Returns why
/// some are not in it.
pub fn add(
    sources: &[CertificateSource],
    bound: Bound,
    builder: &mut IndexBuilder<'_>,
) -> Vec<CertificateFileError> {
    find(sources, bound, builder).errors
}

/// What is wrong with the files of some sources.
struct Found {
    errors: Vec<CertificateFileError>,
    exposed: Vec<Exposed>,
    passed_over: Vec<CertificateFileError>,
}

fn find(sources: &[CertificateSource], bound: Bound, builder: &mut IndexBuilder<'_>) -> Found {
    let mut loader = Loader {
        builder,
        certificates_left: bound.max,
        chain: file_buffer(),
        errors: Vec::new(),
        exposed: Vec::new(),
        key: file_buffer(),
        passed_over: Vec::new(),
    };
    for source in sources {
        if !loader.add(source) {
            loader.errors.push(CertificateFileError::TooManyCertificates { bound });
            break;
        }
    }
    let Loader { errors, exposed, passed_over, .. } = loader;
    Found { errors, exposed, passed_over }
}

/// Where certificates and keys are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// A chain and its key in two files.
    Pair {
        /// The chain, the server's own certificate first.
        chain: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// A file with a chain and its key, or a directory with certificates as people or ACME clients
    /// lay them down; the loader sees which when it reads.
    Path(PathBuf),
}

impl CertificateSource {
    /// The files and directories that it is read from, and of directories in a directory the files
    /// that are looked for.
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Pair { chain, key } => vec![chain.clone(), key.clone()],
            Self::Path(path) => {
                let mut files = folder::files_of_folders_in(path);
                files.push(path.clone());
                files
            }
        }
    }

    /// The file that the private key is read from, unless that is a directory.
    pub fn key(&self) -> &Path {
        match self {
            Self::Pair { key, .. } => key,
            Self::Path(path) => path,
        }
    }
}

impl fmt::Display for CertificateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair { chain, key } => write!(f, "{} with {}", chain.display(), key.display()),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// How much one listener may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Certificates, those that cannot be served included.
    pub certificates: Bound,
    /// Server names.
    pub names: Bound,
}

/// How many at most, and what to do about more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// So many are allowed.
    pub max: usize,
    /// For whoever meant more: which setting raises it, where there is one.
    pub remedy: &'static str,
}

/// What was found in the sources of a listener.
#[derive(Debug)]
pub struct LoadedCertificates {
    /// Why some are not in the index; if there is any, the listener must not go into service.
    pub errors: Vec<CertificateFileError>,
    /// Those that are in order.
    pub index: CertificateIndex,
    /// What the operator should know of those.
    pub warnings: Vec<CertificateFileWarning>,
}

/// What can be served, but is probably not meant.
#[derive(Debug, Error)]
pub enum CertificateFileWarning {
    /// A certificate gives reason to doubt it.
    #[error("{0}")]
    Certificate(CertificateWarning),
    /// The file of a private key can be read by others.
    #[error(transparent)]
    Exposed(Exposed),
    /// A folder in a directory that has certificates otherwise cannot be used.
    #[error("{0}; it is passed over")]
    PassedOver(CertificateFileError),
}

/// Why a file is not in the index. The fault is the operator's.
#[derive(Debug, Error)]
pub enum CertificateFileError {
    /// What a file holds cannot be served.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A directory with nothing to serve.
    #[error(
        "{}: no certificate in this directory; it takes NAME.pem with chain and key, NAME.crt or \
         NAME.cer with NAME.key, and what certbot, lego, acme.sh and dehydrated make",
        path.display()
    )]
    EmptyDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A chain without its key.
    #[error(
        "{}: its key {} is missing; put it there, or append it to the chain in a .pem file",
        chain.display(), key.display()
    )]
    KeyMissing {
        /// The chain.
        chain: PathBuf,
        /// Where its key should be.
        key: PathBuf,
    },
    /// The user of the process is kept out.
    #[error(
        "{}: the user of this process, number {user}, may not {}; give access to a group of that \
         user's",
        path.display(),
        closed.as_ref().map_or("read it".into(), |folder| format!("enter {}", folder.display()))
    )]
    Denied {
        /// The folder on the way that keeps the user out, if it is not the file itself.
        closed: Option<PathBuf>,
        /// The file or directory.
        path: PathBuf,
        /// The number of the user.
        user: u32,
    },
    /// A device, a pipe or a socket; to read it might never end.
    #[error("{}: neither a file nor a directory; name one", path.display())]
    NoFile {
        /// What was named.
        path: PathBuf,
    },
    /// More than one listener may have.
    #[error("more than {} certificates for one listener; {}", bound.max, bound.remedy)]
    TooManyCertificates {
        /// How many may be.
        bound: Bound,
    },
    /// More than one listener may have.
    #[error("{names} names for one listener, {} are allowed; {}", bound.max, bound.remedy)]
    TooManyNames {
        /// Names found.
        names: usize,
        /// How many may be.
        bound: Bound,
    },
    /// The system refuses.
    #[error(
        "{}: cannot be read: {source}; see that it is there and this user may read it",
        path.display()
    )]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

struct Loader<'a, 'p> {
    builder: &'a mut IndexBuilder<'p>,
    certificates_left: usize,
    /// Reused for every file and zeroed at the end: it has held keys.
    chain: Zeroizing<Vec<u8>>,
    errors: Vec<CertificateFileError>,
    exposed: Vec<Exposed>,
    key: Zeroizing<Vec<u8>>,
    /// Why folders in a directory with certificates were not looked into.
    passed_over: Vec<CertificateFileError>,
}

impl Loader<'_, '_> {
    /// False when the limit is reached.
    fn add(&mut self, source: &CertificateSource) -> bool {
        match source {
            CertificateSource::Pair { chain, key } => self.add_pair(chain, key),
            CertificateSource::Path(path) => match fs::metadata(path) {
                Ok(metadata) if metadata.is_dir() => self.add_directory(path),
                Ok(_) => self.add_file(path),
                Err(source) => {
                    self.errors.push(unreadable(path, source));
                    true
                }
            },
        }
    }

    fn add_directory(&mut self, directory: &Path) -> bool {
        let (mut is_empty, mut closed) = (true, Vec::new());
        let visited = folder::visit(directory, |entry| {
            if let Entry::FolderClosed(path, source) = entry {
                closed.push(unreadable(&path, source));
                return true;
            }
            is_empty = false;
            self.add_entry(entry)
        });
        let goes_on = visited.unwrap_or_else(|source| {
            closed.push(unreadable(directory, source));
            true
        });
        match is_empty {
            true if closed.is_empty() => {
                let path = directory.to_owned();
                self.errors.push(CertificateFileError::EmptyDirectory { path });
            }
            true => self.errors.append(&mut closed),
            false => self.passed_over.append(&mut closed),
        }
        goes_on
    }

    fn add_entry(&mut self, entry: Entry) -> bool {
        match entry {
            Entry::Both(path) => return self.add_file(&path),
            Entry::Pair { chain, key } => return self.add_pair(&chain, &key),
            Entry::KeyMissing { chain, key } => {
                self.errors.push(CertificateFileError::KeyMissing { chain, key });
            }
            Entry::FolderClosed(path, source) | Entry::LinkClosed(path, source) => {
                self.errors.push(unreadable(&path, source));
            }
        }
        true
    }

    fn add_file(&mut self, path: &Path) -> bool {
        if !self.take_place() {
            return false;
        }
        self.exposed.extend(Exposed::find(path));
        match read(path, &mut self.chain) {
            Ok(()) => self.builder.add(&path.to_string_lossy(), &self.chain),
            Err(error) => self.errors.push(error),
        }
        true
    }

    fn add_pair(&mut self, chain: &Path, key: &Path) -> bool {
        if !self.take_place() {
            return false;
        }
        self.exposed.extend(Exposed::find(key));
        match (read(chain, &mut self.chain), read(key, &mut self.key)) {
            (Ok(()), Ok(())) => self.builder.add_pair(
                &chain.to_string_lossy(),
                &self.chain,
                &key.to_string_lossy(),
                &self.key,
            ),
            (chain, key) => self.errors.extend([chain.err(), key.err()].into_iter().flatten()),
        }
        true
    }

    fn take_place(&mut self) -> bool {
        let left = self.certificates_left.checked_sub(1);
        self.certificates_left = left.unwrap_or_default();
        left.is_some()
    }
}

fn read(path: &Path, buffer: &mut Vec<u8>) -> Result<(), CertificateFileError> {
    let len = fs::metadata(path).map_err(|source| unreadable(path, source))?.len();
    if len > PEM_BYTES_MAX as u64 {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        let label = path.to_string_lossy().into_owned();
        return Err(CertificateError::PemTooLarge { label, bytes }.into());
    }
    read_at_most(path, PEM_BYTES_MAX, buffer)
}

/// Reads a file into the empty `buffer`, and of one that is larger than `bytes_max` one byte more
/// than that, so that the engine refuses it.
///
/// # Errors
/// It is no file, or the system refuses.
pub fn read_at_most(
    path: &Path,
    bytes_max: usize,
    buffer: &mut Vec<u8>,
) -> Result<(), CertificateFileError> {
    let unreadable = |source| unreadable(path, source);
    buffer.clear();
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(CertificateFileError::NoFile { path: path.to_owned() });
    }
    let limit = bytes_max as u64 + 1;
    File::open(path).and_then(|file| file.take(limit).read_to_end(buffer)).map_err(unreadable)?;
    Ok(())
}

fn unreadable(path: &Path, source: io::Error) -> CertificateFileError {
    let path = path.to_owned();
    match source.kind() {
        // The kernel says by the owner of a process's own entry who that process is.
        io::ErrorKind::PermissionDenied => match fs::metadata("/proc/self") {
            Ok(own) => {
                let closed = access::closed_folder(&path);
                CertificateFileError::Denied { closed, path, user: own.uid() }
            }
            Err(_) => CertificateFileError::Unreadable { path, source },
        },
        _ => CertificateFileError::Unreadable { path, source },
    }
}

/// Large enough for any file, so that it never moves and leaves a copy of a key behind.
fn file_buffer() -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Vec::with_capacity(PEM_BYTES_MAX + 1))
}

#[cfg(test)]
mod tests;
