//! Destinations of servers: maps as routes by server name, and groups of backends.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use sealane_config::value;

use super::super::plan::{Backend, Destination, Listener, NO_DEFAULT, Route, number};
use super::super::remark::{Line, ONE_LABEL, Remarks};
use super::syntax::Directive;
use super::{Shared, backend};

/// Routes by name if the target is a map, and a destination for the other names.
pub(super) fn lead(
    target: &str,
    line: &Line,
    shared: &Shared<'_>,
    destination: impl Fn(&str, &mut Remarks) -> Destination,
    listener: &mut Listener,
) {
    let Some(map) = shared.maps.get(target) else {
        let why = "Sealane knows of no variables but what a map makes of the server name";
        listener.remarks.left_out(line, "backends", why);
        return;
    };
    let mapped = Mapped::read(map, &mut listener.remarks);
    if !["$ssl_preread_server_name", "$ssl_server_name"].contains(&mapped.source) {
        let why = format!("a map of {}: routes are by server name", mapped.source);
        listener.remarks.left_out(&map.line, "backends", why);
        return;
    }
    listener.routes = routes(&mapped, &destination, &mut listener.remarks);
    listener.destination = match mapped.default {
        Some(target) => destination(target, &mut listener.remarks),
        None => {
            listener.remarks.left_out(&map.line, "backends", NO_DEFAULT);
            Destination::default()
        }
    };
}

pub(super) fn read_group(group: &Directive, destination: &mut Destination, remarks: &mut Remarks) {
    for directive in &group.block {
        let (line, words) = (&directive.line, directive.words.as_slice());
        match directive.name() {
            "least_conn" => destination.least_connections = true,
            "server" if words.iter().any(|word| word == "down") => {}
            "server" => {
                let address = words.get(1).map_or("", String::as_str);
                let mut added = Backend::at(backend(address));
                for option in words.iter().skip(2).map(String::as_str) {
                    set_option(option, &mut added, line, remarks);
                }
                destination.add_backend(added, line, remarks);
            }
            "zone" => {}
            name => {
                let why = format!("{name}: balance is \"round-robin\" or \"least-connections\"");
                remarks.left_out(line, "balance", why);
            }
        }
    }
}

/// Takes an option of a server of a group.
fn set_option(option: &str, backend: &mut Backend, line: &Line, remarks: &mut Remarks) {
    match option.split_once('=') {
        None if option == "backup" => backend.is_backup = true,
        Some(("weight", weight)) => {
            backend.weight = number(weight, WEIGHTS, line, "backends", remarks);
        }
        Some(("max_fails" | "fail_timeout", _)) => {
            let why = format!("{option}: a backend that fails rests for 1s to 32s");
            remarks.note(line, "backends", why);
        }
        _ => remarks.left_out(line, "backends", format!("{option}: {SERVER_OPTION}")),
    }
}

/// A map: the variable that it looks at, its backends by name, and its default.
struct Mapped<'d> {
    source: &'d str,
    by_target: BTreeMap<&'d str, Vec<String>>,
    default: Option<&'d str>,
}

impl<'d> Mapped<'d> {
    fn read(map: &'d Directive, remarks: &mut Remarks) -> Self {
        let source = map.words.get(1).map_or("", String::as_str);
        let has_wildcards = map.block.iter().any(|entry| entry.name() == "hostnames");
        let mut mapped = Self { source, by_target: BTreeMap::new(), default: None };
        for entry in &map.block {
            let target = entry.words.get(1).map_or("", String::as_str);
            match entry.name() {
                "default" => mapped.default = Some(target),
                "hostnames" | "volatile" => {}
                name => match names(name, has_wildcards) {
                    Ok(names) => {
                        if names.iter().any(|name| name.starts_with("*.")) {
                            remarks.left_out(&entry.line, "route.names", ONE_LABEL);
                        }
                        mapped.by_target.entry(target).or_default().extend(names);
                    }
                    Err(why) => remarks.left_out(&entry.line, "route.names", why),
                },
            }
        }
        mapped
    }
}

/// The names that match a key of a map: an exact name, or one with a star or a dot before it.
fn names(key: &str, has_wildcards: bool) -> Result<Vec<String>, String> {
    if key.starts_with('~') {
        return Err("names are exact or begin with *., and no expressions".into());
    }
    if !has_wildcards && key.starts_with(['*', '.']) {
        return Err("a map without \"hostnames\" has no wildcards, and nobody asks for this".into());
    }
    let written = match key.strip_prefix('.') {
        Some(bare) => vec![bare.to_owned(), format!("*.{bare}")],
        None => vec![key.to_owned()],
    };
    let read = written.iter().map(|name| value::host_name(name).map_err(|problem| problem.what));
    read.collect()
}

/// Routes of a map, each to its backends.
fn routes(
    mapped: &Mapped<'_>,
    destination: impl Fn(&str, &mut Remarks) -> Destination,
    remarks: &mut Remarks,
) -> Vec<Route> {
    let mut targets: Vec<_> = mapped.by_target.iter().collect();
    // By the names, because readers know those. The names of groups and addresses mean nothing
    // here.
    targets.sort_by_key(|(_, names)| *names);
    let each = targets.into_iter().map(|(target, names)| Route {
        names: names.clone(),
        destination: destination(target, remarks),
        ..Route::default()
    });
    each.collect()
}

const SERVER_OPTION: &str = "of options there are weight and backup; for max_conns write \
                             { address = \"HOST:PORT\", connections = COUNT }";
const WEIGHTS: RangeInclusive<usize> = 1..=256;
