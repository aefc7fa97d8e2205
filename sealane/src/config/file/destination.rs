//! Where plaintext goes: backends, how one is chosen, and how TLS is spoken to them.

use std::ops::RangeInclusive;

use super::super::backend::{
    BackendTls, RootSource, Share, Trust, WrittenBackend, server_name, share_tls,
};
use super::super::mistake::Problem;
use super::super::reader::{Table, Value};
use super::super::{BackendAddress, Balance, Destination, value};
use super::listener::certificate_source;
use super::policy::{alpn, versions};
use super::proxy_header::proxy_header;
use super::shared::Lanes;
use crate::backends::BACKENDS_MAX;

/// Where the plaintext goes of what `table` is about.
pub(super) fn destination(table: &mut Table<'_>, lanes: Lanes) -> Option<Destination> {
    let backends = backends(table, lanes);
    let balance = table.value("balance").and_then(|v| v.choice(&BALANCE)).unwrap_or_default();
    let proxy_header = proxy_header(table);
    let (backends, backend_tls) = backends?;
    Some(Destination { backends, backend_tls, balance, proxy_header })
}

fn backends(table: &mut Table<'_>, lanes: Lanes) -> Option<(Backends, Option<BackendTls>)> {
    let written = table.required("backends", "backends = [\"127.0.0.1:8080\"]");
    let settings = table.value("backend_tls");
    let tls = match &settings {
        Some(settings) => settings.table(|table| Some(backend_tls(table))),
        None => Some(BackendTls::default()),
    };
    let written = written?;
    let listed = written.set(BACKENDS_MAX, |value| {
        let (at, share) = match value.is_table() {
            true => value.table(|table| Some((address(table)?, share(table, lanes)?)))?,
            false => (value.clone(), Share::default()),
        };
        let backend = at.parsed(value::backend)?;
        if let Some(tls) = tls.as_ref().filter(|_| backend.tls) {
            at.parsed(|_| tls.server_name_of(&backend.address))?;
        }
        Some(Listed { backend, share })
    })?;
    check_shares(&listed, &written);
    let backends: Vec<_> = listed.iter().map(|each| each.backend.clone()).collect();
    let speak_tls = share_tls(&backends).map_err(|problem| written.wrong(problem)).ok()?;
    if let Some(settings) = settings.filter(|_| !speak_tls && !backends.is_empty()) {
        settings.wrong(Problem::new(
            "no backend of this listener is spoken to in TLS",
            "write \"tls://HOST:PORT\" for them, or remove the table",
        ));
    }
    let shares = listed.into_iter().map(|each| (each.backend.address, each.share)).collect();
    Some((shares, tls.filter(|_| speak_tls)))
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
/// What [`destination`] reads.
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
