//! The count of files of each crate in circles of imports: at most [`BUDGETS`], which only fall.
//!
//! An arrow leads from a file to each file that it reaches by a path that begins with `crate` or
//! `super`, in `use` declarations and elsewhere, tests excluded. A file and its own submodules are
//! not a circle only because the file declares and re-exports them.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Finding,
    repository::{File, Repository},
    source::Source,
};

/// Adds each crate with more, or fewer, files in circles than its budget.
pub(crate) fn check(repository: &Repository, findings: &mut Vec<Finding>) {
    check_against(&BUDGETS, repository, findings);
}

fn check_against(budgets: &[(&str, usize)], repository: &Repository, findings: &mut Vec<Finding>) {
    let is_crate = |file: &&File| file.name() == "Cargo.toml" && file.text.contains("[package]");
    for manifest in repository.files.iter().filter(is_crate) {
        let folder = manifest.path.trim_end_matches("Cargo.toml").trim_end_matches('/');
        let arrows = arrows(folder, repository);
        if arrows.is_empty() {
            continue;
        }
        let circles = circles(&arrows);
        let count: usize = circles.iter().map(Vec::len).sum();
        let row = budgets.iter().find(|(name, _)| *name == folder);
        let budget = row.map_or(0, |(_, budget)| *budget);
        if count > budget {
            let message = format!(
                "{count} files import each other in circles, the budget is {budget}: move the \
                 type that two files need below both; {circles:?}"
            );
            findings.push(Finding::new(manifest, 1, "circle", message));
        } else if count < budget {
            let message = format!(
                "only {count} files import each other in circles: lower the budget of {budget} \
                 in tidy/src/circles.rs"
            );
            findings.push(Finding::new(manifest, 1, "circle", message));
        }
    }
}

/// The files of the crate in `folder`, relative to its `src`, each with those that it imports.
fn arrows(folder: &str, repository: &Repository) -> BTreeMap<String, BTreeSet<String>> {
    let source_folder = if folder.is_empty() { "src/".into() } else { format!("{folder}/src/") };
    let is_shipped = |file: &&File| file.extension() == "rs" && !repository.is_test(file);
    let files = repository.files.iter().filter(is_shipped);
    let modules: BTreeMap<Vec<String>, &File> = files
        .filter_map(|file| Some((module_of(file.path.strip_prefix(&source_folder)?), file)))
        .collect();
    let name = |file: &&File| file.path[source_folder.len()..].to_owned();
    let mut arrows = BTreeMap::new();
    for (module, file) in &modules {
        let mut imported = BTreeSet::new();
        let Some(source) = repository.source(file) else { continue };
        for path in paths(source, module) {
            // The longest front of the path that is a file; the rest is an item in it.
            let target = (1..=path.len()).rev().find_map(|len| modules.get(&path[..len]));
            imported.extend(target.filter(|target| target.path != file.path).map(name));
        }
        arrows.insert(name(file), imported);
    }
    arrows
}

/// The module of a file, as the names that lead to it from the root of its crate.
fn module_of(path: &str) -> Vec<String> {
    let module = path.strip_suffix(".rs").unwrap_or(path);
    let module = module.strip_suffix("/mod").unwrap_or(module);
    match module {
        "lib" | "main" => Vec::new(),
        _ => module.split('/').map(str::to_owned).collect(),
    }
}

/// The paths in a file of `module` that begin with `crate` or `super`, from the root of the crate.
fn paths(source: &Source, module: &[String]) -> Vec<Vec<String>> {
    let lines: Vec<_> = source.shipped_lines();
    let tokens: Vec<&str> = lines.iter().flat_map(|(_, line)| split(line)).collect();
    let mut found = Vec::new();
    let mut left = &tokens[..];
    while let [token, rest @ ..] = left {
        let before = &tokens[..tokens.len() - left.len()];
        let is_visibility = before.ends_with(&["pub", "("]) || before.ends_with(&["(", "in"]);
        let is_middle = before.ends_with(&["::"]);
        let begins_path = matches!(*token, "crate" | "super") && !is_visibility && !is_middle;
        left = if begins_path { add_tree(left, &[], &mut found) } else { rest };
    }
    found.into_iter().filter_map(|path| from_root(&path, module)).collect()
}

fn from_root(path: &[&str], module: &[String]) -> Option<Vec<String>> {
    let ups = path.iter().take_while(|name| **name == "super").count();
    let base = match path.first()? {
        &"crate" => &[][..],
        _ => &module[..module.len().checked_sub(ups)?],
    };
    let names = path.iter().skip(ups.max(1)).filter(|name| **name != "self");
    Some(base.iter().cloned().chain(names.map(|name| (*name).to_owned())).collect())
}

/// Adds the paths of the tree at the front of `tokens`, such as `a::{b, c::d}`; returns the rest.
fn add_tree<'t, 's>(
    mut tokens: &'t [&'s str],
    front: &[&'s str],
    paths: &mut Vec<Vec<&'s str>>,
) -> &'t [&'s str] {
    let mut path = front.to_vec();
    loop {
        match tokens {
            [name, "::", rest @ ..] if is_name(name) => {
                path.push(*name);
                tokens = rest;
            }
            [name, rest @ ..] if is_name(name) => {
                path.push(*name);
                paths.push(path);
                return match rest {
                    ["as", _, rest @ ..] => rest,
                    _ => rest,
                };
            }
            ["{", rest @ ..] => {
                tokens = rest;
                while let [first, others @ ..] = tokens
                    && *first != "}"
                {
                    tokens = if is_name(first) { add_tree(tokens, &path, paths) } else { others };
                }
                return tokens.get(1..).unwrap_or(&[]);
            }
            // A glob, or the generic arguments of the item before.
            _ => {
                paths.push(path);
                return tokens;
            }
        }
    }
}

/// Names, `::`, and every other character alone.
fn split(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let name_len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let len = match name_len {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            _ => name_len,
        };
        found.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The sets of files that reach each other, each in alphabetical order.
fn circles(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|file| (file.as_str(), reached_from(file, arrows))).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in &reached {
        // A file that is in a circle reaches itself.
        let circle: Vec<&str> =
            others.iter().copied().filter(|other| reached[other].contains(file)).collect();
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reached_from<'a>(
    file: &str,
    arrows: &'a BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&str> = arrows[file].iter().map(String::as_str).collect();
    while let Some(next) = left.pop() {
        if reached.insert(next) {
            left.extend(arrows[next].iter().map(String::as_str));
        }
    }
    reached
}

/// Files in circles that a crate may have; a crate that is not listed has none.
const BUDGETS: [(&str, usize); 8] = [
    ("client-c", 2),
    ("engine", 9),
    ("lab/exhibits", 22),
    ("lab/libssl", 5),
    ("lab/report", 6),
    ("lab/servers", 12),
    ("lab/sharing", 2),
    ("lab/stacks", 2),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let files = [
            ("store/src/lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
            ("store/src/a.rs", "use crate::{b::{self, B}, error::Error};\n"),
            ("store/src/b.rs", "fn f() -> crate::a::A { g() }\n"),
            ("store/src/error.rs", "pub struct Error;\n"),
        ];
        assert_eq!(circles_of(&files), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn super_is_the_parent_module() {
        let files = [
            ("store/src/a.rs", "mod b;\nuse crate::c::C;\n"),
            ("store/src/a/b.rs", "use super::super::c::C;\nuse super::A;\n"),
            ("store/src/c.rs", "use crate::a::b::B as Other;\n"),
        ];
        assert_eq!(circles_of(&files), [["a.rs", "a/b.rs", "c.rs"]]);
    }

    #[test]
    fn a_parent_that_declares_a_child_is_no_circle() {
        let files = [
            ("store/src/a.rs", "mod b;\npub(crate) use b::B;\npub(in crate::a) struct A;\n"),
            ("store/src/a/b.rs", "pub(super) struct B;\nimpl super::A {}\n"),
        ];
        assert!(circles_of(&files).is_empty());
    }

    #[test]
    fn tests_comments_and_literals_import_nothing() {
        let files = [
            ("store/src/a.rs", "use crate::b::B;\n"),
            (
                "store/src/b.rs",
                "// crate::a::A\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
            ("store/src/tests/c.rs", "use crate::a::A;\n"),
        ];
        assert!(circles_of(&files).is_empty());
    }

    #[test]
    fn a_crate_keeps_its_budget_exactly() {
        let rules = |text: &str| {
            let mut findings = Vec::new();
            let files = [
                ("store/Cargo.toml", "[package]\n"),
                ("store/src/lib.rs", "\n"),
                ("reserved-port/Cargo.toml", "[package]\n"),
                ("reserved-port/src/a.rs", "use crate::b::B;\n"),
                ("reserved-port/src/b.rs", text),
            ];
            check_against(&[("store", 2)], &repository(&files), &mut findings);
            findings.into_iter().map(|finding| finding.path).collect::<Vec<_>>()
        };
        assert_eq!(rules("use crate::a::A;\n"), ["store/Cargo.toml", "reserved-port/Cargo.toml"]);
        assert_eq!(rules("\n"), ["store/Cargo.toml"], "its budget is more than it needs");
    }

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let arrows = arrows("store", &repository(files));
        let owned = |circle: Vec<&str>| circle.into_iter().map(str::to_owned).collect();
        circles(&arrows).into_iter().map(owned).collect()
    }

    fn repository(files: &[(&str, &str)]) -> Repository {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
            executable: false,
        };
        Repository::new(files.iter().map(file).collect())
    }
}
