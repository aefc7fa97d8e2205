//! The kinds of values.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::{Group, Key, Kind, Shown, Typed};
use crate::mistake::Problem;
use crate::value::{duration_text, size_text};

/// A kind with the value that holds without the key.
pub struct Or<K: Typed>(pub K, pub K::Output);

impl<K: Shown> Kind for Or<K>
where
    K::Output: Sync,
{
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn bounds(&self) -> Option<String> {
        self.0.bounds()
    }

    fn default_text(&self) -> Option<String> {
        Some(self.0.text(&self.1))
    }

    fn groups(&self) -> Vec<&'static Group> {
        self.0.groups()
    }

    fn schema(&self) -> Json {
        self.0.schema()
    }
}

impl<K: Shown> Typed for Or<K>
where
    K::Output: Sync,
{
    type Output = K::Output;
}

impl<K: Shown> Shown for Or<K>
where
    K::Output: Sync,
{
    fn text(&self, value: &K::Output) -> String {
        self.0.text(value)
    }
}

impl<K: Shown> Key<Or<K>>
where
    K::Output: Clone + Sync,
{
    /// The value without the key.
    pub fn default(&self) -> K::Output {
        self.kind.1.clone()
    }
}

/// `true` or `false`.
pub struct Bool;

impl Kind for Bool {
    fn describe(&self) -> String {
        "true or false".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "boolean" })
    }
}

impl Typed for Bool {
    type Output = bool;
}

impl Shown for Bool {
    fn text(&self, value: &bool) -> String {
        value.to_string()
    }
}

/// A whole number within a range.
pub struct Count(pub RangeInclusive<usize>);

impl Kind for Count {
    fn describe(&self) -> String {
        format!("number from {} to {}", self.0.start(), self.0.end())
    }

    fn bounds(&self) -> Option<String> {
        Some(self.describe())
    }

    fn schema(&self) -> Json {
        json!({ "type": "integer", "minimum": self.0.start(), "maximum": self.0.end() })
    }
}

impl Typed for Count {
    type Output = usize;
}

impl Shown for Count {
    fn text(&self, value: &usize) -> String {
        value.to_string()
    }
}

/// A duration within a range.
pub struct Span(pub RangeInclusive<Duration>);

impl Kind for Span {
    fn describe(&self) -> String {
        format!("duration from {} to {}", self.text(self.0.start()), self.text(self.0.end()))
    }

    fn bounds(&self) -> Option<String> {
        Some(self.describe())
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "pattern": "^[0-9]+ ?(ms|s|m|h|d)$" })
    }
}

impl Typed for Span {
    type Output = Duration;
}

impl Shown for Span {
    fn text(&self, value: &Duration) -> String {
        match value.is_zero() {
            true => quoted("0s"),
            false => quoted(duration_text(*value)),
        }
    }
}

/// A size in bytes within a range.
pub struct Bytes(pub RangeInclusive<usize>);

impl Kind for Bytes {
    fn describe(&self) -> String {
        format!("size from {} to {}", self.text(self.0.start()), self.text(self.0.end()))
    }

    fn bounds(&self) -> Option<String> {
        Some(self.describe())
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "pattern": "^[0-9]+ ?(B|KiB|MiB|GiB)$" })
    }
}

impl Typed for Bytes {
    type Output = usize;
}

impl Shown for Bytes {
    fn text(&self, value: &usize) -> String {
        quoted(size_text(*value as u64))
    }
}

/// One of several words, each with the value that it means.
pub struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Sync> Kind for Choice<T> {
    fn describe(&self) -> String {
        one_of(self.0.iter().map(|(name, _)| *name))
    }

    fn bounds(&self) -> Option<String> {
        Some(self.describe())
    }

    fn schema(&self) -> Json {
        json!({ "enum": self.0.iter().map(|(name, _)| *name).collect::<Vec<_>>() })
    }
}

impl<T: Copy + Sync> Typed for Choice<T> {
    type Output = T;
}

impl<T: Copy + PartialEq + Sync> Shown for Choice<T> {
    fn text(&self, value: &T) -> String {
        let found = self.0.iter().find(|(_, choice)| choice == value);
        quoted(found.map_or("", |(name, _)| *name))
    }
}

/// One of several values, each by its name.
pub struct ByName<T: 'static>(pub &'static [T], pub fn(T) -> &'static str);

impl<T: Copy> ByName<T> {
    pub(crate) fn choices(&self) -> Vec<(&'static str, T)> {
        self.0.iter().map(|value| ((self.1)(*value), *value)).collect()
    }
}

impl<T: Copy + Sync> Kind for ByName<T> {
    fn describe(&self) -> String {
        one_of(self.choices().into_iter().map(|(name, _)| name))
    }

    fn schema(&self) -> Json {
        json!({ "enum": self.choices().iter().map(|(name, _)| *name).collect::<Vec<_>>() })
    }
}

impl<T: Copy + Sync> Typed for ByName<T> {
    type Output = T;
}

/// Text that a function reads. The first field describes it.
pub struct Text<T>(pub &'static str, pub fn(&str) -> Result<T, Problem>);

impl<T> Kind for Text<T> {
    fn describe(&self) -> String {
        self.0.to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

impl<T> Typed for Text<T> {
    type Output = T;
}

impl<T: Display> Shown for Text<T> {
    fn text(&self, value: &T) -> String {
        quoted(value)
    }
}

/// A path. A relative one starts in the folder of the file.
pub struct PathKind;

impl Kind for PathKind {
    fn describe(&self) -> String {
        "path".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

impl Typed for PathKind {
    type Output = PathBuf;
}

impl Shown for PathKind {
    fn text(&self, value: &PathBuf) -> String {
        quoted(value.display())
    }
}

/// One word and no other.
pub struct Word(pub &'static str);

impl Kind for Word {
    fn describe(&self) -> String {
        quoted(self.0)
    }

    fn schema(&self) -> Json {
        json!({ "const": self.0 })
    }
}

/// A value of the one kind or the other.
pub struct Either<A, B>(pub A, pub B);

impl<A: Kind, B: Kind> Kind for Either<A, B> {
    fn describe(&self) -> String {
        format!("{}, or {}", self.0.describe(), self.1.describe())
    }

    fn bounds(&self) -> Option<String> {
        self.1.bounds().map(|_| self.describe())
    }

    fn groups(&self) -> Vec<&'static Group> {
        [self.0.groups(), self.1.groups()].concat()
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [self.0.schema(), self.1.schema()] })
    }
}

/// "off", or a duration.
impl Typed for Either<Word, Span> {
    type Output = Option<Duration>;
}

impl Shown for Either<Word, Span> {
    fn text(&self, value: &Option<Duration>) -> String {
        value.as_ref().map_or_else(|| self.0.describe(), |value| self.1.text(value))
    }
}

/// A list of at most so many elements.
pub struct List<K>(pub K, pub usize);

impl<K: Kind> Kind for List<K> {
    fn describe(&self) -> String {
        format!("list of at most {} elements: {}", self.1, self.0.describe())
    }

    fn bounds(&self) -> Option<String> {
        Some(format!("at most {} elements", self.1))
    }

    fn groups(&self) -> Vec<&'static Group> {
        self.0.groups()
    }

    fn schema(&self) -> Json {
        json!({
            "type": "array",
            "items": self.0.schema(),
            "minItems": 1,
            "maxItems": self.1,
        })
    }
}

impl<K: Typed> Typed for List<K> {
    type Output = Vec<K::Output>;
}

/// A list of at most so many different elements.
pub struct Set<K>(pub K, pub usize);

impl<K: Kind> Kind for Set<K> {
    fn describe(&self) -> String {
        format!("list of at most {} different elements: {}", self.1, self.0.describe())
    }

    fn bounds(&self) -> Option<String> {
        Some(format!("at most {} elements", self.1))
    }

    fn groups(&self) -> Vec<&'static Group> {
        self.0.groups()
    }

    fn schema(&self) -> Json {
        json!({
            "type": "array",
            "items": self.0.schema(),
            "minItems": 1,
            "maxItems": self.1,
            "uniqueItems": true,
        })
    }
}

impl<K: Typed> Typed for Set<K> {
    type Output = Vec<K::Output>;
}

impl<K: Shown> Shown for Set<K> {
    fn text(&self, value: &Vec<K::Output>) -> String {
        let elements: Vec<_> = value.iter().map(|element| self.0.text(element)).collect();
        format!("[{}]", elements.join(", "))
    }
}

/// One table.
pub struct TableKind(pub &'static Group);

impl Kind for TableKind {
    fn describe(&self) -> String {
        "table".to_owned()
    }

    fn groups(&self) -> Vec<&'static Group> {
        vec![self.0]
    }

    fn schema(&self) -> Json {
        self.0.schema()
    }
}

/// At most so many tables, each below a header in double brackets.
pub struct TableList(pub &'static Group, pub usize);

impl Kind for TableList {
    fn describe(&self) -> String {
        format!("list of at most {} tables", self.1)
    }

    fn groups(&self) -> Vec<&'static Group> {
        vec![self.0]
    }

    fn schema(&self) -> Json {
        json!({
            "type": "array",
            "items": self.0.schema(),
            "minItems": 1,
            "maxItems": self.1,
        })
    }
}

/// Names in words: `"a", "b" or "c"`.
fn one_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<_> = names.map(quoted).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn quoted(text: impl Display) -> String {
    format!("\"{text}\"")
}
