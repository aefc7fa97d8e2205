//! `POST /backends/drain?backend=NAME` and `/backends/restore`: whether a backend gets new
//! connections. Those that it has go on.

use std::sync::Arc;

use sealane_traffic::http::{Query, Response, Status};
use sealane_traffic::lane_orders::LaneOrder;
use serde_json::json as value;

use crate::state::BackendSummary;

use super::{Orders, json, lanes};

/// Has every lane keep new connections from a backend, or let them come again.
pub(super) fn drain(orders: &Orders, query: &Query, is_drained: bool) -> Response {
    let name = query.value("backend").and_then(|name| name.ok_or("name it: ?backend=NAME".into()));
    let name = match name {
        Ok(name) => name,
        Err(words) => return Response::text(Status::BadRequest, words),
    };
    let (known, drained) = {
        let state = orders.state.lock();
        (state.backends.clone(), state.drained.clone())
    };
    let is_named = |backend: &&BackendSummary| backend.labels().any(|label| *label == name);
    let named: Vec<_> = known.iter().filter(is_named).collect();
    // A drained name that leads nowhere now can be put back too.
    if named.is_empty() && !drained.has(&name) {
        return Response::text(Status::NotFound, unknown(&name, &known));
    }
    // Before lanes are asked: an address that comes to a name meanwhile is as its name is.
    drained.note(&name, is_drained);
    for backend in &named {
        let order = |lane: usize, done| {
            let backend = Arc::clone(&backend.lanes[lane]);
            LaneOrder::Backend { backend, is_drained, done }
        };
        if let Err(response) = lanes::ask_all(&orders.state, order) {
            return response;
        }
    }
    let counters = named.iter().flat_map(|backend| &backend.lanes);
    let connections: u64 = counters.map(|lane| lane.active.value()).sum();
    let drained = value!({ "backend": name, "drained": is_drained, "connections": connections });
    json(Status::Ok, &drained)
}

fn unknown(name: &str, known: &[BackendSummary]) -> String {
    let labels: Vec<_> =
        known.iter().take(SHOWN_MAX).map(|backend| backend.label.as_str()).collect();
    let more = if known.len() > SHOWN_MAX { " and others" } else { "" };
    format!("there is no backend {name:?}; there are {}{more}", labels.join(", "))
}

/// Backends that are named to somebody who names one that there is not.
const SHOWN_MAX: usize = 10;
