//! Reads HAProxy's configuration, of which proxies in TCP mode matter.

mod access;
mod backend;
mod bases;
mod bind;
mod condition;
mod frontend;
mod in_front;
mod mutual;
mod routes;
mod syntax;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use sealane_config::{LANES_MAX, Mistakes};

use super::files::Files;
use super::plan::{CONNECTIONS, KeepAlive, Plan, host_and_port, number};
use super::remark::{Line, Remarks};

use bases::Bases;
use bind::Binding;
use syntax::{Section, Statement};

/// Reads the text of a file, and of the lists of certificates that it names.
///
/// # Errors
/// HAProxy would not read it either.
pub(super) fn read(text: &str, file: &Path, files: &mut Files) -> Result<Plan, Mistakes> {
    let sections = syntax::sections(text, file)?;
    let mut plan = Plan::default();
    let mut named = HashMap::new();
    for section in sections.iter().filter(|each| ["backend", "listen"].contains(&&*each.kind)) {
        named.entry(section.name.as_str()).or_insert(section);
    }
    let ports = ports(&sections);
    let (bases, common) = (Bases::default(), Binding::default());
    let mut world = World { bases, common, files, loads_keys: true, named, ports };
    for section in sections.iter().filter(|section| section.kind == "global") {
        for statement in &section.statements {
            global(statement, &mut world, &mut plan);
        }
    }
    for section in &sections {
        match section.kind.as_str() {
            kind if PROXIES.contains(&kind) => {
                if world.files.are_spent() {
                    break;
                }
                frontend::read(section, &sections, &mut world, &mut plan);
            }
            "backend" | "defaults" | "global" => {}
            _ => plan.remarks.left_out(&section.line, "", syntax::section_reason(&section.kind)),
        }
    }
    let targets = targets(&sections, world.files);
    for section in sections.iter().filter(|section| section.kind == "backend") {
        if !targets.contains(section.name.as_str()) {
            let why = "no frontend that is carried over leads there";
            plan.remarks.note(&section.line, "", why);
        }
    }
    for section in sections.iter().filter(|section| section.kind == "defaults") {
        for statement in &section.statements {
            let is_taken = is_keepalive(statement) || backend::is_check(statement);
            if !IN_DEFAULTS.contains(&statement.name()) && !is_taken {
                syntax::tell_without_key(statement, "", &mut plan.remarks);
            }
        }
    }
    Ok(plan)
}

/// Settings and state for all proxies.
struct World<'w> {
    bases: Bases,
    /// The settings of `ssl-default-bind-...`.
    common: Binding,
    files: &'w mut Files,
    /// Whether the key of a certificate may be in a separate file.
    loads_keys: bool,
    /// Sections that have servers, by name: the first counts.
    named: HashMap<&'w str, &'w Section>,
    /// Ports that the file names.
    ports: HashSet<u16>,
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
        "ssl-load-extra-files" => {
            world.loads_keys =
                statement.words.iter().skip(1).any(|word| word == "all" || word == "key");
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

/// Ports that addresses of a file end with.
fn ports(sections: &[Section]) -> HashSet<u16> {
    let statements = sections.iter().flat_map(|section| &section.statements);
    let words = statements.flat_map(|statement| statement.words.iter().skip(1));
    let addresses = words.flat_map(|word| word.split(','));
    addresses.filter_map(|address| host_and_port(address).1.parse().ok()).collect()
}

/// Backends to which proxies that are carried over lead.
fn targets<'s>(sections: &'s [Section], files: &Files) -> HashSet<&'s str> {
    let mut targets = HashSet::new();
    for proxy in sections.iter().filter(|each| PROXIES.contains(&each.kind.as_str())) {
        let statements = with_defaults(proxy, sections, files);
        if http_mode(&statements).is_none() && disabled(&statements).is_none() {
            let leads =
                |each: &&&Statement| ["default_backend", "use_backend"].contains(&each.name());
            targets.extend(statements.iter().filter(leads).map(|each| each.word(1)));
        }
    }
    targets
}

/// The statement that disables a proxy, if there is one.
fn disabled<'s>(statements: &[&'s Statement]) -> Option<&'s Statement> {
    let is_about = |each: &&&'s Statement| ["disabled", "enabled"].contains(&each.name());
    let last = statements.iter().rev().find(is_about)?;
    (last.name() == "disabled").then_some(*last)
}

/// The statement by which HTTP requests are read, if the last mode is that.
fn http_mode<'s>(statements: &[&'s Statement]) -> Option<&'s Statement> {
    let mode = statements.iter().rev().find(|statement| statement.name() == "mode")?;
    (mode.word(1) == "http").then_some(*mode)
}

/// The statements of a proxy, behind those of its defaults and of their defaults. Lines about HTTP
/// alone are ignored in defaults.
fn with_defaults<'s>(
    section: &'s Section,
    sections: &'s [Section],
    files: &Files,
) -> Vec<&'s Statement> {
    let above = |section: &&'s Section| section.defaults.map(|index| &sections[index]);
    let levels = std::iter::successors(Some(section), above);
    // Defaults may name other defaults without end, so each level costs a step.
    let mut levels: Vec<_> = levels.take_while(|_| files.spend(1)).collect();
    levels.reverse();
    let mut statements: Vec<&Statement> = Vec::new();
    for level in levels {
        if !files.spend(statements.len() + level.statements.len() + 1) {
            break;
        }
        let said: HashSet<_> = level.statements.iter().filter_map(replaced).collect();
        statements.retain(|above| replaced(above).is_none_or(|subject| !said.contains(&subject)));
        statements.extend(&level.statements);
    }
    statements
}

/// The key of the default that a statement replaces, or `None` for one that adds to the defaults.
fn replaced(statement: &Statement) -> Option<[&str; 2]> {
    match statement.name() {
        "acl" | "default-server" | "tcp-request" => None,
        "no" if statement.word(1) == "option" => Some(["option", statement.word(2)]),
        "option" => Some(["option", statement.word(1)]),
        "timeout" => Some(["timeout", statement.word(1)]),
        "disabled" | "enabled" => Some(["disabled", ""]),
        name => Some([name, ""]),
    }
}

/// Whether a statement is in the section itself, and not in its defaults.
fn is_own(statement: &Statement, section: &Section) -> bool {
    section.statements.as_ptr_range().contains(&std::ptr::from_ref(statement))
}

/// Whether a statement is about keepalive probes of TCP.
fn is_keepalive(statement: &Statement) -> bool {
    let options = ["clitcpka", "srvtcpka", "tcpka"];
    let is_option = statement.name() == "option" && options.contains(&statement.word(1));
    is_option || KEEPALIVE.contains(&statement.name())
}

/// Takes a statement about keepalive probes of one side.
fn take_keepalive(statement: &Statement, side: &str, keepalive: &mut Option<KeepAlive>) {
    let both = KeepAlive::after(LINUX_KEEPALIVE_S);
    let named = statement.name().split_once("tcpka-").filter(|(of, _)| *of == side);
    let Some((_, part)) = named else {
        let option = statement.word(1);
        if option == "tcpka" || option.strip_suffix("tcpka") == Some(side) {
            keepalive.get_or_insert(both);
        }
        return;
    };
    let value = statement.word(1);
    let seconds = time(value).map(|time| time.as_secs()).filter(|s| (1..=32_767).contains(s));
    // Without the option HAProxy sends none.
    let Some(keepalive) = keepalive else { return };
    match part {
        "cnt" => keepalive.count = value.parse().unwrap_or(keepalive.count).clamp(1, 127),
        "idle" => keepalive.idle_s = seconds.unwrap_or(keepalive.idle_s),
        _ => keepalive.every_s = seconds.unwrap_or(keepalive.every_s),
    }
}

/// Adds a remark that a time cannot be read.
fn no_time(line: &Line, key: &'static str, text: &str, remarks: &mut Remarks) {
    remarks.left_out(line, key, format!("{text:?} is no time"));
}

/// Statements that proxies take from their defaults.
const IN_DEFAULTS: &[&str] = &[
    "acl",
    "balance",
    "default-server",
    "default_backend",
    "disabled",
    "enabled",
    "maxconn",
    "mode",
    "tcp-request",
    "timeout",
];
/// Settings of keepalive probes; another option decides whether probes are sent.
const KEEPALIVE: [&str; 6] = [
    "clitcpka-cnt",
    "clitcpka-idle",
    "clitcpka-intvl",
    "srvtcpka-cnt",
    "srvtcpka-idle",
    "srvtcpka-intvl",
];
/// The default of TCP_KEEPIDLE in Linux.
const LINUX_KEEPALIVE_S: u64 = 7_200;
/// Sections that listen.
const PROXIES: [&str; 2] = ["frontend", "listen"];
