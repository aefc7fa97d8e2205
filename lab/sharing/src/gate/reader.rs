//! Reads a file of TOML field by field, [`Table`], and remembers every mistake with its line,
//! [`Mistakes`], so that all are told at once.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use clap::ValueEnum;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// What is wrong with a file.
pub(super) struct Mistakes<'a> {
    file: &'a str,
    text: &'a str,
    found: RefCell<BTreeSet<(usize, String)>>,
}

impl<'a> Mistakes<'a> {
    pub(super) fn of(file: &'a str, text: &'a str) -> Self {
        Self { file, text, found: RefCell::default() }
    }

    /// Remembers one, at an offset into the text.
    pub(super) fn note(&self, offset: usize, what: impl Into<String>) {
        self.found.borrow_mut().insert((self.line(offset), what.into()));
    }

    /// The line that holds the byte at `offset`.
    pub(super) fn line(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// All of them in words, by line; `None` if there is none.
    pub(super) fn told(&self) -> Option<String> {
        let found = self.found.borrow();
        if found.is_empty() {
            return None;
        }
        let lines = found.iter().map(|(line, what)| format!("{}:{line}: {what}", self.file));
        Some(lines.collect::<Vec<_>>().join("\n"))
    }
}

/// One table; what is not asked for is a mistake in the end.
pub(super) struct Table<'d> {
    mistakes: &'d Mistakes<'d>,
    /// How it is called in a message, such as `[[stack]] "RSA-2048"`.
    name: String,
    offset: usize,
    entries: &'d DeTable<'d>,
    asked: Vec<&'static str>,
}

impl<'d> Table<'d> {
    pub(super) fn new(
        name: impl Into<String>,
        offset: usize,
        entries: &'d DeTable<'d>,
        mistakes: &'d Mistakes<'d>,
    ) -> Self {
        Self { mistakes, name: name.into(), offset, entries, asked: Vec::new() }
    }

    /// The line that it begins in.
    pub(super) fn line(&self) -> usize {
        self.mistakes.line(self.offset)
    }

    /// From now on messages call it so.
    pub(super) fn rename(&mut self, name: String) {
        self.name = name;
    }

    /// A text that must be there and not be empty.
    pub(super) fn text(&mut self, field: &'static str) -> String {
        let text = self.optional_text(field);
        if text.is_none() && self.entry(field).is_none() {
            self.missing(field);
        }
        text.unwrap_or_default()
    }

    pub(super) fn optional_text(&mut self, field: &'static str) -> Option<String> {
        let value = self.asked_for(field)?;
        match value.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => Some(text.clone().into_owned()),
            _ => self.refuse(value, field, "is a text that is not empty"),
        }
    }

    /// Texts, of which there may be none.
    pub(super) fn texts(&mut self, field: &'static str) -> Vec<String> {
        let Some(value) = self.asked_for(field) else { return Vec::new() };
        let texts = value.get_ref().as_array().and_then(|values| {
            values.iter().map(|value| value.get_ref().as_str().map(str::to_owned)).collect()
        });
        texts.or_else(|| self.refuse(value, field, "is a list of texts")).unwrap_or_default()
    }

    /// Texts by name.
    pub(super) fn texts_by_name(&mut self, field: &'static str) -> BTreeMap<String, String> {
        let Some(value) = self.asked_for(field) else { return BTreeMap::new() };
        let texts = value.get_ref().as_table().and_then(|table| {
            let pair = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let name: &std::borrow::Cow<'_, str> = name.get_ref();
                Some((name.clone().into_owned(), value.get_ref().as_str()?.to_owned()))
            };
            table.iter().map(pair).collect()
        });
        texts.or_else(|| self.refuse(value, field, "is a table of texts")).unwrap_or_default()
    }

    pub(super) fn is_set(&mut self, field: &'static str) -> bool {
        let Some(value) = self.asked_for(field) else { return false };
        let set = value.get_ref().as_bool();
        set.or_else(|| self.refuse(value, field, "is true or false")).unwrap_or_default()
    }

    /// A figure that may have decimals and is not negative.
    pub(super) fn figure(&mut self, field: &'static str) -> Option<f64> {
        let value = self.asked_for(field)?;
        let figure: Option<f64> = match value.get_ref() {
            DeValue::Float(float) => float.as_str().replace('_', "").parse().ok(),
            _ => integer(value).map(|integer| integer as f64),
        };
        figure
            .filter(|figure| *figure >= 0.0 && figure.is_finite())
            .or_else(|| self.refuse(value, field, "is a number from 0 on"))
    }

    /// A whole number within `range`, or `otherwise`.
    pub(super) fn count(
        &mut self,
        field: &'static str,
        range: std::ops::RangeInclusive<u64>,
        otherwise: u64,
    ) -> u64 {
        let Some(value) = self.asked_for(field) else { return otherwise };
        let rule = format!("is a whole number from {} to {}", range.start(), range.end());
        integer(value)
            .filter(|count| range.contains(count))
            .or_else(|| self.refuse(value, field, &rule))
            .unwrap_or(otherwise)
    }

    /// One of a type's words, or `otherwise`.
    pub(super) fn choice<T: ValueEnum>(&mut self, field: &'static str, otherwise: T) -> T {
        let Some(value) = self.asked_for(field) else { return otherwise };
        let found = value.get_ref().as_str().and_then(|word| T::from_str(word, false).ok());
        let words: Vec<String> = T::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value)
            .map(|word| format!("{:?}", word.get_name()))
            .collect();
        let rule = format!("is one of {}", words.join(", "));
        found.or_else(|| self.refuse(value, field, &rule)).unwrap_or(otherwise)
    }

    /// The tables under `[[field]]`.
    pub(super) fn tables(&mut self, field: &'static str) -> Vec<Table<'d>> {
        let Some(value) = self.asked_for(field) else { return Vec::new() };
        let tables = value.get_ref().as_array().and_then(|values| {
            let table = |(at, value): (usize, &'d Spanned<DeValue<'d>>)| {
                let name = format!("[[{field}]] number {}", at + 1);
                let entries = value.get_ref().as_table()?;
                Some(Table::new(name, value.span().start, entries, self.mistakes))
            };
            values.iter().enumerate().map(table).collect()
        });
        let rule = format!("is a list of tables: write [[{field}]]");
        tables.or_else(|| self.refuse(value, field, &rule)).unwrap_or_default()
    }

    /// Remembers a mistake of the table as a whole.
    pub(super) fn note(&self, what: &str) {
        self.mistakes.note(self.offset, format!("{}: {what}", self.name));
    }

    /// Remembers a mistake in `field`.
    pub(super) fn note_at(&self, field: &str, what: &str) {
        let offset = self.entry(field).map_or(self.offset, |value| value.span().start);
        self.mistakes.note(offset, format!("{}: {field} {what}", self.name));
    }

    /// Whatever nobody asked for is a mistake.
    pub(super) fn end(self) {
        for (key, _) in self.entries {
            let name: &str = key.get_ref();
            if !self.asked.contains(&name) {
                self.mistakes.note(
                    key.span().start,
                    format!("{}: {name} is no field; fields: {}", self.name, self.asked.join(", ")),
                );
            }
        }
    }

    fn missing(&self, field: &str) {
        self.note(&format!("{field} is missing"));
    }

    fn entry(&self, field: &str) -> Option<&'d Spanned<DeValue<'d>>> {
        self.entries.get(field)
    }

    fn asked_for(&mut self, field: &'static str) -> Option<&'d Spanned<DeValue<'d>>> {
        self.asked.push(field);
        self.entry(field)
    }

    fn refuse<T>(&self, value: &Spanned<DeValue<'_>>, field: &str, rule: &str) -> Option<T> {
        self.mistakes.note(value.span().start, format!("{}: {field} {rule}", self.name));
        None
    }
}

fn integer(value: &Spanned<DeValue<'_>>) -> Option<u64> {
    let DeValue::Integer(integer) = value.get_ref() else { return None };
    u64::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).ok()
}
