//! Keys of a configuration file. A [`Key`] declares everything about one key: its name, the values
//! that it takes with their bounds and default, and its documentation. The parser, the reference,
//! the example file and the JSON Schema all read the same declaration.
//!
//! A [`Group`] lists the keys of one table. A table that is read with its group knows these keys
//! and no others.

mod generated;
mod kinds;
mod page;
#[cfg(test)]
mod tests;

use serde_json::{Value as Json, json};

pub use generated::{broken_links, incomplete_keys, write_or_compare};
pub use kinds::{
    Bool, ByName, Bytes, Choice, Count, Either, List, Or, PathKind, Set, Span, TableKind,
    TableList, Text, Word,
};
pub use page::{in_example, page, table_in_example, tables, wrapped};

/// One key of a table.
pub struct Key<K: Kind + ?Sized = dyn Kind> {
    /// The name, as it is written.
    pub name: &'static str,
    /// A change takes effect at the next start, not at a reload.
    pub needs_restart: bool,
    /// What happens without the key, in words, where its kind has no default.
    pub without: &'static str,
    /// The explanation, as one paragraph.
    pub doc: &'static str,
    /// Values in TOML, the first one for the example file. None if the default is the example.
    pub examples: &'static [&'static str],
    /// Whether the example file has it as an alternative, because other keys exclude it.
    pub is_alternative: bool,
    /// Whether each table must have it.
    pub is_required: bool,
    /// Other keys or tables to read about, by their anchors in the reference.
    pub see: &'static [&'static str],
    /// The values that it takes.
    pub kind: K,
}

impl<K: Kind> Key<K> {
    /// A key that is explained by `doc`, without an example.
    pub const fn new(name: &'static str, kind: K, doc: &'static str) -> Self {
        Self {
            name,
            needs_restart: false,
            without: "",
            doc,
            examples: &[],
            is_alternative: false,
            is_required: false,
            see: &[],
            kind,
        }
    }

    /// Adds example values.
    #[must_use]
    pub const fn examples(mut self, examples: &'static [&'static str]) -> Self {
        self.examples = examples;
        self
    }

    /// The key excludes values of others that the example file has.
    #[must_use]
    pub const fn alternative(mut self) -> Self {
        self.is_alternative = true;
        self
    }

    /// Every table must have the key.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// A change takes effect at the next start.
    #[must_use]
    pub const fn restart(mut self) -> Self {
        self.needs_restart = true;
        self
    }

    /// Adds anchors of other keys or tables.
    #[must_use]
    pub const fn see(mut self, see: &'static [&'static str]) -> Self {
        self.see = see;
        self
    }

    /// Explains what happens without the key.
    #[must_use]
    pub const fn without(mut self, without: &'static str) -> Self {
        self.without = without;
        self
    }
}

impl Key {
    /// The value that holds without the key, in TOML or in words.
    #[must_use]
    pub fn default_text(&self) -> Option<String> {
        let without = (!self.without.is_empty()).then(|| self.without.to_owned());
        self.kind.default_text().or(without)
    }

    /// Whether it is a table that has its own section in the reference.
    #[must_use]
    pub fn is_section(&self) -> bool {
        self.doc.is_empty() && self.kind.groups().len() == 1
    }
}

/// The values that a key takes.
pub trait Kind: Sync {
    /// The type in words, with its bounds.
    fn describe(&self) -> String;

    /// The bounds in words, if there are any that an example does not show.
    fn bounds(&self) -> Option<String> {
        None
    }

    /// The value without the key, as TOML.
    fn default_text(&self) -> Option<String> {
        None
    }

    /// The tables that a value can have.
    fn groups(&self) -> Vec<&'static Group> {
        Vec::new()
    }

    /// The JSON Schema of a value.
    fn schema(&self) -> Json;
}

/// A kind whose values have one type in the program.
pub trait Typed: Kind {
    /// The type.
    type Output;
}

/// A kind whose values can be a default.
pub trait Shown: Typed {
    /// A value as it is written in TOML.
    fn text(&self, value: &Self::Output) -> String;
}

/// The keys of one table.
pub struct Group {
    /// The table's place, such as `listener.check`; empty above the first table.
    pub path: &'static str,
    /// The explanation, as one paragraph.
    pub doc: &'static str,
    /// A table of it with its header, in TOML, where the keys alone do not show its use.
    pub example: &'static str,
    /// A change of any key takes effect at the next start.
    pub needs_restart: bool,
    /// The keys that are explained here, in the order of the reference.
    pub keys: &'static [&'static Key],
    /// Keys of another table that this one takes as well.
    pub shared: Option<SharedKeys>,
}

/// Keys of another table.
pub struct SharedKeys {
    /// The other table's place.
    pub from: &'static str,
    /// What they mean in this table.
    pub doc: &'static str,
    /// The keys.
    pub keys: &'static [&'static Key],
}

impl Group {
    /// A table with `keys` of its own alone.
    pub const fn new(path: &'static str, doc: &'static str, keys: &'static [&'static Key]) -> Self {
        Self { path, doc, example: "", needs_restart: false, keys, shared: None }
    }

    /// Adds an example of the whole table.
    #[must_use]
    pub const fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    /// A change of any key takes effect at the next start.
    #[must_use]
    pub const fn restart(mut self) -> Self {
        self.needs_restart = true;
        self
    }

    /// Adds keys of another table.
    #[must_use]
    pub const fn shared(mut self, shared: SharedKeys) -> Self {
        self.shared = Some(shared);
        self
    }

    /// All keys: those that are explained here, then the others.
    pub fn all(&self) -> impl Iterator<Item = &'static Key> + use<> {
        let shared = self.shared.as_ref().map_or(&[][..], |shared| shared.keys);
        self.keys.iter().chain(shared).copied()
    }

    /// Whether the table knows a key of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.all().any(|key| key.name == name)
    }

    /// The anchor of the table in the reference.
    #[must_use]
    pub fn table_anchor(&self) -> &'static str {
        if self.path.is_empty() { TOP_ANCHOR } else { self.path }
    }

    /// The anchor of a key in the reference.
    #[must_use]
    pub fn anchor(&self, name: &str) -> String {
        let is_shared = |shared: &&SharedKeys| shared.keys.iter().any(|key| key.name == name);
        let path = self.shared.as_ref().filter(is_shared).map_or(self.path, |shared| shared.from);
        match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    /// The JSON Schema of the table.
    #[must_use]
    pub fn schema(&self) -> Json {
        let mut properties = serde_json::Map::new();
        for key in self.all() {
            let mut schema = key.kind.schema();
            if let Json::Object(schema) = &mut schema {
                let group = key.kind.groups().first().copied().filter(|_| key.doc.is_empty());
                let doc = group.map_or(key.doc, |group| group.doc);
                let doc = format!("{doc} Type: {}.", key.kind.describe());
                schema.insert("description".to_owned(), doc.into());
                // A default in TOML is JSON too. One in words is not.
                let default = key.default_text().and_then(|text| serde_json::from_str(&text).ok());
                if let Some(default) = default {
                    schema.insert("default".to_owned(), default);
                }
            }
            properties.insert(key.name.to_owned(), schema);
        }
        let required: Vec<_> = self.all().filter(|key| key.is_required).map(|k| k.name).collect();
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }
}

/// The keys of a file, and where they are explained.
pub struct FileKeys {
    /// The keys above the first table, with those of all tables.
    pub top: &'static Group,
    /// The page of the reference, by its path in the repository.
    pub page: &'static str,
}

impl FileKeys {
    /// The JSON Schema (draft 2020-12) of the file.
    #[must_use]
    pub fn schema(&self, title: &str) -> Json {
        let mut schema = self.top.schema();
        if let Json::Object(schema) = &mut schema {
            let draft = "https://json-schema.org/draft/2020-12/schema";
            schema.insert("$schema".to_owned(), draft.into());
            schema.insert("title".to_owned(), title.into());
        }
        schema
    }
}

/// The anchor of the keys above the first table.
const TOP_ANCHOR: &str = "top";
