//! Where plaintext goes: backends, how one is chosen, and how TLS is spoken to them.

use super::super::backend::{BackendTls, RootSource, Trust, server_name, share_tls};
use super::super::mistake::Problem;
use super::super::reader::{Table, Value};
use super::super::{BackendAddress, Balance, Destination, value};
use super::listener::certificate_source;
use super::policy::{alpn, versions};
use super::proxy_header::proxy_header;
use crate::backends::BACKENDS_MAX;

/// Where the plaintext goes of what `table` is about.
pub(super) fn destination(table: &mut Table<'_>) -> Option<Destination> {
    let backends = backends(table);
    let balance = table.value("balance").and_then(|v| v.choice(&BALANCE)).unwrap_or_default();
    let proxy_header = proxy_header(table);
    let (backends, backend_tls) = backends?;
    Some(Destination { backends, backend_tls, balance, proxy_header })
}

fn backends(table: &mut Table<'_>) -> Option<(Vec<BackendAddress>, Option<BackendTls>)> {
    let written = table.required("backends", "backends = [\"127.0.0.1:8080\"]");
    let settings = table.value("backend_tls");
    let tls = match &settings {
        Some(settings) => settings.table(|table| Some(backend_tls(table))),
        None => Some(BackendTls::default()),
    };
    let written = written?;
    let backends = written.set(BACKENDS_MAX, |value| {
        let backend = value.parsed(value::backend)?;
        if let Some(tls) = tls.as_ref().filter(|_| backend.tls) {
            value.parsed(|_| tls.server_name_of(&backend.address))?;
        }
        Some(backend)
    })?;
    let speak_tls = share_tls(&backends).map_err(|problem| written.wrong(problem)).ok()?;
    if let Some(settings) = settings.filter(|_| !speak_tls && !backends.is_empty()) {
        settings.wrong(Problem::new(
            "no backend of this listener is spoken to in TLS",
            "write \"tls://HOST:PORT\" for them, or remove the table",
        ));
    }
    let addresses = backends.into_iter().map(|backend| backend.address).collect();
    Some((addresses, tls.filter(|_| speak_tls)))
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

const BALANCE: [(&str, Balance); 2] = [
    (Balance::LeastConnections.name(), Balance::LeastConnections),
    (Balance::RoundRobin.name(), Balance::RoundRobin),
];
