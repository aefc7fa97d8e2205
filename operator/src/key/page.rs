//! The reference of a configuration file, as a page and as comments of an example file.

use std::collections::HashSet;

use super::{Group, Key};

/// The reference of `top` and all tables below it, in Markdown.
#[must_use]
pub fn page(top: &'static Group) -> String {
    let groups = tables(top);
    let explained = |group: &&'static Group| {
        let keys = group.keys.iter().filter(|key| !key.doc.is_empty());
        keys.map(|key| group.anchor(key.name)).collect::<Vec<_>>()
    };
    let keys: HashSet<String> = groups.iter().flat_map(explained).collect();
    let is_value = |group: &Group| keys.contains(group.path);
    let mut text = restarts(&groups);
    for group in groups.iter().filter(|group| !is_value(group)) {
        text += &format!("- [{}](#{})\n", title(group), group.table_anchor());
    }
    for group in groups {
        text += &match is_value(group) {
            true => format!("\n## Tables in {}\n\n", group.path),
            false => {
                format!("\n<a id=\"{}\"></a>\n\n## {}\n\n", group.table_anchor(), title(group))
            }
        };
        text += &section(group);
    }
    text
}

/// The keys that need a restart; a table where all keys do.
fn restarts(groups: &[&'static Group]) -> String {
    let mut links = Vec::new();
    for group in groups {
        if group.needs_restart {
            links.push(format!("all keys of [{0}](#{0})", group.path));
            continue;
        }
        let anchors = group.keys.iter().filter(|key| key.needs_restart);
        links.extend(anchors.map(|key| group.anchor(key.name)).map(|to| format!("[{to}](#{to})")));
    }
    let list: String = links.iter().map(|link| format!("- {link}\n")).collect();
    format!("These keys need a restart. A reload is enough for all other keys.\n\n{list}")
}

/// `top` and all tables below it, each once.
pub fn tables(top: &'static Group) -> Vec<&'static Group> {
    let mut found = vec![top];
    let mut next = 0;
    while let Some(group) = found.get(next).copied() {
        next += 1;
        let mut at = next;
        for inner in group.all().flat_map(|key| key.kind.groups()) {
            if !found.iter().any(|known| std::ptr::eq(*known, inner)) {
                found.insert(at, inner);
                at += 1;
            }
        }
    }
    found
}

/// The values for the example file: the default if there are no others.
fn examples(key: &Key) -> Vec<String> {
    match key.examples {
        [] => key.kind.default_text().into_iter().collect(),
        examples => examples.iter().map(|value| (*value).to_owned()).collect(),
    }
}

fn title(group: &Group) -> String {
    match group.path {
        "" => "Above the first table".to_owned(),
        path => format!("[{path}]"),
    }
}

fn section(group: &'static Group) -> String {
    let mut text = wrapped(&markdown(group.doc), "", "");
    if !group.example.is_empty() {
        text += &format!("\n```toml\n{}```\n", group.example);
    }
    let mut inner = Vec::new();
    for key in group.keys {
        match key.kind.groups()[..] {
            [table] if key.is_section() => {
                inner.push(format!("[{}](#{})", table.path, table.path));
            }
            _ => text += &of_key(group, key),
        }
    }
    if !inner.is_empty() {
        text += &format!("\n{}", wrapped(&format!("Tables: {}.", inner.join(", ")), "", ""));
    }
    if let Some(shared) = &group.shared {
        let link = |key: &&Key| match key.kind.groups()[..] {
            [inner] if key.is_section() => format!("[{}](#{})", key.name, inner.path),
            _ => format!("[{}](#{}.{})", key.name, shared.from, key.name),
        };
        let links: Vec<_> = shared.keys.iter().map(link).collect();
        let line = format!("{}: {}.", markdown(shared.doc).trim_end_matches('.'), links.join(", "));
        text += &format!("\n{}", wrapped(&line, "", ""));
    }
    text
}

fn of_key(group: &Group, key: &Key) -> String {
    let anchor = group.anchor(key.name);
    let mut text = format!("\n<a id=\"{anchor}\"></a>\n\n### {}\n\n", key.name);
    text += &wrapped(&markdown(key.doc), "", "");
    text.push('\n');
    let mut facts = vec![format!("Type: {}", markdown(&key.kind.describe()))];
    let default = key.default_text().map_or("none".to_owned(), |text| code(&text));
    facts.push(match key.is_required {
        true => "Required".to_owned(),
        false => format!("Default: {default}"),
    });
    let needs_restart = key.needs_restart || group.needs_restart;
    let change = if needs_restart { "at the next start" } else { "at a reload" };
    facts.push(format!("A change takes effect {change}"));
    if !key.see.is_empty() {
        let links: Vec<_> = key.see.iter().map(|to| format!("[{to}](#{to})")).collect();
        facts.push(format!("See also: {}", links.join(", ")));
    }
    text += &facts.iter().map(|fact| wrapped(fact, "- ", "  ")).collect::<String>();
    let lines: Vec<_> = examples(key).iter().map(|value| line(key, value)).collect();
    if !lines.is_empty() {
        text += &format!("\n```toml\n{}```\n", lines.join(OR));
    }
    text
}

/// The comment and the line of a key in an example file. The line is commented out unless its value
/// is the default, or the file needs the key.
#[must_use]
pub fn in_example(key: &Key, is_needed: bool) -> String {
    let examples = examples(key);
    let (first, others) = match &examples[..] {
        [first, others @ ..] => (first.as_str(), others),
        [] => ("", &[][..]),
    };
    let default = key.default_text();
    let is_default = default.as_deref() == Some(first);
    let mut doc = key.doc.to_owned();
    if let Some(bounds) = key.kind.bounds() {
        doc += &format!(" {}.", capitalized(&bounds));
    }
    if let Some(default) = default.filter(|_| !is_default) {
        doc += &format!(" Default: {default}.");
    }
    let mut text = wrapped(&doc, "# ", "# ");
    let written = line(key, first);
    text += &if key.is_alternative {
        commented(&written, "#   ")
    } else if is_default || is_needed {
        written
    } else {
        commented(&written, "# ")
    };
    for other in others {
        text += &format!("{OR}{}", commented(&line(key, other), "#   "));
    }
    text
}

/// The comment, the header and the keys of a table in an example file. Keys with an anchor in
/// `needed` are not commented out.
#[must_use]
pub fn table_in_example(group: &'static Group, header: &str, needed: &[&str]) -> String {
    let keys = group.keys.iter().filter(|key| !key.is_section());
    let keys = keys.map(|key| in_example(key, needed.contains(&&*group.anchor(key.name))));
    format!("{}{header}\n{}", wrapped(group.doc, "# ", "# "), keys.collect::<String>())
}

/// A line with a key and a value.
fn line(key: &Key, value: &str) -> String {
    format!("{} = {value}\n", key.name)
}

fn commented(lines: &str, mark: &str) -> String {
    lines.lines().map(|line| format!("{mark}{line}\n")).collect()
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A value as code, words as words.
fn code(text: &str) -> String {
    let is_value = text.starts_with(['"', '[', '{']) || text.parse::<usize>().is_ok();
    match is_value || matches!(text, "false" | "true") {
        true => format!("`{text}`"),
        false => markdown(text),
    }
}

/// Text for a page: an asterisk is no emphasis.
fn markdown(text: &str) -> String {
    text.replace('*', "\\*")
}

/// Lines of at most `COLUMNS_MAX` columns, the first one behind `first`, the others behind
/// `next`.
#[must_use]
pub fn wrapped(text: &str, first: &str, next: &str) -> String {
    let mut lines = String::new();
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let columns = line.chars().count() + 1 + word.chars().count();
        if !is_empty && columns > COLUMNS_MAX {
            lines += &format!("{line}\n");
            line = next.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    format!("{lines}{line}\n")
}

const COLUMNS_MAX: usize = 100;
/// Stands between two examples of one key.
const OR: &str = "# or:\n";
