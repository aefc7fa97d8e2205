//! `sealane certificates`: what an operator does with a store, while it is served or not.

mod backup;
mod export;
mod output;
mod place;
mod remote;
mod served;
mod stream;

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::crypto::CryptoProvider;
use sealane_certificate_files::load;
use sealane_config::{CertificateSource, Config, KeySource, Limits};
use sealane_control::process::hide_memory;
use sealane_engine::certificates::{Certificate, CertificateIndex, DefaultCertificate};
use sealane_engine::provider::Provider;
use sealane_listeners::bounds;
use sealane_listeners::stores::{
    become_owner_of, checking_provider, create_key_file, examination, sealing_keys,
};
use sealane_store::{Imported, KeyedStore, Listed, SealingKeys, Store, StoreError};
use sealane_store_requests as requests;
use tracing::{info, warn};

use crate::args::{
    CertificatesCommand, ImportArguments, KeyArguments, ListArguments, RemoveArguments,
    ShowArguments, StoreArguments, VerifyArguments,
};
use crate::commands::counted;
use crate::exit::Exit;
use output::{ImportReport, ListedReport, VerifyReport, write_removed};
use remote::Remote;

/// Does what `command` says.
///
/// # Errors
/// The writer's.
pub fn run(command: &CertificatesCommand, out: &mut dyn Write) -> io::Result<Exit> {
    hide_memory();
    let done = match command {
        CertificatesCommand::Backup(arguments) => backup::backup(arguments, out),
        CertificatesCommand::Examine(arguments) => {
            examination::answer(&arguments.store, out)?;
            Ok(Exit::Ok)
        }
        CertificatesCommand::Export(arguments) => export::export(arguments, out),
        CertificatesCommand::Import(arguments) => import(arguments, out),
        CertificatesCommand::List(arguments) => list(arguments, out),
        CertificatesCommand::Remove(arguments) => remove(arguments, out),
        CertificatesCommand::Reseal(arguments) => reseal(arguments, out),
        CertificatesCommand::Restore(arguments) => backup::restore(arguments, out),
        CertificatesCommand::Served(arguments) => served::served(arguments, out),
        CertificatesCommand::Show(arguments) => show(arguments, out),
        CertificatesCommand::Verify(arguments) => verify(arguments, out),
    };
    match done {
        Ok(exit) => Ok(exit),
        Err(Refusal::Output(error)) => Err(error),
        Err(Refusal::Said(text)) => {
            info!("{text}");
            Ok(Exit::Invalid)
        }
    }
}

fn import(arguments: &ImportArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    if let Some(remote) = Remote::of(&arguments.key.reach) {
        return remote.import(arguments, out);
    }
    if arguments.paths.iter().any(|path| path == STANDARD_INPUT) {
        stream::alone(arguments)?;
        return stream::import(arguments, out);
    }
    let place = Place::of_key(&arguments.key.at_rest())?;
    let certificates = read_files(arguments)?;
    let store = if arguments.create { place.create()? } else { place.keyed()? };
    let mut imported = Imported::default();
    let mut progress = Progress::new("imported", Some(certificates.len() as u64));
    for batch in certificates.chunks(BATCH) {
        add_up(&mut imported, store.import(batch, now_s()).map_err(said)?);
        progress.step(batch.len() as u64);
    }
    report_import(&store, imported, arguments.json, out)
}

fn add_up(sum: &mut Imported, done: Imported) {
    sum.added += done.added;
    sum.replaced += done.replaced;
    sum.unchanged += done.unchanged;
}

fn report_import(
    store: &KeyedStore,
    imported: Imported,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<Exit, Refusal> {
    let summary = store.store().summary().map_err(said)?;
    ImportReport { imported, store: store.store().path(), summary }.write(as_json, out)?;
    Ok(Exit::Ok)
}

/// Reads and checks everything before anything is written. Of two for one name the one that is
/// written last stays, so the preferred one comes last.
fn read_files(arguments: &ImportArguments) -> Result<Vec<Arc<Certificate>>, Refusal> {
    let provider = provider()?;
    let pairs = arguments
        .pair
        .chunks_exact(2)
        .map(|pair| CertificateSource::Pair { chain: pair[0].clone(), key: pair[1].clone() });
    let paths = arguments.paths.iter().cloned().map(CertificateSource::Path);
    let sources: Vec<_> = pairs.chain(paths).collect();
    let (first, bounds) = (DefaultCertificate::First, bounds(&Limits::default()));
    let loaded = load(&sources, first, bounds, &provider.crypto, now_s(), &[]);
    for warning in &loaded.warnings {
        warn!("{warning}");
    }
    let mut problems: Vec<String> = loaded.faults.iter().map(ToString::to_string).collect();
    let mut progress = Progress::new("checked", Some(loaded.index.len() as u64));
    problems.extend(problems_in(&loaded.index, &provider.crypto, |seen| progress.step(seen)));
    // One that lost all its names to another here would take their place for a moment.
    let is_served = |certificate: &&Arc<Certificate>| {
        let mut names = certificate.names().iter();
        names.any(|name| loaded.index.find(name).iter().any(|each| Arc::ptr_eq(each, certificate)))
    };
    let mut served: Vec<_> = loaded.index.iter().filter(is_served).map(Arc::clone).collect();
    // Of two that end at the same time the one that is named first is preferred.
    served.reverse();
    let now_s = now_s();
    served.sort_by_key(|each| (each.is_valid_at(now_s), each.chain_not_after_s()));
    match problems.is_empty() {
        true => Ok(served),
        false => Err(Refusal::Said(format!("nothing was imported:\n{}", problems.join("\n")))),
    }
}

/// Why certificates cannot be imported that could be read.
fn problems_in(
    index: &CertificateIndex,
    provider: &CryptoProvider,
    mut seen: impl FnMut(u64),
) -> Vec<String> {
    let mut problems = Vec::new();
    for certificate in index {
        if certificate.names().is_empty() {
            problems.push(format!(
                "{}: no host name in it; a store serves by name",
                certificate.label()
            ));
        }
        // Of many, the index compared public halves only.
        problems.extend(certificate.verify(provider).err().map(|error| error.to_string()));
        seen(1);
    }
    problems
}

fn provider() -> Result<Provider, Refusal> {
    checking_provider().map_err(said)
}

fn list(arguments: &ListArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    if let Some(remote) = Remote::of(&arguments.reach) {
        return remote.list(arguments, out);
    }
    let store = Place::of(&arguments.reach.at_rest())?.open()?;
    let until_s = arguments.until_s(now_s());
    each_by_expiry(&store, |certificate| {
        let is_asked_for = until_s.is_none_or(|until_s| certificate.not_after_s <= until_s);
        if is_asked_for {
            ListedReport::of(certificate, now_s()).write_line(arguments.json, out)?;
        }
        Ok(is_asked_for)
    })?;
    Ok(Exit::Ok)
}

/// Calls `each` with all certificates, those that expire first first, until it says no.
fn each_by_expiry(
    store: &Store,
    mut each: impl FnMut(&Listed) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    let mut last: Option<Listed> = None;
    loop {
        let page = store.by_expiry(last.as_ref(), BATCH).map_err(said)?;
        for certificate in &page {
            if !each(certificate)? {
                return Ok(());
            }
        }
        last = page.into_iter().last();
        if last.is_none() {
            return Ok(());
        }
    }
}

fn show(arguments: &ShowArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    if let Some(remote) = Remote::of(&arguments.reach) {
        return remote.show(arguments, out);
    }
    let store = Place::of(&arguments.reach.at_rest())?.open()?;
    let found = store.read_back(&arguments.name).map_err(said)?.served;
    if found.is_empty() {
        let (name, path) = (&arguments.name, store.path().display());
        return Err(Refusal::Said(format!("{path}: nothing is served for {name}")));
    }
    for certificate in found.iter().map(requests::shown) {
        ListedReport::of_shown(&certificate, now_s()).write_whole(arguments.json, out)?;
    }
    Ok(Exit::Ok)
}

fn remove(arguments: &RemoveArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    if let Some(remote) = Remote::of(&arguments.reach) {
        return remote.remove(arguments, out);
    }
    let store = Place::of(&arguments.reach.at_rest())?.open()?;
    let removed = requests::remove(&store, &arguments.names, now_s()).map_err(said)?;
    let exit = write_removed(&removed, &store.path().display().to_string(), out)?;
    match removed.warnings.first() {
        Some(warning) => Err(Refusal::Said(warning.clone())),
        None => Ok(exit),
    }
}

fn reseal(arguments: &KeyArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let place = Place::of_key(arguments)?;
    let (store, rewritten) = place.migrated()?;
    if let Some(count) = rewritten {
        let certificates = counted(count as u64, "certificate");
        writeln!(out, "{certificates} rewritten from an older format")?;
    }
    let total = store.store().summary().map_err(said)?.certificates;
    let mut progress = Progress::new("seen", Some(total));
    let (mut after, mut resealed) = (None, 0);
    loop {
        let done = store.reseal(after, BATCH).map_err(said)?;
        resealed += done.resealed;
        progress.step(done.seen as u64);
        after = done.last;
        if after.is_none() {
            break;
        }
    }
    // Also if nothing was left to do: an earlier run may have been interrupted before this.
    store.store().erase_deleted().map_err(said)?;
    let current = store.current_key();
    writeln!(out, "{} sealed anew with {current}", counted(resealed, "private key"))?;
    let summary = store.store().summary().map_err(said)?;
    match summary.sealed_with.iter().all(|(id, _)| *id == current) {
        true => writeln!(out, "{NO_OLDER_KEY}")?,
        false => {
            info!("a certificate was imported with an older sealing key meanwhile; run it again");
        }
    }
    Ok(Exit::Ok)
}

fn verify(arguments: &VerifyArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let store = Place::of_key(&arguments.key)?.keyed()?;
    let summary = store.store().summary().map_err(said)?;
    let problems = problems_of(&store)?;
    let exit = if problems.is_empty() { Exit::Ok } else { Exit::Failed };
    VerifyReport { store: store.store().path(), summary, problems }.write(arguments.json, out)?;
    Ok(exit)
}

/// What is wrong with a store, every private key opened.
fn problems_of(store: &KeyedStore) -> Result<Vec<String>, Refusal> {
    let provider = provider()?;
    let mut progress = Progress::new("verified", Some(store.store().summary()?.certificates));
    let (mut problems, mut after) = (Vec::new(), None);
    loop {
        let note = |problem| problems.push(problem);
        after = store.verify(after, VERIFY_BATCH, &provider.crypto, note)?;
        progress.step(VERIFY_BATCH as u64);
        if after.is_none() {
            return Ok(problems);
        }
    }
}

/// Where a store is, and where its key comes from.
struct Place {
    path: PathBuf,
    key: Option<KeySource>,
}

impl Place {
    fn of(arguments: &StoreArguments) -> Result<Self, Refusal> {
        let Some(file) = &arguments.config else {
            let path = arguments.store.clone().unwrap_or_default();
            return Ok(Self { path, key: None });
        };
        let config = Config::load(file).map_err(said)?;
        let mut named: Vec<_> = config.listeners.iter().filter_map(|l| l.store.clone()).collect();
        named.sort();
        named.dedup();
        let path = match (&arguments.store, named.as_slice()) {
            (Some(path), _) | (None, [path]) => path.clone(),
            (None, []) => {
                let text = "no listener has certificates = [\"store:PATH\"]; add --store PATH";
                return Err(Refusal::Said(format!("{}: {text}", file.display())));
            }
            (None, _) => {
                let text = "names several stores; say which by --store PATH";
                return Err(Refusal::Said(format!("{}: {text}", file.display())));
            }
        };
        Ok(Self { path, key: config.store_key })
    }

    fn of_key(arguments: &KeyArguments) -> Result<Self, Refusal> {
        let place = Self::of(&arguments.store)?;
        let words = |text: &String| text.split_whitespace().map(str::to_owned).collect();
        let key = arguments.key_file.clone().map(KeySource::File);
        let key = key.or_else(|| arguments.key_credential.clone().map(KeySource::Credential));
        let key = key.or_else(|| arguments.key_command.as_ref().map(words).map(KeySource::Command));
        Ok(Self { key: key.or(place.key), ..place })
    }

    /// Makes the store, and the key file if the key comes from a file, and opens it.
    fn create(&self) -> Result<KeyedStore, Refusal> {
        if let Some(KeySource::File(path)) = &self.key
            && create_key_file(path).map_err(said)?
        {
            let path = path.display();
            info!("made {path}: without it the private keys are lost, so keep a copy of it");
        }
        let keys = self.keys()?;
        let path = become_owner_of(&self.path).map_err(said)?;
        match examination::examine_apart(&path) {
            // One that was begun and not finished is there as little as one that never was.
            Ok(()) | Err(examination::Refused::Absent(_)) => {}
            Err(refused) => return Err(said(refused)),
        }
        let store = Store::open_or_create(&path).map_err(said)?;
        KeyedStore::new(Arc::new(store), keys).map_err(said)
    }

    fn open(&self) -> Result<Store, Refusal> {
        Store::open(&self.examined()?).map_err(said)
    }

    fn keyed(&self) -> Result<KeyedStore, Refusal> {
        let keys = self.keys()?;
        KeyedStore::new(Arc::new(self.open()?), keys).map_err(said)
    }

    /// The same for a store of whatever format, and how many certificates were rewritten.
    fn migrated(&self) -> Result<(KeyedStore, Option<usize>), Refusal> {
        let keys = self.keys()?;
        KeyedStore::migrate(&self.examined()?, keys).map_err(said)
    }

    fn keys(&self) -> Result<SealingKeys, Refusal> {
        let source = self.key.as_ref().ok_or_else(|| {
            Refusal::Said("no source of sealing keys; add --key-file FILE".to_owned())
        })?;
        sealing_keys(source).map_err(said)
    }

    /// Before the file is mapped, and with no more rights than whoever can write to it has: a
    /// damaged file must end another process than this one, and not as root. Returns the path to
    /// open it by.
    fn examined(&self) -> Result<PathBuf, Refusal> {
        let path = become_owner_of(&self.path).map_err(said)?;
        examination::examine_apart(&path).map_err(said)?;
        Ok(path)
    }
}

/// Why a command ends early.
enum Refusal {
    Output(io::Error),
    Said(String),
}

impl Refusal {
    /// The same of a copy of `file`, which is the one that can be replaced.
    fn of_copy(self, file: &Path) -> Self {
        match self {
            Self::Said(text) => Self::Said(format!(
                "{}: nothing was restored; a copy of it: {text}",
                file.display()
            )),
            output @ Self::Output(_) => output,
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        said(error)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn said(error: impl ToString) -> Refusal {
    Refusal::Said(error.to_string())
}

/// Tells a person at a terminal how far a long command is.
struct Progress {
    began: Instant,
    done: u64,
    is_shown: bool,
    shown: u64,
    /// None if nobody knows yet.
    total: Option<u64>,
    verb: &'static str,
}

impl Progress {
    fn new(verb: &'static str, total: Option<u64>) -> Self {
        let is_long = total.is_none_or(|total| total > PROGRESS_STEP);
        let is_shown = is_long && io::stderr().is_terminal();
        Self { began: Instant::now(), done: 0, is_shown, shown: 0, total, verb }
    }

    fn step(&mut self, by: u64) {
        #[expect(clippy::cast_precision_loss, reason = "it is for people")]
        let share = self.total.map(|total| (self.done + by) as f64 / total as f64);
        self.step_of(by, share);
    }

    /// The same where this share of the work is done, if that is known.
    fn step_of(&mut self, by: u64, share: Option<f64>) {
        self.done = self.total.unwrap_or(u64::MAX).min(self.done + by);
        if self.is_shown && self.done >= self.shown + PROGRESS_STEP {
            self.shown = self.done;
            let of = self.total.map(|total| format!(" of {total}")).unwrap_or_default();
            let left = share.map(|share| time_left(self.began.elapsed(), share));
            info!("{} {}{of}{}", self.verb, self.done, left.unwrap_or_default());
        }
    }
}

/// How long it will take after `elapsed`, of which such a share of the work was done.
fn time_left(elapsed: Duration, share: f64) -> String {
    let left_s = elapsed.as_secs_f64() * (1.0 - share) / share;
    match left_s {
        // Nothing was done, or all of it.
        left_s if !left_s.is_finite() || left_s <= 0.0 => String::new(),
        ..MINUTES_FROM_S => format!(", about {left_s:.0} s left"),
        _ => format!(", about {:.0} min left", left_s / 60.0),
    }
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Certificates in one transaction: enough that the disk is not waited for often, and few enough
/// that another command does not wait long.
const BATCH: usize = requests::BATCH_MAX;
/// Seconds from which on minutes are told.
const MINUTES_FROM_S: f64 = 120.0;
/// What is true when all is sealed anew, and what is not.
const NO_OLDER_KEY: &str = "\
no private key in the store needs an older sealing key any more, nor opens with one; remove those.
Copies of the store made before still open with them: if a sealing key leaked, replace the private \
keys too";
/// Certificates between two lines of progress.
const PROGRESS_STEP: u64 = 5_000;
/// The path that stands for it.
const STANDARD_INPUT: &str = "-";
const VERIFY_BATCH: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_told_from_the_share_that_is_done() {
        let left = |elapsed_s, share| time_left(Duration::from_secs(elapsed_s), share);
        assert_eq!(left(10, 0.25), ", about 30 s left");
        assert_eq!(left(60, 0.1), ", about 9 min left");
        for (elapsed_s, share) in [(10, 0.0), (10, 1.0), (10, 1.5), (0, 0.5), (10, f64::NAN)] {
            assert_eq!(left(elapsed_s, share), "", "{share}");
        }
    }
}
