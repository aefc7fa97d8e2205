//! The syntax of hitch's configuration: [`Setting`]s, some of them with others in a block.

use std::iter::Peekable;
use std::path::Path;
use std::rc::Rc;

use sealane_config::{Mistake, Mistakes, Place, Problem};

use super::super::remark::Line;

/// A setting with its value, or values.
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) line: Line,
    pub(super) value: Value,
}

pub(super) enum Value {
    Block(Vec<Setting>),
    Words(Vec<String>),
}

impl Setting {
    /// The first word of the value; empty for a block.
    pub(super) fn word(&self) -> &str {
        match &self.value {
            Value::Words(words) => words.first().map_or("", String::as_str),
            Value::Block(_) => "",
        }
    }
}

/// The settings of a text.
pub(super) fn settings(text: &str, file: &Path) -> Result<Vec<Setting>, Mistakes> {
    Parser { file: file.into(), tokens: Tokens::new(text).peekable() }.settings(false)
}

/// Reads settings out of tokens.
struct Parser<'t> {
    file: Rc<Path>,
    tokens: Peekable<Tokens<'t>>,
}

impl Parser<'_> {
    /// Settings up to the end, or to the bracket that closes a block.
    fn settings(&mut self, in_block: bool) -> Result<Vec<Setting>, Mistakes> {
        let mut settings = Vec::new();
        let mut last = 1;
        while let Some((number, token)) = self.tokens.next() {
            last = number;
            match token {
                Token::Close if in_block => return Ok(settings),
                Token::Text(key) => settings.push(self.setting(number, &key, in_block)?),
                _ => return Err(self.broken(number, "a setting begins with its name")),
            }
        }
        match in_block {
            true => Err(self.broken(last, "the block has no end")),
            false => Ok(settings),
        }
    }

    fn setting(&mut self, number: usize, key: &str, in_block: bool) -> Result<Setting, Mistakes> {
        if !matches!(self.tokens.next(), Some((_, Token::Equals))) {
            return Err(self.broken(number, "a setting has = behind its name"));
        }
        let line = |text: &str| Line::new(&self.file, number, text);
        match self.tokens.next() {
            Some((_, Token::Open)) if !in_block => {
                let line = line(&format!("{key} = {{ ... }}"));
                let value = Value::Block(self.settings(true)?);
                Ok(Setting { key: key.to_owned(), line, value })
            }
            Some((_, Token::Text(first))) => {
                let mut words = vec![first];
                // Versions of TLS are several words.
                while key == "tls-protos"
                    && let Some((at, Token::Text(_))) = self.tokens.peek()
                    && *at == number
                    && let Some((_, Token::Text(word))) = self.tokens.next()
                {
                    words.push(word);
                }
                let line = line(&format!("{key} = {}", words.join(" ")));
                Ok(Setting { key: key.to_owned(), line, value: Value::Words(words) })
            }
            _ => Err(self.broken(number, "a setting has a value behind =")),
        }
    }

    fn broken(&self, number: usize, what: &str) -> Mistakes {
        let place = Place { file: self.file.to_path_buf(), line: Some(number), column: None };
        let problem = Problem::new(what, "is it a configuration of hitch? \"hitch --test\" tells");
        Mistakes(vec![Mistake { place: Some(place), field: String::new(), problem }])
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Close,
    Equals,
    Open,
    /// A word, or the text between quotes.
    Text(String),
}

/// The tokens of a text, each with the number of its line.
struct Tokens<'t> {
    line: usize,
    rest: &'t str,
}

impl<'t> Tokens<'t> {
    fn new(text: &'t str) -> Self {
        Self { line: 1, rest: text }
    }

    /// Takes `len` bytes off.
    fn take(&mut self, len: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(len);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }
}

impl Iterator for Tokens<'_> {
    type Item = (usize, Token);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.take(blank);
            if !self.rest.starts_with('#') {
                break;
            }
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
        let line = self.line;
        let token = match self.rest.chars().next()? {
            '{' => Token::Open,
            '}' => Token::Close,
            '=' => Token::Equals,
            '"' => {
                self.take(1);
                let len = self.rest.find('"').unwrap_or(self.rest.len());
                let text = self.take(len).to_owned();
                self.take(usize::from(!self.rest.is_empty()));
                return Some((line, Token::Text(text)));
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || "{}=\"#".contains(c);
                let len = self.rest.find(ends).unwrap_or(self.rest.len());
                return Some((line, Token::Text(self.take(len).to_owned())));
            }
        };
        self.take(1);
        Some((line, token))
    }
}
