//! Rules about any text: its shape, and words that must not be in it.

use crate::{Finding, repository::File, source::contains_words};

/// Adds the violations in the text of `file`.
pub(crate) fn check(file: &File, findings: &mut Vec<Finding>) {
    if !GENERATED.contains(&file.name()) && !file.path.starts_with(SEEDS) {
        check_shape(file, findings);
        check_words(file, findings);
    }
}

fn check_shape(file: &File, findings: &mut Vec<Finding>) {
    let code = CODE.contains(&file.extension()) || file.text.starts_with("#!/");
    let page = PAGES.contains(&file.path.as_str()) || file.path.starts_with("docs/");
    let page = page && file.extension() == "md";
    for (number, line) in file.text.split('\n').enumerate().map(|(i, line)| (i + 1, line)) {
        if line.ends_with(char::is_whitespace) {
            findings.push(Finding::new(file, number, "whitespace", "ends in white space: cut it"));
        }
        let columns = line.chars().count();
        // A link cannot be broken, and has no blank in it; nor can the row of a table.
        let whole = line.contains("://") || (page && line.starts_with('|'));
        if (code || page) && columns > COLUMNS_MAX && !whole {
            let message = format!("{columns} columns, at most {COLUMNS_MAX}: break the line");
            findings.push(Finding::new(file, number, "line-length", message));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        let last = file.text.lines().count();
        findings.push(Finding::new(file, last, "whitespace", "the last line has no end: add it"));
    }
    let lines = file.text.lines().count();
    if code && lines > LINES_GOOD {
        let message = format!("{lines} lines, about {LINES_GOOD} are right: split it by topic");
        let mut finding = Finding::new(file, 1, "file-length", message);
        finding.fatal = lines > LINES_MAX;
        findings.push(finding);
    }
}

fn check_words(file: &File, findings: &mut Vec<Finding>) {
    // Base64 spells anything.
    if file.text.contains("-----BEGIN ") {
        return;
    }
    for (number, line) in file.text.lines().enumerate().map(|(i, line)| (i + 1, line)) {
        if UNFINISHED.iter().any(|word| contains_words(line, word)) {
            let message = "unfinished: finish it, or open an issue";
            findings.push(Finding::new(file, number, "unfinished", message));
        }
        let lower = line.to_lowercase();
        for host in REGISTRY_HOSTS.iter().filter(|host| lower.contains(*host)) {
            let message = format!("`{host}` is a registry's host: write cargo, npm, apt ...");
            findings.push(Finding::new(file, number, "registry-host", message));
        }
        for path in MACHINE_PATHS.iter().filter(|path| contains_path(line, path)) {
            let message = format!("`{path}` exists on one machine: use a path in the repository");
            findings.push(Finding::new(file, number, "machine-path", message));
        }
    }
}

/// Whether `line` holds `path` where a path begins, and not just the start of another name.
fn contains_path(line: &str, path: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| inner(c) || matches!(c, '.' | '/' | '}' | ')'))
            && !line[at + path.len()..].starts_with(inner)
    })
}

const COLUMNS_MAX: usize = 100;
const LINES_GOOD: usize = 400;
const LINES_MAX: usize = 800;

/// Written by programs.
const GENERATED: [&str; 3] = ["Cargo.lock", "go.sum", "package-lock.json"];

/// Input of strangers, byte for byte.
const SEEDS: &str = "fuzz/seeds/";

/// The first pages that people read, besides `docs/`: as wide as code.
const PAGES: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"];

/// Extensions of files that people read as code; scripts are known by their first line.
const CODE: [&str; 9] = ["c", "go", "h", "java", "js", "mjs", "py", "rs", "ts"];

// The words below are cut in two, so that this file passes its own rules.
const UNFINISHED: [&str; 3] = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];

const REGISTRY_HOSTS: [&str; 8] = [
    concat!("crates", ".io"),
    concat!("deb.debian", ".org"),
    concat!("files.pythonhosted", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("pypi", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("repo.maven.apache", ".org"),
    concat!("repo1.maven", ".org"),
];

const MACHINE_PATHS: [&str; 3] =
    [concat!("/ro", "ot"), concat!("/tmp", "/wt"), concat!("/wo", "rk")];
