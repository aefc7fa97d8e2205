//! Where the plaintext of a listener and of its routes goes: backends, looked up.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use sealane_lanes::kernel::Address;

use super::resolver::Led;
use super::{Material, Reading, Survey, said_of_route};
use crate::backends::BackendTls;
use crate::config::{self, BackendAddress, Config, Destination};

/// Addresses are no files; a change of what a name leads to is seen by the next reload, and by
/// itself only if it led nowhere.
pub(super) const MATERIAL: Material = Material { files: |_| Vec::new(), read };

/// A backend whose address is known.
pub struct ReachedBackend {
    /// Where it listens.
    pub address: Address,
    /// The backend as it was written, for logs and metrics.
    pub label: String,
    /// How it is spoken to in TLS, if it is.
    pub tls: Option<BackendTls>,
}

/// The host names of the backends of `config`.
pub fn host_names(config: &Config) -> BTreeSet<&str> {
    let destinations = config.listeners.iter().flat_map(config::Listener::destinations);
    let backends = destinations.flat_map(|(_, destination)| &destination.backends);
    let names = backends.filter_map(|backend| match backend {
        BackendAddress::Host { name, .. } => Some(name.as_str()),
        BackendAddress::Tcp(_) | BackendAddress::Unix(_) => None,
    });
    names.collect()
}

fn read(survey: &mut Survey<'_>, reading: &mut Reading<'_, '_>) {
    let listener = survey.listener;
    for (position, (route, destination)) in listener.destinations().enumerate() {
        let mut reached = Vec::new();
        for backend in &destination.backends {
            let label = destination.label(backend);
            let said = |text: String| said_of_route(route, &format!("backend {label}{text}"));
            let address = address(backend, reading, |text| survey.warn([said(text)]));
            let tls = tls(survey, position, destination, backend);
            match (address, tls) {
                (Ok(Some(address)), Ok(tls)) => {
                    reached.push(ReachedBackend { address, label: label.clone(), tls });
                }
                (Ok(None), Ok(_)) => {}
                (Err(problem), _) => survey.errors.push(said(problem)),
                (Ok(_), Err(problem)) => {
                    survey.errors.extend(problem.map(|problem| said(format!(": {problem}"))));
                }
            }
            if let BackendAddress::Unix(path) = backend
                && !path.exists()
            {
                let text = said(" is not there yet; is its path right?".to_owned());
                survey.warn([text]);
            }
        }
        survey.backends.push(reached);
    }
}

/// Where `backend` is, if that is known.
fn address(
    backend: &BackendAddress,
    reading: &mut Reading<'_, '_>,
    warn: impl FnOnce(String),
) -> Result<Option<Address>, String> {
    let (name, port) = match backend {
        BackendAddress::Host { name, port } => (name, *port),
        BackendAddress::Tcp(address) => return Ok(Some(Address::Tcp(*address))),
        BackendAddress::Unix(path) => return Ok(Some(Address::Unix(path.clone()))),
    };
    let first = |addresses: Vec<SocketAddr>| {
        let mut first = *addresses.first()?;
        first.set_port(port);
        Some(Address::Tcp(first))
    };
    match reading.around.names.look_up(name, &reading.answers) {
        Ok(Led::Here(addresses)) => Ok(first(addresses)),
        Ok(Led::Once(addresses, why)) => {
            let last = first(addresses);
            if let Some(address) = &last {
                warn(format!(" does not resolve any more: {why}; {address} is used as before"));
            }
            Ok(last)
        }
        Ok(Led::Nowhere(why)) => {
            warn(format!(
                " does not resolve yet: {why}; connections to it are refused until it does; if the \
                 name is wrong, correct it, or write its address"
            ));
            Ok(None)
        }
        Err(why) => {
            Err(format!(" cannot be looked up: {why}; correct the name, or write its address"))
        }
    }
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
