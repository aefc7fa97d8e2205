//! How values are read as the kinds of their keys.

use std::path::PathBuf;
use std::time::Duration;

use super::{Readable, Value};
use crate::key::{
    Bool, ByName, Bytes, Choice, Count, Either, Key, List, Or, PathKind, Set, Shown, Span, Text,
    Word,
};

impl<K: Readable> Key<K> {
    /// The value, if it is in order.
    pub fn read(&self, written: &Value<'_>) -> Option<K::Output> {
        self.kind.read(written)
    }
}

impl<K: Readable + Shown> Readable for Or<K>
where
    K::Output: Sync,
{
    fn read(&self, written: &Value<'_>) -> Option<K::Output> {
        self.0.read(written)
    }
}

impl Readable for Bool {
    fn read(&self, written: &Value<'_>) -> Option<bool> {
        written.boolean()
    }
}

impl Readable for Count {
    fn read(&self, written: &Value<'_>) -> Option<usize> {
        written.count(self.0.clone())
    }
}

impl Readable for Span {
    fn read(&self, written: &Value<'_>) -> Option<Duration> {
        written.duration(self.0.clone())
    }
}

impl Readable for Bytes {
    fn read(&self, written: &Value<'_>) -> Option<usize> {
        written.size_bytes(self.0.clone())
    }
}

impl<T: Copy + Sync> Readable for Choice<T> {
    fn read(&self, written: &Value<'_>) -> Option<T> {
        written.choice(self.0)
    }
}

impl<T: Copy + Sync> Readable for ByName<T> {
    fn read(&self, written: &Value<'_>) -> Option<T> {
        written.choice(&self.choices())
    }
}

impl<T> Readable for Text<T> {
    fn read(&self, written: &Value<'_>) -> Option<T> {
        written.parsed(self.1)
    }
}

impl Readable for PathKind {
    fn read(&self, written: &Value<'_>) -> Option<PathBuf> {
        written.path()
    }
}

/// "off", or a duration.
impl Readable for Either<Word, Span> {
    fn read(&self, written: &Value<'_>) -> Option<Option<Duration>> {
        match written.as_text() {
            Some(text) if text == self.0.0 => Some(None),
            _ => self.1.read(written).map(Some),
        }
    }
}

impl<K: Readable> Readable for List<K> {
    fn read(&self, written: &Value<'_>) -> Option<Vec<K::Output>> {
        written.list(self.1, |element| self.0.read(&element))
    }
}

impl<K: Readable> Readable for Set<K>
where
    K::Output: PartialEq,
{
    fn read(&self, written: &Value<'_>) -> Option<Vec<K::Output>> {
        written.set(self.1, |element| self.0.read(element))
    }
}
