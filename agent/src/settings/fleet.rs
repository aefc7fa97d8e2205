//! The table `[fleet]`: machines that share certificates through a cluster of etcd.

use std::ops::RangeInclusive;
use std::time::Duration;

use sealane_engine::tickets::{LIFETIME_DEFAULT_S, LIFETIME_S_MAX, LIFETIME_S_MIN};
use sealane_operator::reader::{Table, Value};
use sealane_operator::{KeySource, Problem, secret_source, value};

use super::identity::Identity;
use super::parts::{ROOTS_MAX, RootSource, root_source};
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
pub(super) fn fleet(table: &mut Table<'_>) -> Option<FleetSettings> {
    let endpoints = table.required("etcd", "etcd = [\"https://10.0.0.1:2379\"]");
    let endpoints = endpoints.and_then(|all| all.set(ENDPOINTS_MAX, |each| each.parsed(endpoint)));
    let roots = table.value("roots").and_then(|all| all.set(ROOTS_MAX, root_source));
    let prefix = table.required("prefix", "prefix = \"/sealane/prod/\"");
    let prefix = prefix.and_then(|value| value.parsed(prefix_of_keys));
    let machine = match table.value("machine") {
        Some(name) => name.parsed(machine_name),
        None => own_name(table),
    };
    let lease = table.duration("lease", LEASE_MIN..=LEASE_MAX);
    let (identity, login) = (identity(table), login(table));
    let ticket_lifetime = ticket_lifetime(table);
    let ticket_root_every = table.duration("ticket_root_every", TICKET_ROOT_EVERY);
    Some(FleetSettings {
        etcd: EtcdSettings {
            endpoints: endpoints?,
            identity: identity?,
            login: login?,
            roots: roots.unwrap_or_else(|| vec![RootSource::System]),
        },
        lease: lease.unwrap_or(LEASE_DEFAULT),
        machine: machine?,
        prefix: prefix?,
        ticket_lifetime,
        ticket_root_every: ticket_root_every.unwrap_or(TICKET_ROOT_EVERY_DEFAULT),
    })
}

/// How long a ticket key seals, in whole seconds as `tickets.lifetime` of what serves.
fn ticket_lifetime(table: &mut Table<'_>) -> Duration {
    let written = table.value("ticket_lifetime");
    let lifetime = written.as_ref().and_then(|value| value.duration(TICKET_LIFETIME));
    if let (Some(value), Some(lifetime)) = (written, lifetime)
        && lifetime.subsec_nanos() != 0
    {
        value.wrong(Problem::new("a fraction of a second", "write whole seconds"));
    }
    lifetime.unwrap_or(Duration::from_secs(LIFETIME_DEFAULT_S as u64))
}

/// What this machine shows the cluster; none where half of it is missing.
fn identity(table: &mut Table<'_>) -> Option<Option<Identity>> {
    let certificate = table.value("certificate");
    if certificate.is_none() {
        table.refuse(&["key"], "has no certificate", "name the certificate, or remove it");
        return Some(None);
    }
    let key = table.required("key", "key = \"/etc/sealane/etcd.key\"");
    let (certificate, key) = (certificate?.path(), key.and_then(|key| key.path()));
    Some(Some(Identity { certificate: certificate?, key: key? }))
}

/// Who this machine is to the cluster; none where half of it is missing.
fn login(table: &mut Table<'_>) -> Option<Option<EtcdLogin>> {
    let Some(user) = table.value("user") else {
        table.refuse(&["password"], "has no user", "name the user of etcd, or remove it");
        return Some(None);
    };
    let password = table.required("password", PASSWORD_EXAMPLE);
    let read = |value: Value<'_>| {
        value.table(|table| secret_source(table, "file = \"/etc/sealane/etcd.password\""))
    };
    let (user, password) = (user.parsed(value::word), password.and_then(read));
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
fn own_name(table: &mut Table<'_>) -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = machine_name(name.trim()).ok();
    if name.is_none() {
        table.required("machine", "machine = \"edge-1\"");
    }
    name
}

/// Members of a cluster, and more.
const ENDPOINTS_MAX: usize = 16;
const LEASE_DEFAULT: Duration = Duration::from_secs(60);
/// An order that takes longer is another machine's after it.
const LEASE_MAX: Duration = Duration::from_secs(3_600);
/// etcd elects a leader within a second or two.
const LEASE_MIN: Duration = Duration::from_secs(5);
const MACHINE_BYTES_MAX: usize = 128;
const PASSWORD_EXAMPLE: &str = "password = { file = \"/etc/sealane/etcd.password\" }";
const PREFIX_BYTES_MAX: usize = 128;
const TICKET_LIFETIME: RangeInclusive<Duration> =
    Duration::from_secs(LIFETIME_S_MIN as u64)..=Duration::from_secs(LIFETIME_S_MAX as u64);
const TICKET_ROOT_EVERY: RangeInclusive<Duration> =
    Duration::from_secs(600)..=Duration::from_secs(365 * 86_400);
const TICKET_ROOT_EVERY_DEFAULT: Duration = Duration::from_secs(7 * 86_400);
