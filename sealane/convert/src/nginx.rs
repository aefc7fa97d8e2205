//! Reads nginx's configuration, of which the stream module matters.

mod access;
mod routes;
mod server;
mod syntax;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use sealane_config::{LANES_MAX, Mistakes};

use super::files::Files;
use super::plan::{Plan, number};
use super::remark::{Line, Remarks};

use server::Server;
use syntax::Directive;

/// Reads the text of a file, and of those that it includes.
///
/// # Errors
/// nginx would not read it either.
pub(super) fn read(text: &str, file: &Path, files: &mut Files) -> Result<Plan, Mistakes> {
    let mut plan = Plan::default();
    let directives = syntax::directives(text, file, files, &mut plan.remarks)?;
    for directive in &directives {
        if files.are_spent() {
            break;
        }
        let (line, words) = (&directive.line, directive.words.as_slice());
        match directive.name() {
            "stream" => stream(&directive.block, files, &mut plan),
            "worker_processes" if words.get(1).is_some_and(|word| word == "auto") => {}
            "worker_processes" => {
                let count = words.get(1).map_or("", String::as_str);
                plan.lanes = number(count, 1..=LANES_MAX, line, "lanes", &mut plan.remarks);
            }
            _ => syntax::tell_without_key(directive, &mut plan.remarks),
        }
    }
    Ok(plan)
}

/// The blocks next to the servers of a stream, by name.
struct Shared<'d> {
    files: &'d Files,
    /// Zones of `limit_conn`: whether they count by the client's address.
    zones: HashMap<&'d str, bool>,
    maps: HashMap<&'d str, &'d Directive>,
    groups: HashMap<&'d str, &'d Directive>,
}

fn stream<'d>(directives: &'d [Directive], files: &'d Files, plan: &mut Plan) {
    let mut shared =
        Shared { files, zones: HashMap::new(), maps: HashMap::new(), groups: HashMap::new() };
    let (mut inherited, mut servers) = (Vec::new(), Vec::new());
    for directive in directives {
        let word = |index: usize| directive.words.get(index).map_or("", String::as_str);
        match directive.name() {
            "limit_conn_zone" => {
                let zone = word(2).strip_prefix("zone=").and_then(|zone| zone.split(':').next());
                let by_client = ["$binary_remote_addr", "$remote_addr"].contains(&word(1));
                shared.zones.insert(zone.unwrap_or_default(), by_client);
            }
            "map" => {
                shared.maps.insert(word(2), directive);
            }
            "server" => servers.push(directive),
            "upstream" => {
                shared.groups.insert(word(1), directive);
            }
            _ => inherited.push(directive),
        }
    }
    tell_unused(directives, &shared, &mut plan.remarks);
    for server in servers {
        let target = server.block.iter().rev().find(|each| each.name() == "proxy_pass");
        let target = target.and_then(|each| each.words.get(1)).map_or("", String::as_str);
        let map = shared.maps.get(target);
        let entries = map.map_or(0, |map| map.block.len());
        if !files.spend_on_copies(inherited.len() + server.block.len() + entries + 1) {
            break;
        }
        // A server's own directive replaces the one above it.
        let said: HashSet<_> = server.block.iter().map(|own| subject(own.name())).collect();
        let above = inherited.iter().copied().filter(|above| !said.contains(subject(above.name())));
        Server::default().put_into(plan, above.chain(&server.block), &shared, &server.line);
    }
}

/// The subject of a directive: its name, or `allow` for `deny`, because both are in one list.
fn subject(name: &str) -> &str {
    if name == "deny" { "allow" } else { name }
}

/// Adds a remark for each map or group of backends that is not used: it is left out.
fn tell_unused(directives: &[Directive], shared: &Shared<'_>, remarks: &mut Remarks) {
    let mut targets = HashSet::new();
    for directive in directives {
        let leads = |each: &&Directive| directive.name() == "map" || each.name() == "proxy_pass";
        let words = directive.block.iter().filter(leads).filter_map(|each| each.words.get(1));
        targets.extend(words.map(String::as_str));
        if directive.name() == "proxy_pass" {
            targets.extend(directive.words.get(1).map(String::as_str));
        }
    }
    let mut unused: Vec<_> = shared.maps.iter().chain(&shared.groups).collect();
    unused.retain(|(name, _)| !targets.contains(*name));
    unused.sort_by_key(|(_, directive)| directive.line.number);
    for (_, directive) in unused {
        remarks.left_out(&directive.line, "", "no server leads there");
    }
}

/// Writes nginx's form of a backend in Sealane's form.
fn backend(text: &str) -> String {
    text.strip_prefix("unix:")
        .map_or_else(|| text.to_owned(), |path| format!("unix:{}", path.trim_end_matches(':')))
}

/// A time as nginx writes it, in milliseconds; a number alone is seconds.
fn time_ms(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "" | "s" => 1_000,
        "d" => 86_400_000,
        "h" => 3_600_000,
        "m" => 60_000,
        "ms" => 1,
        "w" => 604_800_000,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(unit_ms)
}

/// Adds a remark about a line with a value that cannot be used.
fn broken(line: &Line, key: &'static str, what: &str, remarks: &mut Remarks) {
    remarks.left_out(line, key, format!("{what:?} cannot be read"));
}
