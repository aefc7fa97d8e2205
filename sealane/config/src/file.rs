//! The keys above the first table of a configuration file, and how the whole is read.

use std::num::NonZeroUsize;
use std::path::Path;

use sealane_engine::provider::ProviderChoice;
use sealane_operator::mistake::{Mistake, Problem};
use sealane_operator::reader::{self, Table, Value};

use crate::access_log::access_log;
use crate::admin::admin;
use crate::claims::Claims;
use crate::include::Included;
use crate::lanes::Lanes;
use crate::limits::{Shared, limits};
use crate::listener::Listener;
use crate::listeners::{check_number_of_addresses, listener_list};
use crate::process::process;
use crate::tickets::tickets;
use crate::{Config, default_lanes};

/// Reads the text of a configuration file; `file` names it in messages, and relative paths start
/// beside it.
pub(crate) fn parse(file: &Path, text: &str) -> (Option<Config>, Vec<Mistake>) {
    reader::read(file, text, |top| config(top, None, |_, _, _| Included::default()))
}

/// The same, with the files that it includes; `running` lanes are there already if a process is to
/// go on with it.
pub(crate) fn parse_all(
    file: &Path,
    text: &str,
    running: Option<NonZeroUsize>,
) -> (Option<Config>, Vec<Mistake>) {
    let mut more = Vec::new();
    let (config, mut mistakes) = reader::read(file, text, |top| {
        config(top, running, |written, shared, claims| {
            let mut included = Included::read(file, written, shared, claims);
            more.append(&mut included.mistakes);
            included
        })
    });
    mistakes.append(&mut more);
    (config, mistakes)
}

fn config(
    top: &mut Table<'_>,
    running: Option<NonZeroUsize>,
    include: impl FnOnce(&Value<'_>, Shared<'_>, &mut Claims) -> Included,
) -> Option<Config> {
    let lanes = top.count("lanes", 1..=LANES_MAX).and_then(NonZeroUsize::new);
    let pin_lanes = top.boolean("pin_lanes").unwrap_or(false);
    let watch = top.boolean("watch").unwrap_or(true);
    let crypto = top.value("crypto").and_then(|v| v.choice(&CRYPTO)).unwrap_or_default();
    let lanes = Lanes { running, written: lanes.unwrap_or_else(default_lanes) };
    let limits = top.table("limits", |t| Some(limits(t, lanes))).unwrap_or_default();
    let shared = Shared { lanes, limits: &limits };
    let mut claims = Claims::default();
    let admin = top.table("admin", |t| admin(t, &mut claims)).unwrap_or_default();
    let process = top.table("process", |t| Some(process(t))).unwrap_or_default();
    let access_log = top.table("access_log", access_log);
    let tickets = top.table("tickets", |t| Some(tickets(t))).unwrap_or_default();
    let store_key = top.table("store_key", sealane_operator::store_key);
    let written_include = top.value("include");
    let written = match written_include {
        None => top.required("listener", LISTENER_EXAMPLE),
        Some(_) => top.value("listener"),
    };
    let own = written.as_ref().map(|v| listener_list(v, shared, &mut claims));
    let included = written_include.as_ref().map(|v| include(v, shared, &mut claims));
    let Included { listeners: more, sources, .. } = included.unwrap_or_default();
    let listeners = own.unwrap_or_default().or_else(|| written_include.as_ref().map(|_| vec![]));
    let listeners = listeners.map(|own| [own, more].concat());
    if let (Some(at), Some([])) = (&written_include, listeners.as_deref())
        && sources.iter().all(|source| source.is_dir())
    {
        let what = "no file is there, and without one there is no listener";
        at.wrong(Problem::new(what, "put a file with a [[listener]] there"));
    }
    if let (Some(at), Some(listeners)) = (written.or(written_include), &listeners) {
        check_number_of_addresses(listeners, &limits, &at);
    }
    let has_store = |listeners: &Vec<Listener>| listeners.iter().any(|l| l.store.is_some());
    let is_in_store = tickets.root.as_ref().is_some_and(|root| root.store().is_some());
    if store_key.is_none() && (is_in_store || listeners.as_ref().is_some_and(has_store)) {
        top.required("store_key", STORE_KEY_EXAMPLE);
    }
    Some(Config {
        access_log,
        admin,
        crypto,
        included: sources,
        lanes: lanes.written,
        limits,
        listeners: listeners?,
        pin_lanes,
        process,
        store_key,
        tickets,
        watch,
    })
}

/// Most lanes that can be asked for.
pub const LANES_MAX: usize = 1024;

const CRYPTO: [(&str, ProviderChoice); 3] = [
    ("auto", ProviderChoice::Auto),
    ("aws-lc", ProviderChoice::AwsLc),
    ("graviola", ProviderChoice::Graviola),
];

const STORE_KEY_EXAMPLE: &str =
    "[store_key] with file, credential or command: it opens the store of a listener";

const LISTENER_EXAMPLE: &str = "a [[listener]] with address, certificates and backends";
