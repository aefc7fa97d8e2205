//! The file of budgets: one line for each crate or page, with the counts that are not 0.

use std::{collections::BTreeMap, fmt::Write as _};

use super::patterns::Pattern;

pub(super) type Counts = BTreeMap<Pattern, usize>;

/// The rows of the file.
#[derive(Default)]
pub(super) struct Budgets {
    pub(super) rows: BTreeMap<String, Counts>,
    /// The line of each row.
    pub(super) lines: BTreeMap<String, usize>,
    /// Lines that are no rows, such as the marks of a merge.
    pub(super) invalid_lines: Vec<usize>,
}

impl Budgets {
    pub(super) fn parse(text: &str) -> Self {
        let mut budgets = Self::default();
        for (number, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((name, counts)) =
                row(line).filter(|(name, _)| !budgets.rows.contains_key(name))
            else {
                budgets.invalid_lines.push(number);
                continue;
            };
            budgets.lines.insert(name.clone(), number);
            budgets.rows.insert(name, counts);
        }
        budgets
    }

    pub(super) fn get(&self, name: &str, pattern: Pattern) -> usize {
        self.rows.get(name).and_then(|counts| counts.get(&pattern)).copied().unwrap_or(0)
    }

    /// The text of a file with the counts of `rows`, as far as they may replace those `before`.
    pub(super) fn lowered(mut rows: BTreeMap<String, Counts>, before: Option<Self>) -> String {
        // After a merge with conflicts there are two texts before, and neither counts.
        if let Some(before) = before.filter(|before| before.invalid_lines.is_empty()) {
            for pattern in Pattern::ALL {
                before.limit(pattern, &mut rows);
            }
        }
        let mut text = HEAD.to_owned();
        for (name, counts) in rows {
            let counts = counts.iter().filter(|(_, count)| **count > 0);
            let counts: Vec<_> =
                counts.map(|(pattern, count)| format!("{} = {count}", pattern.key())).collect();
            if !counts.is_empty() {
                let _ = writeln!(text, "\"{name}\" = {{ {} }}", counts.join(", "));
            }
        }
        text
    }

    /// Keeps the counts of `pattern` in `rows` from rising.
    fn limit(&self, pattern: Pattern, rows: &mut BTreeMap<String, Counts>) {
        let sum = |rows: &BTreeMap<String, Counts>| -> usize {
            rows.values().filter_map(|counts| counts.get(&pattern)).sum()
        };
        if !pattern.is_average() && sum(rows) <= sum(&self.rows) {
            return;
        }
        for (name, counts) in rows {
            if let Some(count) = counts.get_mut(&pattern) {
                *count = (*count).min(self.get(name, pattern));
            }
        }
    }
}

/// Name and counts of a line `"NAME" = { KEY = COUNT, ... }`.
fn row(line: &str) -> Option<(String, Counts)> {
    let (name, counts) = line.split_once("\" = { ")?;
    let mut found = Counts::new();
    for entry in counts.strip_suffix(" }")?.split(", ") {
        let (key, count) = entry.split_once(" = ")?;
        let pattern = Pattern::ALL.into_iter().find(|pattern| pattern.key() == key)?;
        found.insert(pattern, count.parse().ok()?);
    }
    Some((name.strip_prefix('"')?.to_owned(), found))
}

const HEAD: &str = "\
# How often each crate and page uses the patterns of tidy/src/language/patterns.rs. The counts may
# only fall. Written by: SEALANE_BLESS=1 cargo test --locked -p sealane-tidy
";
