//! Where the plaintext of a listener goes: its backends, looked up.

use std::sync::Arc;

use sealane_lanes::kernel::Address;

use super::{Material, Reading, Survey};
use crate::backends::BackendTls;
use crate::config::BackendAddress;

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
    for backend in &listener.destination.backends {
        let label = listener.destination.label(backend);
        let address = match backend {
            BackendAddress::Host { name, port } => match (reading.around.resolve)(name, *port) {
                Ok(address) => Address::Tcp(address),
                Err(error) => {
                    survey.errors.push(format!(
                        "backend {label} cannot be looked up: {error}; correct the name, or write \
                         its address"
                    ));
                    continue;
                }
            },
            BackendAddress::Tcp(address) => Address::Tcp(*address),
            BackendAddress::Unix(path) => {
                if !path.exists() {
                    let text = format!("backend {label} is not there yet; is its path right?");
                    survey.warn([text]);
                }
                Address::Unix(path.clone())
            }
        };
        match tls(survey, backend) {
            Ok(tls) => survey.backends.push(ReachedBackend { address, label, tls }),
            Err(problem) => survey.errors.extend(problem.map(|p| format!("backend {label}: {p}"))),
        }
    }
}

/// How TLS is spoken to `backend`, if it is. Where it should be and cannot, that is an error, with
/// what has not been said yet: none must never come to mean plain bytes.
fn tls(
    survey: &Survey<'_>,
    backend: &BackendAddress,
) -> Result<Option<BackendTls>, Option<String>> {
    let Some(written) = &survey.listener.destination.backend_tls else { return Ok(None) };
    let name = written.server_name_of(backend).map_err(|problem| Some(problem.to_string()))?;
    let context = survey.backend_tls.as_ref().ok_or(None)?;
    Ok(Some(BackendTls { context: Arc::clone(context), name }))
}
