//! Rules about pages that people read: links lead somewhere, and every command is known to work.
//!
//! A command is a line of a fenced block of `sh` in README.md or in `docs/`. `docs/commands.toml`
//! names the test that runs it, or the day of its last run if that takes too long.
//!
//! A page with blocks of `console` is a transcript: the list names the program that replays it, and
//! the page has the day of the last replay.

use std::collections::BTreeMap;

use crate::{Finding, Repository, repository::File, source::contains_words};

/// Adds the relative links of `file` that lead to nothing in `repository`.
pub(crate) fn check_links(file: &File, repository: &Repository, findings: &mut Vec<Finding>) {
    if file.extension() != "md" {
        return;
    }
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    for (number, line) in prose(&file.text) {
        for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let to = link.split('#').next().unwrap_or("");
            if to.is_empty() || link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let known = resolved(folder, to).is_some_and(|path| repository.has(&path));
            if !known {
                let message =
                    format!("`{link}` leads to nothing: name a path from here that exists");
                findings.push(Finding::new(file, number, "link", message));
            }
        }
    }
}

/// Adds the commands that the list lacks, and the entries of the list that are wrong.
pub(crate) fn check_commands(repository: &Repository, findings: &mut Vec<Finding>) {
    let none = File { path: LIST.to_owned(), text: String::new(), executable: false };
    let list = repository.files.iter().find(|file| file.path == LIST).unwrap_or(&none);
    let mut entries = BTreeMap::new();
    let mut table = "";
    for (number, line) in numbered(&list.text) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = name;
        } else if let Some((command, proof)) = entry(line) {
            if let Some(wrong) = wrong_in(table, command, proof, repository) {
                findings.push(Finding::new(list, number, "command", wrong));
            }
            entries.insert(command.to_owned(), (number, false));
        } else if !line.is_empty() && !line.starts_with('#') {
            let message = "neither a table nor \"COMMAND\" = \"PROOF\": write it so";
            findings.push(Finding::new(list, number, "command", message));
        }
    }
    for file in repository.files.iter().filter(|file| is_page(file)) {
        let transcript = transcript(&file.text);
        if transcript.is_some() && !has_its_day(&file.text) {
            let message = format!("add a line with the day of its run: {REPLAYED}YYYY-MM-DD: ...");
            findings.push(Finding::new(file, 1, "command", message));
        }
        let transcript = transcript.map(|number| (number, file.path.clone()));
        for (number, command) in commands(&file.text).into_iter().chain(transcript) {
            match entries.get_mut(&command) {
                Some((_, is_shown)) => *is_shown = true,
                None => {
                    let message =
                        format!("`{command}` is not in {LIST}: add it with the test that runs it");
                    findings.push(Finding::new(file, number, "command", message));
                }
            }
        }
    }
    for (command, (number, _)) in entries.iter().filter(|(_, (_, is_shown))| !is_shown) {
        let message = format!("`{command}` is on no page: remove it");
        findings.push(Finding::new(list, *number, "command", message));
    }
}

/// Whether `file` is a page with commands that people type.
fn is_page(file: &File) -> bool {
    file.extension() == "md" && (file.path == "README.md" || file.path.starts_with("docs/"))
}

/// The mistake in the entry of a command, in one of the tables of the list.
fn wrong_in(table: &str, command: &str, proof: &str, repository: &Repository) -> Option<String> {
    match table {
        "elsewhere" => proof.is_empty().then(|| "add the reason why it cannot run here".to_owned()),
        "long" => (!begins_with_date(proof))
            .then(|| format!("`{proof}`: begin with the date of its last run, YYYY-MM-DD")),
        "replayed" => (!repository.has(proof))
            .then(|| format!("`{proof}`: name the program that replays the page")),
        "run" => {
            let (path, word) = proof.split_once(": ").unwrap_or((proof, ""));
            let file = repository.files.iter().find(|file| file.path == path);
            let file = file.filter(|file| !word.is_empty() && has_test(file, word));
            let Some(file) = file else {
                return Some(format!("`{proof}`: name a FILE: and a TEST that is in it"));
            };
            let mut options = command.split(' ').filter(|word| word.starts_with("--"));
            let untried = options.find(|option| !file.text.contains(option))?;
            Some(format!("{path} lacks {untried}: let the test run the same command"))
        }
        other => {
            Some(format!("no table [{other}]: it is [elsewhere], [long], [replayed] or [run]"))
        }
    }
}

/// The line in which `text` has the first commands with their output.
fn transcript(text: &str) -> Option<usize> {
    numbered(text).find(|(_, line)| *line == "```console").map(|(number, _)| number)
}

fn has_its_day(text: &str) -> bool {
    text.lines().any(|line| line.strip_prefix(REPLAYED).is_some_and(begins_with_date))
}

/// Whether `file` has the test `word`: a function, where there are functions.
fn has_test(file: &File, word: &str) -> bool {
    match file.extension() {
        "rs" => contains_words(&file.text, &format!("fn {word}")),
        _ => file.text.contains(word),
    }
}

fn begins_with_date(text: &str) -> bool {
    let pattern = "0000-00-00: ";
    text.len() > pattern.len()
        && text.bytes().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
            b'0' => byte.is_ascii_digit(),
            _ => byte == wanted,
        })
}

/// Command and proof of a line `"COMMAND" = "PROOF"`.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (command, proof) = line.split_once("\" = \"")?;
    Some((command.strip_prefix('"')?, proof.strip_suffix('"')?))
}

/// The commands in the blocks of `sh`, each with its line, on one line and without its remark.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut in_shell, mut begun) = (false, None::<(usize, String)>);
    for (number, line) in numbered(text) {
        if let Some(kind) = line.strip_prefix("```") {
            in_shell = kind == "sh";
        } else if in_shell && !line.trim_start().starts_with('#') {
            let line = line.split("  #").next().unwrap_or(line).trim();
            let (part, goes_on) =
                line.strip_suffix('\\').map_or((line, false), |part| (part.trim_end(), true));
            let whole = match begun.take() {
                Some((first, start)) => (first, format!("{start} {part}")),
                None => (number, part.to_owned()),
            };
            if goes_on {
                begun = Some(whole);
            } else if !whole.1.is_empty() {
                found.push(whole);
            }
        }
    }
    found
}

/// The lines that are no code, each with its number, without text between backticks.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut in_code = false;
    let lines = numbered(text).filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    lines.map(|(number, line)| (number, line.split('`').step_by(2).collect())).collect()
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line))
}

/// The target of `link` from `folder`, from the root of the repository; none if out of it.
fn resolved(folder: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// The front of the line with the day of a transcript.
const REPLAYED: &str = "Replayed on ";
/// The list of commands.
const LIST: &str = "docs/commands.toml";
