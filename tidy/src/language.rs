//! Plain English: how often each crate and each page uses patterns that slow a reader down.
//!
//! The counts may only fall. `tidy/language.toml` has the budget of each crate, for the comments
//! and names in its Rust files, of `node/lib`, for the comments in its JavaScript, and of each page
//! of Markdown. Strings in code are not counted here.

mod budgets;
mod names;
mod patterns;
mod prose;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use crate::{Finding, Repository, repository::File, source::Source};
use budgets::Budgets;
use names::Names;
use patterns::Pattern;
use prose::Prose;

/// The counts of a repository.
pub struct Language {
    /// The folders of crates, each with a slash at its end.
    crates: BTreeSet<String>,
    rows: BTreeMap<String, Row>,
}

impl Language {
    /// Counts all files of `repository`.
    pub fn of(repository: &Repository) -> Self {
        let mut language = Self::without_files(repository);
        for file in &repository.files {
            if let Some(source) = repository.source(file) {
                language.add_rust(file, source);
            } else {
                language.add(file);
            }
        }
        language
    }

    pub(crate) fn without_files(repository: &Repository) -> Self {
        let is_crate =
            |file: &&File| file.name() == "Cargo.toml" && file.text.contains("[package]");
        let manifests = repository.files.iter().filter(is_crate);
        let crates = manifests.map(|file| file.path.trim_end_matches("Cargo.toml").to_owned());
        Self { crates: crates.collect(), rows: BTreeMap::new() }
    }

    /// Adds a file that is not in Rust.
    pub(crate) fn add(&mut self, file: &File) {
        if file.extension() == "md" {
            let row = self.rows.entry(file.path.clone()).or_default();
            let prose = Prose::of_markdown(file);
            row.add_words(file, &prose);
            row.add_sentences(file, &prose);
        } else if file.path.starts_with(JAVASCRIPT) && ["js", "mjs"].contains(&file.extension()) {
            let row = self.rows.entry(JAVASCRIPT.trim_end_matches('/').to_owned()).or_default();
            row.add_words(file, &Prose::of_javascript(file));
        }
    }

    pub(crate) fn add_rust(&mut self, file: &File, source: &Source) {
        let mut folders = file.path.match_indices('/').map(|(at, _)| &file.path[..=at]);
        let folder = folders.rfind(|folder| self.crates.contains(*folder));
        let name = folder.map_or(file.top(), |folder| folder.trim_end_matches('/'));
        let row = self.rows.entry(name.to_owned()).or_default();
        row.add_words(file, &Prose::of_rust(source));
        let names = Names::of(source);
        row.add_names(file, &names);
        // A median of each crate would rise when a test moves to another crate.
        self.rows.entry(ALL_CRATES.to_owned()).or_default().add_to_median(file, &names);
    }

    /// Adds each count that is not exactly its budget.
    pub(crate) fn check(&self, repository: &Repository, findings: &mut Vec<Finding>) {
        let Some(file) = repository.files.iter().find(|file| file.path == LANGUAGE_FILE) else {
            // Samples of other rules have no budgets.
            if repository.has("tidy/src/language.rs") {
                findings.push(missing());
            }
            return;
        };
        let budgets = Budgets::parse(&file.text);
        for number in &budgets.invalid_lines {
            let message = format!("not a row of counts; write the file again: {RENEW}");
            findings.push(Finding::new(file, *number, "language", message));
        }
        let no_row = Row::default();
        let mut added = None;
        for name in self.rows.keys().chain(budgets.rows.keys()).collect::<BTreeSet<_>>() {
            let row = self.rows.get(name).unwrap_or(&no_row);
            for pattern in Pattern::ALL {
                let (count, budget) = (row.count(pattern), budgets.get(name, pattern));
                if count > budget {
                    let added = added.get_or_insert_with(|| repository.added_since(LANGUAGE_FILE));
                    let matches = row.shown(pattern, count - budget, |found| {
                        added.as_ref().is_some_and(|added| added.contains(&found.path, found.line))
                    });
                    for found in matches {
                        findings.push(found.finding(name, pattern, count, budget));
                    }
                } else if count < budget {
                    let number = budgets.lines.get(name).copied().unwrap_or(1);
                    let message = format!(
                        "{name}: {} is {count}, less than the budget of {budget}: lower the \
                         budget: run {RENEW}",
                        pattern.key()
                    );
                    findings.push(Finding::new(file, number, "language", message));
                }
            }
        }
    }

    /// The text of [`LANGUAGE_FILE`] with these counts, as far as they fall from those in `before`.
    ///
    /// A count may move from one row to another, as code does: only its sum over all rows has to
    /// fall. Without a text before, all counts are taken.
    pub fn budgets(&self, before: Option<&str>) -> String {
        let count = |(name, row): (&String, &Row)| {
            let counts = Pattern::ALL.map(|pattern| (pattern, row.count(pattern)));
            (name.clone(), counts.into_iter().collect())
        };
        Budgets::lowered(self.rows.iter().map(count).collect(), before.map(Budgets::parse))
    }

    /// The counts and their rates as a table, for people.
    pub fn table(&self) -> String {
        let mut table = String::from("row, words");
        for pattern in Pattern::ALL {
            table += &format!(", {}", pattern.key());
        }
        let (mut comments, mut pages) = (Row::default(), Row::default());
        for (name, row) in &self.rows {
            row.write(name, &mut table);
            if name.ends_with(".md") { pages.merge(row) } else { comments.merge(row) }
        }
        for (name, row) in [("comments", &comments), ("pages", &pages)] {
            row.write(name, &mut table);
            row.write_rates(name, &mut table);
        }
        table + "\n"
    }
}

fn missing() -> Finding {
    let message = format!("the budgets are missing: run {RENEW}");
    Finding { path: LANGUAGE_FILE.to_owned(), line: 1, rule: "language", message, fatal: true }
}

/// The counts of one crate or page.
#[derive(Clone, Default)]
struct Row {
    matches: BTreeMap<Pattern, Vec<Match>>,
    words: usize,
    doc_comments: usize,
    types: usize,
    /// The lengths of the names of tests.
    tests: Vec<Match>,
    sentences: Vec<Match>,
}

impl Row {
    fn add_words(&mut self, file: &File, prose: &Prose) {
        let words = prose.words();
        let mut rest = &words[..];
        while let [(number, _), others @ ..] = rest {
            let Some((pattern, length)) = patterns::at_front(rest) else {
                rest = others;
                continue;
            };
            let text = rest[..length].iter().map(|(_, word)| *word).collect::<Vec<_>>().join(" ");
            self.push(pattern, file, *number, &text, 1);
            rest = &rest[length..];
        }
        self.words += words.len();
        self.doc_comments += prose.doc_starts.len();
        for line in prose.doc_starts.iter().map(|index| &prose.lines[*index]) {
            let first = line.text.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty());
            if let Some(first) = first.filter(|word| patterns::is_question_word(word)) {
                self.push(Pattern::Question, file, line.number, first, 1);
            }
        }
    }

    fn add_names(&mut self, file: &File, names: &Names) {
        self.types += names.types.len();
        for (number, name) in names.types.iter().filter(|(_, name)| patterns::has_no_noun(name)) {
            self.push(Pattern::TypeName, file, *number, name, 1);
        }
        for (number, name) in &names.tests {
            let letters = name.chars().count();
            if letters > patterns::TEST_NAME_MAX {
                self.push(Pattern::TestName, file, *number, name, letters);
            }
        }
    }

    fn add_to_median(&mut self, file: &File, names: &Names) {
        let tests = names.tests.iter();
        self.tests.extend(
            tests.map(|(number, name)| Match::new(file, *number, name, name.chars().count())),
        );
    }

    fn add_sentences(&mut self, file: &File, prose: &Prose) {
        for (number, count) in prose.sentences() {
            let found = Match::new(file, number, &format!("{count} words"), count);
            if count > patterns::SENTENCE_MAX {
                self.matches.entry(Pattern::Sentence).or_default().push(found.clone());
            }
            self.sentences.push(found);
        }
    }

    fn push(&mut self, pattern: Pattern, file: &File, line: usize, words: &str, size: usize) {
        self.matches.entry(pattern).or_default().push(Match::new(file, line, words, size));
    }

    fn of(&self, pattern: Pattern) -> &[Match] {
        match pattern {
            Pattern::TestMedian => &self.tests,
            Pattern::SentenceAverage => &self.sentences,
            _ => self.matches.get(&pattern).map_or(&[], Vec::as_slice),
        }
    }

    fn count(&self, pattern: Pattern) -> usize {
        let above = |value: usize, good: usize| if value > good { value } else { 0 };
        match pattern {
            Pattern::TestMedian => above(self.test_median(), patterns::TEST_MEDIAN_GOOD),
            Pattern::SentenceAverage => {
                let words: usize = self.sentences.iter().map(|found| found.size).sum();
                let average = words.div_ceil(self.sentences.len().max(1));
                above(average, patterns::AVERAGE_GOOD)
            }
            _ => self.of(pattern).len(),
        }
    }

    fn test_median(&self) -> usize {
        let mut lengths: Vec<usize> = self.tests.iter().map(|found| found.size).collect();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied().unwrap_or(0)
    }

    /// The matches that a reader has to look at: those on added lines, if the excess is there; the
    /// longest name or sentence, for an average.
    fn shown(
        &self,
        pattern: Pattern,
        excess: usize,
        is_added: impl Fn(&Match) -> bool,
    ) -> Vec<&Match> {
        let all = self.of(pattern);
        if pattern.is_average() {
            return all.iter().max_by_key(|found| found.size).into_iter().collect();
        }
        let added: Vec<&Match> = all.iter().filter(|found| is_added(found)).collect();
        let shown = if added.len() < excess { all.iter().collect() } else { added };
        shown.into_iter().take(SHOWN_MAX).collect()
    }

    fn merge(&mut self, other: &Self) {
        for (pattern, matches) in &other.matches {
            self.matches.entry(*pattern).or_default().extend_from_slice(matches);
        }
        self.words += other.words;
        self.doc_comments += other.doc_comments;
        self.types += other.types;
        self.tests.extend_from_slice(&other.tests);
        self.sentences.extend_from_slice(&other.sentences);
    }

    fn write(&self, name: &str, table: &mut String) {
        let _ = write!(table, "\n{name}, {}", self.words);
        for pattern in Pattern::ALL {
            let _ = write!(table, ", {}", self.count(pattern));
        }
    }

    fn write_rates(&self, name: &str, table: &mut String) {
        let rate = |part: usize, whole: usize, scale: usize| {
            let hundredths = part * scale * 100 / whole.max(1);
            format!("{}.{:02}", hundredths / 100, hundredths % 100)
        };
        let _ = write!(table, "\n{name}, per 1,000 words:");
        for pattern in [Pattern::What, Pattern::Said, Pattern::Who, Pattern::Nobody, Pattern::Idiom]
        {
            let count = self.count(pattern);
            let _ = write!(table, " {} {}", pattern.key(), rate(count, self.words, 1000));
        }
        let questions = rate(self.count(Pattern::Question), self.doc_comments, 100);
        let types = rate(self.count(Pattern::TypeName), self.types, 100);
        let words: usize = self.sentences.iter().map(|found| found.size).sum();
        let average = rate(words, self.sentences.len(), 1);
        let _ = write!(
            table,
            "\n{name}: questions {questions}% of {} doc comments, types without a noun {types}% of \
             {}, median test name {} letters, {average} words per sentence",
            self.doc_comments,
            self.types,
            self.test_median()
        );
    }
}

/// One place with a pattern.
#[derive(Clone)]
struct Match {
    path: String,
    line: usize,
    words: String,
    /// The letters of a name, the words of a sentence.
    size: usize,
}

impl Match {
    fn new(file: &File, line: usize, words: &str, size: usize) -> Self {
        Self { path: file.path.clone(), line, words: words.to_owned(), size }
    }

    fn finding(&self, row: &str, pattern: Pattern, count: usize, budget: usize) -> Finding {
        let message = format!(
            "`{}`: {}; {row} has {} {count}, the budget is {budget}",
            self.words,
            pattern.replacement(&self.words),
            pattern.key()
        );
        let path = self.path.clone();
        Finding { path, line: self.line, rule: "language", message, fatal: true }
    }
}

/// The budgets.
pub const LANGUAGE_FILE: &str = "tidy/language.toml";

/// The command that writes the budgets again.
const RENEW: &str = "SEALANE_BLESS=1 cargo test --locked -p sealane-tidy";

/// The row for a measure of all crates together.
const ALL_CRATES: &str = "all crates";

/// The folder of the JavaScript that is shipped.
const JAVASCRIPT: &str = "node/lib/";

/// The most matches that are reported for a count.
const SHOWN_MAX: usize = 10;

#[cfg(test)]
mod tests;
