//! What may be ordered over the admin socket, each in a file of its own, and by whom: this
//! process's user, and root. Over TCP nobody orders anything.
//!
//! An order is HTTP: POST for what changes something, GET for what shows more than everybody may
//! see, and PUT and DELETE for what is in certificate stores. `answer` finds it by its path; it is
//! carried out on a thread of its own, which may wait.

mod backends;
mod certificates;
mod connections;
mod lanes;
pub(super) mod names;
mod reload;

use std::sync::Arc;
use std::sync::mpsc::Sender;

use sealane_traffic::http::{Answer, Method, Query, Request, Response, Status};

use crate::state::{SharedState, Verdict};

pub use certificates::Uploads;

/// What orders are carried out with.
#[derive(Clone)]
pub struct Orders {
    /// What is known of the process.
    pub state: SharedState,
    /// Asks the control plane for a reload; it sends the verdict, or drops the sender if it does
    /// nothing any more.
    pub reload: Arc<dyn Fn(Sender<Verdict>) + Send + Sync>,
    /// Certificates that are on their way into stores.
    pub uploads: Uploads,
}

/// The answer to an order, if that is one.
pub(super) fn answer(request: &Request<'_>, orders: &Orders) -> Option<Answer> {
    let whole: Option<fn(&Request<'_>, &Orders) -> Answer> = match request.path {
        "/certificates" => Some(certificates::answer),
        "/names/served" | "/names/wanted" => {
            Some(|request, orders| names::answer(request, &orders.state, false))
        }
        _ => None,
    };
    if let Some(answer) = whole {
        return Some(if request.is_owners { answer(request, orders) } else { stranger().into() });
    }
    let (method, carry_out): (_, CarryOut) = match request.path {
        "/backends/drain" => (Method::Post, |orders, query| backends::drain(orders, query, true)),
        "/backends/restore" => {
            (Method::Post, |orders, query| backends::drain(orders, query, false))
        }
        "/connections" => (Method::Get, connections::list),
        "/connections/close" => (Method::Post, connections::close),
        "/reload" => (Method::Post, |orders, _| reload::carry_out(orders)),
        _ => return None,
    };
    Some(if !request.is_owners {
        stranger().into()
    } else if method != request.method {
        let is_order = method == Method::Post;
        let status = if is_order { Status::PostOnly } else { Status::MethodNotAllowed };
        Response::text(status, status.line()).into()
    } else {
        let (orders, query) = (orders.clone(), Query::of(request));
        Answer::Later(Box::new(move || carry_out(&orders, &query)))
    })
}

/// The answer to whoever may not order.
fn stranger() -> Response {
    let words = "orders are taken from root, and from the user that this process runs as";
    Response::text(Status::Forbidden, words)
}

type CarryOut = fn(&Orders, &Query) -> Response;

/// JSON with a newline behind it.
fn json(status: Status, value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec_pretty(value) {
        Ok(mut body) => {
            body.push(b'\n');
            Response::new(status, sealane_traffic::http::ContentType::Json, body)
        }
        Err(error) => Response::text(Status::InternalError, error),
    }
}
