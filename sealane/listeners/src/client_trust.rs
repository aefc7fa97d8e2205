//! Whose certificates a listener asks its clients for: the authorities, and what they revoked.

mod error;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealane_certificate_files::read_at_most;
use sealane_config::{self as config, ClientDemand, ClientTrust, Route};
use sealane_engine::client::{ClientOptionsError, ROOTS_BYTES_MAX, Roots};
use sealane_engine::client_certificates::{
    CRL_BYTES_MAX, CRLS_MAX, ClientRoots, ClientRootsError, RevocationList,
};
use sealane_operator::timestamp::Timestamp;

use self::error::{ClientTrustError, EndedList, day_of};
use super::last_good::{ByPath, is_at};
use super::{Found, LastGood, Material, Reading, Survey, said_of_route};

pub(super) const MATERIAL: Material = Material { files, read };

/// Parsed authorities of clients. The lists are the larger part, so generations and listeners with
/// equal files have one copy.
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
        let mut lists: Vec<RevocationList> = Vec::new();
        for list in survey.clients.iter().flat_map(|believed| &believed.lists) {
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
    /// Kinds of names with constraints that are not judged.
    pub unjudged: BTreeSet<&'static str>,
}

/// The trust in client certificates, as configured and as read.
pub struct Believed<'c> {
    /// The revocation lists in force.
    pub lists: Vec<RevocationList>,
    /// The roots that were read, if they are in order.
    pub roots: Option<Arc<ClientRoots>>,
    /// The trust as it is configured.
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
            let now_s = reading.now_s();
            let lists = roots.as_ref().map(|roots| roots.lists(now_s)).unwrap_or_default();
            survey.clients.push(Believed { lists, roots, trust });
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
    let made = loaded.parse(trust, reading);
    let made =
        reading.around.client_roots.share(made.unwrap_or_else(ClientRoots::without_authority));
    loaded.judge(&made, trust, reading.now_s());
    if trust.demand == ClientDemand::Required && reading.config.tickets.root.is_some() {
        loaded.warnings.push(SHARED_TICKETS.to_owned());
    }
    let named = |text: String| said_of_route(route, &format!("clients: {text}"));
    for found in loaded.found {
        survey.note(reading, Found { text: named(found.text), ..found });
    }
    for found in loaded.ended {
        survey.note_used(Found { text: named(found.text), ..found });
    }
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
    Some(Arc::new(made.under(trust.rules.clone())))
}

/// What was read.
#[derive(Default)]
struct Loaded {
    /// Lists and authorities that are used and have ended.
    ended: Vec<Found>,
    /// Files that cannot be used as they are.
    found: Vec<Found>,
    /// Whether one of the files has a root, and not intermediate authorities only.
    has_root: bool,
    /// Whether a list is missing that was never in order.
    has_lost_list: bool,
    roots: Vec<RootFile>,
    /// What the operator should know.
    warnings: Vec<String>,
}

/// A text, and the file that it comes from.
#[derive(Clone)]
struct Text {
    bytes: Arc<[u8]>,
    path: PathBuf,
}

impl Loaded {
    /// Reads and parses all that `trust` names; none if no client can be verified by it.
    fn parse(&mut self, trust: &ClientTrust, reading: &mut Reading<'_, '_>) -> Option<ClientRoots> {
        let authorities = trust.roots.iter().filter_map(|path| self.authorities(path, reading));
        let authorities: Vec<Text> = authorities.collect();
        let read = self.read_lists(trust, reading);
        if authorities.is_empty() {
            self.keep_unread(trust, reading, read);
            return None;
        }
        let usable = read.iter().filter_map(|(_, read)| read.as_ref().ok().cloned());
        let is_whole = made(&authorities, &usable.collect::<Vec<_>>()).is_ok();
        let (mut lists, mut without_new) = (Vec::new(), BTreeSet::new());
        for ((source, path), read) in read {
            let judged = read.and_then(|text| match is_whole {
                true => Ok(text),
                // One of them is wrong: which?
                false => made(&authorities, std::slice::from_ref(&text)).map(|_| text),
            });
            let is_known = reading.around.last_good.lists.contains_key(&path);
            if let Err(error) = &judged
                && !is_known
                && reading.around.last_good.has_lists_in_force(&source)
            {
                // Usually a partial download: the lists that the folder had before stay in force.
                let text = error.to_string();
                without_new.insert(source.clone());
                self.found.push(Found { is_kept: true, path, source, text, without: WITHOUT_LIST });
                continue;
            }
            let good: Of = |good| &mut good.lists;
            let list = self.settle(reading, good, (&source, &path), judged, WITHOUT_LIST);
            if list.is_none() {
                self.has_lost_list = true;
                reading.good.lost_lists.insert(source);
            }
            lists.extend(list);
        }
        for source in without_new {
            let known = known_lists(reading, |path| is_at(&source, path)).into_iter();
            let gone = known.filter(|text| !lists.iter().any(|list| list.path == text.path));
            for text in gone.collect::<Vec<_>>() {
                reading.good.lists.insert(text.path.clone(), Arc::clone(&text.bytes));
                lists.push(text);
            }
        }
        // Its issuer is unknown, and an older list of that issuer may be among the others. With
        // `crls`, clients are never admitted without a list.
        if self.has_lost_list || lists.is_empty() && !trust.crls.is_empty() {
            return None;
        }
        match made(&authorities, &lists) {
            Ok(made) => Some(made),
            // Each of them is right, and all are too many.
            Err(error) => self.keep_lists(trust, reading, &authorities, &error),
        }
    }

    /// Keeps the last good state of lists while no authority is usable; notes the lists that cannot
    /// be read.
    fn keep_unread(
        &mut self,
        trust: &ClientTrust,
        reading: &mut Reading<'_, '_>,
        read: Vec<ReadList>,
    ) {
        let known = known_lists(reading, |path| is_of(trust, path)).into_iter();
        reading.good.lists.extend(known.map(|text| (text.path, text.bytes)));
        let lost = &reading.around.last_good.lost_lists;
        let lost = trust.crls.iter().filter(|source| lost.contains(*source)).cloned();
        reading.good.lost_lists.extend(lost);
        for ((source, path), read) in read {
            if let Err(error) = read {
                let is_kept = reading.good.lists.contains_key(&path)
                    || reading.around.last_good.has_lists_in_force(&source);
                if !is_kept {
                    reading.good.lost_lists.insert(source.clone());
                }
                let text = error.to_string();
                self.found.push(Found { is_kept, path, source, text, without: WITHOUT_LIST });
            }
        }
    }

    /// Reads all files with lists, each with its configured path and the path of the file.
    fn read_lists(&mut self, trust: &ClientTrust, reading: &mut Reading<'_, '_>) -> Vec<ReadList> {
        let (mut bytes_left, mut lists) = (CRL_BYTES_MAX, Vec::new());
        for source in &trust.crls {
            let files = match list_files(source) {
                Ok(files) => files,
                Err(error) => {
                    lists.extend(self.keep_folder(reading, source, &error));
                    continue;
                }
            };
            for path in files {
                let read = list(&path, bytes_left);
                if let Err(error) = &read
                    && path == *source
                {
                    // It may have been a folder.
                    let kept = self.keep_folder(reading, source, error);
                    lists.extend(kept);
                    continue;
                }
                let len = read.as_ref().map_or(0, |text| text.bytes.len());
                bytes_left = bytes_left.saturating_sub(len);
                lists.push(((source.clone(), path), read));
            }
        }
        lists
    }

    /// The last good lists of a folder that cannot be read.
    fn keep_folder(
        &mut self,
        reading: &mut Reading<'_, '_>,
        source: &Path,
        error: &ClientTrustError,
    ) -> Vec<ReadList> {
        let is_kept = reading.around.last_good.has_lists_in_force(source);
        if !is_kept {
            self.has_lost_list = true;
            reading.good.lost_lists.insert(source.to_owned());
        }
        let known = known_lists(reading, |path| is_at(source, path)).into_iter();
        let known = known.map(|text| ((source.to_owned(), text.path.clone()), Ok(text))).collect();
        self.found.push(Found {
            is_kept,
            path: source.to_owned(),
            source: source.to_owned(),
            text: error.to_string(),
            without: WITHOUT_LIST,
        });
        known
    }

    /// The last good lists of all files; notes the error of all lists together.
    fn keep_lists(
        &mut self,
        trust: &ClientTrust,
        reading: &mut Reading<'_, '_>,
        authorities: &[Text],
        error: &ClientTrustError,
    ) -> Option<ClientRoots> {
        let known = known_lists(reading, |path| is_of(trust, path));
        let lost = &reading.around.last_good.lost_lists;
        let was_whole = !trust.crls.iter().any(|source| lost.contains(source));
        let kept = made(authorities, &known).ok().filter(|_| was_whole && !known.is_empty());
        if !was_whole {
            reading.good.lost_lists.extend(trust.crls.iter().cloned());
        }
        if kept.is_some() {
            reading.good.lists.extend(known.into_iter().map(|text| (text.path, text.bytes)));
        }
        let source = trust.crls.first().or(trust.roots.first()).cloned().unwrap_or_default();
        self.found.push(Found {
            is_kept: kept.is_some(),
            path: source.clone(),
            source,
            text: error.to_string(),
            without: WITHOUT_LIST,
        });
        kept
    }

    /// What is in order in itself, and is probably not meant or will not do.
    fn judge(&mut self, made: &ClientRoots, trust: &ClientTrust, now_s: i64) {
        if !self.roots.is_empty() && !self.has_root {
            self.warnings.push(NO_ROOT.to_owned());
        }
        for root in self.roots.iter().filter(|root| root.not_after_s < now_s) {
            let (source, path) = (&root.source, PathBuf::from(&root.source));
            let day = day_of(root.not_after_s);
            self.ended.push(Found {
                is_kept: false,
                path: path.clone(),
                source: path,
                text: format!(
                    "roots: {source}: a CA certificate in it expired on {day}; replace or remove it"
                ),
                without: WITHOUT_ROOTS,
            });
        }
        let unjudged = self.roots.iter().filter(|root| !root.unjudged.is_empty());
        self.warnings.extend(unjudged.map(|root| {
            let kinds: Vec<_> = root.unjudged.iter().copied().collect();
            format!(
                "roots: {}: a CA certificate in it has name constraints on {}, which are not \
                 judged here: clients with such names are refused; see docs/limits.md",
                root.source,
                kinds.join(" and ")
            )
        }));
        for list in made.lists(now_s).iter().filter(|list| list.next_update_s <= now_s) {
            let ended = EndedList::of(list);
            if trust.rules.accept_ended_lists {
                self.warnings.push(format!("{ended}; it counts on: fetch a newer one"));
                continue;
            }
            self.ended.push(used(list, &ClientTrustError::Ended(ended)));
        }
        for list in made.unsigned() {
            let RevocationList { issuer_text, label, .. } = &list;
            let (label, issuer) = (label.clone(), issuer_text.clone());
            self.ended.push(used(&list, &ClientTrustError::Unsigned { issuer, label }));
        }
        for list in made.lists(now_s).iter().filter(|list| list.this_update_s > now_s) {
            let RevocationList { issuer_text, label, this_update_s, .. } = list;
            let from = Timestamp::from_unix_s(*this_update_s);
            self.warnings
                .push(format!("{label}: its list of {issuer_text:?} counts from {from} on"));
        }
        self.warnings.extend(made.superseded(now_s).iter().map(|list| {
            let RevocationList { issuer_text, label, .. } = list;
            format!(
                "{label}: it has a list of {issuer_text:?} that a newer one supersedes; remove it"
            )
        }));
        self.warnings.extend(made.unlisted().into_iter().map(|issuer| {
            format!("crls: none is of {issuer:?}; its clients are refused until its list is there")
        }));
    }

    fn authorities(&mut self, path: &Path, reading: &mut Reading<'_, '_>) -> Option<Text> {
        let read = read_authorities(path);
        let good: Of = |good| &mut good.authorities;
        let text = self.settle(reading, good, (path, path), read, WITHOUT_ROOTS)?;
        let (root, has_root) = root_file(&text.path, &text.bytes).ok()?;
        self.has_root |= has_root;
        self.roots.push(root);
        Some(text)
    }

    fn settle(
        &mut self,
        reading: &mut Reading<'_, '_>,
        of: Of,
        (source, path): (&Path, &Path),
        read: Result<Text, ClientTrustError>,
        without: &'static str,
    ) -> Option<Text> {
        let read = read.map(|text| text.bytes);
        let settled = reading.settle(of, path, read);
        let is_kept = settled.is_kept;
        if let Some(error) = settled.error {
            let (source, path, text) = (source.to_owned(), path.to_owned(), error.to_string());
            self.found.push(Found { is_kept, path, source, text, without });
        }
        Some(Text { bytes: settled.value?, path: path.to_owned() })
    }
}

/// The fault of a list that is used as it is.
fn used(list: &RevocationList, error: &ClientTrustError) -> Found {
    let path = list_file(list).to_owned();
    let (source, text) = (path.clone(), error.to_string());
    Found { is_kept: false, path, source, text, without: WITHOUT_LIST }
}

/// The last good state of one kind of file.
type Of = fn(&mut LastGood) -> &mut ByPath<Arc<[u8]>>;

/// A list with its configured path and the path of the file.
type ReadList = ((PathBuf, PathBuf), Result<Text, ClientTrustError>);

/// The last good lists at the paths for which `is_wanted` is true, by path.
fn known_lists(reading: &Reading<'_, '_>, is_wanted: impl Fn(&Path) -> bool) -> Vec<Text> {
    let known = reading.around.last_good.lists.iter().filter(|(path, _)| is_wanted(path));
    let text = |(path, bytes): (&PathBuf, &Arc<[u8]>)| {
        let bytes = Arc::clone(bytes);
        Text { bytes, path: path.clone() }
    };
    let mut known: Vec<Text> = known.map(text).collect();
    known.sort_by(|one, other| one.path.cmp(&other.path));
    known
}

/// Whether the file `path` is one with lists of `trust`.
fn is_of(trust: &ClientTrust, path: &Path) -> bool {
    trust.crls.iter().any(|source| is_at(source, path))
}

/// The client roots of `authorities` and `lists` together.
fn made(authorities: &[Text], lists: &[Text]) -> Result<ClientRoots, ClientTrustError> {
    let labels = |texts: &[Text], front: &str| -> Vec<String> {
        texts.iter().map(|text| format!("{front}{}", text.path.display())).collect()
    };
    let [of_authorities, of_lists] = [labels(authorities, ""), labels(lists, LISTS_LABEL)];
    let [authorities, lists] =
        [(&of_authorities, authorities), (&of_lists, lists)].map(|(labels, texts)| {
            let bytes = texts.iter().map(|text| &*text.bytes);
            labels.iter().map(String::as_str).zip(bytes).collect::<Vec<_>>()
        });
    Ok(ClientRoots::from_labelled_pem(&authorities, &lists)?)
}

/// The file that a list comes from.
pub fn list_file(list: &RevocationList) -> &Path {
    Path::new(list.label.strip_prefix(LISTS_LABEL).unwrap_or(&list.label))
}

/// The files with lists at `path`, which may be a folder.
fn list_files(path: &Path) -> Result<Vec<PathBuf>, ClientTrustError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let files = files_in(path)?;
    if files.is_empty() {
        // Without a list nothing would be revoked.
        return Err(ClientTrustError::NoLists { folder: path.to_owned() });
    }
    Ok(files)
}

fn list(path: &Path, bytes_max: usize) -> Result<Text, ClientTrustError> {
    let mut bytes = Vec::new();
    read_at_most(path, bytes_max, &mut bytes).map_err(ClientTrustError::ListFile)?;
    if bytes.first() == Some(&DER_SEQUENCE) {
        return Err(ClientTrustError::Der { path: path.to_owned() });
    }
    Ok(Text { bytes: bytes.into(), path: path.to_owned() })
}

/// Reads a file with authorities; each must do as one.
fn read_authorities(path: &Path) -> Result<Text, ClientTrustError> {
    let mut bytes = Vec::new();
    read_at_most(path, ROOTS_BYTES_MAX, &mut bytes).map_err(ClientTrustError::RootFile)?;
    root_file(path, &bytes)?;
    let text = Text { bytes: bytes.into(), path: path.to_owned() };
    made(std::slice::from_ref(&text), &[])?;
    Ok(text)
}

/// The dates of a file with authorities, and whether one of them is a root.
fn root_file(path: &Path, text: &[u8]) -> Result<(RootFile, bool), ClientTrustError> {
    let source = path.to_string_lossy().into_owned();
    let roots = Roots::from_pem(&source, text).map_err(|error| match error {
        ClientOptionsError::NoRootInSource { label, .. } => ClientTrustError::NoRoot { label },
        error => ClientTrustError::Parsed(error.into()),
    })?;
    let not_after_s = roots.soonest_expiry_s().map_err(ClientRootsError::from)?;
    let unjudged = roots.unjudged_constraints();
    let root = RootFile { not_after_s: not_after_s.unwrap_or(i64::MAX), source, unjudged };
    Ok((root, roots.has_root()))
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

const WITHOUT_LIST: &str = "clients that need the list are refused";
const WITHOUT_ROOTS: &str = "clients whose certificates it verifies are refused";
/// The prefix of labels of lists.
const LISTS_LABEL: &str = "crls: ";
/// What DER begins with.
const DER_SEQUENCE: u8 = 0x30;
const NO_ROOT: &str = "roots: only intermediate authorities or leaf certificates, so no client is \
                       trusted; add the certificate of the root that issued them";
const SHARED_TICKETS: &str = "whoever has the file of tickets.root can claim to be any of the \
                              clients, because a ticket stands for a certificate; keep it as you \
                              keep a private key, or remove tickets.root";
