//! Checks of declared keys, and of the files that are written from them. Tests of each program
//! call them.

use std::collections::HashSet;
use std::path::Path;
use std::{env, fs};

use super::{Group, tables};

/// Compares `file` with `text`, or writes it if the environment has `SEALANE_BLESS`.
///
/// # Errors
/// The file differs, or cannot be written.
pub fn write_or_compare(file: &Path, text: &str) -> Result<(), String> {
    if env::var_os("SEALANE_BLESS").is_some() {
        return fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()));
    }
    let found = fs::read_to_string(file).unwrap_or_default();
    if found == text {
        return Ok(());
    }
    let same = found.lines().zip(text.lines()).take_while(|(found, text)| found == text).count();
    Err(format!(
        "{} differs from the keys in line {}; write it again with SEALANE_BLESS=1 cargo test \
         --workspace --lib -- reference",
        file.display(),
        same + 1
    ))
}

/// Anchors that two keys have, and links of keys to anchors that do not exist.
#[must_use]
pub fn broken_links(top: &'static Group) -> Vec<String> {
    let groups = tables(top);
    let mut broken = Vec::new();
    let mut anchors = HashSet::new();
    for anchor in groups.iter().flat_map(|group| group.keys.iter().map(|k| group.anchor(k.name))) {
        if !anchors.insert(anchor.clone()) {
            broken.push(format!("{anchor} twice"));
        }
    }
    anchors.extend(groups.iter().map(|group| group.table_anchor().to_owned()));
    for key in groups.iter().flat_map(|group| group.keys) {
        let links = key.see.iter().filter(|to| !anchors.contains(**to));
        broken.extend(links.map(|to| format!("{}: {to}", key.name)));
    }
    broken
}

/// Tables and keys without a sentence as text, and keys without a value to show.
#[must_use]
pub fn incomplete_keys(top: &'static Group) -> Vec<String> {
    let mut incomplete = Vec::new();
    for group in tables(top) {
        if !group.doc.ends_with('.') {
            incomplete.push(group.table_anchor().to_owned());
        }
        let keys = group.keys.iter().filter(|key| {
            let has_example = !key.examples.is_empty() || key.kind.default_text().is_some();
            !(key.is_section() || key.doc.ends_with('.') && has_example)
        });
        incomplete.extend(keys.map(|key| group.anchor(key.name)));
    }
    incomplete
}
