//! `sealane certificates ... --socket PATH`: the store of a Sealane that runs, by its admin socket.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use sealane_engine::certificates::Certificate;
use sealane_store_requests::{Bundles, LIMIT_MAX, NAMES_MAX, ReadBack, Removed, Stored};
use sealane_traffic::http::encode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::output::{ListedReport, write_removed};
use super::stream::Input;
use super::{Progress, Refusal, STANDARD_INPUT, now_s, read_files, said, stream};
use crate::args::{ImportArguments, ListArguments, ReachArguments, RemoveArguments, ShowArguments};
use crate::commands::counted;
use crate::commands::running::{Answered, Running, printable_line};
use crate::exit::Exit;

/// The store of a Sealane that runs.
pub(super) struct Remote<'a> {
    running: Running<'a>,
    /// Which one, if it has several.
    store: Option<&'a Path>,
}

/// What Sealane says of itself beside what it was asked.
#[derive(Debug, Deserialize)]
struct Serving {
    lanes: usize,
    lanes_serving: usize,
    listeners: Vec<ListenerServing>,
    store: String,
}

/// What one of its listeners serves.
#[derive(Debug, Deserialize)]
struct ListenerServing {
    listener: String,
    serves: Option<Serves>,
}

/// What a client gets that asks for a name.
#[derive(Debug, Deserialize)]
struct Serves {
    from: String,
    leaves: Vec<String>,
}

impl<'a> Remote<'a> {
    /// The one that is asked for, if one is.
    pub(super) fn of(reach: &'a ReachArguments) -> Option<Self> {
        let socket = reach.socket.as_deref()?;
        Some(Self { running: Running { socket }, store: reach.store.as_deref() })
    }

    pub(super) fn import(
        &self,
        arguments: &ImportArguments,
        out: &mut dyn Write,
    ) -> Result<Exit, Refusal> {
        let is_stream = arguments.paths.iter().any(|path| path == STANDARD_INPUT);
        let answered = match is_stream {
            true => {
                stream::alone(arguments)?;
                let mut sent = SentStream::new(Input::open()?);
                self.put(&mut |to| sent.next(to))?
            }
            false => {
                let certificates = read_files(arguments)?;
                let mut sent = SentFiles::new(&certificates);
                self.put(&mut |to| Ok(sent.next(to)))?
            }
        };
        let Ok(stored) = answered.read::<Stored>() else { return Ok(refused(&answered)) };
        let serving: Serving = parsed(&answered)?;
        for warning in &stored.warnings {
            warn!("{}", printable_line(warning));
        }
        if arguments.json {
            write_json(&answered, out)?;
        } else {
            let Stored { added, replaced, unchanged, generation, .. } = stored;
            writeln!(
                out,
                "{} added, {replaced} replaced, {unchanged} unchanged; {}: generation \
                 {generation}, served by {} of {}",
                counted(added, "certificate"),
                printable_line(&serving.store),
                serving.lanes_serving,
                counted(serving.lanes as u64, "lane"),
            )?;
        }
        if stored.errors.is_empty() {
            return Ok(serving.exit());
        }
        let before = match stored.certificates() {
            0 => "nothing was imported".into(),
            before => format!(
                "{} before these were imported, and nothing from here on",
                counted(before, "certificate")
            ),
        };
        let errors: Vec<_> = stored.errors.iter().map(|line| printable_line(line)).collect();
        Err(Refusal::Said(format!("{before}:\n{}", errors.join("\n"))))
    }

    pub(super) fn list(
        &self,
        arguments: &ListArguments,
        out: &mut dyn Write,
    ) -> Result<Exit, Refusal> {
        let until_s = arguments.until_s(now_s());
        let mut after: Option<String> = None;
        loop {
            let mut query = format!("limit={LIMIT_MAX}");
            if let Some(after) = &after {
                query.push_str(&format!("&after={}", encode(after)));
            }
            let answered = self.running.show(&self.target(&query)).map_err(said)?;
            if let Some(exit) = answered.refused() {
                return Ok(exit);
            }
            let page: ReadBack = parsed(&answered)?;
            for certificate in &page.certificates {
                if until_s.is_some_and(|until_s| certificate.not_after_s > until_s) {
                    return Ok(Exit::Ok);
                }
                ListedReport::of_shown(certificate, now_s()).write_line(arguments.json, out)?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(Exit::Ok);
            }
        }
    }

    pub(super) fn show(
        &self,
        arguments: &ShowArguments,
        out: &mut dyn Write,
    ) -> Result<Exit, Refusal> {
        let query = format!("name={}", encode(&arguments.name));
        let answered = self.running.show(&self.target(&query)).map_err(said)?;
        let Ok(read) = answered.read::<ReadBack>() else { return Ok(refused(&answered)) };
        let serving: Serving = parsed(&answered)?;
        if read.certificates.is_empty() {
            let store = printable_line(&serving.store);
            let name = &arguments.name;
            return Err(Refusal::Said(format!("{store}: nothing is served for {name}")));
        }
        if arguments.json {
            write_json(&answered, out)?;
            return Ok(serving.exit());
        }
        for certificate in &read.certificates {
            ListedReport::of_shown(certificate, now_s()).write_whole(false, out)?;
        }
        let generation = read.generation;
        writeln!(
            out,
            "{:<14}{}, generation {generation}",
            "store",
            printable_line(&serving.store)
        )?;
        writeln!(out, "{:<14}{} of {}", "served by", serving.lanes_serving, {
            counted(serving.lanes as u64, "lane")
        })?;
        for ListenerServing { listener, serves } in &serving.listeners {
            let Some(Serves { from, leaves }) = serves else { continue };
            let [listener, from] = [listener, from].map(|text| printable_line(text));
            writeln!(out, "{listener:<13} from {from} {}", printable_line(&leaves.join(" ")))?;
        }
        Ok(serving.exit())
    }

    pub(super) fn remove(
        &self,
        arguments: &RemoveArguments,
        out: &mut dyn Write,
    ) -> Result<Exit, Refusal> {
        let (mut all, mut store) = (Removed::default(), String::new());
        let done = self.remove_all(&arguments.names, &mut all, &mut store);
        // What was removed before a refusal is removed.
        for warning in &all.warnings {
            info!("{}", printable_line(warning));
        }
        // Without an answer there is no store to speak of.
        let exit = match store.is_empty() {
            true => Exit::Failed,
            false => write_removed(&all, &printable_line(&store), out)?,
        };
        Ok(done?.unwrap_or(if all.warnings.is_empty() { exit } else { Exit::Failed }))
    }

    /// Removes names, a request after the other, and adds up what came of it; an exit if one was
    /// refused.
    fn remove_all(
        &self,
        names: &[String],
        all: &mut Removed,
        store: &mut String,
    ) -> Result<Option<Exit>, Refusal> {
        for query in queries(names) {
            let answered = self.running.order_by("DELETE", &self.target(&query)).map_err(said)?;
            let Ok(removed) = answered.read::<Removed>() else {
                return Ok(Some(refused(&answered)));
            };
            *store = parsed::<Serving>(&answered)?.store;
            all.removed_names += removed.removed_names;
            all.removed_certificates += removed.removed_certificates;
            all.covered.extend(removed.covered);
            all.unknown.extend(removed.unknown);
            all.warnings.extend(removed.warnings);
        }
        Ok(None)
    }

    fn put(
        &self,
        next: &mut dyn FnMut(&mut [u8]) -> Result<usize, Refusal>,
    ) -> Result<Answered, Refusal> {
        let mut refusal = None;
        let mut from = |to: &mut [u8]| {
            next(to).map_err(|refused| {
                refusal = Some(refused);
                io::Error::other("there is no more to send")
            })
        };
        let sent = self.running.send(&self.target(""), &mut from);
        match refusal {
            Some(refused) => Err(refused),
            None => sent.map_err(|error| {
                Refusal::Said(format!(
                    "{error}\nWhat it has stored is whole, in the store, and may be sent again."
                ))
            }),
        }
    }

    fn target(&self, query: &str) -> String {
        let store = self.store.map(|path| format!("store={}", encode(&path.to_string_lossy())));
        let parts: Vec<_> = store.iter().map(String::as_str).chain([query]).collect();
        format!("/certificates?{}", parts.join("&"))
    }
}

impl Serving {
    /// Whether all lanes serve what is in the store.
    fn exit(&self) -> Exit {
        if self.lanes_serving == self.lanes {
            return Exit::Ok;
        }
        info!("not all lanes serve it yet; see: sealane status");
        Exit::Failed
    }
}

/// Standard input on its way.
struct SentStream {
    /// What tells how many certificates have been sent.
    bundles: Bundles,
    input: Input,
    progress: Progress,
}

impl SentStream {
    fn new(input: Input) -> Self {
        Self { bundles: Bundles::default(), input, progress: Progress::new("sent", None) }
    }

    fn next(&mut self, to: &mut [u8]) -> Result<usize, Refusal> {
        let count = self.input.read(to)?;
        let mut left = &to[..count];
        let mut whole = 0;
        while !left.is_empty() {
            let space = self.bundles.space();
            let (part, later) = left.split_at(left.len().min(space.len()));
            space[..part.len()].copy_from_slice(part);
            self.bundles.filled(part.len());
            left = later;
            while self.bundles.next().is_some() {
                whole += 1;
            }
        }
        self.progress.step_of(whole, self.input.share());
        Ok(count)
    }
}

/// Certificates that were read from files on their way.
struct SentFiles<'c> {
    left: std::slice::Iter<'c, Arc<Certificate>>,
    progress: Progress,
    text: Zeroizing<Vec<u8>>,
    /// How much of the text was sent.
    sent: usize,
}

impl<'c> SentFiles<'c> {
    fn new(certificates: &'c [Arc<Certificate>]) -> Self {
        let progress = Progress::new("sent", Some(certificates.len() as u64));
        Self { left: certificates.iter(), progress, text: Zeroizing::default(), sent: 0 }
    }

    fn next(&mut self, to: &mut [u8]) -> usize {
        if self.sent == self.text.len() {
            let Some(certificate) = self.left.next() else { return 0 };
            self.text = sealane_store::pem_text(certificate.chain(), Some(certificate.key()));
            self.sent = 0;
            self.progress.step(1);
        }
        let count = to.len().min(self.text.len() - self.sent);
        to[..count].copy_from_slice(&self.text[self.sent..self.sent + count]);
        self.sent += count;
        count
    }
}

/// Parameters that name all of them, in requests that are not too long.
fn queries(names: &[String]) -> Vec<String> {
    let (mut queries, mut count) = (vec![String::new()], 0);
    for name in names {
        let parameter = format!("name={}", encode(name));
        let is_full = queries.last().is_some_and(|query| {
            count == NAMES_MAX || query.len() + parameter.len() > QUERY_BYTES_MAX
        });
        if is_full {
            queries.push(String::new());
            count = 0;
        }
        if let Some(query) = queries.last_mut() {
            query.push_str(if query.is_empty() { "" } else { "&" });
            query.push_str(&parameter);
            count += 1;
        }
    }
    queries
}

fn parsed<T: DeserializeOwned>(answered: &Answered) -> Result<T, Refusal> {
    answered.read().map_err(|error| {
        Refusal::Said(format!("an answer of another version of Sealane: {error}; use the same"))
    })
}

/// What the command comes to where the answer is none of this program's.
fn refused(answered: &Answered) -> Exit {
    answered.refused().unwrap_or(Exit::Failed)
}

fn write_json(answered: &Answered, out: &mut dyn Write) -> Result<(), Refusal> {
    let value: Value = parsed(answered)?;
    Ok(writeln!(out, "{value}")?)
}

/// Bytes of names in one request: its head has 8 KiB.
const QUERY_BYTES_MAX: usize = 6 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_into_as_many_requests_as_they_need() {
        let names: Vec<String> = (0..250).map(|n| format!("n{n}.test")).collect();
        let made = queries(&names);
        assert_eq!(made.len(), 3);
        assert!(made[0].starts_with("name=n0.test&name=n1.test&"), "{}", made[0]);
        assert_eq!(made.join("&").split('&').count(), 250);
        let long: Vec<String> = (0..100).map(|n| format!("n{n}.{}", "x".repeat(240))).collect();
        let made = queries(&long);
        assert!(made.len() > 3 && made.iter().all(|query| query.len() <= QUERY_BYTES_MAX));
        assert_eq!(made.join("&").split('&').count(), 100);
    }
}
