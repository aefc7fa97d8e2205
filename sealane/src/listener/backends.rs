//! Where the plaintext of a listener and of its routes goes: backends, looked up.

use std::sync::Arc;

use sealane_lanes::kernel::Address;

use super::{Material, Reading, Survey, said_of_route};
use crate::backends::BackendTls;
use crate::config::{BackendAddress, Destination};

/// Addresses are no files; a change of what a name leads to is seen by the next reload.
pub(super) const MATERIAL: Material = Material { files: |_| Vec::new(), read };

/// A backend whose address is known.
pub struct ReachedBackend {
    /// Where it listens.
    pub address: Address,
    /// As it was written, for logs and metrics.
    pub label: String,
    /// How it is spoken to in TLS, if it is.
    pub tls: Option<BackendTls>,
}

fn read(survey: &mut Survey<'_>, reading: &mut Reading<'_, '_>) {
    let listener = survey.listener;
    for (position, (route, destination)) in listener.destinations().enumerate() {
        let mut reached = Vec::new();
        for backend in &destination.backends {
            let label = destination.label(backend);
            let said = |text: String| said_of_route(route, &format!("backend {label}{text}"));
            match address(backend, reading) {
                Ok(address) => match tls(survey, position, destination, backend) {
                    Ok(tls) => reached.push(ReachedBackend { address, label: label.clone(), tls }),
                    Err(problem) => {
                        survey.errors.extend(problem.map(|problem| said(format!(": {problem}"))));
                    }
                },
                Err(problem) => survey.errors.push(said(problem)),
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

fn address(backend: &BackendAddress, reading: &Reading<'_, '_>) -> Result<Address, String> {
    match backend {
        BackendAddress::Host { name, port } => match (reading.around.resolve)(name, *port) {
            Ok(address) => Ok(Address::Tcp(address)),
            Err(error) => Err(format!(
                " cannot be looked up: {error}; correct the name, or write its address"
            )),
        },
        BackendAddress::Tcp(address) => Ok(Address::Tcp(*address)),
        BackendAddress::Unix(path) => Ok(Address::Unix(path.clone())),
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
