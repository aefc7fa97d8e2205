//! The text that is being read: where its lines begin, and what is wrong with it so far.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

use toml::de::DeTable;

use super::unknown::Unknown;
use crate::mistake::{Mistake, Place, Problem};

/// The text of a file, its syntax errors, and the mistakes found so far.
pub(crate) struct Document<'t> {
    pub(crate) file: &'t Path,
    pub(crate) has_syntax_errors: bool,
    /// The keys that are known above the first table, once they have been read.
    pub(crate) keys_of_file: RefCell<Rc<[&'static str]>>,
    line_starts: Vec<usize>,
    mistakes: RefCell<Vec<Mistake>>,
    omitted: Cell<usize>,
    syntax_error_lines: Vec<usize>,
    unknown: RefCell<Vec<Unknown>>,
    pub(crate) text: &'t str,
}

impl<'t> Document<'t> {
    pub(crate) fn new(file: &'t Path, text: &'t str, syntax_errors: &[toml::de::Error]) -> Self {
        let line_ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(line_ends.map(|(end, _)| end + 1)).collect();
        let mut document = Self {
            file,
            has_syntax_errors: !syntax_errors.is_empty(),
            keys_of_file: RefCell::default(),
            line_starts,
            mistakes: RefCell::default(),
            omitted: Cell::new(0),
            syntax_error_lines: Vec::new(),
            unknown: RefCell::default(),
            text,
        };
        for error in syntax_errors {
            let offset = error.span().map_or(text.len(), |span| span.start);
            let (line, _) = document.line_and_column(offset);
            // The parser stumbles on over the rest of a broken line; its first word counts.
            if !document.syntax_error_lines.contains(&line) {
                document.note(offset, String::new(), syntax_problem(error.message()));
                document.syntax_error_lines.push(line);
            }
        }
        document
    }

    pub(crate) fn note(&self, offset: usize, field: String, problem: Problem) {
        let (line, column) = self.line_and_column(offset);
        if self.syntax_error_lines.contains(&line) {
            return;
        }
        let mut mistakes = self.mistakes.borrow_mut();
        if mistakes.len() >= MISTAKES_MAX {
            self.omitted.set(self.omitted.get() + 1);
            return;
        }
        let place = Place { line: Some(line), column: Some(column), ..Place::whole(self.file) };
        mistakes.push(Mistake { place: Some(place), field, problem });
    }

    /// Notes a key. Its message depends on the rest of the file.
    pub(crate) fn note_unknown(&self, key: Unknown) {
        let mut unknown = self.unknown.borrow_mut();
        if unknown.len() < MISTAKES_MAX {
            unknown.push(key);
        } else {
            self.omitted.set(self.omitted.get() + 1);
        }
    }

    pub(crate) fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= offset).max(1);
        let start = self.line_starts.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..offset).unwrap_or_default();
        (line, before.chars().count() + 1)
    }

    /// Whether the last header of a table above `offset` is broken, so that the parser has taken
    /// the keys below it for those of another table.
    pub(crate) fn is_below_broken_header(&self, offset: usize) -> bool {
        let (line, _) = self.line_and_column(offset);
        let above = self.text.lines().take(line).enumerate();
        let headers = above.filter(|(_, text)| text.trim_start().starts_with('['));
        headers.last().is_some_and(|(index, _)| self.syntax_error_lines.contains(&(index + 1)))
    }

    /// All mistakes. `page` explains the keys.
    pub(crate) fn into_mistakes(self, page: &str) -> Vec<Mistake> {
        let keys_of_file = self.keys_of_file.take();
        for key in self.unknown.take() {
            // The table that it belongs to is not known.
            if self.is_below_broken_header(key.offset) {
                continue;
            }
            self.note(key.offset, key.field(), key.problem(&keys_of_file, page));
        }
        let mut mistakes = self.mistakes.into_inner();
        mistakes.sort_by(|a, b| a.place.cmp(&b.place));
        if self.omitted.get() > 0 {
            let what = format!("{} more mistakes are not shown", self.omitted.get());
            let problem = Problem::new(what, "correct these first");
            let place = Some(Place::whole(self.file));
            mistakes.push(Mistake { place, field: String::new(), problem });
        }
        mistakes
    }
}

/// Blanks lines that have a key but no value, because the parser skips all that follows them.
/// Every position stays what it was.
pub(crate) fn without_keys_alone(text: &str) -> (Cow<'_, str>, Vec<toml::de::Error>) {
    let mut readable = Cow::Borrowed(text);
    let mut found = Vec::new();
    for _ in 0..KEYS_ALONE_MAX {
        let (_, errors) = DeTable::parse_recoverable(&readable);
        let alone = errors.into_iter().find(|error| error.message().starts_with(KEY_ALONE));
        let Some((offset, error)) = alone.and_then(|error| Some((error.span()?.start, error)))
        else {
            break;
        };
        let (before, rest) = readable.split_at(readable.floor_char_boundary(offset));
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = offset + rest.find('\n').unwrap_or(rest.len());
        let blank = " ".repeat(end - start);
        readable = format!("{}{blank}{}", &readable[..start], &readable[end..]).into();
        found.push(error);
    }
    (readable, found)
}

fn syntax_problem(message: &str) -> Problem {
    let remedy = match message {
        "duplicate key" => "keep one of the two",
        _ => "write KEY = VALUE, text in \"quotes\", lists in [brackets], tables as [NAME]",
    };
    Problem::new(message, remedy)
}

/// Mistakes that are reported for one file.
pub(crate) const MISTAKES_MAX: usize = 100;

/// How the parser's message begins.
const KEY_ALONE: &str = "key with no value";

/// Lines with a key alone that are passed over: each costs another parse.
const KEYS_ALONE_MAX: usize = 20;
