//! `sealane certificates import -`: certificates with their keys from standard input, as many as
//! come, a few of them in memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::{
    Certificate, CertificateWarning, DefaultCertificate, IndexBuilder, PEM_BYTES_MAX,
};
use sealane_store::{Imported, KeyedStore};
use zeroize::Zeroizing;

use super::{BATCH, Place, Progress, Refusal, add_up, now_s, problems_in, provider, report_import};
use crate::args::ImportArguments;
use crate::commands::counted;
use crate::exit::Exit;
use crate::operator::say;

/// Imports what comes on standard input, a part of it in each transaction: what the process had
/// when it was ended is in the store, or will be as if it had never come.
pub(super) fn import(arguments: &ImportArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    if arguments.paths.len() > 1 || !arguments.pair.is_empty() {
        let text = "- stands for standard input, and for all that is imported; name no files too";
        return Err(Refusal::Said(text.into()));
    }
    let place = Place::of_key(&arguments.key)?;
    // One that is to be made is made when there is something to be put into it.
    let opened = if arguments.create { None } else { Some(place.keyed()?) };
    let provider = provider()?;
    // Not through the buffer that the standard library has for it: nobody would zero that.
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(|error| unread(&error))?;
    let mut bundles = Bundles::new(File::from(input));
    let mut imported = Imported::default();
    let store = import_all(&mut bundles, &provider.crypto, (&place, opened), &mut imported);
    let store = store.map_err(|refusal| match refusal {
        Refusal::Said(text) => Refusal::Said(format!("{}\n{text}", imported_before(imported))),
        output @ Refusal::Output(_) => output,
    })?;
    report_import(&store, imported, arguments.json, out)
}

/// Imports all that comes, which is counted in `imported`, and returns the store: the one that is
/// open, or one that is made at `place`.
fn import_all(
    bundles: &mut Bundles<impl Read>,
    provider: &CryptoProvider,
    (place, mut opened): (&Place, Option<KeyedStore>),
    imported: &mut Imported,
) -> Result<KeyedStore, Refusal> {
    let mut progress = Progress::new("imported", None);
    loop {
        let batch = next_batch(bundles, provider)?;
        if batch.is_empty() {
            let is_empty = *imported == Imported::default();
            let nothing =
                || Refusal::Said("standard input: nothing in it; pipe files to it".into());
            return opened.filter(|_| !is_empty).ok_or_else(nothing);
        }
        let store = match opened {
            Some(store) => store,
            None => place.create()?,
        };
        add_up(imported, store.import(&batch, now_s())?);
        progress.step(batch.len() as u64);
        opened = Some(store);
    }
}

/// The next certificates of the stream, all of them checked; none at its end.
fn next_batch(
    bundles: &mut Bundles<impl Read>,
    provider: &CryptoProvider,
) -> Result<Vec<Arc<Certificate>>, Refusal> {
    let mut builder = IndexBuilder::new(provider, now_s());
    let (mut bytes, mut count) = (0, 0);
    while count < BATCH && bytes < BATCH_BYTES {
        let Some(bundle) = bundles.next().map_err(|error| unread(&error))? else { break };
        builder.add(&format!("standard input, line {}", bundle.line), bundle.text);
        bytes += bundle.text.len();
        count += 1;
    }
    let indexed = builder.finish(DefaultCertificate::Absent);
    // Of two for one name the later one is served, as if each had come by itself.
    let is_clash =
        |warning: &&CertificateWarning| matches!(warning, CertificateWarning::Clash { .. });
    for warning in indexed.warnings.iter().filter(|warning| !is_clash(warning)) {
        say(&format!("warning: {warning}"));
    }
    let mut problems: Vec<String> = indexed.errors.iter().map(ToString::to_string).collect();
    problems.extend(problems_in(&indexed.index, provider, |_| {}));
    match problems.is_empty() {
        true => Ok(indexed.index.iter().map(Arc::clone).collect()),
        false => Err(Refusal::Said(problems.join("\n"))),
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

fn unread(error: &io::Error) -> Refusal {
    Refusal::Said(format!("standard input: {error}; open it for reading"))
}

/// A stream of PEM, taken apart into chains with their keys.
///
/// What goes together is told by the order of sections: from a certificate on up to and with the
/// next key, or from a key on up to the next one. Files with both, in either order but all in the
/// same, may so be written one after the other.
pub(super) struct Bundles<R> {
    from: R,
    /// One byte longer than a text may be: whatever fills it is refused when it is parsed. It never
    /// moves, and is zeroed at the end, because it has held keys.
    held: Zeroizing<Vec<u8>>,
    /// What was read, and not given away.
    unread: Range<usize>,
    is_at_end: bool,
    /// The number of the line that `unread` begins with.
    line: u64,
}

/// A chain with its key, or what stands where they should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bundle<'a> {
    /// The number of its first line.
    pub(super) line: u64,
    pub(super) text: &'a [u8],
}

impl<R: Read> Bundles<R> {
    pub(super) fn new(from: R) -> Self {
        let held = Zeroizing::new(vec![0; PEM_BYTES_MAX + 1]);
        Self { from, held, unread: 0..0, is_at_end: false, line: 1 }
    }

    /// The next one; none at the end of the stream.
    pub(super) fn next(&mut self) -> io::Result<Option<Bundle<'_>>> {
        loop {
            let Range { start, end } = self.unread;
            let is_full = end - start == self.held.len();
            let whole = bundle_bytes(&self.held[start..end], self.is_at_end);
            if let Some(len) = whole.or(is_full.then_some(end - start)) {
                let (text, line) = (&self.held[start..start + len], self.line);
                self.unread.start += len;
                self.line += text.iter().filter(|byte| **byte == b'\n').count() as u64;
                return Ok(Some(Bundle { line, text }));
            }
            if self.is_at_end {
                return Ok(None);
            }
            self.held.copy_within(start..end, 0);
            self.unread = 0..end - start;
            let read = match self.from.read(&mut self.held[self.unread.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            self.unread.end += read;
            self.is_at_end = read == 0;
        }
    }
}

/// How much of `text` is the first bundle in it; none if more has to be read, or nothing is left.
fn bundle_bytes(text: &[u8], is_at_end: bool) -> Option<usize> {
    let (mut at, mut has_chain, mut has_key) = (0, false, false);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let is_whole = line.ends_with(b"\n") || is_at_end;
        match Mark::of(line).filter(|_| is_whole) {
            Some(Mark::KeyBegins) if has_key => return Some(at),
            Some(Mark::KeyBegins) => has_key = true,
            Some(Mark::KeyEnds) if has_chain => return Some(at + line.len()),
            Some(Mark::CertificateBegins) => has_chain = true,
            Some(Mark::KeyEnds) | None => {}
        }
        at += line.len();
    }
    // Whatever stands there is said to be none, unless it is nothing.
    (is_at_end && !text.trim_ascii().is_empty()).then_some(text.len())
}

/// A line that begins or ends a section.
enum Mark {
    CertificateBegins,
    KeyBegins,
    KeyEnds,
}

impl Mark {
    fn of(line: &[u8]) -> Option<Self> {
        let line = line.trim_ascii_end().strip_suffix(b"-----")?;
        let is_key = line.ends_with(b"PRIVATE KEY");
        if line == b"-----BEGIN CERTIFICATE" {
            Some(Self::CertificateBegins)
        } else if is_key && line.starts_with(b"-----BEGIN ") {
            Some(Self::KeyBegins)
        } else if is_key && line.starts_with(b"-----END ") {
            Some(Self::KeyEnds)
        } else {
            None
        }
    }
}

/// Bytes of text in one transaction, about: as much as is in memory at once.
const BATCH_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    const EC_KEY: &str = "-----BEGIN EC PARAMETERS-----\nAA\n-----END EC PARAMETERS-----\n\
        -----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";

    /// Gives away so many bytes at once.
    struct Slowly<'a>(&'a [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(to.len());
            self.0.read(&mut to[..most])
        }
    }

    /// The bundles of `text`, each with its first line, however much comes at once.
    fn bundles(text: &str) -> Vec<(u64, String)> {
        let found = [1, 7, 4096].map(|at_once| {
            let mut bundles = Bundles::new(Slowly(text.as_bytes(), at_once));
            let mut found = Vec::new();
            while let Some(Bundle { line, text }) = bundles.next().unwrap() {
                found.push((line, String::from_utf8(text.to_vec()).unwrap()));
            }
            found
        });
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        let [found, ..] = found;
        found
    }

    #[test]
    fn chains_and_keys_in_either_order_are_told_apart() {
        for one in [
            [CHAIN, KEY].concat(),
            [CHAIN, CHAIN, EC_KEY].concat(),
            [KEY, CHAIN, CHAIN].concat(),
            ["a comment\n", CHAIN, "another\n", KEY].concat(),
            [CHAIN, KEY].concat().replace('\n', "\r\n"),
        ] {
            let lines = one.lines().count() as u64;
            let found = bundles(&one.repeat(3));
            let expected = [1, 1 + lines, 1 + 2 * lines].map(|line| (line, one.clone()));
            assert_eq!(found, expected);
        }
        // Without the last end of line, and with empty lines behind it.
        assert_eq!(bundles([CHAIN, KEY].concat().trim_end()).len(), 1);
        assert_eq!(bundles(&[CHAIN, KEY, "\n \n"].concat()).len(), 1);
        assert_eq!(bundles("\n"), []);
    }

    #[test]
    fn what_is_cut_or_none_or_too_long_is_given_away_to_be_refused() {
        for rest in [CHAIN, &CHAIN[..40], &KEY[..10], "{}\n", &["no end ", CHAIN].concat()] {
            let text = [CHAIN, KEY, rest].concat();
            assert_eq!(bundles(&text)[1], (7, rest.to_owned()));
        }
        let long = CHAIN.repeat(PEM_BYTES_MAX / CHAIN.len() + 2);
        let mut bundles = Bundles::new(long.as_bytes());
        assert_eq!(bundles.next().unwrap().unwrap().text.len(), PEM_BYTES_MAX + 1);
    }
}
