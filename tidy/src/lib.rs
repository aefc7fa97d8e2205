//! The rules of CONTRIBUTING.md that a program can check: [`check`] finds violations in a
//! [`Repository`].
//!
//! Rules of rustfmt, clippy and cargo-deny are not checked again. A message names the remedy. A
//! remark made twice in review belongs here.
#![forbid(unsafe_code)]

mod circles;
mod history;
mod language;
mod layers;
mod names;
mod pages;
mod repository;
mod rust;
mod source;
mod subjects;
mod text;

pub use language::{LANGUAGE_FILE, Language};
pub use repository::{File, Repository};
pub use source::Source;

use std::fmt;

/// Everything in `repository` that breaks a rule, in the order of its files.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut language = Language::without_files(repository);
    for file in &repository.files {
        names::check(file, &mut findings);
        text::check(file, &mut findings);
        pages::check_links(file, repository, &mut findings);
        layers::check_manifest(file, &mut findings);
        if let Some(source) = repository.source(file) {
            rust::check(file, source, &mut findings);
            language.add_rust(file, source);
            if !repository.is_test(file) {
                layers::check_source(file, source, &mut findings);
            }
        } else {
            language.add(file);
        }
    }
    language.check(repository, &mut findings);
    subjects::check(repository, &mut findings);
    circles::check(repository, &mut findings);
    pages::check_commands(repository, &mut findings);
    findings
}

/// One place that breaks one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Relative to the root of the repository.
    pub path: String,
    /// Counted from 1.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// The mistake and its remedy.
    pub message: String,
    /// Whether it fails the check; others are warnings.
    pub fatal: bool,
}

impl Finding {
    fn new(file: &File, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, rule, message: message.into(), fatal: true }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.fatal { "error" } else { "warning" };
        write!(f, "{}:{}: {level}: {} [{}]", self.path, self.line, self.message, self.rule)
    }
}

#[cfg(test)]
mod tests;
