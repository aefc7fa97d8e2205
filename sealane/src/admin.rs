//! The admin address: metrics, health and state, over HTTP on loopback or a unix socket.
//!
//! [`Admin::start`] serves what is in a [`SharedState`]. Its thread only reads: the lanes'
//! counters, and the [`ControlState`] that the control plane keeps up to date.

mod report;
mod state;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::SystemTime;

use crate::config::Address;
use crate::http::{ContentType, Hosts, Request, Response, Server, Status, serve, serve_hosts};
use crate::metrics;
use crate::unix_socket::{self, SocketFile};

pub use state::{
    AccessLogCounters, BackendSummary, ControlState, Generations, Phase, Reload, Reloads,
    SharedState, SoonestToExpire, Started,
};

/// The admin server of a process. Dropping it ends it too, without waiting for that.
pub struct Admin {
    server: Server,
    address: Address,
    /// Goes with this value.
    _file: Option<SocketFile>,
}

impl Admin {
    /// Binds `address` and serves `state` there; over TCP to whoever asks for `localhost`, for an
    /// address, or for one of `hosts`.
    ///
    /// # Errors
    /// The address cannot be bound, or somebody listens on it.
    pub fn start(
        address: &Address,
        hosts: &[String],
        state: SharedState,
    ) -> Result<Self, AdminError> {
        let failed = |source| AdminError { address: address.clone(), source };
        let handler = move |request: &Request<'_>| respond(request, &state);
        match address {
            Address::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                let hosts = Hosts::with(hosts);
                let server = serve_hosts(listener, hosts, THREAD, handler).map_err(failed)?;
                Ok(Self { server, address: Address::Tcp(bound), _file: None })
            }
            Address::Unix(path) => {
                let bound = unix_socket::bind(path, OWNER_ALONE, BACKLOG).map_err(failed)?;
                let (listener, file) = (UnixListener::from(bound.0), bound.1);
                let server = serve(listener, THREAD, handler).map_err(failed)?;
                Ok(Self { server, address: address.clone(), _file: Some(file) })
            }
        }
    }

    /// What is bound: the port is known even where any was asked for.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Removes the socket file, closes the listener, and waits until that is done.
    pub fn stop(self) {
        let Self { server, _file: file, .. } = self;
        drop(file);
        server.stop();
    }
}

/// The admin address cannot be served: the operator's to mend.
#[derive(Debug, thiserror::Error)]
#[error("the admin address {address} cannot be served: {source}; free it, or change `admin`")]
pub struct AdminError {
    /// Where it should have been.
    pub address: Address,
    /// What the system said.
    pub source: io::Error,
}

fn respond(request: &Request<'_>, state: &SharedState) -> Response {
    match request.path {
        "/" => Response::new(Status::Ok, ContentType::Text, INDEX),
        "/healthz" => health(&state.lock()),
        "/metrics" => {
            Response::new(Status::Ok, ContentType::Metrics, metrics::render(&state.lock()))
        }
        "/state" => match report::json(&state.lock()) {
            Ok(body) => Response::new(Status::Ok, ContentType::Json, body),
            Err(error) => Response::text(Status::InternalError, error),
        },
        _ => Response::text(Status::NotFound, "not found; / lists what there is"),
    }
}

/// What is served goes on being served when it is degraded: to take it out of service helps nobody.
fn health(state: &ControlState) -> Response {
    match (state.phase, state.degradation(SystemTime::now())) {
        (Phase::Serving, None) => Response::text(Status::Ok, "ok"),
        (Phase::Serving, Some(why)) => Response::text(Status::Ok, format!("degraded: {why}")),
        (phase, _) => Response::text(Status::ServiceUnavailable, phase.name()),
    }
}

/// Connections that wait to be accepted on the unix socket.
const BACKLOG: i32 = 64;
/// Whoever may open the unix socket: it shows everything.
const OWNER_ALONE: u32 = 0o600;
const THREAD: &str = "admin";
const INDEX: &str = "\
Sealane
/healthz   200 while connections are accepted, 503 before and while draining; says that
           it is degraded if the last reload was refused or a revocation list has ended
/metrics   for Prometheus
/state     what is served, from which certificates, by which lane, as JSON
";

#[cfg(test)]
mod tests;
