//! Rust source with its comments and literals apart from its code: a lexer, no parser.

use std::ops::Range;

/// One Rust file, ready for rules that look at code only, or at comments only.
#[derive(Debug)]
pub struct Source {
    /// The file, character by character, with a blank for each character that is not code.
    code: String,
    comments: Vec<Comment>,
}

/// One comment with its marks: a `//` to the end of its line, or all of a `/* */`.
#[derive(Debug)]
pub(crate) struct Comment {
    /// The line of its first character, counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Source {
    /// Never fails: the compiler reports invalid code.
    pub fn parse(text: &str) -> Self {
        let rest: Vec<char> = text.chars().collect();
        let mut lexer =
            Lexer { rest, at: 0, code: String::with_capacity(text.len()), comments: Vec::new() };
        while lexer.step() {}
        let (mut line, mut at) = (1, 0);
        let mut comments = Vec::new();
        for range in lexer.comments {
            line += lexer.rest[at..range.start].iter().filter(|c| **c == '\n').count();
            at = range.start;
            comments.push(Comment { line, text: lexer.rest[range].iter().collect() });
        }
        Self { code: lexer.code, comments }
    }

    /// The comments in the order of the file.
    pub(crate) fn comments(&self) -> &[Comment] {
        &self.comments
    }

    /// The lines, counted from 1, without comments, and without text between quotes.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.split('\n').enumerate().map(|(i, line)| (i + 1, line))
    }

    /// The lines of [`Self::code_lines`], without items marked `#[cfg(test)]`.
    pub fn shipped_lines(&self) -> Vec<(usize, String)> {
        let mut shipped = String::with_capacity(self.code.len());
        let mut rest = self.code.as_str();
        while let Some(start) = rest.find(CFG_TEST) {
            shipped.push_str(&rest[..start]);
            let item = &rest[start..];
            let end = item_end(item);
            shipped.extend(item[..end].chars().filter(|c| *c == '\n'));
            rest = &item[end..];
        }
        shipped.push_str(rest);
        shipped.lines().enumerate().map(|(i, line)| (i + 1, line.to_owned())).collect()
    }

    /// The names in `#[cfg(test)] mod name;`.
    pub fn test_modules(&self) -> impl Iterator<Item = String> + '_ {
        self.code.split(CFG_TEST).skip(1).filter_map(|item| {
            let (declaration, _) = item.split_once(';')?;
            let name = declaration.trim().trim_start_matches("pub ").strip_prefix("mod ")?;
            name.chars().all(is_word).then(|| name.to_owned())
        })
    }
}

/// Whether `code` holds `words` as whole words.
pub(crate) fn contains_words(code: &str, words: &str) -> bool {
    code.match_indices(words).any(|(at, _)| {
        !code[..at].ends_with(is_word) && !code[at + words.len()..].starts_with(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the item at the start of `code`: up to its semicolon, or its closing brace.
fn item_end(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            ';' if depth == 0 => return at + 1,
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

const CFG_TEST: &str = "#[cfg(test)]";

struct Lexer {
    rest: Vec<char>,
    at: usize,
    code: String,
    comments: Vec<Range<usize>>,
}

impl Lexer {
    /// Takes one character of code, or one whole comment or literal; false at the end.
    fn step(&mut self) -> bool {
        let Some(c) = self.peek(0) else { return false };
        let start = self.at;
        match (c, self.peek(1)) {
            ('/', Some('/')) => {
                self.blank_until(|lexer| lexer.peek(0) == Some('\n'));
                self.comments.push(start..self.at);
            }
            ('/', Some('*')) => {
                self.block_comment();
                self.comments.push(start..self.at);
            }
            ('"', _) => self.quoted('"'),
            ('r', Some('"' | '#')) if !self.inside_word() && self.raw_string() => {}
            ('\'', _) if self.is_char_literal() => self.quoted('\''),
            _ => {
                self.code.push(c);
                self.at += 1;
            }
        }
        true
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    /// Whether the character before belongs to a name; `b` and `c` before an `r` do not.
    fn inside_word(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.rest.get(at));
        before.is_some_and(|c| is_word(*c) && !matches!(c, 'b' | 'c'))
    }

    fn blank(&mut self, count: usize) {
        for _ in 0..count {
            let Some(c) = self.peek(0) else { return };
            self.code.push(if c == '\n' { '\n' } else { ' ' });
            self.at += 1;
        }
    }

    fn blank_until(&mut self, done: impl Fn(&Self) -> bool) {
        while self.at < self.rest.len() && !done(self) {
            self.blank(1);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.rest.len() {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth = depth.saturating_sub(1),
                _ => {
                    self.blank(1);
                    continue;
                }
            }
            self.blank(2);
            if depth == 0 {
                return;
            }
        }
    }

    fn quoted(&mut self, quote: char) {
        self.keep();
        while let Some(c) = self.peek(0) {
            match c {
                '\\' => self.blank(2),
                _ if c == quote => return self.keep(),
                _ => self.blank(1),
            }
        }
    }

    /// Quotes stay in the code, so that a rule can see that there was a literal.
    fn keep(&mut self) {
        self.code.extend(self.peek(0));
        self.at += 1;
    }

    /// False, with nothing taken, if this is no raw string but a name such as `r#type`.
    fn raw_string(&mut self) -> bool {
        let hashes = self.rest[self.at + 1..].iter().take_while(|c| **c == '#').count();
        if self.peek(1 + hashes) != Some('"') {
            return false;
        }
        self.blank(2 + hashes);
        self.blank_until(|lexer| {
            lexer.peek(0) == Some('"') && (1..=hashes).all(|i| lexer.peek(i) == Some('#'))
        });
        self.blank(1 + hashes);
        true
    }

    /// `'a'` and `'\n'` are; the lifetime `'a` is not.
    fn is_char_literal(&self) -> bool {
        self.peek(1) == Some('\\') || self.peek(2) == Some('\'')
    }
}
