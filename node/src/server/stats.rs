//! The counts of lanes, as JavaScript gets them.

use std::sync::Arc;

use napi::bindgen_prelude::{JsObjectValue, Object};
use napi::{Env, Result};
use sealane_lanes::cause::Cause;
use sealane_lanes::counters::{Counter, Counters};

use crate::failure;
use crate::settings::Counts;

/// `{ lanes: [...] }`, one for each lane that has started.
pub(super) fn object<'env>(
    env: &'env Env,
    counters: &[Arc<Counters>],
    counts: &[Arc<Counts>],
) -> Result<Object<'env>> {
    let mut lanes = Vec::with_capacity(counters.len());
    for (counters, counts) in counters.iter().zip(counts) {
        lanes.push(lane(env, counters, counts)?);
    }
    let mut stats = Object::new(env)?;
    stats.set_named_property("lanes", lanes)?;
    Ok(stats)
}

fn lane<'env>(env: &'env Env, counters: &Counters, counts: &Counts) -> Result<Object<'env>> {
    let mut lane = Object::new(env)?;
    let resumed = counters.handshakes.cells().filter(|(_, resumed, ..)| *resumed);
    let resumed: u64 = resumed.map(|(.., count)| count).sum();
    let named: [(&str, u64); 20] = [
        ("acceptErrors", value(&counters.accept_errors)),
        ("accepted", value(&counters.accepted)),
        ("bytesRead", value(&counters.received_bytes)),
        ("bytesWritten", value(&counters.sent_bytes)),
        ("connections", value(&counters.connections)),
        ("dropped", value(&counts.dropped)),
        ("generation", value(&counters.generation)),
        ("handshakeTimeUs", counters.handshake_time.sum_us()),
        ("handshakes", counters.handshakes.total()),
        ("handshaking", value(&counters.handshaking)),
        ("keysDecoded", value(&counters.keys_decoded)),
        ("keysEvicted", value(&counters.keys_evicted)),
        ("keysFailed", value(&counters.keys_failed)),
        ("opened", value(&counts.opened)),
        ("panics", value(&counters.panics)),
        ("pending", value(&counts.untaken)),
        ("resumed", resumed),
        ("stalls", value(&counts.stalls)),
        ("turns", value(&counters.turns)),
        ("wakeups", value(&counts.wakes)),
    ];
    for (name, count) in named {
        lane.set_named_property(name, number(count))?;
    }
    lane.set_named_property("ended", by_cause(env, counters, &Cause::ALL)?)?;
    lane.set_named_property("failed", by_cause(env, counters, &failure::OF_HANDSHAKES)?)?;
    Ok(lane)
}

/// Connections by why they ended; without those of which there is none.
fn by_cause<'env>(env: &'env Env, counters: &Counters, causes: &[Cause]) -> Result<Object<'env>> {
    let mut counts = Object::new(env)?;
    for cause in causes {
        let count = value(counters.ended(*cause));
        if count > 0 {
            counts.set_named_property(cause.label(), number(count))?;
        }
    }
    Ok(counts)
}

fn value(counter: &Counter) -> u64 {
    counter.value()
}

#[expect(clippy::cast_precision_loss, reason = "a count beyond 2^53 would take centuries")]
fn number(count: u64) -> f64 {
    count as f64
}
