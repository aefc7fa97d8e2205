//! The table `[fleet]`: machines that share certificates through a cluster of etcd.

use std::time::Duration;

use sealane_engine::tickets::{LIFETIME_DEFAULT_S, LIFETIME_S_MAX, LIFETIME_S_MIN};
use sealane_operator::key::{Group, Key, Or, PathKind, Set, SharedKeys, Span, TableKind, Text};
use sealane_operator::reader::Table;
use sealane_operator::{KeySource, Problem, SECRET_KEYS, secret_source, value};

use super::identity::Identity;
use super::parts::{RootSource, Roots, roots, roots_key};
use super::url::{Way, way_to};

/// Machines that share certificates, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// The cluster that they share.
    pub etcd: EtcdSettings,
    /// How long an order is this machine's, after the last word from it.
    pub lease: Duration,
    /// The name of this machine, which no other has.
    pub machine: String,
    /// What stands before each of their keys; ends with `/`.
    pub prefix: String,
    /// How long an epoch of ticket keys lasts, in whole seconds.
    pub ticket_lifetime: Duration,
    /// How long a root of ticket keys holds until another takes its place.
    pub ticket_root_every: Duration,
}

/// A cluster of etcd, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// URLs for clients, without a path.
    pub endpoints: Vec<String>,
    /// What this machine shows it.
    pub identity: Option<Identity>,
    /// Who this machine is to it.
    pub login: Option<EtcdLogin>,
    /// Whom its certificates are held against.
    pub roots: Vec<RootSource>,
}

/// A user of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdLogin {
    /// Where the password comes from.
    pub password: KeySource,
    /// The user's name.
    pub user: String,
}

/// Reads the table.
pub(super) fn fleet(table: &Table<'_>) -> Option<FleetSettings> {
    let endpoints = table.required(&ETCD, "etcd = [\"https://10.0.0.1:2379\"]");
    let endpoints = endpoints.and_then(|all| ETCD.read(&all));
    let roots = roots(table, &ROOTS).unwrap_or_else(|| vec![RootSource::System]);
    let prefix = table.required(&PREFIX, "prefix = \"/sealane/prod/\"");
    let prefix = prefix.and_then(|value| PREFIX.read(&value));
    let machine = match table.value(&MACHINE) {
        Some(name) => MACHINE.read(&name),
        None => own_name(table),
    };
    let lease = table.get(&LEASE);
    let (identity, login) = (identity(table), login(table));
    let ticket_lifetime = ticket_lifetime(table);
    let ticket_root_every = table.get(&TICKET_ROOT_EVERY);
    Some(FleetSettings {
        etcd: EtcdSettings { endpoints: endpoints?, identity: identity?, login: login?, roots },
        lease,
        machine: machine?,
        prefix: prefix?,
        ticket_lifetime,
        ticket_root_every,
    })
}

/// How long a ticket key seals, in whole seconds as `tickets.lifetime` of what serves.
fn ticket_lifetime(table: &Table<'_>) -> Duration {
    let written = table.value(&TICKET_LIFETIME);
    let lifetime = written.as_ref().and_then(|value| TICKET_LIFETIME.read(value));
    if let (Some(value), Some(lifetime)) = (written, lifetime)
        && lifetime.subsec_nanos() != 0
    {
        value.wrong(Problem::new("a fraction of a second", "write whole seconds"));
    }
    lifetime.unwrap_or_else(|| TICKET_LIFETIME.default())
}

/// What this machine shows the cluster; none where half of it is missing.
fn identity(table: &Table<'_>) -> Option<Option<Identity>> {
    let certificate = table.value(&CERTIFICATE);
    if certificate.is_none() {
        table.refuse(&[KEY.name], "has no certificate", "name the certificate, or remove it");
        return Some(None);
    }
    let key = table.required(&KEY, "key = \"/etc/sealane/etcd.key\"");
    let (certificate, key) = (certificate?.path(), key.and_then(|key| key.path()));
    Some(Some(Identity { certificate: certificate?, key: key? }))
}

/// Who this machine is to the cluster; none where half of it is missing.
fn login(table: &Table<'_>) -> Option<Option<EtcdLogin>> {
    let Some(user) = table.value(&USER) else {
        table.refuse(&[PASSWORD.name], "has no user", "name the user of etcd, or remove it");
        return Some(None);
    };
    let password = table.required(&PASSWORD, PASSWORD_EXAMPLE);
    let password = password.and_then(|value| {
        value.table(PASSWORD.kind.0, |t| secret_source(t, "file = \"/etc/sealane/etcd.password\""))
    });
    let user = USER.read(&user);
    Some(Some(EtcdLogin { password: password?, user: user? }))
}

fn endpoint(text: &str) -> Result<String, Problem> {
    let text = text.trim_end_matches('/');
    let uri = text.parse::<http::Uri>().ok().filter(|uri| uri.path() == "/");
    match way_to(uri.as_ref()) {
        Way::Closed => Ok(text.to_owned()),
        Way::Open => {
            let what = format!("{text:?} would carry the password and who asks for what in clear");
            Err(Problem::new(what, "give etcd a certificate, and write https"))
        }
        Way::Nowhere => {
            let what = format!("{text:?} is not the URL of an etcd");
            Err(Problem::new(what, "write its client URL, such as \"https://10.0.0.1:2379\""))
        }
    }
}

fn prefix_of_keys(text: &str) -> Result<String, Problem> {
    let is_prefix = text.starts_with('/')
        && text.ends_with('/')
        && text.len() <= PREFIX_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_prefix {
        true => Ok(text.to_owned()),
        false => {
            let what = format!("{text:?} does not begin and end with / or is no short plain text");
            Err(Problem::new(what, "write one like \"/sealane/prod/\""))
        }
    }
}

fn machine_name(text: &str) -> Result<String, Problem> {
    let is_name = (1..=MACHINE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match is_name {
        true => Ok(text.to_owned()),
        false => {
            let what = format!("{text:?} is no name of a machine");
            Err(Problem::new(what, "write letters, digits, - and ., and another for each machine"))
        }
    }
}

/// The name that the system has.
fn own_name(table: &Table<'_>) -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = machine_name(name.trim()).ok();
    if name.is_none() {
        table.required(&MACHINE, "machine = \"edge-1\"");
    }
    name
}

const MACHINE_BYTES_MAX: usize = 128;
const PASSWORD_EXAMPLE: &str = "password = { file = \"/etc/sealane/etcd.password\" }";
const PREFIX_BYTES_MAX: usize = 128;

pub(super) static FLEET: Key<TableKind> = Key::new("fleet", TableKind(&GROUP), "");

static GROUP: Group = Group::new(
    "fleet",
    "Machines that share certificates, challenges, accounts and ticket roots through etcd 3.4 or \
     newer. Off without this table. docs/fleet.md explains it. A change takes effect at the next \
     start.",
    &[
        &ETCD,
        &ROOTS,
        &CERTIFICATE,
        &KEY,
        &USER,
        &PASSWORD,
        &PREFIX,
        &MACHINE,
        &LEASE,
        &TICKET_LIFETIME,
        &TICKET_ROOT_EVERY,
    ],
)
.restart();

static ETCD: Key<Set<Text<String>>> = Key::new(
    "etcd",
    Set(Text("URL, with http on this machine only", endpoint), 16),
    "The client URLs of the members of etcd.",
)
.examples(&["[\"https://10.0.0.1:2379\", \"https://10.0.0.2:2379\", \"https://10.0.0.3:2379\"]"])
.required();

static ROOTS: Key<Roots> =
    roots_key("Roots of trust for etcd: \"system\" and PEM files. A changed file is read again.")
        .examples(&["[\"/etc/sealane/etcd-ca.pem\"]"]);

static CERTIFICATE: Key<PathKind> = Key::new(
    "certificate",
    PathKind,
    "The client certificate of this machine in PEM, if etcd asks for one. It needs key.",
)
.examples(&["\"/etc/sealane/etcd.pem\""])
.without("no certificate");

static KEY: Key<PathKind> = Key::new(
    "key",
    PathKind,
    "The private key of the certificate, in PEM. Other users must not be able to read it.",
)
.examples(&["\"/etc/sealane/etcd.key\""]);

static USER: Key<Text<String>> = Key::new(
    "user",
    Text("text", value::word),
    "The user of etcd. It needs password: over this interface etcd takes no user from a \
     certificate.",
)
.examples(&["\"sealane\""])
.without("no user");

static PASSWORD: Key<TableKind> = Key::new(
    "password",
    TableKind(&PASSWORD_GROUP),
    "The source of the user's password: one of file, credential and command, as in [store_key].",
)
.examples(&["{ file = \"/etc/sealane/etcd.password\" }"])
.see(&["store_key"]);

static PASSWORD_GROUP: Group = Group::new("fleet.password", "The source of the password.", &[])
    .shared(SharedKeys {
        from: "store_key",
        doc: "Keys of [store_key], for a password.",
        keys: &SECRET_KEYS,
    });

static PREFIX: Key<Text<String>> = Key::new(
    "prefix",
    Text("text of at most 128 characters that begins and ends with /", prefix_of_keys),
    "The prefix of all keys of the fleet in etcd.",
)
.examples(&["\"/sealane/prod/\""])
.required();

static MACHINE: Key<Text<String>> = Key::new(
    "machine",
    Text("at most 128 letters, digits, -, _ and .", machine_name),
    "The name of this machine in the fleet. Each machine has another one.",
)
.examples(&["\"edge-1\""])
.without("the host name");

static LEASE: Key<Or<Span>> = Key::new(
    "lease",
    // etcd elects a leader within a second or two.
    Or(Span(Duration::from_secs(5)..=Duration::from_hours(1)), Duration::from_mins(1)),
    "How long a machine that orders a certificate may be silent until another one takes over.",
);

static TICKET_LIFETIME: Key<Or<Span>> = Key::new(
    "ticket_lifetime",
    Or(
        Span(
            Duration::from_secs(LIFETIME_S_MIN as u64)..=Duration::from_secs(LIFETIME_S_MAX as u64),
        ),
        Duration::from_secs(LIFETIME_DEFAULT_S as u64),
    ),
    "How long one ticket key seals tickets: the same as tickets.lifetime in sealane.toml. Whole \
     seconds.",
);

static TICKET_ROOT_EVERY: Key<Or<Span>> = Key::new(
    "ticket_root_every",
    Or(
        Span(Duration::from_mins(10)..=Duration::from_hours(365 * 24)),
        Duration::from_hours(7 * 24),
    ),
    "How often the fleet gets a new ticket root.",
);
