//! The keys above the first table of a configuration file, and how the whole is read.

use std::num::NonZeroUsize;
use std::path::Path;

use sealane_engine::provider::ProviderChoice;
use sealane_operator::key::{Bool, Choice, Count, FileKeys, Group, Key, Or, TableKind};
use sealane_operator::mistake::{Mistake, Problem};
use sealane_operator::reader::{self, Table, Value};
use serde_json::Value as Json;

use crate::claims::Claims;
use crate::include::{INCLUDE, Included};
use crate::lanes::Lanes;
use crate::limits::Shared;
use crate::listener::Listener;
use crate::listeners::{LISTENER, PAGE, check_number_of_addresses, listener_list};
use crate::{Config, access_log, admin, default_lanes, limits, log, process, tickets};

/// Reads the text of a configuration file; `file` names it in messages, and relative paths start
/// beside it.
pub(crate) fn parse(file: &Path, text: &str) -> (Option<Config>, Vec<Mistake>) {
    reader::read(file, text, &KEYS, |top| config(top, None, |_, _, _| Included::default()))
}

/// The same, with the files that it includes; `running` lanes are there already if a process is to
/// go on with it.
pub(crate) fn parse_all(
    file: &Path,
    text: &str,
    running: Option<NonZeroUsize>,
) -> (Option<Config>, Vec<Mistake>) {
    let mut more = Vec::new();
    let (config, mut mistakes) = reader::read(file, text, &KEYS, |top| {
        config(top, running, |written, shared, claims| {
            let mut included = Included::read(file, written, shared, claims);
            more.append(&mut included.mistakes);
            included
        })
    });
    mistakes.append(&mut more);
    (config, mistakes)
}

/// The JSON Schema of a configuration file, for editors.
pub fn schema() -> Json {
    KEYS.schema("Configuration of Sealane")
}

fn config(
    top: &Table<'_>,
    running: Option<NonZeroUsize>,
    include: impl FnOnce(&Value<'_>, Shared<'_>, &mut Claims) -> Included,
) -> Option<Config> {
    let lanes = top.read(&LANES).and_then(NonZeroUsize::new);
    let pin_lanes = top.get(&PIN_LANES);
    let watch = top.get(&WATCH);
    let crypto = top.get(&CRYPTO);
    let lanes = Lanes { running, written: lanes.unwrap_or_else(default_lanes) };
    let limits = top.subtable(&LIMITS, |t| Some(limits::limits(t, lanes))).unwrap_or_default();
    let shared = Shared { lanes, limits: &limits };
    let mut claims = Claims::default();
    let admin = top.subtable(&ADMIN, |t| admin::admin(t, &mut claims)).unwrap_or_default();
    let process = top.subtable(&PROCESS, |t| Some(process::process(t))).unwrap_or_default();
    let log = top.subtable(&LOG, |table| Some(log::log(table))).unwrap_or_default();
    let access_log = top.subtable(&ACCESS_LOG, access_log::access_log);
    let tickets = top.subtable(&TICKETS, |t| Some(tickets::tickets(t))).unwrap_or_default();
    let store_key = top.subtable(&STORE_KEY, sealane_operator::store_key);
    let written_include = top.value(&INCLUDE);
    let written = match written_include {
        None => top.required(&LISTENER, LISTENER_EXAMPLE),
        Some(_) => top.value(&LISTENER),
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
        top.required(&STORE_KEY, STORE_KEY_EXAMPLE);
    }
    Some(Config {
        access_log,
        admin,
        crypto,
        included: sources,
        lanes: lanes.written,
        limits,
        listeners: listeners?,
        log,
        pin_lanes,
        process,
        store_key,
        tickets,
        watch,
    })
}

/// Most lanes that can be asked for.
pub const LANES_MAX: usize = 1024;

const STORE_KEY_EXAMPLE: &str =
    "[store_key] with file, credential or command: it opens the store of a listener";

const LISTENER_EXAMPLE: &str = "a [[listener]] with address, certificates and backends";

/// The keys of a file.
static KEYS: FileKeys = FileKeys { top: &TOP, page: PAGE };

/// The keys above the first table, with those of all tables.
pub(crate) static TOP: Group = Group::new(
    "",
    "Keys above the first [table].",
    &[
        &INCLUDE,
        &LANES,
        &WATCH,
        &PIN_LANES,
        &CRYPTO,
        &PROCESS,
        &ADMIN,
        &LOG,
        &ACCESS_LOG,
        &TICKETS,
        &STORE_KEY,
        &LIMITS,
        &LISTENER,
    ],
);

static LANES: Key<Count> =
    Key::new("lanes", Count(1..=LANES_MAX), "How many event loops run, one thread each.")
        .examples(&["4"])
        .without("one for each core")
        .restart();

static WATCH: Key<Or<Bool>> = Key::new(
    "watch",
    Or(Bool, true),
    "Whether a change of this file or of a certificate reloads. If not, SIGHUP or `sealane reload` \
     does.",
);

static PIN_LANES: Key<Or<Bool>> =
    Key::new("pin_lanes", Or(Bool, false), "Binds each lane to one core.").restart();

static CRYPTO: Key<Or<Choice<ProviderChoice>>> = Key::new(
    "crypto",
    Or(
        Choice(&[
            ("auto", ProviderChoice::Auto),
            ("aws-lc", ProviderChoice::AwsLc),
            ("graviola", ProviderChoice::Graviola),
        ]),
        ProviderChoice::Auto,
    ),
    "The cryptographic library. \"auto\" is graviola where the processor has the instructions that \
     it needs, and AWS-LC elsewhere.",
);

static PROCESS: Key<TableKind> = Key::new("process", TableKind(&process::GROUP), "");
static ADMIN: Key<TableKind> = Key::new("admin", TableKind(&admin::GROUP), "");
static LOG: Key<TableKind> = Key::new("log", TableKind(&log::GROUP), "");

static ACCESS_LOG: Key<TableKind> = Key::new("access_log", TableKind(&access_log::GROUP), "");
static TICKETS: Key<TableKind> = Key::new("tickets", TableKind(&tickets::GROUP), "");
static LIMITS: Key<TableKind> = Key::new("limits", TableKind(&limits::GROUP), "");
static STORE_KEY: Key<TableKind> = Key::new("store_key", TableKind(&STORE_KEY_GROUP), "");

static STORE_KEY_GROUP: Group = Group::new(
    "store_key",
    "The keys that open the private keys in certificate stores (store:PATH), one on each line; the \
     first one seals. A key is 32 bytes in base64: openssl rand -base64 32. Required if a listener \
     or [tickets] has a store. One of the three sources.",
    &sealane_operator::SECRET_KEYS,
);
