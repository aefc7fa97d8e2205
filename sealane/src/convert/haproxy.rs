//! Reads HAProxy's configuration, of which proxies in TCP mode matter.

mod backend;
mod bind;
mod condition;
mod frontend;
mod routes;
mod syntax;

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use super::files::Files;
use super::plan::{CONNECTIONS, Plan, number};
use super::remark::{Line, Remarks};
use crate::config::{LANES_MAX, Mistakes};

use bind::{Bases, Binding};
use syntax::{Section, Statement};

/// Reads the text of a file, and of the lists of certificates that it names.
///
/// # Errors
/// What HAProxy would not read either.
pub(super) fn read(text: &str, file: &Path, files: &mut Files) -> Result<Plan, Mistakes> {
    let sections = syntax::sections(text, file)?;
    let mut plan = Plan::default();
    let mut world = World { files, bases: Bases::default(), common: Binding::default() };
    for section in sections.iter().filter(|section| section.kind == "global") {
        for statement in &section.statements {
            global(statement, &mut world, &mut plan);
        }
    }
    for section in &sections {
        match section.kind.as_str() {
            kind if PROXIES.contains(&kind) => {
                frontend::read(section, &sections, &mut world, &mut plan);
            }
            "backend" | "defaults" | "global" => {}
            _ => plan.remarks.left_out(&section.line, "", syntax::section_reason(&section.kind)),
        }
    }
    let targets = targets(&sections);
    for section in sections.iter().filter(|section| section.kind == "backend") {
        if !targets.contains(section.name.as_str()) {
            let why = "no frontend that is carried over leads there";
            plan.remarks.left_out(&section.line, "", why);
        }
    }
    for section in sections.iter().filter(|section| section.kind == "defaults") {
        for statement in &section.statements {
            if !IN_DEFAULTS.contains(&statement.name()) {
                syntax::tell_without_key(statement, "", &mut plan.remarks);
            }
        }
    }
    Ok(plan)
}

/// What holds for all proxies.
struct World<'w> {
    bases: Bases,
    /// What `ssl-default-bind-...` says.
    common: Binding,
    files: &'w mut Files,
}

fn global(statement: &Statement, world: &mut World<'_>, plan: &mut Plan) {
    let (line, remarks) = (&statement.line, &mut plan.remarks);
    let first = statement.word(1);
    match statement.name() {
        "ca-base" => world.bases.authorities = Some(first.to_owned()),
        "crt-base" => world.bases.certificates = Some(first.to_owned()),
        "maxconn" => {
            plan.connections = number(first, CONNECTIONS, line, "limits.connections", remarks);
        }
        "nbthread" => plan.lanes = number(first, 1..=LANES_MAX, line, "lanes", remarks),
        "ssl-default-bind-ciphers" => world.common.tls.set_ciphers(first, line, remarks),
        "ssl-default-bind-ciphersuites" => world.common.tls.set_ciphersuites(first, line, remarks),
        "ssl-default-bind-curves" => world.common.tls.set_groups(first, line, remarks),
        "ssl-default-bind-options" => {
            let mut words = statement.words.iter().skip(1).map(String::as_str).peekable();
            while let Some(word) = words.next() {
                if !world.common.set_tls_option(word, &mut words, line, remarks) {
                    remarks.left_out(line, "", format!("{word}: {}", bind::reason(word)));
                }
            }
        }
        _ => syntax::tell_without_key(statement, "", remarks),
    }
}

/// A time as HAProxy writes it; a number alone is milliseconds.
fn time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let count = count.parse::<u64>().ok()?;
    let unit_us = match unit {
        "" | "ms" => 1_000,
        "d" => 86_400_000_000,
        "h" => 3_600_000_000,
        "m" => 60_000_000,
        "s" => 1_000_000,
        "us" => 1,
        _ => return None,
    };
    count.checked_mul(unit_us).map(|us| Duration::from_millis(us.div_ceil(1_000)))
}

/// The section of a kind and name.
fn section<'s>(sections: &'s [Section], kinds: &[&str], name: &str) -> Option<&'s Section> {
    sections.iter().find(|each| kinds.contains(&each.kind.as_str()) && each.name == name)
}

/// Backends to which proxies that are carried over lead.
fn targets(sections: &[Section]) -> HashSet<&str> {
    let mut targets = HashSet::new();
    for proxy in sections.iter().filter(|each| PROXIES.contains(&each.kind.as_str())) {
        let statements = with_defaults(proxy, sections);
        if http_mode(&statements).is_none() && disabled(&statements).is_none() {
            let leads =
                |each: &&&Statement| ["default_backend", "use_backend"].contains(&each.name());
            targets.extend(statements.iter().filter(leads).map(|each| each.word(1)));
        }
    }
    targets
}

/// Where a proxy is disabled, if it is.
fn disabled<'s>(statements: &[&'s Statement]) -> Option<&'s Statement> {
    let is_about = |each: &&&'s Statement| ["disabled", "enabled"].contains(&each.name());
    let last = statements.iter().rev().find(is_about)?;
    (last.name() == "disabled").then_some(*last)
}

/// Where it is said that requests are read, if it is the last word about it.
fn http_mode<'s>(statements: &[&'s Statement]) -> Option<&'s Statement> {
    let mode = statements.iter().rev().find(|statement| statement.name() == "mode")?;
    (mode.word(1) == "http").then_some(*mode)
}

/// What a proxy says, after what its defaults and theirs say; lines about HTTP alone count nothing
/// there.
fn with_defaults<'s>(section: &'s Section, sections: &'s [Section]) -> Vec<&'s Statement> {
    let above = |section: &&'s Section| section.defaults.map(|index| &sections[index]);
    let mut levels: Vec<_> = std::iter::successors(Some(section), above).collect();
    levels.reverse();
    let mut statements: Vec<&Statement> = Vec::new();
    for level in levels {
        let said: HashSet<_> = level.statements.iter().filter_map(replaced).collect();
        statements.retain(|above| replaced(above).is_none_or(|subject| !said.contains(&subject)));
        statements.extend(&level.statements);
    }
    statements
}

/// What a statement replaces in the defaults; none for one that adds to them.
fn replaced(statement: &Statement) -> Option<[&str; 2]> {
    match statement.name() {
        "default-server" => None,
        "timeout" => Some(["timeout", statement.word(1)]),
        "disabled" | "enabled" => Some(["disabled", ""]),
        name => Some([name, ""]),
    }
}

/// Whether a statement stands in a section of its own, and not in its defaults.
fn is_own(statement: &Statement, section: &Section) -> bool {
    section.statements.iter().any(|own| std::ptr::eq(own, statement))
}

/// Says that a time cannot be read.
fn no_time(line: &Line, key: &'static str, text: &str, remarks: &mut Remarks) {
    remarks.left_out(line, key, format!("{text:?} is no time"));
}

/// What proxies take from their defaults.
const IN_DEFAULTS: &[&str] = &[
    "balance",
    "default-server",
    "default_backend",
    "disabled",
    "enabled",
    "maxconn",
    "mode",
    "timeout",
];
/// Sections that listen.
const PROXIES: [&str; 2] = ["frontend", "listen"];
