//! Reads HAProxy's configuration, of which proxies in TCP mode matter.

mod backend;
mod bind;
mod condition;
mod frontend;
mod syntax;

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
            "frontend" | "listen" => frontend::read(section, &sections, &mut world, &mut plan),
            "backend" | "defaults" | "global" => {}
            _ => plan.remarks.left_out(&section.line, "", syntax::section_reason(&section.kind)),
        }
    }
    for section in sections.iter().filter(|section| section.kind == "backend") {
        if !is_led_to(section, &sections) {
            let why = "no frontend that is carried over leads there";
            plan.remarks.left_out(&section.line, "", why);
        }
    }
    for section in sections.iter().filter(|section| section.kind == "defaults") {
        for statement in &section.statements {
            if let Some(why) = syntax::reason(statement.name(), IN_DEFAULTS) {
                plan.remarks.left_out(&statement.line, "", why);
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
        name => {
            let why = syntax::reason(name, &[]).unwrap_or_default();
            remarks.left_out(line, "", why);
        }
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

/// Whether a proxy that relays bytes leads to a backend.
fn is_led_to(backend: &Section, sections: &[Section]) -> bool {
    let mut proxies =
        sections.iter().filter(|each| ["frontend", "listen"].contains(&each.kind.as_str()));
    proxies.any(|proxy| {
        let statements = with_defaults(proxy, sections);
        let leads = |each: &&Statement| {
            ["default_backend", "use_backend"].contains(&each.name())
                && each.word(1) == backend.name
        };
        http_mode(&statements).is_none() && statements.iter().copied().any(|each| leads(&each))
    })
}

/// Where it is said that requests are read, if it is the last word about it.
fn http_mode<'s>(statements: &[&'s Statement]) -> Option<&'s Statement> {
    let mode = statements.iter().rev().find(|statement| statement.name() == "mode")?;
    (mode.word(1) == "http").then_some(*mode)
}

/// What a proxy says, after what its defaults say; lines about HTTP alone count nothing there.
fn with_defaults<'s>(section: &'s Section, sections: &'s [Section]) -> Vec<&'s Statement> {
    let defaults = match &section.defaults {
        Some(index) => sections[*index].statements.as_slice(),
        None => &[],
    };
    let is_said = |name: &Statement| {
        section.statements.iter().any(|own| {
            own.name() == name.name() && (own.name() != "timeout" || own.word(1) == name.word(1))
        })
    };
    let inherited = defaults.iter().filter(|each| !is_said(each));
    inherited.chain(&section.statements).collect()
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
const IN_DEFAULTS: &[&str] =
    &["balance", "default-server", "default_backend", "maxconn", "mode", "timeout"];
