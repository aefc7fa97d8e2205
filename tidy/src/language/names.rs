//! The names of types and tests in Rust source.

use crate::source::Source;

/// Names with their lines.
#[derive(Default)]
pub(super) struct Names {
    pub(super) types: Vec<(usize, String)>,
    pub(super) tests: Vec<(usize, String)>,
}

impl Names {
    pub(super) fn of(source: &Source) -> Self {
        let mut names = Self::default();
        let mut is_test = false;
        for (number, code) in source.code_lines() {
            let attribute = code.trim_start().strip_prefix("#[").unwrap_or("");
            is_test |= attribute.starts_with("test]") || attribute.contains("::test");
            let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            let Some(keyword) = words.find(|word| !MODIFIERS.contains(word)) else { continue };
            let name = words.next().unwrap_or("");
            if name.is_empty() {
                continue;
            }
            if TYPE_KEYWORDS.contains(&keyword) && name.starts_with(char::is_uppercase) {
                names.types.push((number, name.to_owned()));
            } else if keyword == "fn" {
                names.tests.extend(is_test.then(|| (number, name.to_owned())));
                is_test = false;
            }
        }
        names
    }
}

/// Without `type`: most of its names belong to traits of libraries.
const TYPE_KEYWORDS: [&str; 4] = ["enum", "struct", "trait", "union"];

/// Words between the start of a line and the keyword, and the empty word.
const MODIFIERS: [&str; 8] = ["", "async", "const", "crate", "in", "pub", "super", "unsafe"];
