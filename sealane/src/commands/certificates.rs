//! `sealane certificates`: what an operator does with a store, while it is served or not.

mod output;

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sealane_certificate_files::load;
use sealane_engine::certificates::{Certificate, DefaultCertificate};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_store::{Imported, KeyedStore, Listed, SealingKeys, Store};

use crate::args::{
    CertificatesCommand, ImportArguments, KeyArguments, ListArguments, RemoveArguments,
    ShowArguments, StoreArguments, VerifyArguments,
};
use crate::commands::counted;
use crate::config::{CertificateSource, Config, KeySource, Limits};
use crate::exit::Exit;
use crate::listener::bounds;
use crate::operator::say;
use crate::stores::{become_owner_of, create_key_file, examination, sealing_keys};
use output::{ImportReport, ListedReport, VerifyReport};

/// Does what `command` says.
///
/// # Errors
/// The writer's.
pub fn run(command: &CertificatesCommand, out: &mut dyn Write) -> io::Result<Exit> {
    let done = match command {
        CertificatesCommand::Examine(arguments) => {
            examination::answer(&arguments.store, out)?;
            Ok(Exit::Ok)
        }
        CertificatesCommand::Import(arguments) => import(arguments, out),
        CertificatesCommand::List(arguments) => list(arguments, out),
        CertificatesCommand::Remove(arguments) => remove(arguments, out),
        CertificatesCommand::Reseal(arguments) => reseal(arguments, out),
        CertificatesCommand::Show(arguments) => show(arguments, out),
        CertificatesCommand::Verify(arguments) => verify(arguments, out),
    };
    match done {
        Ok(exit) => Ok(exit),
        Err(Refusal::Output(error)) => Err(error),
        Err(Refusal::Said(text)) => {
            say(&text);
            Ok(Exit::Invalid)
        }
    }
}

fn import(arguments: &ImportArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let place = Place::of_key(&arguments.key)?;
    let certificates = read_files(arguments)?;
    let store = if arguments.create { place.create()? } else { place.keyed()? };
    let mut imported = Imported::default();
    // Of two for one name the one named first is served, and the one written last stays.
    let mut left: Vec<_> = certificates;
    left.reverse();
    let mut progress = Progress::new("imported", left.len() as u64);
    for batch in left.chunks(BATCH) {
        let done = store.import(batch, now_s()).map_err(said)?;
        imported.added += done.added;
        imported.replaced += done.replaced;
        imported.unchanged += done.unchanged;
        progress.step(batch.len() as u64);
    }
    let summary = store.store().summary().map_err(said)?;
    ImportReport { imported, store: store.store().path(), summary }.write(arguments.json, out)?;
    Ok(Exit::Ok)
}

/// Reads and checks everything before anything is written.
fn read_files(arguments: &ImportArguments) -> Result<Vec<Arc<Certificate>>, Refusal> {
    let provider = lane_provider(ProviderChoice::Auto, &Group::ALL)
        .or_else(|_| lane_provider(ProviderChoice::AwsLc, &Group::ALL))
        .map_err(said)?;
    let pairs = arguments
        .pair
        .chunks_exact(2)
        .map(|pair| CertificateSource::Pair { chain: pair[0].clone(), key: pair[1].clone() });
    let paths = arguments.paths.iter().cloned().map(CertificateSource::Path);
    let sources: Vec<_> = pairs.chain(paths).collect();
    let (first, bounds) = (DefaultCertificate::First, bounds(&Limits::default()));
    let loaded = load(&sources, first, bounds, &provider.crypto, now_s());
    for warning in &loaded.warnings {
        say(&format!("warning: {warning}"));
    }
    let mut problems: Vec<String> = loaded.errors.iter().map(ToString::to_string).collect();
    let mut progress = Progress::new("checked", loaded.index.len() as u64);
    for certificate in &loaded.index {
        if certificate.names().is_empty() {
            problems.push(format!(
                "{}: no host name in it; a store serves by name",
                certificate.label()
            ));
        }
        // Of many, the index compared public halves only.
        problems.extend(certificate.verify(&provider.crypto).err().map(|error| error.to_string()));
        progress.step(1);
    }
    // One that lost all its names to another here would take their place for a moment.
    let is_served = |certificate: &&Arc<Certificate>| {
        let mut names = certificate.names().iter();
        names.any(|name| loaded.index.find(name).iter().any(|each| Arc::ptr_eq(each, certificate)))
    };
    match problems.is_empty() {
        true => Ok(loaded.index.iter().filter(is_served).map(Arc::clone).collect()),
        false => Err(Refusal::Said(format!("nothing was imported:\n{}", problems.join("\n")))),
    }
}

fn list(arguments: &ListArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let store = Place::of(&arguments.store)?.open()?;
    let until_s = arguments
        .expiring
        .map(|days| now_s().saturating_add(i64::from(days).saturating_mul(DAY_S)));
    let mut last: Option<Listed> = None;
    loop {
        let page = store.by_expiry(last.as_ref(), BATCH).map_err(said)?;
        for certificate in &page {
            if until_s.is_some_and(|until_s| certificate.not_after_s > until_s) {
                return Ok(Exit::Ok);
            }
            ListedReport::of(certificate, now_s()).write_line(arguments.json, out)?;
        }
        last = page.into_iter().last();
        if last.is_none() {
            return Ok(Exit::Ok);
        }
    }
}

fn show(arguments: &ShowArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let store = Place::of(&arguments.store)?.open()?;
    let found = store.find(&arguments.name).map_err(said)?;
    if found.is_empty() {
        let (name, path) = (&arguments.name, store.path().display());
        return Err(Refusal::Said(format!("{path}: nothing is served for {name}")));
    }
    for certificate in &found {
        ListedReport::of(certificate, now_s()).write_whole(arguments.json, out)?;
    }
    Ok(Exit::Ok)
}

fn remove(arguments: &RemoveArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let store = Place::of(&arguments.store)?.open()?;
    let removed = store.remove(&arguments.names).map_err(said)?;
    writeln!(
        out,
        "{} no longer served; {} removed",
        counted(removed.names, "name"),
        counted(removed.certificates, "certificate")
    )?;
    // Also if nothing was there: an earlier run may have been interrupted before this.
    store.erase_deleted().map_err(said)?;
    for name in &arguments.names {
        if store.covers(name).map_err(said)? {
            say(&format!("{name} is still served, by a wildcard; see: certificates show {name}"));
        }
    }
    if removed.unknown.is_empty() {
        return Ok(Exit::Ok);
    }
    say(&format!("{}: not in it: {}", store.path().display(), removed.unknown.join(", ")));
    Ok(Exit::Failed)
}

fn reseal(arguments: &KeyArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let place = Place::of_key(arguments)?;
    let (store, rewritten) = place.migrated()?;
    if let Some(count) = rewritten {
        let certificates = counted(count as u64, "certificate");
        writeln!(out, "{certificates} rewritten from an older format")?;
    }
    let total = store.store().summary().map_err(said)?.certificates;
    let mut progress = Progress::new("seen", total);
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
            say("a certificate was imported with an older sealing key meanwhile; run it again");
        }
    }
    Ok(Exit::Ok)
}

fn verify(arguments: &VerifyArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let store = Place::of_key(&arguments.key)?.keyed()?;
    let provider = lane_provider(ProviderChoice::Auto, &Group::ALL)
        .or_else(|_| lane_provider(ProviderChoice::AwsLc, &Group::ALL))
        .map_err(said)?;
    let summary = store.store().summary().map_err(said)?;
    let mut progress = Progress::new("verified", summary.certificates);
    let mut problems = Vec::new();
    let mut after = None;
    loop {
        let note = |problem| problems.push(problem);
        let last = store.verify(after, VERIFY_BATCH, &provider.crypto, note).map_err(said)?;
        progress.step(VERIFY_BATCH as u64);
        after = last;
        if after.is_none() {
            break;
        }
    }
    let exit = if problems.is_empty() { Exit::Ok } else { Exit::Failed };
    VerifyReport { store: store.store().path(), summary, problems }.write(arguments.json, out)?;
    Ok(exit)
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
            say(&format!(
                "made {path}: without it the private keys are lost, so keep a copy of it"
            ));
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
    done: u64,
    is_shown: bool,
    shown: u64,
    total: u64,
    verb: &'static str,
}

impl Progress {
    fn new(verb: &'static str, total: u64) -> Self {
        let is_shown = total > PROGRESS_STEP && io::stderr().is_terminal();
        Self { done: 0, is_shown, shown: 0, total, verb }
    }

    fn step(&mut self, by: u64) {
        self.done = self.total.min(self.done + by);
        if self.is_shown && self.done >= self.shown + PROGRESS_STEP {
            self.shown = self.done;
            say(&format!("{} {} of {}", self.verb, self.done, self.total));
        }
    }
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Certificates in one transaction: enough that the disk is not waited for often, and few enough
/// that another command does not wait long.
const BATCH: usize = 1_000;
const DAY_S: i64 = 86_400;
/// What is true when all is sealed anew, and what is not.
const NO_OLDER_KEY: &str = "\
no private key in the store needs an older sealing key any more, nor opens with one; remove those.
Copies of the store made before still open with them: if a sealing key leaked, replace the private \
keys too";
/// Certificates between two lines of progress.
const PROGRESS_STEP: u64 = 5_000;
const VERIFY_BATCH: usize = 500;
