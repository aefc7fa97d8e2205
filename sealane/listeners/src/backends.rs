//! Where the plaintext of a listener and of its routes goes: backends, looked up.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sealane_config::BACKENDS_MAX;
use sealane_config::{BackendAddress, Config, Destination};
use sealane_traffic::backends::{BackendTls, PlannedBackend};

use super::names::{Led, Names};
use super::{Material, Reading, Survey, said_of_route};

/// Addresses are no files: names are followed by looking them up.
pub(super) const MATERIAL: Material = Material { files: |_| Vec::new(), read };

/// The host names of the backends of `config`, and how often each is looked up, if it is.
pub fn host_names(config: &Config) -> BTreeMap<&str, Option<Duration>> {
    let mut names = BTreeMap::new();
    for listener in &config.listeners {
        let backends = listener.destinations().flat_map(|(_, destination)| &destination.backends);
        for (backend, _) in backends {
            if let BackendAddress::Host { name, .. } = backend {
                let every: &mut Option<Duration> = names.entry(name.as_str()).or_default();
                *every = every.iter().copied().chain(listener.resolve).min();
            }
        }
    }
    names
}

fn read(survey: &mut Survey<'_>, reading: &mut Reading<'_, '_>) {
    let listener = survey.listener;
    for (position, (route, destination)) in listener.destinations().enumerate() {
        let mut planned = Vec::new();
        for (backend, share) in &destination.backends {
            let label = destination.label(backend);
            let said = |text: String| said_of_route(route, &format!("backend {label}{text}"));
            match look_up(backend, listener.resolve.is_none(), reading) {
                Ok(warning) => survey.warn(warning.map(said)),
                Err(problem) => survey.errors.push(said(problem)),
            }
            match tls(survey, position, destination, backend) {
                Ok(tls) => {
                    let (address, share) = (backend.clone(), *share);
                    planned.push(PlannedBackend {
                        address,
                        check: listener.check.clone(),
                        label,
                        proxy_header: destination.proxy_header,
                        share,
                        tls,
                    });
                }
                Err(problem) => {
                    survey.errors.extend(problem.map(|problem| said(format!(": {problem}"))));
                }
            }
        }
        let names = &*reading.around.names;
        survey.warn(too_many(&planned, names).map(|text| said_of_route(route, &text)));
        survey.backends.push(planned);
    }
}

/// Looks `backend` up, if it has a name; returns what is worth a warning.
fn look_up(
    backend: &BackendAddress,
    is_strict: bool,
    reading: &mut Reading<'_, '_>,
) -> Result<Option<String>, String> {
    let name = match backend {
        BackendAddress::Host { name, .. } => name,
        BackendAddress::Tcp(_) => return Ok(None),
        BackendAddress::Unix(path) => {
            let text = " is not there yet; is its path right?".to_owned();
            return Ok((!path.exists()).then_some(text));
        }
    };
    let names = &mut *reading.around.names;
    match names.look_up(name, &reading.answers, is_strict) {
        Ok(Led::Here) => Ok(None),
        Ok(Led::Once(why)) => {
            let addresses = shown(names.addresses(name));
            Ok(Some(format!(" does not resolve any more: {why}; {addresses} is used as before")))
        }
        Ok(Led::Nowhere(why)) => Ok(Some(format!(
            " does not resolve yet: {why}; connections to it are refused until it does; if the \
             name is wrong, correct it, or write its address"
        ))),
        Err(why) => {
            Err(format!(" cannot be looked up: {why}; correct the name, or write its address"))
        }
    }
}

/// What is said if names lead to more backends than a destination may have.
fn too_many(planned: &[PlannedBackend], names: &Names) -> Option<String> {
    let count = |backend: &PlannedBackend| match &backend.address {
        BackendAddress::Host { name, .. } => names.addresses(name).len(),
        BackendAddress::Tcp(_) | BackendAddress::Unix(_) => 1,
    };
    let all: usize = planned.iter().map(count).sum();
    let what = "backends: their names lead to";
    (all > BACKENDS_MAX)
        .then(|| format!("{what} {all} addresses, of which the first {BACKENDS_MAX} are used"))
}

/// Addresses for people, without a port.
pub fn shown(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<_> = addresses.iter().map(|address| address.ip().to_string()).collect();
    addresses.join(", ")
}

/// How TLS is spoken to `backend`, if it is. Where it should be and cannot, that is an error, with
/// what has not been said yet: none must never come to mean plain bytes.
fn tls(
    survey: &Survey<'_>,
    position: usize,
    destination: &Destination,
    backend: &BackendAddress,
) -> Result<Option<BackendTls>, Option<String>> {
    let Some(written) = &destination.backend_tls else { return Ok(None) };
    let name = written.server_name_of(backend).map_err(|problem| Some(problem.to_string()))?;
    let context = survey.backend_tls.get(position).and_then(Option::as_ref).ok_or(None)?;
    Ok(Some(BackendTls { context: Arc::clone(context), name }))
}
