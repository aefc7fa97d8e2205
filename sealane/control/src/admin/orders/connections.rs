//! `GET /connections` lists open connections, and `POST /connections/close?connection=NUMBER`
//! resets one.

use std::net::IpAddr;

use sealane_traffic::connection_number::{ConnectionNumber, NoConnectionNumber, NumberGiver};
use sealane_traffic::http::{Query, Response, Status};
use sealane_traffic::lane_orders::{LaneOrder, Wanted};
use serde_json::json as value;

use super::{Orders, json, lanes};

/// Lists those of `client` and those that asked for `name`, if these are given, at most `limit`.
pub(super) fn list(orders: &Orders, query: &Query) -> Response {
    let wanted = match wanted(query) {
        Ok(wanted) => wanted,
        Err(words) => return Response::text(Status::BadRequest, words),
    };
    let lanes = orders.state.lock().desks.len();
    let (mut all, mut has_more) = (Vec::new(), false);
    // One lane after the other, so that no more than `limit` are held at any time.
    for lane in 0..lanes {
        let limit = wanted.limit - all.len();
        let order =
            |_, listed| LaneOrder::List { wanted: Wanted { limit, ..wanted.clone() }, listed };
        match lanes::ask(&orders.state, &[lane], order) {
            Ok(found) => {
                for of_lane in found {
                    has_more |= of_lane.has_more;
                    all.extend(of_lane.connections);
                }
            }
            Err(response) => return response,
        }
    }
    all.sort_by_key(|each| std::cmp::Reverse(each.age_ms));
    json(Status::Ok, &value!({ "connections": all, "has_more": has_more }))
}

fn wanted(query: &Query) -> Result<Wanted, String> {
    let client = query
        .value("client")?
        .map(|text| text.parse().map_err(|_| format!("client: {text:?} is no IP address")));
    let limit = query.value("limit")?.map(|text| {
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.ok_or_else(|| format!("limit: {text:?} is no number from 1 to {LIMIT_MAX}"))
    });
    Ok(Wanted {
        client: client.transpose()?.map(|ip: IpAddr| ip.to_canonical()),
        limit: limit.transpose()?.unwrap_or(LIMIT_DEFAULT),
        server_name: query.value("name")?.map(|name| name.to_ascii_lowercase()),
    })
}

fn number(query: &Query) -> Result<ConnectionNumber, String> {
    let text = query.value("connection")?.ok_or("name it: ?connection=NUMBER")?;
    text.parse().map_err(|error: NoConnectionNumber| error.to_string())
}

/// Resets a connection, and its backend's.
pub(super) fn close(orders: &Orders, query: &Query) -> Response {
    let number = match number(query) {
        Ok(number) => number,
        Err(words) => return Response::text(Status::BadRequest, words),
    };
    let (started, desks) = {
        let state = orders.state.lock();
        (state.started.at, state.desks.len())
    };
    let gone = || Response::text(Status::NotFound, "there is no such connection, or not any more");
    let lane = number.giver.lane;
    if lane >= desks || number.giver != NumberGiver::new(started, lane) {
        return gone();
    }
    match lanes::ask(&orders.state, &[lane], |_, closed| LaneOrder::Close { id: number.id, closed })
    {
        Ok(closed) if closed == [true] => json(Status::Ok, &value!({ "closed": number })),
        Ok(_) => gone(),
        Err(response) => response,
    }
}

/// Connections that are listed unless another number is wanted.
const LIMIT_DEFAULT: usize = 100;
/// Connections that are listed at most.
const LIMIT_MAX: usize = 10_000;
