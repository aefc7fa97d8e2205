//! `sealane certificates import -`: certificates with their keys from standard input, as many as
//! come, a few of them in memory.

use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::os::fd::AsFd as _;

use sealane_store::{Imported, KeyedStore};
use sealane_store_requests::{Batch, Batches};
use tracing::warn;

use super::{Place, Progress, Refusal, add_up, now_s, provider, report_import};
use crate::args::ImportArguments;
use crate::commands::counted;
use crate::exit::Exit;

/// Imports what comes on standard input, a part of it in each transaction: what the process had
/// when it was ended is in the store, or will be as if it had never come.
pub(super) fn import(arguments: &ImportArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let place = Place::of_key(&arguments.key.at_rest())?;
    // One that is to be made is made when there is something to be put into it.
    let opened = if arguments.create { None } else { Some(place.keyed()?) };
    let provider = provider()?;
    let mut input = Input::open()?;
    let mut batches = Batches::new(SOURCE, &provider.crypto, &|_| true);
    let mut imported = Imported::default();
    let store = import_all(&mut batches, &mut input, (&place, opened), &mut imported);
    let store = store.map_err(|refusal| match refusal {
        Refusal::Said(text) => Refusal::Said(format!("{}\n{text}", imported_before(imported))),
        output @ Refusal::Output(_) => output,
    })?;
    report_import(&store, imported, arguments.json, out)
}

/// Refuses `-` beside other paths.
pub(super) fn alone(arguments: &ImportArguments) -> Result<(), Refusal> {
    if arguments.paths.len() > 1 || !arguments.pair.is_empty() {
        let text = "- stands for standard input, and for all that is imported; name no files too";
        return Err(Refusal::Said(text.into()));
    }
    Ok(())
}

/// Imports all that comes, which is counted in `imported`, and returns the store: the one that is
/// open, or one that is made at `place`.
fn import_all(
    batches: &mut Batches<'_>,
    input: &mut Input,
    (place, mut opened): (&Place, Option<KeyedStore>),
    imported: &mut Imported,
) -> Result<KeyedStore, Refusal> {
    let mut progress = Progress::new("imported", None);
    loop {
        let Some(batch) = next_batch(batches, input)? else {
            let is_empty = *imported == Imported::default();
            let nothing = || Refusal::Said(format!("{SOURCE}: nothing in it; pipe files to it"));
            return opened.filter(|_| !is_empty).ok_or_else(nothing);
        };
        for warning in &batch.warnings {
            warn!("{warning}");
        }
        let store = match opened {
            Some(store) => store,
            None => place.create()?,
        };
        add_up(imported, store.import(&batch.certificates, now_s())?);
        progress.step_of(batch.certificates.len() as u64, input.share());
        opened = Some(store);
    }
}

/// The next certificates of the stream, all of them checked; none at its end.
fn next_batch(batches: &mut Batches<'_>, input: &mut Input) -> Result<Option<Batch>, Refusal> {
    loop {
        let next = batches.next(now_s()).map_err(|mistakes| Refusal::Said(mistakes.to_string()))?;
        if next.is_some() || input.is_at_end {
            return Ok(next);
        }
        match input.read(batches.space())? {
            0 => batches.end(),
            count => batches.filled(count),
        }
    }
}

/// What was imported before a mistake.
fn imported_before(imported: Imported) -> String {
    match imported.added + imported.replaced + imported.unchanged {
        0 => "nothing was imported:".into(),
        before => {
            let before = counted(before, "certificate");
            format!("{before} before these were imported, and nothing from here on:")
        }
    }
}

/// Standard input.
pub(super) struct Input {
    file: File,
    is_at_end: bool,
    /// Bytes in all, if that is known.
    len: Option<u64>,
    /// Bytes that were read.
    read: u64,
}

impl Input {
    pub(super) fn open() -> Result<Self, Refusal> {
        // Not through the buffer that the standard library has for it: nobody would zero that.
        let input = io::stdin().as_fd().try_clone_to_owned().map_err(|error| unread(&error))?;
        let file = File::from(input);
        let facts = file.metadata().ok().filter(fs::Metadata::is_file);
        Ok(Self { file, is_at_end: false, len: facts.map(|facts| facts.len()), read: 0 })
    }

    /// The next bytes; none at its end.
    pub(super) fn read(&mut self, to: &mut [u8]) -> Result<usize, Refusal> {
        loop {
            match self.file.read(to) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unread(&error)),
                Ok(count) => {
                    self.read += count as u64;
                    self.is_at_end = count == 0;
                    return Ok(count);
                }
            }
        }
    }

    /// How much of it was read, if that is known.
    pub(super) fn share(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "it is for people")]
        self.len.map(|len| self.read as f64 / len as f64)
    }
}

fn unread(error: &io::Error) -> Refusal {
    Refusal::Said(format!("{SOURCE}: {error}; open it for reading"))
}

const SOURCE: &str = "standard input";
