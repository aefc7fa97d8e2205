//! The admin address: metrics, health and state, over HTTP on loopback or a unix socket, which
//! takes orders too.
//!
//! [`Admin::start`] serves what is in a [`SharedState`]. Its threads only read: the lanes'
//! counters, and the [`ControlState`] that the control plane keeps up to date. What is ordered is
//! told to the control plane and to lanes: [`orders`].

mod names_socket;
pub mod orders;
mod page;
mod report;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::time::SystemTime;

use sealane_config::unix_socket::{self, SocketFile};
use sealane_config::{self as config, Address, AdminSocket};
use sealane_traffic::backends::monotonic_ms;
use sealane_traffic::http::{
    ContentType, Hosts, Method, Request, Response, Server, Status, serve_hosts, serve_orders,
};

use crate::metrics;
use crate::state::{ControlState, Phase, SharedState};

pub use names_socket::NamesSocket;
pub use orders::{Orders, Uploads};

/// The admin servers of a process. Dropping it ends them too, without waiting for that.
pub struct Admin {
    served: Vec<Served>,
}

/// A server at one address.
struct Served {
    server: Server,
    /// With the port that was chosen, where any was asked for.
    address: Address,
    /// Goes with this value.
    _file: Option<SocketFile>,
}

impl Admin {
    /// Binds what `wanted` has, and serves the state of `orders` there: over TCP to whoever asks
    /// for `localhost`, for an address, or for one of its hosts; over a unix socket to whoever may
    /// open it, and this user and root may order there.
    ///
    /// # Errors
    /// An address cannot be bound, or somebody listens on it.
    pub fn start(wanted: &config::Admin, orders: &Orders) -> Result<Self, AdminError> {
        let mut served = Vec::new();
        if let Some(address) = &wanted.address {
            let failed = |source| AdminError { address: Address::Tcp(*address), source };
            let started = over_tcp(address, &wanted.hosts, orders.state.clone());
            served.push(started.map_err(failed)?);
        }
        if let Some(socket) = &wanted.socket {
            let failed =
                |source| AdminError { address: Address::Unix(socket.path.clone()), source };
            served.push(over_socket(socket, orders.clone()).map_err(failed)?);
        }
        Ok(Self { served })
    }

    /// What is bound: the port is known even where any was asked for.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.served.iter().map(|served| &served.address)
    }

    /// Removes the socket file, closes the listeners, and waits until that is done.
    pub fn stop(self) {
        for Served { server, _file: file, .. } in self.served {
            drop(file);
            server.stop();
        }
    }
}

fn over_tcp(wanted: &SocketAddr, hosts: &[String], state: SharedState) -> io::Result<Served> {
    let listener = TcpListener::bind(wanted)?;
    let address = Address::Tcp(listener.local_addr()?);
    let show = move |request: &Request<'_>| show(request, &state);
    let server = serve_hosts(listener, Hosts::with(hosts), THREAD, show)?;
    Ok(Served { server, address, _file: None })
}

fn over_socket(wanted: &AdminSocket, orders: Orders) -> io::Result<Served> {
    let (listener, file) = unix_socket::bind(&wanted.path, wanted.mode, BACKLOG)?;
    let answer = move |request: &Request<'_>| {
        orders::answer(request, &orders).unwrap_or_else(|| match request.method {
            Method::Get => show(request, &orders.state).into(),
            Method::Delete | Method::Post | Method::Put => {
                let status = Status::MethodNotAllowed;
                Response::text(status, status.line()).into()
            }
        })
    };
    let server = serve_orders(UnixListener::from(listener), THREAD, answer)?;
    Ok(Served { server, address: Address::Unix(wanted.path.clone()), _file: Some(file) })
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

/// What everybody is shown who gets here.
fn show(request: &Request<'_>, state: &SharedState) -> Response {
    match request.path {
        "/" => page::answer(request)
            .unwrap_or_else(|| Response::new(Status::Ok, ContentType::Text, INDEX)),
        "/healthz" => health(&state.lock()),
        "/metrics" => {
            Response::new(Status::Ok, ContentType::Metrics, metrics::render(&state.lock()))
        }
        "/readyz" => readiness(&state.lock()),
        "/state" => match report::json(state) {
            Ok(body) => Response::new(Status::Ok, ContentType::Json, body),
            Err(error) => Response::text(Status::InternalError, error),
        },
        _ => Response::text(Status::NotFound, "not found; / lists what there is"),
    }
}

/// A degraded process goes on serving: to take it out of service helps no client. One that can
/// serve no client of any listener does not.
fn health(state: &ControlState) -> Response {
    match (state.phase, state.degradation(SystemTime::now())) {
        (Phase::Serving, why) if !state.serves() => {
            let why = why.unwrap_or_default();
            let text = format!("degraded: no listener can serve a client; {why}");
            Response::text(Status::ServiceUnavailable, text)
        }
        (Phase::Serving, None) => Response::text(Status::Ok, "ok"),
        (Phase::Serving, Some(why)) => Response::text(Status::Ok, format!("degraded: {why}")),
        (phase, _) => Response::text(Status::ServiceUnavailable, phase.name()),
    }
}

/// Health, and whether a client may be sent to any backend. For probes that ask for it: where all
/// machines have the same backends, it takes them all out of service at once.
fn readiness(state: &ControlState) -> Response {
    let now_ms = monotonic_ms();
    let is_usable = |backend| report::BackendState::of(backend, now_ms).is_usable();
    if state.phase == Phase::Serving
        && !state.backends.is_empty()
        && !state.backends.iter().any(is_usable)
    {
        let text = "no backend of any listener is up; /state shows why";
        return Response::text(Status::ServiceUnavailable, text);
    }
    health(state)
}

/// Connections that wait to be accepted on the unix socket.
const BACKLOG: i32 = 64;
const THREAD: &str = "admin";
const INDEX: &str = "\
Sealane; a browser gets a page here
/healthz   200 while connections are accepted, 503 before and while draining, and while no
           listener can serve a client; says that it is degraded if the last reload was
           refused, a certificate, list, key or store has a fault, a revocation list has
           ended, or the etcd of the agent's fleet has not answered for an hour
/readyz    the same, and 503 while no backend of any listener is up
/metrics   for Prometheus
/state     what is served, from which certificates, by which lane, as JSON
A unix socket also takes orders: sealane reload, sealane status and others speak to it.
";

#[cfg(test)]
mod tests;
