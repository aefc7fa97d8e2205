//! Rules about Rust source wherever it is.

use crate::{
    Finding,
    repository::File,
    source::{Source, contains_words},
};

/// Adds what a Rust file breaks.
pub(crate) fn check(file: &File, source: &Source, findings: &mut Vec<Finding>) {
    if !file.text.starts_with("//!") {
        let message = "begin with `//!` and one sentence about what the file is for";
        findings.push(Finding::new(file, 1, "module-doc", message));
    }
    let may_be_unsafe = UNSAFE_CRATES.contains(&file.top());
    if is_crate_root(file) && !may_be_unsafe && !file.text.contains(FORBID_UNSAFE) {
        let message = format!("a crate's root says `{FORBID_UNSAFE}`");
        findings.push(Finding::new(file, 1, "forbid-unsafe", message));
    }
    for (number, code) in source.code_lines() {
        if !may_be_unsafe && contains_words(&code, "unsafe") {
            let message = format!("unsafe is for {UNSAFE_CRATES:?}: rustix has safe system calls");
            findings.push(Finding::new(file, number, "unsafe", message));
        }
        if let Some((_, name)) = code.split_once("fn get_") {
            let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
            let message = format!("`get_{name}`: leave `get_` off, or say what the work is");
            findings.push(Finding::new(file, number, "get-prefix", message));
        }
        for word in BANNED_MODULES {
            if contains_words(&code, &format!("mod {word}")) {
                let message = format!("`mod {word}` says nothing: name what it is about");
                findings.push(Finding::new(file, number, "name", message));
            }
        }
    }
}

fn is_crate_root(file: &File) -> bool {
    let path = file.path.as_str();
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") || path.contains("/src/bin/")
}

const FORBID_UNSAFE: &str = "#![forbid(unsafe_code)]";

/// A lock-free ring, calls into C and a file that is mapped into memory cannot be written without;
/// everything else can.
const UNSAFE_CRATES: [&str; 3] = ["bytering", "libssl", "store"];

const BANNED_MODULES: [&str; 7] =
    ["common", "helper", "helpers", "manager", "misc", "util", "utils"];
