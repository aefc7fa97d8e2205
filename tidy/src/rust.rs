//! Rules about Rust source wherever it is.

use crate::{
    Finding,
    repository::File,
    source::{Source, contains_words},
};

/// Adds the violations in a Rust file.
pub(crate) fn check(file: &File, source: &Source, findings: &mut Vec<Finding>) {
    if !file.text.starts_with("//!") {
        let message = "begin with `//!` and one sentence about the subject of the file";
        findings.push(Finding::new(file, 1, "module-doc", message));
    }
    let may_be_unsafe = may_be_unsafe(file);
    if let Some(attribute) = attribute_of_root(file)
        && !file.text.contains(attribute)
    {
        let message = format!("add `{attribute}`: a crate's root has it");
        findings.push(Finding::new(file, 1, "forbid-unsafe", message));
    }
    for number in ports_let_go(source) {
        let message = "another process can take the port after this statement: keep the \
                       listener, or take a ReservedPort";
        findings.push(Finding::new(file, number, "free-port", message));
    }
    for (number, word) in docs_without_noun(&file.text) {
        let message = format!("a doc line names its noun: it does not begin with `{word}`");
        findings.push(Finding::new(file, number, "doc-noun", message));
    }
    for (number, code) in source.code_lines() {
        if !may_be_unsafe && contains_words(code, "unsafe") {
            let message = format!("unsafe is for {UNSAFE_CRATES:?}: rustix has safe system calls");
            findings.push(Finding::new(file, number, "unsafe", message));
        }
        if let Some((_, name)) = code.split_once("fn get_") {
            let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
            let message = format!("`get_{name}`: remove `get_`, or name the work with a verb");
            findings.push(Finding::new(file, number, "get-prefix", message));
        }
        let module = code.split_once("mod ").map_or("", |(_, name)| name);
        let word = module.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        if BANNED_MODULES.contains(&word) {
            let message = format!("`mod {word}` has no meaning: name its subject");
            findings.push(Finding::new(file, number, "name", message));
        }
    }
}

/// The first lines of doc comments that begin with a word for an unnamed thing.
fn docs_without_noun(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut before = None;
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let mark = DOC_MARKS.into_iter().find(|mark| line.starts_with(mark));
        if let Some(mark) = mark
            && before != Some(mark)
        {
            let first = line[mark.len()..].split_whitespace().next().unwrap_or("");
            found
                .extend(NO_NOUNS.into_iter().find(|word| *word == first).map(|word| (i + 1, word)));
        }
        before = mark;
    }
    found
}

/// The lines on which a listener is bound, asked for its port, and dropped, all in one statement.
fn ports_let_go(source: &Source) -> Vec<usize> {
    let mut found = Vec::new();
    let mut statement = String::new();
    if !source.code_lines().any(|(_, code)| code.contains("Listener::bind(")) {
        return found;
    }
    for (number, code) in source.code_lines() {
        for c in code.chars().filter(|c| !c.is_whitespace()) {
            match c {
                ';' | '{' | '}' => statement.clear(),
                c => statement.push(c),
            }
            if statement.ends_with(".local_addr()") && statement.contains("Listener::bind(") {
                found.push(number);
            }
        }
    }
    found
}

/// The attribute about unsafe code that `file` needs, if it is a crate's root.
fn attribute_of_root(file: &File) -> Option<&'static str> {
    let path = file.path.as_str();
    let is_root =
        path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") || path.contains("/src/bin/");
    match file.top() {
        _ if !is_root => None,
        // Macros that a crate needs may contain it; the module with it has an attribute.
        "client-c" | "node" => Some("#![deny(unsafe_code)]"),
        _ if may_be_unsafe(file) => None,
        _ => Some("#![forbid(unsafe_code)]"),
    }
}

/// Whether `file` is in a crate that may contain unsafe code.
fn may_be_unsafe(file: &File) -> bool {
    let contains =
        |folder: &&str| file.path.strip_prefix(*folder).is_some_and(|rest| rest.starts_with('/'));
    UNSAFE_CRATES.iter().any(contains)
}

/// A lock-free ring, a table of open files, calls into C, from C and into the kernel's vDSO, memory
/// that JavaScript allocates and a file that is mapped into memory cannot be written without;
/// everything else can.
const UNSAFE_CRATES: [&str; 7] =
    ["bytering", "client-c", "file-table", "kernel-random", "lab/libssl", "node", "store"];

const DOC_MARKS: [&str; 2] = ["///", "//!"];

const NO_NOUNS: [&str; 4] = ["As", "It", "Its", "Of"];

const BANNED_MODULES: [&str; 7] =
    ["common", "helper", "helpers", "manager", "misc", "util", "utils"];
