//! Walks a TOML file and collects every mistake in it, each with its line and column.
//!
//! [`read`] hands out the top [`Table`]; tables hand out [`Value`]s by key, and values turn into
//! Rust's. What cannot be turned is noted and becomes `None`, and the walk goes on. An unknown key
//! is a mistake too: one that is not in the table's [`Group`].

mod declared;
mod document;
mod search;
#[cfg(test)]
mod tests;
mod unknown;

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::key::{FileKeys, Group, Key, Kind, Or, Shown, TableKind, Typed};
use crate::mistake::{Mistake, Place, Problem};
use crate::value;
use document::{Document, without_keys_alone};
use unknown::{Unknown, closest};

pub use search::written_at;

/// Reads `text`, the contents of `file`, which has `keys`, with `walk`.
///
/// Returns what `walk` made of what is in order, and every mistake. `walk` returns `None` only
/// after a mistake.
pub fn read<T>(
    file: &Path,
    text: &str,
    keys: &FileKeys,
    walk: impl FnOnce(&Table<'_>) -> Option<T>,
) -> (Option<T>, Vec<Mistake>) {
    let (readable, mut syntax_errors) = without_keys_alone(text);
    let (root, other_errors) = DeTable::parse_recoverable(&readable);
    syntax_errors.extend(other_errors);
    let document = Document::new(file, text, &syntax_errors);
    let top = Table {
        document: &document,
        entries: root.get_ref(),
        field: String::new(),
        group: keys.top,
        span: 0..0,
    };
    let result = top.walk(walk);
    (result, document.into_mistakes(keys.page))
}

/// A kind whose values are read without further checks.
pub trait Readable: Typed {
    /// The value, if it is in order.
    fn read(&self, written: &Value<'_>) -> Option<Self::Output>;
}

/// A table of the file that is being read.
pub struct Table<'d> {
    document: &'d Document<'d>,
    entries: &'d DeTable<'d>,
    field: String,
    group: &'static Group,
    span: Range<usize>,
}

impl<'d> Table<'d> {
    /// The value of `key`, if it is there.
    pub fn value<K: Kind + ?Sized>(&self, key: &'static Key<K>) -> Option<Value<'d>> {
        self.value_of(key.name)
    }

    /// Whether it has the key of this name.
    pub fn has(&self, key: &'static str) -> bool {
        self.value_of(key).is_some()
    }

    fn value_of(&self, key: &'static str) -> Option<Value<'d>> {
        debug_assert!(self.group.has(key), "[{}] declares no {key}", self.group.path);
        let (_, value) = self.entries.get_key_value(key)?;
        Some(Value {
            document: self.document,
            field: self.field_of(key),
            span: value.span(),
            value: value.get_ref(),
        })
    }

    /// The value of a key as its declaration reads it, if it is there and in order.
    pub fn read<K: Readable>(&self, key: &'static Key<K>) -> Option<K::Output> {
        key.read(&self.value(key)?)
    }

    /// The value of a key, or its default.
    pub fn get<K: Readable + Shown>(&self, key: &'static Key<Or<K>>) -> K::Output
    where
        K::Output: Clone + Sync,
    {
        self.read(key).unwrap_or_else(|| key.default())
    }

    /// Notes that these keys, where they are written, mean nothing here.
    pub fn refuse(&self, keys: &[&'static str], what: &str, remedy: &str) {
        for key in keys {
            if let Some(value) = self.value_of(key) {
                value.wrong(Problem::new(what, remedy));
            }
        }
    }

    /// The value of `key`; that it is missing is a mistake, with an example as the remedy.
    pub fn required<K: Kind + ?Sized>(
        &self,
        key: &'static Key<K>,
        example: &str,
    ) -> Option<Value<'d>> {
        let value = self.value(key);
        // A broken line above may be the missing one: then only the broken line is reported.
        if value.is_none() && !self.document.has_syntax_errors {
            let what = match self.field.is_empty() {
                true => "is missing".to_owned(),
                false => format!("is missing from [{}]", self.field),
            };
            let problem = Problem::new(what, format!("add {example}"));
            self.document.note(self.span.start, self.field_of(key.name), problem);
        }
        value
    }

    /// The result of `walk` for the table `key` with the keys of its group, if it is there.
    pub fn subtable<T>(
        &self,
        key: &'static Key<TableKind>,
        walk: impl FnOnce(&Table<'d>) -> Option<T>,
    ) -> Option<T> {
        self.value(key)?.table(key.kind.0, walk)
    }

    /// Hands the table to `walk` and then notes the keys that are unknown.
    fn walk<T>(&self, walk: impl FnOnce(&Self) -> Option<T>) -> Option<T> {
        let result = walk(self);
        self.note_unknown_keys();
        result
    }

    fn field_of(&self, key: &str) -> String {
        match self.field.is_empty() {
            true => key.to_owned(),
            false => format!("{}.{key}", self.field),
        }
    }

    fn note_unknown_keys(&self) {
        let known: Rc<[&'static str]> = self.group.all().map(|key| key.name).collect();
        if self.field.is_empty() {
            self.document.keys_of_file.replace(Rc::clone(&known));
            if self.refuse_foreign_file(&known) {
                return;
            }
        }
        for key in self.entries.keys().filter(|key| !known.contains(&&**key.get_ref())) {
            self.document.note_unknown(Unknown {
                around: self.field.clone(),
                group: self.group,
                key: key.get_ref().to_string(),
                known: Rc::clone(&known),
                offset: key.span().start,
            });
        }
    }

    /// Notes a file without a single key that is known, or nearly so. It may be any file, also one
    /// with secrets, so none of its keys is quoted. Returns whether it is one.
    fn refuse_foreign_file(&self, known: &[&'static str]) -> bool {
        let is_meant = |key: &str| known.contains(&key) || closest(key, known).is_some();
        let starts = self.entries.keys().map(|key| key.span().start);
        let Some(first) = starts.min() else { return false };
        if self.entries.keys().any(|key| is_meant(key.get_ref())) {
            return false;
        }
        // The table of its keys is not known where the header is broken, and that is noted.
        if !self.document.is_below_broken_header(first) {
            self.document.note(first, String::new(), Problem::new(FOREIGN, FOREIGN_REMEDY));
        }
        true
    }
}

/// A value of the file that is being read.
#[derive(Clone)]
pub struct Value<'d> {
    document: &'d Document<'d>,
    field: String,
    span: Range<usize>,
    value: &'d DeValue<'d>,
}

impl<'d> Value<'d> {
    /// Notes that this value is wrong.
    pub fn wrong(&self, problem: Problem) {
        self.document.note(self.span.start, self.field.clone(), problem);
    }

    /// Where it stands, for messages about another place.
    pub fn place(&self) -> Place {
        let (line, column) = self.document.line_and_column(self.span.start);
        let file = Place::whole(self.document.file);
        Place { line: Some(line), column: Some(column), ..file }
    }

    /// Text as `parse` reads it.
    pub fn parsed<T>(&self, parse: impl FnOnce(&str) -> Result<T, Problem>) -> Option<T> {
        let text = self.text("write it in quotes")?;
        parse(text).map_err(|problem| self.wrong(problem)).ok()
    }

    /// A path; a relative one starts at the directory of the file that is being read.
    pub fn path(&self) -> Option<PathBuf> {
        self.path_of(self.text("write it in quotes")?)
    }

    /// The path `text`, which is a part of this value.
    pub fn path_of(&self, text: &str) -> Option<PathBuf> {
        let base = self.document.file.parent().unwrap_or(Path::new(""));
        value::path(text, base).map_err(|problem| self.wrong(problem)).ok()
    }

    /// The text, if it is one; nothing is noted.
    pub fn as_text(&self) -> Option<&'d str> {
        self.value.as_str()
    }

    /// One of `choices`, by name.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<_> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
        let remedy = format!("choose {}", names.join(" or "));
        let text = self.text(&remedy)?;
        if let Some((_, chosen)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*chosen);
        }
        self.wrong(Problem::new(format!("{text:?} is not a choice"), remedy));
        None
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        self.value.as_bool().or_else(|| self.wrong_type("true or false", "write it without quotes"))
    }

    /// A whole number within `range`.
    pub fn count(&self, range: RangeInclusive<usize>) -> Option<usize> {
        let Some(integer) = self.value.as_integer() else {
            return self.wrong_type("a whole number", "write digits only, without quotes");
        };
        // What does not fit in 128 bits is out of range as well.
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i128::MAX);
        match usize::try_from(number) {
            Ok(number) if range.contains(&number) => Some(number),
            _ => {
                let what = format!("{} is out of range", self.source_text());
                let remedy = format!("choose {} to {}", range.start(), range.end());
                self.wrong(Problem::new(what, remedy));
                None
            }
        }
    }

    /// A duration within `range`.
    pub fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let text = self.text("write it in quotes with a unit, such as \"10s\"")?;
        let duration = value::duration(text).map_err(|problem| self.wrong(problem)).ok()?;
        if range.contains(&duration) {
            return Some(duration);
        }
        let (low, high) =
            (value::duration_text(*range.start()), value::duration_text(*range.end()));
        let remedy = format!("choose \"{low}\" to \"{high}\"");
        self.wrong(Problem::new(format!("{text:?} is out of range"), remedy));
        None
    }

    /// A size within `range`.
    pub fn size_bytes(&self, range: RangeInclusive<usize>) -> Option<usize> {
        let text = self.text("write it in quotes with a unit, such as \"16KiB\"")?;
        let bytes = value::size_bytes(text).map_err(|problem| self.wrong(problem)).ok()?;
        match usize::try_from(bytes) {
            Ok(bytes) if range.contains(&bytes) => Some(bytes),
            _ => {
                let (low, high) = (*range.start() as u64, *range.end() as u64);
                let (low, high) = (value::size_text(low), value::size_text(high));
                let remedy = format!("choose \"{low}\" to \"{high}\"");
                self.wrong(Problem::new(format!("{text:?} is out of range"), remedy));
                None
            }
        }
    }

    /// What `element` makes of each element of a list, at least one and at most `length_max`.
    /// Mistaken elements are left out.
    pub fn list<T>(
        &self,
        length_max: usize,
        mut element: impl FnMut(Value<'d>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(elements) = self.value.as_array() else {
            return self.wrong_type("a list", "write it in brackets: [...]");
        };
        if elements.is_empty() {
            self.wrong(Problem::new("the list is empty", "write at least one or remove the key"));
            return None;
        }
        if elements.len() > length_max {
            let what = format!("the list has {} elements", elements.len());
            self.wrong(Problem::new(what, format!("write at most {length_max}")));
            return None;
        }
        let read = elements.iter().enumerate().filter_map(|(index, value)| {
            let field = format!("{}[{index}]", self.field);
            let (span, value) = (value.span(), value.get_ref());
            element(Value { document: self.document, field, span, value })
        });
        Some(read.collect())
    }

    /// Like [`Value::list`] with elements that differ; a repetition is a mistake.
    pub fn set<T: PartialEq>(
        &self,
        length_max: usize,
        mut element: impl FnMut(&Value<'d>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut seen = Vec::new();
        self.list(length_max, |value| {
            let read = element(&value)?;
            if seen.contains(&read) {
                let what = format!("{} is written twice", value.source_text());
                value.wrong(Problem::new(what, "remove one of the two"));
                return None;
            }
            seen.push(read);
            Some(())
        })?;
        Some(seen)
    }

    /// The result of `walk` for a table with the keys of `group`.
    pub fn table<T>(
        &self,
        group: &'static Group,
        walk: impl FnOnce(&Table<'d>) -> Option<T>,
    ) -> Option<T> {
        match self.value {
            DeValue::Table(entries) => {
                let table = Table {
                    document: self.document,
                    entries,
                    field: self.field.clone(),
                    group,
                    span: self.span.clone(),
                };
                table.walk(walk)
            }
            DeValue::Array(array) if array.iter().all(|value| value.get_ref().is_table()) => {
                let remedy = format!("write [{}] in single brackets, once", self.field);
                self.wrong_type("one table", &remedy)
            }
            _ => self.wrong_type("a table", &format!("write [{}] above its keys", self.field)),
        }
    }

    /// The number of elements of a list; 0 for anything else.
    pub fn length(&self) -> usize {
        self.value.as_array().map_or(0, |elements| elements.len())
    }

    /// Whether it is a table.
    pub fn is_table(&self) -> bool {
        self.value.is_table()
    }

    fn text(&self, remedy: &str) -> Option<&'d str> {
        self.value.as_str().or_else(|| self.wrong_type("a string", remedy))
    }

    fn source_text(&self) -> &'d str {
        self.document.text.get(self.span.clone()).unwrap_or_default()
    }

    fn wrong_type<T>(&self, expected: &str, remedy: &str) -> Option<T> {
        let found = match self.value {
            DeValue::Array(_) => "a list",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Float(_) => "a fraction",
            DeValue::Integer(_) => "a number",
            DeValue::String(_) => "a string",
            DeValue::Table(_) => "a table",
        };
        self.wrong(Problem::new(format!("expected {expected}, found {found}"), remedy));
        None
    }
}

const FOREIGN: &str = "has no key of a configuration";
const FOREIGN_REMEDY: &str = "name a configuration; all keys: /usr/share/doc/sealane/examples";
