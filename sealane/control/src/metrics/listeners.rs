//! Metrics of listeners: what came to each, what became of it, and how much went through.

use std::fmt::Display;

use sealane_lanes::cause::Blame;
use sealane_traffic::access_log::blame_label;
use sealane_traffic::admission::LaneListenerCounters;

use super::{Exposition, Kind};
use crate::state::ControlState;

/// Writes what lanes count of each listener.
pub(super) fn connections(to: &mut Exposition, state: &ControlState) {
    for metric in PER_LISTENER {
        let mut family = to.family(metric.name, metric.kind, metric.help);
        for (listener, counted) in &state.listeners_counted {
            for (lane, counters) in counted.lanes.iter().enumerate() {
                for (label, value) in (metric.values)(counters) {
                    let own: [(&str, &dyn Display); 2] = [("listener", listener), ("lane", &lane)];
                    let label = label.as_ref().map(|(name, of)| (*name, of as &dyn Display));
                    let labels: Vec<_> = own.into_iter().chain(label).collect();
                    family.sample(&labels, value);
                }
            }
        }
    }
}

/// A family with the samples of each listener and lane.
struct PerListener {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// Each with what tells it from the others of the same listener and lane.
    values: fn(&LaneListenerCounters) -> Vec<(Label, u64)>,
}

/// A label's name and value, if there is more than one sample.
type Label = Option<(&'static str, &'static str)>;

const PER_LISTENER: [PerListener; 5] = [
    PerListener {
        name: "sealane_listener_connections",
        kind: Kind::Gauge,
        help: "Connections of a listener's clients, open now.",
        values: |counters| vec![(None, counters.open.value())],
    },
    PerListener {
        name: "sealane_listener_connections_accepted_total",
        kind: Kind::Counter,
        help: "Connections accepted by a listener, except those over limits.connections.",
        values: |counters| vec![(None, counters.accepted.value())],
    },
    PerListener {
        name: "sealane_listener_connections_ended_total",
        kind: Kind::Counter,
        help: "Ended connections of a listener, also rejected ones, by the side that caused it.",
        values: |counters| {
            let of = |blame| (Some(("blame", blame_label(blame))), counters.ended(blame).value());
            Blame::ALL.map(of).into()
        },
    },
    PerListener {
        name: "sealane_listener_handshakes_total",
        kind: Kind::Counter,
        help: "Completed handshakes of a listener.",
        values: |counters| {
            vec![
                (Some(("resumed", "false")), counters.full_handshakes.value()),
                (Some(("resumed", "true")), counters.resumed_handshakes.value()),
            ]
        },
    },
    PerListener {
        name: "sealane_listener_plaintext_bytes_total",
        kind: Kind::Counter,
        help: "Bytes of plaintext of ended connections, received from clients and sent to them.",
        values: |counters| {
            vec![
                (Some(("direction", "received")), counters.received_bytes.value()),
                (Some(("direction", "sent")), counters.sent_bytes.value()),
            ]
        },
    },
];
