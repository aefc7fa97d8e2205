//! What people know about the lines that recordings name: [`Notes`], written in `findings.toml`.
//!
//! A note is tied to what was recorded, not to a stack's reputation: where no recording names its
//! line any more, it is [`stale`](Notes::stale), and the page says so instead of repeating it.

use std::ptr;

use sealane_lab_model::{
    document::{Finding, HotLine},
    error::Error,
};
use serde::Deserialize;

/// All of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Notes {
    /// What stacks are called in sentences.
    #[serde(rename = "stack")]
    pub(crate) stacks: Vec<Stack>,
    /// About lines; the first that fits one is taken.
    #[serde(rename = "note")]
    pub(crate) notes: Vec<Note>,
    /// About what the kernel has for several threads.
    #[serde(default, rename = "kernel")]
    objects: Vec<KernelNote>,
    /// What servers are whose version does not tell it.
    #[serde(default, rename = "server")]
    servers: Vec<ServerNote>,
    /// Changes to a stack, told so that its authors could make them.
    #[serde(rename = "change")]
    pub(crate) changes: Vec<Change>,
}

/// A stack in words.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stack {
    /// The stack, as in [`Finding::stack`].
    name: String,
    /// The stack's name, as its authors call it.
    pub(crate) title: String,
    /// What is to be known of it whatever was recorded; may be empty.
    #[serde(default)]
    pub(crate) about: String,
}

/// What is known of one line.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    /// The stacks that it is true of.
    stacks: Vec<String>,
    /// Part of the line's symbol.
    symbol: String,
    /// Part of the name of a function on a call path that writes the line; empty for any. What lies
    /// on the heap is named by who writes it, which may be the same for many things.
    #[serde(default)]
    on_path: String,
    /// The thing itself, in a few words.
    pub(crate) culprit: String,
    /// When a handshake comes there.
    pub(crate) taken: String,
    /// What would remove it.
    pub(crate) removal: String,
    /// Where its authors speak of it: `owner/project#number`, or a version.
    #[serde(default)]
    pub(crate) told_in: Vec<String>,
}

/// What is known of one kind of object in the kernel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelNote {
    /// The object, as in [`KernelRow::object`](sealane_lab_model::document::KernelRow::object).
    object: String,
    /// The thing itself, in a few words.
    pub(crate) culprit: String,
    /// When a connection comes there.
    pub(crate) taken: String,
    /// Where somebody speaks of it: `owner/project#number`.
    #[serde(default)]
    pub(crate) told_in: Vec<String>,
}

/// What a server is that was counted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerNote {
    /// The server, as in
    /// [`KernelLedger::server`](sealane_lab_model::document::KernelLedger::server).
    name: String,
    /// In a few words.
    pub(crate) title: String,
}

/// A change that would remove a line.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    /// The stack whose recording it is about.
    pub(crate) stack: String,
    /// What it would bring.
    pub(crate) title: String,
    /// Symbols of the lines that it removes: each must be recorded.
    pub(crate) symbols: Vec<String>,
    /// In the order of reading.
    #[serde(rename = "part")]
    pub(crate) parts: Vec<ChangePart>,
}

/// A paragraph or several under one head.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangePart {
    /// The part's head.
    pub(crate) head: String,
    /// Paragraphs, with an empty line between them.
    pub(crate) text: String,
    /// Behind the text; empty if there is none.
    #[serde(default)]
    pub(crate) code: String,
}

impl Notes {
    /// Those that come with the lab.
    ///
    /// # Errors
    /// The file is not what this program reads; a test sees to it that it is.
    pub(crate) fn own() -> Result<Self, Error> {
        Self::parse(OWN)
    }

    fn parse(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| Error::Document {
            file: "findings.toml".into(),
            reason: error.to_string(),
        })
    }

    /// The changes to stacks of which there are `findings`.
    pub(crate) fn changes_of(&self, findings: &[Finding]) -> impl Iterator<Item = &Change> {
        let is_recorded = |change: &&Change| findings.iter().any(|it| it.stack == change.stack);
        self.changes.iter().filter(is_recorded)
    }

    /// What is known of `line`, recorded of `stack`.
    pub(crate) fn about(&self, stack: &str, line: &HotLine) -> Option<&Note> {
        self.notes.iter().find(|note| note.fits(stack, line))
    }

    /// The words for a stack; a stack without any is called by its name.
    pub(crate) fn stack(&self, name: &str) -> Option<&Stack> {
        self.stacks.iter().find(|stack| stack.name == name)
    }

    /// What is known of that kind of object in the kernel.
    pub(crate) fn object(&self, object: &str) -> Option<&KernelNote> {
        self.objects.iter().find(|note| note.object == object)
    }

    /// What is to be known of a server that was counted, beside what it tells itself.
    pub(crate) fn server(&self, name: &str) -> Option<&ServerNote> {
        self.servers.iter().find(|note| note.name == name)
    }

    /// What no recording bears out, in words: notes about a stack of which there is a recording,
    /// none of which names the line.
    pub(crate) fn stale(&self, findings: &[Finding]) -> Vec<String> {
        let lines = |stack: &str| -> Vec<&HotLine> {
            let of = findings.iter().filter(|finding| finding.stack == stack);
            of.flat_map(|finding| &finding.hottest).collect()
        };
        let is_recorded = |stack: &&String| findings.iter().any(|of| of.stack == **stack);
        let mut stale = Vec::new();
        for note in &self.notes {
            for stack in note.stacks.iter().filter(is_recorded) {
                let is_it = |line: &&HotLine| {
                    self.about(stack, line).is_some_and(|known| ptr::eq(known, note))
                };
                if !lines(stack).iter().any(is_it) {
                    stale.push(format!(
                        "no recording of {stack} has {} among its busiest lines: what was known \
                         of it is left out",
                        note.line()
                    ));
                }
            }
        }
        for change in self.changes_of(findings) {
            let lines = lines(&change.stack);
            for symbol in &change.symbols {
                if !lines.iter().any(|line| line.symbol.contains(symbol.as_str())) {
                    stale.push(format!(
                        "no recording of {} names {symbol}, which a change would remove",
                        change.stack
                    ));
                }
            }
        }
        stale
    }
}

impl Note {
    /// What a recording must have for it.
    fn line(&self) -> String {
        match self.on_path.as_str() {
            "" => format!("`{}`", self.symbol),
            path => format!("`{}` with `{path}` on a path", self.symbol),
        }
    }

    fn fits(&self, stack: &str, line: &HotLine) -> bool {
        let mut functions = line.sites.iter().flat_map(|site| &site.path);
        self.stacks.iter().any(|name| name == stack)
            && line.symbol.contains(&self.symbol)
            && (self.on_path.is_empty() || functions.any(|name| name.contains(&self.on_path)))
    }
}

const OWN: &str = include_str!("../../../../findings.toml");

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use sealane_lab_model::{
        document::{Run, Site},
        words::kernel::objects,
    };

    use super::*;
    use crate::page::findings::told::{self, Side};

    const NOTES: &str = r#"
        stack = []
        change = []
        [[note]]
        stacks = ["a", "b"]
        symbol = "namemap"
        culprit = "the name map"
        taken = "always"
        removal = "a table without a lock"
        [[note]]
        stacks = ["a"]
        symbol = "counter"
        culprit = "the counter"
        taken = "always"
        removal = "none"
    "#;

    fn line(symbol: &str) -> HotLine {
        HotLine { symbol: symbol.into(), ..HotLine::default() }
    }

    fn finding(stack: &str, hottest: Vec<HotLine>) -> Finding {
        Finding { stack: stack.into(), hottest, ..Finding::default() }
    }

    #[test]
    fn a_note_is_tied_to_what_was_recorded_of_its_own_stacks() {
        let notes = Notes::parse(NOTES).expect("valid");
        let about = |stack: &str, line: &HotLine| {
            notes.about(stack, line).map(|note| note.culprit.clone()).unwrap_or_default()
        };
        let lookup = line("lock taken by ossl_namemap_name2num");
        assert_eq!(about("a", &lookup), "the name map");
        assert_eq!(about("c", &lookup), "", "another stack");
        assert_eq!(about("a", &line("the counter of all")), "the counter");
        assert_eq!(about("b", &line("the counter of all")), "", "not known of it");
    }

    #[test]
    fn a_note_that_no_recording_bears_out_is_named() {
        let notes = Notes::parse(NOTES).expect("valid");
        let lookup = line("lock taken by ossl_namemap_name2num");
        let findings = [finding("a", vec![lookup])];
        let stale = notes.stale(&findings);
        // Of the stack b nothing is recorded, so nothing is known to be wrong.
        assert_eq!(stale.len(), 1, "{stale:?}");
        assert!(stale[0].contains("no recording of a has `counter`"), "{stale:?}");
    }

    #[test]
    fn what_has_no_name_of_its_own_is_known_by_the_paths_that_write_it() {
        let notes = NOTES.replace("symbol = \"counter\"", "symbol = \"lock\"\non_path = \"seal\"");
        let notes = Notes::parse(&notes).expect("valid");
        let taken = |outer: &str| HotLine {
            sites: vec![Site { path: vec!["lock".into(), outer.into()], ..Site::default() }],
            ..line("lock taken by lock")
        };
        assert!(notes.about("a", &taken("a::seal_ticket")).is_some());
        assert!(notes.about("a", &taken("a::open")).is_none(), "another lock");
        let stale = notes.stale(&[finding("a", vec![taken("a::open")])]);
        assert!(stale.iter().any(|told| told.contains("`lock` with `seal`")), "{stale:?}");
    }

    /// A document as committed.
    fn read(name: &str) -> Run {
        let text = fs::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(name))
            .expect("a document");
        serde_json::from_slice(&text).expect("a run")
    }

    /// Findings as committed: the busiest line of each side has a note, and no note is without
    /// its line.
    #[test]
    fn every_busiest_line_that_is_recorded_is_explained() {
        let notes = Notes::own().expect("valid");
        let findings = read("recordings/findings.json").findings;
        assert!(findings.len() >= 20, "{}", findings.len());
        for finding in &findings {
            for side in [Side::Server, Side::Client] {
                let Some(line) = told::busiest(finding, side) else { continue };
                let about = notes.about(&finding.stack, line);
                assert!(about.is_some(), "{}, {side:?}: {line:#?}", finding.stack);
                assert!(!line.symbol.contains("_Z"), "{}", line.symbol);
            }
        }
        assert_eq!(notes.stale(&findings), Vec::<String>::new());
    }

    /// Ledgers as committed have every kind of object, and every server that a note is about.
    #[test]
    fn every_object_of_the_kernel_is_explained_and_every_server_was_counted() {
        let notes = Notes::own().expect("valid");
        let ledgers = read("results/kernel.json").kernel_ledgers;
        let objects = objects(ledgers.iter());
        assert_eq!(objects.len(), notes.objects.len(), "{objects:?}");
        for object in objects {
            assert!(notes.object(object).is_some(), "{object}");
        }
        for note in &notes.servers {
            assert!(ledgers.iter().any(|ledger| ledger.server == note.name), "{}", note.name);
        }
    }

    #[test]
    fn the_labs_own_notes_can_be_read_and_name_what_they_are_about() {
        let notes = Notes::own().expect("valid");
        for note in &notes.notes {
            assert!(!note.symbol.is_empty(), "{note:?}");
            for stack in &note.stacks {
                assert!(notes.stack(stack).is_some(), "{stack} has no title");
            }
        }
        let changed: Vec<&str> = notes.changes.iter().map(|change| &*change.stack).collect();
        assert_eq!(changed, ["aws-lc"]);
    }
}
