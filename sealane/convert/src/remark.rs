//! Comments about lines of the file that is converted: [`Remark`], of a [`Line`].

use std::fmt::Display;
use std::path::Path;
use std::rc::Rc;

/// A line of a file, or a statement that begins on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line {
    pub(super) file: Rc<Path>,
    /// Counted from 1.
    pub(super) number: usize,
    /// The beginning of a long one: each remark has a copy. Empty where it is not quoted.
    pub(super) text: String,
}

impl Line {
    /// A line of a file with its text, or the beginning of it.
    pub(super) fn new(file: &Rc<Path>, number: usize, text: &str) -> Self {
        let text = text.trim();
        let end = text.char_indices().nth(LINE_CHARS_MAX).map_or(text.len(), |(at, _)| at);
        Self { file: Rc::clone(file), number, text: text[..end].to_owned() }
    }
}

/// A comment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Remark {
    /// The key that it is written above, with the tables below the listener: `clients.roots`. If
    /// that is not written, it is at the head of its listener.
    pub(super) key: &'static str,
    /// `None` for a default of the file's program.
    pub(super) line: Option<Line>,
    /// Whether something was not carried over.
    pub(super) is_loss: bool,
    /// The reason, and the remedy.
    pub(super) text: String,
}

/// Comments in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remarks(pub(super) Vec<Remark>);

impl Remarks {
    /// Reports a line, or a part of one, that was not carried over.
    pub(super) fn left_out(&mut self, line: &Line, key: &'static str, why: impl Into<String>) {
        let line = Some(line.clone());
        self.0.push(Remark { key, line, is_loss: true, text: why.into() });
    }

    /// Reports a line with an unknown first word as not carried over. The file may be any file,
    /// also one with secrets, so the line is not quoted.
    pub(super) fn unknown(&mut self, line: &Line, key: &'static str, program: &str) {
        self.unquoted(line, key, unknown(program));
    }

    /// Reports a line that was not carried over, without quoting it.
    pub(super) fn unquoted(&mut self, line: &Line, key: &'static str, why: impl Into<String>) {
        self.left_out(&Line { text: String::new(), ..line.clone() }, key, why);
    }

    /// Reports a rule about access that was not carried over, so clients that it rejects are
    /// admitted. Every such rule is reported here: no result admits more clients silently.
    pub(super) fn admits_more(&mut self, line: &Line, key: &'static str, why: impl Display) {
        self.left_out(line, key, format!("{ADMITS_MORE}: {why}"));
    }

    /// Whether a rule about access was not carried over.
    pub(super) fn has_more_clients(&self) -> bool {
        self.0.iter().any(|remark| remark.text.starts_with(ADMITS_MORE))
    }

    /// Adds a remark about a line that was carried over.
    pub(super) fn note(&mut self, line: &Line, key: &'static str, text: impl Into<String>) {
        let line = Some(line.clone());
        self.0.push(Remark { key, line, is_loss: false, text: text.into() });
    }

    /// Adds a remark about a default of the file's program.
    pub(super) fn about_default(&mut self, key: &'static str, text: impl Into<String>) {
        self.0.push(Remark { key, line: None, is_loss: false, text: text.into() });
    }
}

/// The beginning of a remark about access.
const ADMITS_MORE: &str = "admits more clients than the original";
/// Characters of a line that remarks have; fewer are shown.
const LINE_CHARS_MAX: usize = 400;

/// The remark about a word that is in no table of a dialect.
pub(super) fn unknown(program: &str) -> String {
    format!("not known to this converter; if {program} has it, docs/moving.md may say more")
}

/// The remark for a listener at which any client may set its address by a PROXY header.
pub(super) fn believes_everybody(program: &str) -> String {
    format!("everybody is believed, as {program} does; better name the networks of your balancers")
}

/// The remark for certificates of clients that are asked for and not required.
pub(super) const ASKED: &str = "a client whose certificate is bad is let in here, and the PROXY \
                                header tells that; say \"required\" where nobody comes without one";
/// The remark about wildcards that match names of any depth.
pub(super) const ONE_LABEL: &str = "a wildcard stands for one label: name others";

/// Reports why words were left out, once for all words with the same reason.
pub(super) fn tell_by_reason(
    words: &[String],
    key: &'static str,
    line: &Line,
    remarks: &mut Remarks,
    reason: impl Fn(&str) -> String,
) {
    let mut by_reason: Vec<(String, Vec<&str>)> = Vec::new();
    for word in words {
        let why = reason(word);
        match by_reason.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(word),
            None => by_reason.push((why, vec![word])),
        }
    }
    for (why, names) in by_reason {
        let more = if names.len() > WORDS_SHOWN_MAX { " and more" } else { "" };
        let names = names[..names.len().min(WORDS_SHOWN_MAX)].join(", ");
        remarks.left_out(line, key, format!("{names}{more}: {why}"));
    }
}

/// Words of a line that a remark repeats.
const WORDS_SHOWN_MAX: usize = 16;
