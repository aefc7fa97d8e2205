//! `POST /reload`: what SIGHUP does, but whoever orders it hears what came of it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use sealane_traffic::http::{Response, Status, WORK_TIMEOUT};

use super::{Orders, json};

/// Reloads, and waits until every lane serves what was read.
pub(super) fn carry_out(orders: &Orders) -> Response {
    let (sender, receiver) = channel();
    (orders.reload)(sender);
    let mut verdict = match receiver.recv_timeout(WORK_TIMEOUT) {
        Ok(verdict) => verdict,
        Err(RecvTimeoutError::Timeout) => {
            let words = "the reload takes long and goes on; /state says what comes of it";
            return Response::text(Status::GatewayTimeout, words);
        }
        Err(RecvTimeoutError::Disconnected) => {
            let words = "this process is about to end; start it anew";
            return Response::text(Status::ServiceUnavailable, words);
        }
    };
    if verdict.is_accepted() {
        verdict.warnings.extend(late_lanes(orders, verdict.generation));
        json(Status::Ok, &verdict)
    } else {
        json(Status::Conflict, &verdict)
    }
}

/// Waits until every lane serves `generation`, and says which do not.
fn late_lanes(orders: &Orders, generation: u64) -> Vec<String> {
    let until = Instant::now() + LANES_PATIENCE;
    loop {
        let lanes = orders.state.lock().lanes.clone();
        let late = lanes.iter().enumerate();
        let late: Vec<_> =
            late.filter(|(_, counters)| counters.generation.value() < generation).collect();
        if late.is_empty() || Instant::now() >= until {
            let text =
                |(lane, _)| format!("lane {lane} does not serve generation {generation} yet");
            return late.into_iter().map(text).collect();
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// How long a lane may take to read its mail.
const LANES_PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
