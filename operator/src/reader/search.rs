//! Where in a configuration a path is written: [`written_at`].

use std::path::{Path, PathBuf, absolute};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Document, without_keys_alone};
use crate::mistake::Place;
use crate::text::read_text;
use crate::value;

/// Where in one of `files` the absolute `path` is written, or the closest folder around it, and the
/// key with the tables around that: for messages about what was read before.
pub fn written_at<'f>(
    files: impl Iterator<Item = &'f Path>,
    path: &Path,
) -> Option<(Place, String)> {
    let found = files.filter_map(|file| {
        // What cannot be read again, as a folder cannot, has no places.
        let text = read_text(file, |_| None).ok()?;
        let (readable, _) = without_keys_alone(&text);
        let (root, _) = DeTable::parse_recoverable(&readable);
        let mut search = Search { base: file.parent()?, path, closest: None };
        search.in_table(root.get_ref(), "");
        let Found { written, offset, field } = search.closest?;
        let (line, column) = Document::new(file, &text, &[]).line_and_column(offset);
        let place = Place { line: Some(line), column: Some(column), ..Place::whole(file) };
        Some((written.components().count(), place, field))
    });
    let closest = found.max_by_key(|(length, ..)| *length);
    closest.map(|(_, place, field)| (place, field))
}

/// A search for a path in one file.
struct Search<'s> {
    base: &'s Path,
    path: &'s Path,
    closest: Option<Found>,
}

struct Found {
    written: PathBuf,
    offset: usize,
    field: String,
}

impl Search<'_> {
    fn in_table(&mut self, table: &DeTable<'_>, around: &str) {
        for (key, value) in table {
            let key = key.get_ref();
            let field = if around.is_empty() { key.to_string() } else { format!("{around}.{key}") };
            self.in_value(value, field);
        }
    }

    fn in_value(&mut self, value: &Spanned<DeValue<'_>>, field: String) {
        match value.get_ref() {
            DeValue::Array(array) => {
                for (index, value) in array.iter().enumerate() {
                    self.in_value(value, format!("{field}[{index}]"));
                }
            }
            DeValue::String(text) => {
                let Some(written) = self.around(text) else { return };
                let length = |path: &Path| path.components().count();
                if self.closest.as_ref().is_none_or(|c| length(&c.written) < length(&written)) {
                    self.closest = Some(Found { written, offset: value.span().start, field });
                }
            }
            DeValue::Table(table) => self.in_table(table, &field),
            _ => {}
        }
    }

    /// The path in `text`, if that is the one which is looked for or a folder around it.
    fn around(&self, text: &str) -> Option<PathBuf> {
        let scheme = ["store:", "unix:"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let path = value::path(scheme.unwrap_or(text), self.base).ok()?;
        let path = absolute(path).ok()?;
        // A pattern is for the files of its folder.
        let has_star = path.file_name().is_some_and(|name| name.as_encoded_bytes().contains(&b'*'));
        let path = if has_star { path.parent()?.to_owned() } else { path };
        self.path.starts_with(&path).then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_place_is_found_in_any_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let (main, more) = (folder.path().join("main.toml"), folder.path().join("more.toml"));
        let text = "include = [\"conf.d/*.toml\"]\n[[listener]]\naddress = \"unix:/run/a/b\"\n\
                    certificates = [\"/srv\", \"store:/srv/store\", { key = \"k.pem\" }]\n";
        std::fs::write(&main, text).unwrap();
        std::fs::write(&more, "[[listener]]\ncertificates = [\"/srv/store/of/others\"]\n").unwrap();
        let at = |path: &Path| {
            let (place, field) = written_at([&*main, &*more, folder.path()].into_iter(), path)?;
            let name = place.file.file_name()?.to_str()?.to_owned();
            Some((name, place.line?, place.column?, field))
        };
        for (path, name, line, column, field) in [
            ("conf.d", "main.toml", 1, 12, "include[0]"),
            ("k.pem", "main.toml", 4, 53, "listener[0].certificates[2].key"),
            ("/run/a/b", "main.toml", 3, 11, "listener[0].address"),
            ("/srv/x.pem", "main.toml", 4, 17, "listener[0].certificates[0]"),
            ("/srv/store/x", "main.toml", 4, 25, "listener[0].certificates[1]"),
            ("/srv/store/of/others/x", "more.toml", 2, 17, "listener[0].certificates[0]"),
        ] {
            let found = at(&folder.path().join(path)).unwrap();
            assert_eq!(found, (name.to_owned(), line, column, field.to_owned()), "{path}");
        }
        assert_eq!(at(Path::new("/elsewhere")), None);
    }
}
