//! The words that a person reads: comments of Rust and JavaScript, and pages of Markdown.
//!
//! Code is left out: fenced blocks, text between backticks, and the targets of links.

use crate::{repository::File, source::Source};

/// The prose of one file.
#[derive(Default)]
pub(super) struct Prose {
    pub(super) lines: Vec<Line>,
    /// The lines on which a doc comment begins, as indexes of `lines`.
    pub(super) doc_starts: Vec<usize>,
}

/// One line, in lower case, with the word `code` for each piece of code.
pub(super) struct Line {
    /// Counted from 1.
    pub(super) number: usize,
    pub(super) text: String,
    /// Whether a paragraph, an item of a list, a heading or the row of a table begins here.
    pub(super) begins_block: bool,
    /// False for headings and tables.
    pub(super) has_sentences: bool,
}

impl Prose {
    pub(super) fn of_rust(source: &Source) -> Self {
        let mut cleaner = Cleaner::default();
        let mut mark_before = ("", 0);
        for comment in source.comments() {
            let mark = RUST_MARKS.iter().find(|mark| comment.text.starts_with(**mark));
            let mark = mark.copied().unwrap_or("/*");
            let is_doc = matches!(mark, "///" | "//!" | "/**" | "/*!");
            let begins = mark_before != (mark, comment.line - 1);
            for (i, text) in comment.text.lines().enumerate() {
                cleaner.add(
                    comment.line + i,
                    without_marks(text, mark),
                    is_doc && begins && i == 0,
                );
            }
            mark_before = (mark, comment.line);
        }
        cleaner.prose
    }

    /// A comment is a line that begins with `//`, the text behind a ` // `, or a block that begins
    /// a line.
    pub(super) fn of_javascript(file: &File) -> Self {
        let mut cleaner = Cleaner::default();
        let (mut in_block, mut doc_begins) = (false, false);
        for (i, line) in file.text.lines().enumerate() {
            let trimmed = line.trim_start();
            if trimmed.starts_with("/*") {
                in_block = true;
                doc_begins = trimmed.starts_with("/**");
            }
            if in_block {
                let text =
                    without_marks(line, if trimmed.starts_with("/**") { "/**" } else { "/*" });
                let has_words = !text.is_empty();
                // A tag such as `@param` has types, which are code.
                let text = if text.starts_with('@') { "" } else { text };
                cleaner.add(i + 1, text, doc_begins && has_words);
                doc_begins &= !has_words;
                in_block = !line.contains("*/");
            } else if let Some(text) = trimmed.strip_prefix("//") {
                cleaner.add(i + 1, text.trim(), false);
            } else if let Some((_, text)) = line.split_once(" // ") {
                cleaner.add(i + 1, text.trim(), false);
            }
        }
        cleaner.prose
    }

    pub(super) fn of_markdown(file: &File) -> Self {
        let mut cleaner = Cleaner::default();
        for (i, line) in file.text.lines().enumerate() {
            cleaner.add(i + 1, line, false);
        }
        cleaner.prose
    }

    /// The words without punctuation, each with its line.
    pub(super) fn words(&self) -> Vec<(usize, &str)> {
        let mut words = Vec::new();
        for line in &self.lines {
            // A link has no words.
            let parts = line.text.split_whitespace().filter(|part| !part.contains("://"));
            for part in parts {
                let split = part.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '_');
                let split = split.map(|word| word.trim_matches('\'').trim_end_matches("'s"));
                words.extend(split.filter(|word| !word.is_empty()).map(|word| (line.number, word)));
            }
        }
        words
    }

    /// The first line and the count of words of each sentence.
    pub(super) fn sentences(&self) -> Vec<(usize, usize)> {
        let mut sentences = Vec::new();
        let mut current = (0, 0);
        for line in &self.lines {
            if line.begins_block && current.1 > 0 {
                sentences.push(std::mem::take(&mut current));
            }
            if !line.has_sentences {
                continue;
            }
            for word in line.text.split_whitespace() {
                if word.contains(char::is_alphanumeric) {
                    if current.1 == 0 {
                        current.0 = line.number;
                    }
                    current.1 += 1;
                }
                let end = word.trim_end_matches([')', '"', '\'', '*', '_']);
                if end.ends_with(['.', '!', '?']) && current.1 > 0 {
                    sentences.push(std::mem::take(&mut current));
                }
            }
        }
        sentences.extend((current.1 > 0).then_some(current));
        sentences
    }
}

/// A line of a comment without the marks around it.
fn without_marks<'a>(text: &'a str, mark: &str) -> &'a str {
    let text = text.trim();
    let text = text.strip_prefix(mark).unwrap_or(text);
    if mark.starts_with("//") {
        return text;
    }
    let text = text.strip_suffix("*/").unwrap_or(text);
    text.strip_prefix('*').unwrap_or(text).trim()
}

/// Takes code out of lines.
#[derive(Default)]
struct Cleaner {
    prose: Prose,
    in_fence: bool,
    in_code: bool,
    in_target: bool,
    /// Whether the last line was blank, a heading or the row of a table.
    is_block_over: bool,
    last: usize,
}

impl Cleaner {
    fn add(&mut self, number: usize, text: &str, is_doc_start: bool) {
        if number > self.last + 1 || is_doc_start {
            (self.in_fence, self.in_code, self.in_target) = (false, false, false);
            self.is_block_over = true;
        }
        self.last = number;
        let text = text.trim().trim_start_matches("> ");
        if text.starts_with("```") || text.starts_with("~~~") {
            self.in_fence ^= true;
            self.is_block_over = true;
            return;
        }
        if self.in_fence {
            return;
        }
        if text.is_empty() {
            (self.in_code, self.in_target, self.is_block_over) = (false, false, true);
            return;
        }
        let has_sentences = !text.starts_with('|') && !text.starts_with('#');
        let begins_block = self.is_block_over || !has_sentences || is_item(text);
        if is_doc_start {
            self.prose.doc_starts.push(self.prose.lines.len());
        }
        let text = self.without_code(text);
        self.prose.lines.push(Line { number, text, begins_block, has_sentences });
        self.is_block_over = !has_sentences;
    }

    fn without_code(&mut self, text: &str) -> String {
        let mut kept = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '`' => {
                    self.in_code ^= true;
                    if self.in_code {
                        kept.push_str("code");
                    }
                }
                _ if self.in_code => {}
                ')' if self.in_target => self.in_target = false,
                _ if self.in_target => {}
                '(' if kept.ends_with(']') => self.in_target = true,
                '\u{2019}' => kept.push('\''),
                _ => kept.push(c.to_ascii_lowercase()),
            }
        }
        kept
    }
}

/// Whether `text` begins an item of a list.
fn is_item(text: &str) -> bool {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = rest.len() < text.len() && rest.starts_with(". ");
    is_numbered || text.starts_with("- ") || text.starts_with("* ")
}

const RUST_MARKS: [&str; 5] = ["///", "//!", "//", "/**", "/*!"];
