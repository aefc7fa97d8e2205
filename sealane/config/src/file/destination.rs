//! Where plaintext goes: backends, how one is chosen, and how TLS is spoken to them.

use std::ops::RangeInclusive;

use super::super::backend::{
    BackendTls, RootSource, Share, Trust, WrittenBackend, server_name, share_tls,
};
use super::super::mistake::Problem;
use super::super::reader::{Table, Value};
use super::super::{BACKENDS_MAX, BackendAddress, Balance, Destination, ProxyHeader, value};
use super::listener::certificate_source;
use super::policy::{REQUIRE_EXTENDED_MASTER_SECRET, alpn, versions};
use super::proxy_header::proxy_header;
use super::shared::Lanes;

/// How backends are spoken to: the keys of a destination except its backends. Those of a listener
/// hold for its routes as well, unless a route writes its own.
#[derive(Clone)]
pub(super) struct Manner<'d> {
    balance: Balance,
    proxy_header: ProxyHeader,
    /// For backends that are written with `tls://`; none after a mistake in it.
    tls: Option<BackendTls>,
    /// Where `backend_tls` is written, if it is.
    tls_at: Option<Value<'d>>,
}

impl<'d> Manner<'d> {
    /// The keys of a listener.
    pub(super) fn of_listener(table: &mut Table<'d>) -> Self {
        let default = Self {
            balance: Balance::default(),
            proxy_header: ProxyHeader::default(),
            tls: Some(BackendTls::default()),
            tls_at: None,
        };
        default.or_written(table)
    }

    /// The keys that `table` writes in place of these. Each key counts alone, and the table
    /// `backend_tls` is one of them.
    fn or_written(&self, table: &mut Table<'d>) -> Self {
        let balance = table.value("balance").and_then(|v| v.choice(&BALANCE));
        let tls_at = table.value("backend_tls");
        let tls = match &tls_at {
            Some(written) => written.table(|table| Some(backend_tls(table))),
            None => self.tls.clone(),
        };
        Self {
            balance: balance.unwrap_or(self.balance),
            proxy_header: proxy_header(table, self.proxy_header),
            tls,
            tls_at,
        }
    }

    /// The destination of a route that writes `table`.
    pub(super) fn of_route(&self, table: &mut Table<'d>, lanes: Lanes) -> Option<Destination> {
        let own = self.or_written(table);
        let destination = own.destination(table, lanes)?;
        own.check_tls(&[&destination]);
        Some(destination)
    }

    /// The backends of `table`, spoken to in this manner.
    pub(super) fn destination(&self, table: &mut Table<'_>, lanes: Lanes) -> Option<Destination> {
        let (backends, backend_tls) = backends(table, self.tls.as_ref(), lanes)?;
        let (balance, proxy_header) = (self.balance, self.proxy_header);
        Some(Destination { backends, backend_tls, balance, proxy_header })
    }

    /// Notes that `backend_tls` is written although none of `destinations` is spoken to in TLS.
    pub(super) fn check_tls(&self, destinations: &[&Destination]) {
        let is_used = self.tls.is_none()
            || destinations.iter().any(|to| to.backend_tls.is_some() || to.backends.is_empty());
        if let Some(written) = self.tls_at.as_ref().filter(|_| !is_used) {
            written.wrong(Problem::new(
                "no backend of this listener is spoken to in TLS",
                "write \"tls://HOST:PORT\" for them, or remove the table",
            ));
        }
    }
}

fn backends(
    table: &mut Table<'_>,
    tls: Option<&BackendTls>,
    lanes: Lanes,
) -> Option<(Backends, Option<BackendTls>)> {
    let written = table.required("backends", "backends = [\"127.0.0.1:8080\"]")?;
    let listed = written.set(BACKENDS_MAX, |value| {
        let (at, share) = match value.is_table() {
            true => value.table(|table| Some((address(table)?, share(table, lanes)?)))?,
            false => (value.clone(), Share::default()),
        };
        let backend = at.parsed(value::backend)?;
        if let Some(tls) = tls.filter(|_| backend.tls) {
            at.parsed(|_| tls.server_name_of(&backend.address))?;
        }
        Some(Listed { backend, share })
    })?;
    check_shares(&listed, &written);
    let backends: Vec<_> = listed.iter().map(|each| each.backend.clone()).collect();
    let speak_tls = share_tls(&backends).map_err(|problem| written.wrong(problem)).ok()?;
    let shares = listed.into_iter().map(|each| (each.backend.address, each.share)).collect();
    Some((shares, tls.filter(|_| speak_tls).cloned()))
}

type Backends = Vec<(BackendAddress, Share)>;

/// A backend of a list, in which no other may be equal, whatever their shares.
struct Listed {
    backend: WrittenBackend,
    share: Share,
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.backend == other.backend
    }
}

fn address<'d>(table: &mut Table<'d>) -> Option<Value<'d>> {
    table.required("address", "address = \"127.0.0.1:8080\"")
}

fn share(table: &mut Table<'_>, lanes: Lanes) -> Option<Share> {
    let default = Share::default();
    let connections = table.value("connections").map(|v| lanes.count(&v, CONNECTIONS));
    let weight = table.value("weight").map(|v| v.count(WEIGHT));
    let is_backup = table.value("backup").map(|v| v.boolean());
    let weight = weight.map_or(Some(default.weight), |weight| u16::try_from(weight?).ok())?;
    let connections_max = connections.map_or(Some(None), |most| Some(Some(most?)))?;
    Some(Share {
        connections_max,
        is_backup: is_backup.unwrap_or(Some(default.is_backup))?,
        weight,
    })
}

/// Says if nobody gets anything, or only those who stand in for others do.
fn check_shares(listed: &[Listed], written: &Value<'_>) {
    if listed.is_empty() {
        return;
    }
    if listed.iter().all(|each| each.share.weight == 0) {
        let what = "no backend gets a connection: all weights are 0";
        written.wrong(Problem::new(what, "give one a weight, or remove it"));
    }
    if listed.iter().all(|each| each.share.is_backup) {
        let what = "all backends are backups, and there is nothing that they stand in for";
        written.wrong(Problem::new(what, "remove backup = true from one"));
    }
}

fn backend_tls(table: &mut Table<'_>) -> BackendTls {
    let roots = table.value("roots");
    let anybody = table.value("insecure_accept_any_certificate");
    BackendTls {
        alpn: alpn(table).unwrap_or_default(),
        client_certificate: table.value("client_certificate").and_then(|v| certificate_source(&v)),
        require_extended_master_secret: table
            .value(REQUIRE_EXTENDED_MASTER_SECRET)
            .and_then(|v| v.boolean())
            .unwrap_or_default(),
        server_name: table.value("server_name").and_then(|v| v.parsed(server_name)),
        trust: trust(roots.as_ref(), anybody.as_ref()),
        versions: versions(table).unwrap_or(BackendTls::default().versions),
    }
}

fn trust(roots: Option<&Value<'_>>, anybody: Option<&Value<'_>>) -> Trust {
    let read = roots.and_then(|v| v.set(ROOT_FILES_MAX, root_source));
    if anybody.and_then(Value::boolean) != Some(true) {
        return read.map_or_else(Trust::default, Trust::Roots);
    }
    if let Some(roots) = roots {
        roots.wrong(Problem::new(
            "roots mean nothing where any certificate is accepted",
            "remove insecure_accept_any_certificate",
        ));
    }
    Trust::Anybody
}

fn root_source(written: &Value<'_>) -> Option<RootSource> {
    match written.parsed(|text| Ok(text == SYSTEM))? {
        true => Some(RootSource::System),
        false => written.path().map(RootSource::File),
    }
}

/// Stands for the system's bundle among the roots; a file of that name is "./system".
const SYSTEM: &str = "system";
/// The keys of a destination: its backends and their [`Manner`].
pub(super) const DESTINATION_KEYS: [&str; 5] =
    ["backend_tls", "backends", "balance", "proxy_header", "proxy_tlvs"];
/// Files with roots for the backends of one destination.
const ROOT_FILES_MAX: usize = 64;

/// Connections to one backend.
const CONNECTIONS: RangeInclusive<usize> = 1..=10_000_000;
const WEIGHT: RangeInclusive<usize> = 0..=256;

const BALANCE: [(&str, Balance); 2] = [
    (Balance::LeastConnections.name(), Balance::LeastConnections),
    (Balance::RoundRobin.name(), Balance::RoundRobin),
];
