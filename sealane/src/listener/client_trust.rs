//! Whose certificates a listener asks its clients for: the authorities, and what they revoked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealane_certificate_files::{CertificateFileError, read_at_most};
use sealane_engine::client::{ClientOptionsError, ROOTS_BYTES_MAX, Roots};
use sealane_engine::client_certificates::{
    CRL_BYTES_MAX, CRLS_MAX, ClientRoots, ClientRootsError, RevocationList,
};
use thiserror::Error;

use super::{Material, Reading, Survey, said_of_route};
use crate::config::{self, ClientDemand, ClientTrust, Route};
use crate::timestamp::Timestamp;

pub(super) const MATERIAL: Material = Material { files, read };

/// What was parsed of the authorities of clients. The lists are the larger part of it, so
/// generations and listeners with equal files have one copy.
#[derive(Default)]
pub struct KnownClientRoots(Vec<ClientRoots>);

impl KnownClientRoots {
    /// Forgets what no generation holds any more.
    pub(super) fn prune(&mut self) {
        self.0.retain(ClientRoots::is_shared);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What equals `made`, and is known for longer.
    fn share(&mut self, made: ClientRoots) -> ClientRoots {
        match self.0.iter().find(|known| **known == made) {
            Some(known) => known.clone(),
            None => {
                self.0.push(made.clone());
                made
            }
        }
    }
}

/// What is asked of the clients of a listener and of its routes, as it is shown.
#[derive(Clone, Debug)]
pub struct ClientsSummary {
    /// Whether they must have a certificate; none if only clients of some names are asked.
    pub demand: Option<ClientDemand>,
    /// The lists of what was revoked.
    pub lists: Vec<RevocationList>,
    /// Where the authorities stand.
    pub roots: Vec<RootFile>,
}

impl ClientsSummary {
    /// What was found of a listener, if its clients are asked for anything.
    pub(super) fn of(survey: &Survey<'_>) -> Option<Self> {
        let believed = survey.clients.iter().filter_map(|believed| believed.roots.as_ref());
        let mut lists: Vec<RevocationList> = Vec::new();
        for list in believed.flat_map(|roots| roots.lists()) {
            if !lists.contains(list) {
                lists.push(list.clone());
            }
        }
        let demand = survey.listener.clients.as_ref().map(|trust| trust.demand);
        let roots = survey.client_roots.clone();
        (!survey.clients.is_empty()).then_some(Self { demand, lists, roots })
    }
}

/// A file with authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootFile {
    /// The last second of validity, in Unix time, of the one that ends first.
    pub not_after_s: i64,
    /// The file.
    pub source: String,
}

/// Whose certificates are believed, as it is asked for.
pub struct Believed<'c> {
    /// What was read for that, if it is in order.
    pub roots: Option<Arc<ClientRoots>>,
    /// The trust as it is written.
    pub trust: &'c ClientTrust,
}

fn files(listener: &config::Listener) -> Vec<PathBuf> {
    let trusts = listener.client_trusts();
    trusts.flat_map(|(_, trust)| trust.roots.iter().chain(&trust.crls).cloned()).collect()
}

fn read(survey: &mut Survey<'_>, reading: &mut Reading<'_, '_>) {
    for (route, trust) in survey.listener.client_trusts() {
        // A route that says nothing of it has what its listener has.
        if !survey.clients.iter().any(|believed| believed.trust == trust) {
            let roots = believe(survey, reading, route, trust);
            survey.clients.push(Believed { roots, trust });
        }
    }
}

fn believe(
    survey: &mut Survey<'_>,
    reading: &mut Reading<'_, '_>,
    route: Option<&Route>,
    trust: &ClientTrust,
) -> Option<Arc<ClientRoots>> {
    let mut loaded = Loaded::default();
    let made = loaded.parse(trust);
    let made = made.map(|made| reading.around.client_roots.share(made));
    if let Some(made) = &made {
        loaded.judge(made, trust, reading.now_s());
    }
    if trust.demand == ClientDemand::Required && reading.config.tickets.root.is_some() {
        loaded.warnings.push(SHARED_TICKETS.to_owned());
    }
    let named = |text: String| said_of_route(route, &format!("clients: {text}"));
    survey.errors.extend(loaded.errors.iter().map(|error| named(error.to_string())));
    survey.warn(loaded.warnings.into_iter().map(named));
    for root in &loaded.roots {
        let label = named(format!("roots: {}", root.source));
        survey.warn_if_soon(&label, root.not_after_s, reading.around.now);
    }
    for root in loaded.roots {
        if !survey.client_roots.contains(&root) {
            survey.client_roots.push(root);
        }
    }
    let made = made.filter(|_| loaded.errors.is_empty())?;
    Some(Arc::new(made.under(trust.rules.clone())))
}

/// What was read.
#[derive(Default)]
struct Loaded {
    /// Why there is nothing to believe.
    errors: Vec<ClientTrustError>,
    /// Whether one of the files has a root, and not intermediate authorities only.
    has_root: bool,
    roots: Vec<RootFile>,
    /// What the operator should know.
    warnings: Vec<String>,
}

/// A text, and the file that it comes from.
type Text = (String, Vec<u8>);

impl Loaded {
    /// Reads and parses all that `trust` names.
    fn parse(&mut self, trust: &ClientTrust) -> Option<ClientRoots> {
        let authorities: Vec<Text> =
            trust.roots.iter().filter_map(|path| self.authorities(path)).collect();
        let paths = trust.crls.iter().filter_map(|path| self.list_files(path));
        let paths = paths.collect::<Vec<_>>().concat();
        let mut bytes_left = CRL_BYTES_MAX;
        let mut lists: Vec<Text> = Vec::new();
        for path in paths {
            let Some((label, text)) = self.list(&path, bytes_left) else { continue };
            bytes_left = bytes_left.saturating_sub(text.len());
            lists.push((format!("crls: {label}"), text));
        }
        if !self.errors.is_empty() {
            return None;
        }
        let [authorities, lists] = [&authorities, &lists]
            .map(|texts| texts.iter().map(|(label, text)| (&**label, &**text)).collect::<Vec<_>>());
        let made = ClientRoots::from_labelled_pem(&authorities, &lists);
        made.map_err(|error| self.errors.push(error.into())).ok()
    }

    /// What is in order in itself, and is probably not meant or will not do.
    fn judge(&mut self, made: &ClientRoots, trust: &ClientTrust, now_s: i64) {
        if !self.has_root {
            self.warnings.push(NO_ROOT.to_owned());
        }
        let expired = self.roots.iter().filter(|root| root.not_after_s < now_s);
        self.warnings.extend(expired.map(|root| {
            let source = &root.source;
            format!(
                "roots: {source}: an authority in it has expired, and vouches for nobody any more"
            )
        }));
        for list in made.lists().iter().filter(|list| list.next_update_s < now_s) {
            let ended = EndedList::of(list);
            match trust.rules.accept_ended_lists {
                true => self.warnings.push(format!("{ended}; it counts on: fetch a newer one")),
                false => self.errors.push(ClientTrustError::Ended(ended)),
            }
        }
        self.warnings.extend(made.superseded().iter().map(|list| {
            let RevocationList { issuer_text, label, .. } = list;
            format!(
                "{label}: it has a list of {issuer_text:?} that a newer one supersedes; remove it"
            )
        }));
        self.warnings.extend(made.unlisted().into_iter().map(|issuer| {
            format!(
                "crls: none is of {issuer:?}; whoever it issued is refused until its list is there"
            )
        }));
    }

    fn authorities(&mut self, path: &Path) -> Option<Text> {
        let read = read_authorities(path).map_err(|error| self.errors.push(error));
        let (text, root, has_root) = read.ok()?;
        let label = root.source.clone();
        self.has_root |= has_root;
        self.roots.push(root);
        Some((label, text))
    }

    /// The files with lists at `path`, which may be a folder.
    fn list_files(&mut self, path: &Path) -> Option<Vec<PathBuf>> {
        if !path.is_dir() {
            return Some(vec![path.to_owned()]);
        }
        let files = files_in(path).map_err(|error| self.errors.push(error)).ok()?;
        if files.is_empty() {
            // Without a list nothing would be revoked.
            self.errors.push(ClientTrustError::NoLists { folder: path.to_owned() });
        }
        Some(files)
    }

    fn list(&mut self, path: &Path, bytes_max: usize) -> Option<Text> {
        let mut text = Vec::new();
        let read = read_at_most(path, bytes_max, &mut text).map_err(ClientTrustError::ListFile);
        let read = read.and_then(|()| match text.first() {
            Some(&DER_SEQUENCE) => Err(ClientTrustError::Der { path: path.to_owned() }),
            _ => Ok(()),
        });
        read.map_err(|error| self.errors.push(error)).ok()?;
        Some((path.to_string_lossy().into_owned(), text))
    }
}

/// The text of a file with authorities, its dates, and whether one of them is a root.
fn read_authorities(path: &Path) -> Result<(Vec<u8>, RootFile, bool), ClientTrustError> {
    let mut text = Vec::new();
    read_at_most(path, ROOTS_BYTES_MAX, &mut text).map_err(ClientTrustError::RootFile)?;
    let source = path.to_string_lossy().into_owned();
    let roots = Roots::from_pem(&source, &text).map_err(|error| match error {
        ClientOptionsError::NoRootInSource { label, .. } => ClientTrustError::NoRoot { label },
        error => ClientTrustError::Parsed(error.into()),
    })?;
    let not_after_s = roots.soonest_expiry_s().map_err(ClientRootsError::from)?;
    let root = RootFile { not_after_s: not_after_s.unwrap_or(i64::MAX), source };
    Ok((text, root, roots.has_root()))
}

/// Files are lists by their names, so that a README or what is being written beside them is none.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, ClientTrustError> {
    let unreadable = |source| ClientTrustError::Folder { folder: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if !is_list(&path) {
            continue;
        }
        if files.len() == CRLS_MAX {
            return Err(ClientTrustError::TooManyFiles { folder: folder.to_owned() });
        }
        files.push(path);
    }
    files.sort();
    Ok(files)
}

/// `*.crl`, `*.pem`, and the links that `openssl rehash` makes: `HASH.r0`.
fn is_list(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let is_link = ending.strip_prefix('r').is_some_and(|number| number.parse::<u16>().is_ok());
    !is_hidden && (matches!(ending, "crl" | "pem") || is_link)
}

/// Why clients cannot be asked for certificates as configured. The fault is the operator's.
#[derive(Debug, Error)]
enum ClientTrustError {
    /// Authorities hand lists out in either form.
    #[error(
        "crls: {path} is in DER; write it in PEM: openssl crl -inform DER -in {path} -out FILE.pem"
    )]
    Der {
        /// The file.
        path: PathBuf,
    },
    /// A list that does not count any more.
    #[error("{0}; fetch a newer one, or say on_expired_crl = \"accept\"")]
    Ended(EndedList),
    /// A folder cannot be listed.
    #[error("crls: {folder}: {source}; let this user read it, or name another")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file with a list cannot be read.
    #[error("crls: {0}")]
    ListFile(CertificateFileError),
    /// A folder without a list.
    #[error(
        "crls: {folder} has no list (*.crl, *.pem); put those of your authorities there, or remove \
         it from crls if nothing is ever revoked"
    )]
    NoLists {
        /// The folder.
        folder: PathBuf,
    },
    /// A file without a certificate.
    #[error("roots: {label} has no certificate; put the authority's certificate in PEM there")]
    NoRoot {
        /// The file.
        label: String,
    },
    /// What was read is of no use.
    #[error("{}", .0.to_string().replacen("crl: ", "crls: ", 1))]
    Parsed(#[from] ClientRootsError),
    /// A file with authorities cannot be read.
    #[error("roots: {0}")]
    RootFile(CertificateFileError),
    /// A folder with more lists than are used.
    #[error("crls: {folder} has more than {CRLS_MAX} lists; remove those of others' authorities")]
    TooManyFiles {
        /// The folder.
        folder: PathBuf,
    },
}

/// A list whose next update is overdue, in words.
#[derive(Debug)]
struct EndedList {
    issuer: String,
    next_update: Timestamp,
}

impl EndedList {
    fn of(list: &RevocationList) -> Self {
        let next_update = Timestamp::from_unix_s(list.next_update_s);
        Self { issuer: list.issuer_text.clone(), next_update }
    }
}

impl std::fmt::Display for EndedList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let day = self.next_update.to_string();
        let day = day.split('T').next().unwrap_or_default();
        write!(f, "crls: the list of {:?} ended on {day}", self.issuer)
    }
}

/// What DER begins with.
const DER_SEQUENCE: u8 = 0x30;
const NO_ROOT: &str = "roots: only intermediate authorities, so no client is trusted; add the \
                       certificate of the root that issued them";
const SHARED_TICKETS: &str = "whoever has the file of tickets.root can claim to be any of the \
                              clients, because a ticket stands for a certificate; keep it as you \
                              keep a private key, or remove tickets.root";
