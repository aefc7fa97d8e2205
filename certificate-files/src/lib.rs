//! Certificates and keys from files and directories into a certificate index.
//!
//! [`load`] reads every source and goes on after a problem, so that one start or one check names
//! them all.
#![forbid(unsafe_code)]

mod access;
mod folder;
mod known;
mod regular;
mod secrecy;

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use folder::Entry;
use known::Known;
pub use regular::{MARK, NotRegular, TextError, open_regular, read_text};
use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::{
    CertificateError, CertificateIndex, CertificateWarning, DefaultCertificate, IndexBuilder,
    Indexed, PEM_BYTES_MAX,
};
pub use secrecy::{Exposed, mode_for_others};
use thiserror::Error;
use zeroize::Zeroizing;

/// Reads the certificates of `sources`; `now_s` is Unix time, for warnings about validity. If a
/// file or folder has a fault, its certificates in the indexes `before` are kept.
pub fn load(
    sources: &[CertificateSource],
    default: DefaultCertificate<'_>,
    bounds: Bounds,
    provider: &CryptoProvider,
    now_s: i64,
    before: &[Arc<CertificateIndex>],
) -> LoadedCertificates {
    let mut builder = IndexBuilder::new(provider, now_s).take_slow_keys();
    let found = find(sources, bounds.certificates, &mut builder, before);
    let Found { mut faults, exposed, passed_over } = found;
    let mut indexed = builder.finish(default);
    let names = indexed.index.name_count();
    if let Some(beyond) = first_beyond(&indexed.index, bounds.names.max) {
        let mut builder = IndexBuilder::new(provider, now_s);
        indexed.index.iter().take(beyond).for_each(|each| builder.add_known(Arc::clone(each)));
        let path = indexed.index.iter().nth(beyond).map(|each| PathBuf::from(each.label()));
        let error = CertificateFileError::TooManyNames { names, bound: bounds.names };
        faults.push(CertificateFault::of_sources(sources, path.unwrap_or_default(), error));
        let warnings = std::mem::take(&mut indexed.warnings);
        indexed = Indexed { warnings, ..builder.finish(default) };
    }
    // That nothing is left follows from the files that could not be read.
    let follows = |e: &CertificateError| *e == CertificateError::NoneGiven && !faults.is_empty();
    let errors: Vec<_> = indexed.errors.into_iter().filter(|e| !follows(e)).collect();
    let of_index = |error| CertificateFault::of_sources(sources, PathBuf::new(), error);
    faults.extend(errors.into_iter().map(CertificateFileError::from).map(of_index));
    let indexed_warnings = indexed.warnings.into_iter().map(CertificateFileWarning::Certificate);
    let warnings = exposed.into_iter().map(CertificateFileWarning::Exposed);
    let passed_over = passed_over.into_iter().map(CertificateFileWarning::PassedOver);
    let warnings = warnings.chain(passed_over).chain(indexed_warnings).collect();
    LoadedCertificates { faults, index: indexed.index, warnings }
}

/// Adds the certificates of `sources`, at most `bound`, to those that `builder` has. Returns the
/// faults of those that are missing.
pub fn add(
    sources: &[CertificateSource],
    bound: Bound,
    builder: &mut IndexBuilder<'_>,
) -> Vec<CertificateFileError> {
    find(sources, bound, builder, &[]).faults.into_iter().map(|fault| fault.error).collect()
}

/// The faults in the files of some sources.
struct Found {
    faults: Vec<CertificateFault>,
    exposed: Vec<Exposed>,
    passed_over: Vec<CertificateFileError>,
}

fn find(
    sources: &[CertificateSource],
    bound: Bound,
    builder: &mut IndexBuilder<'_>,
    before: &[Arc<CertificateIndex>],
) -> Found {
    let mut loader = Loader {
        builder,
        certificates_left: bound.max,
        chain: file_buffer(),
        exposed: Vec::new(),
        faults: Vec::new(),
        key: file_buffer(),
        known: Known::of(before),
        passed_over: Vec::new(),
        source: PathBuf::new(),
    };
    for source in sources {
        source.path().clone_into(&mut loader.source);
        if !loader.add(source) {
            let error = CertificateFileError::TooManyCertificates { bound };
            loader.note(source.path(), error, false);
            break;
        }
    }
    let Loader { faults, exposed, passed_over, .. } = loader;
    Found { faults, exposed, passed_over }
}

/// The position of the first certificate with which there are more than `names_max` names.
fn first_beyond(index: &CertificateIndex, names_max: usize) -> Option<usize> {
    if index.name_count() <= names_max {
        return None;
    }
    let mut seen = HashSet::new();
    index.iter().position(|certificate| {
        seen.extend(certificate.names().iter().map(|name| &**name));
        seen.len() > names_max
    })
}

/// The source of certificates and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// A chain and its key in two files.
    Pair {
        /// The chain, the server's own certificate first.
        chain: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// A file with a chain and its key, or a directory with certificates in the layouts of ACME
    /// clients or operators. The loader finds out which when it reads.
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

    /// The file with the chain, or the directory.
    pub fn path(&self) -> &Path {
        match self {
            Self::Pair { chain, .. } => chain,
            Self::Path(path) => path,
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

/// The limits of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Certificates, those that cannot be served included.
    pub certificates: Bound,
    /// Server names.
    pub names: Bound,
}

/// A limit, and the remedy for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The limit.
    pub max: usize,
    /// The setting that raises it, where there is one.
    pub remedy: &'static str,
}

/// The certificates found in the sources of a listener.
#[derive(Debug)]
pub struct LoadedCertificates {
    /// Faults of certificates that are not in the index, or differ from those on disk.
    pub faults: Vec<CertificateFault>,
    /// Those that are in order, and of the others those that were in order before.
    pub index: CertificateIndex,
    /// Warnings about those.
    pub warnings: Vec<CertificateFileWarning>,
}

/// A file or folder with a certificate that cannot be served as it is.
#[derive(Debug)]
pub struct CertificateFault {
    /// The cause.
    pub error: CertificateFileError,
    /// Whether the index keeps the last good state.
    pub is_kept: bool,
    /// The file with the chain, or the folder; empty for a fault of no single file.
    pub path: PathBuf,
    /// The source that it belongs to, as it was named.
    pub source: PathBuf,
}

impl CertificateFault {
    /// One of no single source.
    fn of_sources(
        sources: &[CertificateSource],
        path: PathBuf,
        error: CertificateFileError,
    ) -> Self {
        let source = sources.first().map(|source| source.path().to_owned()).unwrap_or_default();
        Self { error, is_kept: false, path, source }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// A probable mistake that does not keep a certificate from being served.
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

/// The reason why a file is not in the index. The fault is the operator's.
#[derive(Debug, Error)]
pub enum CertificateFileError {
    /// The certificate in a file cannot be served.
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
        /// The file that should have its key.
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
        /// The path in the configuration.
        path: PathBuf,
    },
    /// More than one listener may have.
    #[error("more than {} certificates for one listener; {}", bound.max, bound.remedy)]
    TooManyCertificates {
        /// The limit.
        bound: Bound,
    },
    /// More than one listener may have.
    #[error("{names} names for one listener, {} are allowed; {}", bound.max, bound.remedy)]
    TooManyNames {
        /// Names found.
        names: usize,
        /// The limit.
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
    exposed: Vec<Exposed>,
    faults: Vec<CertificateFault>,
    key: Zeroizing<Vec<u8>>,
    known: Known<'a>,
    /// Reasons why folders in a directory with certificates were not looked into.
    passed_over: Vec<CertificateFileError>,
    /// The source that is being read.
    source: PathBuf,
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
                    self.fail(path, unreadable(path, source));
                    true
                }
            },
        }
    }

    fn add_directory(&mut self, directory: &Path) -> bool {
        let (mut is_empty, mut closed) = (true, Vec::new());
        let visited = folder::visit(directory, |entry| {
            if let Entry::FolderClosed(path, source) = entry {
                let error = unreadable(&path, source);
                match self.keep(&path) {
                    true => self.note(&path, error, true),
                    false => closed.push((path, error)),
                }
                return true;
            }
            is_empty = false;
            self.add_entry(entry)
        });
        let goes_on = visited.unwrap_or_else(|source| {
            closed.push((directory.to_owned(), unreadable(directory, source)));
            true
        });
        match is_empty {
            true if closed.is_empty() => {
                let path = directory.to_owned();
                self.fail(directory, CertificateFileError::EmptyDirectory { path });
            }
            true => closed.into_iter().for_each(|(path, error)| self.fail(&path, error)),
            false => self.passed_over.extend(closed.into_iter().map(|(_, error)| error)),
        }
        goes_on
    }

    fn add_entry(&mut self, entry: Entry) -> bool {
        match entry {
            Entry::Both(path) => return self.add_file(&path),
            Entry::Pair { chain, key } => return self.add_pair(&chain, &key),
            Entry::KeyMissing { chain, key } => {
                let path = chain.clone();
                self.fail(&path, CertificateFileError::KeyMissing { chain, key });
            }
            Entry::FolderClosed(path, source) | Entry::LinkClosed(path, source) => {
                self.fail(&path, unreadable(&path, source));
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
            Err(error) => self.fail(path, error),
        }
        self.fail_if_refused(path);
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
            (of_chain, of_key) => {
                let errors = [of_chain.err(), of_key.err()];
                self.fail_by(chain, errors.into_iter().flatten());
            }
        }
        self.fail_if_refused(chain);
        true
    }

    /// Records the builder's errors about the last addition, which comes from `path`.
    fn fail_if_refused(&mut self, path: &Path) {
        let errors = self.builder.take_errors();
        self.fail_by(path, errors.into_iter().map(CertificateFileError::Certificate));
    }

    fn fail(&mut self, path: &Path, error: CertificateFileError) {
        self.fail_by(path, [error].into_iter());
    }

    /// Records the errors of `path`, and keeps its last good certificates.
    fn fail_by(&mut self, path: &Path, errors: impl Iterator<Item = CertificateFileError>) {
        let mut errors = errors.peekable();
        if errors.peek().is_some() {
            let is_kept = self.keep(path);
            errors.for_each(|error| self.note(path, error, is_kept));
        }
    }

    fn note(&mut self, path: &Path, error: CertificateFileError, is_kept: bool) {
        let (path, source) = (path.to_owned(), self.source.clone());
        self.faults.push(CertificateFault { error, is_kept, path, source });
    }

    /// Adds the last good certificates of `path`. Returns whether there are any.
    fn keep(&mut self, path: &Path) -> bool {
        let known = self.known.at(path);
        let is_known = !known.is_empty();
        known.into_iter().for_each(|certificate| self.builder.add_known(certificate));
        is_known
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

/// Reads a file into the empty `buffer`. Of one that is larger than `bytes_max` it reads one byte
/// more than that, so that the engine rejects it.
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
    let limit = bytes_max as u64 + 1;
    let file = open_regular(path).map_err(unreadable)?;
    file.take(limit).read_to_end(buffer).map_err(unreadable)?;
    Ok(())
}

fn unreadable(path: &Path, source: io::Error) -> CertificateFileError {
    let path = path.to_owned();
    if NotRegular::is_cause_of(&source) {
        return CertificateFileError::NoFile { path };
    }
    match source.kind() {
        // The owner of a process's own entry in /proc is the user of that process.
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
