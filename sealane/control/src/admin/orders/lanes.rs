//! Asking lanes, each by an order, and waiting for their answers.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use sealane_traffic::http::{Response, Status};
use sealane_traffic::lane_orders::LaneOrder;

use crate::state::SharedState;

/// What every lane answers to its order, in the order of the lanes.
///
/// # Errors
/// What the client gets: a lane has not answered in time.
pub(super) fn ask_all<T>(
    state: &SharedState,
    order: impl Fn(usize, Sender<(usize, T)>) -> LaneOrder,
) -> Result<Vec<T>, Response> {
    let all: Vec<_> = (0..state.lock().desks.len()).collect();
    ask(state, &all, order)
}

/// The same of some lanes, each of which there is.
pub(super) fn ask<T>(
    state: &SharedState,
    lanes: &[usize],
    order: impl Fn(usize, Sender<(usize, T)>) -> LaneOrder,
) -> Result<Vec<T>, Response> {
    let desks = state.lock().desks.clone();
    let (sender, receiver) = channel();
    for lane in lanes {
        desks[*lane].give(order(*lane, sender.clone()));
    }
    drop(sender);
    let until = Instant::now() + PATIENCE;
    let mut answers: Vec<Option<T>> = lanes.iter().map(|_| None).collect();
    for _ in lanes {
        let Ok((lane, answer)) =
            receiver.recv_timeout(until.saturating_duration_since(Instant::now()))
        else {
            break;
        };
        if let Some(place) = lanes.iter().position(|each| *each == lane) {
            answers[place] = Some(answer);
        }
    }
    match answers.iter().position(Option::is_none) {
        None => Ok(answers.into_iter().flatten().collect()),
        Some(silent) => {
            let words = format!(
                "lane {} did not answer within {} s; others may have done what was ordered",
                lanes[silent],
                PATIENCE.as_secs()
            );
            Err(Response::text(Status::GatewayTimeout, words))
        }
    }
}

/// How long lanes may take.
const PATIENCE: Duration = Duration::from_secs(2);
