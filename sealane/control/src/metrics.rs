//! Metrics for Prometheus: [`render`] writes what the lanes count and the control plane knows.
//!
//! Lanes only write their own counters; sums over lanes are the reader's to make.

mod exposition;
mod listeners;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;

use sealane_lanes::cause::Cause;
use sealane_lanes::counters::{Counters, Histogram};
use sealane_operator::timestamp::Timestamp;
use sealane_traffic::access_log::blame_label;
use sealane_traffic::backends::BackendCounters;

use crate::state::{AccessLogCounters, ControlState, Phase};

pub use exposition::{Exposition, Family, Kind, Seconds};

/// Everything that `/metrics` shows.
pub fn render(state: &ControlState) -> String {
    let mut to = Exposition::default();
    process(&mut to, state);
    generations(&mut to, state);
    faults(&mut to, state);
    for metric in PER_LANE {
        let mut family = to.family(metric.name, metric.kind, metric.help);
        for (lane, counters) in state.lanes.iter().enumerate() {
            family.sample(&[("lane", &lane)], (metric.value)(counters));
        }
    }
    handshakes(&mut to, &state.lanes);
    connections_ended(&mut to, &state.lanes);
    plaintext_bytes(&mut to, &state.lanes);
    listeners::connections(&mut to, state);
    backends(&mut to, state);
    backend_handshakes(&mut to, state);
    certificates(&mut to, state);
    if let Some(log) = &state.access_log {
        access_log(&mut to, log);
    }
    to.into_text()
}

fn backends(to: &mut Exposition, state: &ControlState) {
    for metric in PER_BACKEND {
        let mut family = to.family(metric.name, metric.kind, metric.help);
        for backend in &state.backends {
            for (lane, counters) in backend.lanes.iter().enumerate() {
                let labels: [(&str, &dyn Display); 3] =
                    [("backend", &backend.label), ("address", &backend.address), ("lane", &lane)];
                family.sample(&labels, (metric.value)(counters));
            }
        }
    }
    let help = "1 if health checks find the backend up, 0 if down; only with a health check.";
    let mut family = to.family("sealane_backend_up", Kind::Gauge, help);
    for backend in &state.backends {
        if let Some(found) = &backend.checked {
            let labels: [(&str, &dyn Display); 2] =
                [("backend", &backend.label), ("address", &backend.address)];
            family.sample(&labels, u8::from(found.is_ok()));
        }
    }
    let help = "Addresses of a backend's host name.";
    let mut family = to.family("sealane_backend_name_addresses", Kind::Gauge, help);
    for of_name in &state.names {
        family.sample(&[("name", &of_name.name)], of_name.addresses.len());
    }
    let help = "Failed DNS lookups of a backend's host name; its last addresses stay in use.";
    let mut family = to.family("sealane_backend_name_failures_total", Kind::Counter, help);
    for of_name in &state.names {
        family.sample(&[("name", &of_name.name)], of_name.failures);
    }
}

/// Handshakes with the backends that TLS is spoken to.
fn backend_handshakes(to: &mut Exposition, state: &ControlState) {
    let in_tls = || state.backends.iter().filter(|backend| backend.tls);
    let help = "Completed TLS handshakes with the backend.";
    let mut family = to.family("sealane_backend_handshakes_total", Kind::Counter, help);
    for backend in in_tls() {
        for (lane, counters) in backend.lanes.iter().enumerate() {
            let counts = [&counters.full_handshakes, &counters.resumed_handshakes];
            for (resumed, count) in [false, true].into_iter().zip(counts) {
                let labels: [(&str, &dyn Display); 4] = [
                    ("backend", &backend.label),
                    ("address", &backend.address),
                    ("lane", &lane),
                    ("resumed", &resumed),
                ];
                family.sample(&labels, count.value());
            }
        }
    }
    let help = "TLS handshakes with the backend that failed, by cause.";
    let mut family = to.family("sealane_backend_handshakes_failed_total", Kind::Counter, help);
    for backend in in_tls() {
        for (lane, counters) in backend.lanes.iter().enumerate() {
            for (cause, count) in counters.handshake_failures() {
                let labels: [(&str, &dyn Display); 4] = [
                    ("backend", &backend.label),
                    ("address", &backend.address),
                    ("lane", &lane),
                    ("cause", &cause.label()),
                ];
                family.sample(&labels, count);
            }
        }
    }
    let help = "Expiry of a certificate for TLS to backends, in Unix time: Sealane's own, and \
                the first to expire of the CAs in a file.";
    let mut family = to.family("sealane_backend_certificate_not_after_seconds", Kind::Gauge, help);
    for listener in &state.listeners {
        for expiry in &listener.expiries {
            let labels: [(&str, &dyn Display); 3] = [
                ("listener", &listener.name),
                ("usage", &expiry.usage.name()),
                ("source", &expiry.source),
            ];
            family.sample(&labels, expiry.not_after_s);
        }
    }
}

/// A family with one sample per backend and lane.
struct PerBackend {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&BackendCounters) -> u64,
}

const PER_BACKEND: [PerBackend; 5] = [
    PerBackend {
        name: "sealane_backend_connections",
        kind: Kind::Gauge,
        help: "Connections to the backend, open or being opened.",
        value: |counters| counters.active.value(),
    },
    PerBackend {
        name: "sealane_backend_drained",
        kind: Kind::Gauge,
        help: "1 if the backend is drained.",
        value: |counters| counters.is_drained().into(),
    },
    PerBackend {
        name: "sealane_backend_connected_total",
        kind: Kind::Counter,
        help: "Connections accepted by the backend.",
        value: |counters| counters.connected.value(),
    },
    PerBackend {
        name: "sealane_backend_failed_total",
        kind: Kind::Counter,
        help: "Failed connection attempts.",
        value: |counters| counters.failed.value(),
    },
    PerBackend {
        name: "sealane_backend_failing",
        kind: Kind::Gauge,
        help: "1 if the lane's last attempt to connect failed, until one succeeds.",
        value: |counters| u64::from(counters.is_failing()),
    },
];

/// A family with one sample per lane.
struct PerLane {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&Counters) -> u64,
}

const PER_LANE: [PerLane; 16] = [
    PerLane {
        name: "sealane_connections_accepted_total",
        kind: Kind::Counter,
        help: "Connections accepted from the listeners' queues.",
        value: |counters| counters.accepted.value(),
    },
    PerLane {
        name: "sealane_accept_errors_total",
        kind: Kind::Counter,
        help: "Failed accepts, such as for want of file descriptors.",
        value: |counters| counters.accept_errors.value(),
    },
    PerLane {
        name: "sealane_connections",
        kind: Kind::Gauge,
        help: "Client connections open now.",
        value: |counters| counters.connections.value(),
    },
    PerLane {
        name: "sealane_handshakes_in_flight",
        kind: Kind::Gauge,
        help: "Open connections whose handshake is not complete.",
        value: |counters| counters.handshaking.value(),
    },
    PerLane {
        name: "sealane_handshakes_waiting",
        kind: Kind::Gauge,
        help: "ClientHellos that wait for their lane, which has more than it can answer at once.",
        value: |counters| counters.hellos_waiting.value(),
    },
    PerLane {
        name: "sealane_handshakes_left_waiting_total",
        kind: Kind::Counter,
        help: "Clients that left while their ClientHello waited; they cost no signature.",
        value: |counters| counters.left_waiting.value(),
    },
    PerLane {
        name: "sealane_handshakes_without_extended_master_secret_total",
        kind: Kind::Counter,
        help: "Completed handshakes of TLS 1.2 without extended master secret (RFC 7627).",
        value: |counters| counters.handshakes_without_ems.value(),
    },
    PerLane {
        name: "sealane_clients_by_expired_crl_total",
        kind: Kind::Counter,
        help: "Clients accepted by a CRL whose next update is overdue.",
        value: |counters| counters.clients_by_ended_lists.value(),
    },
    PerLane {
        name: "sealane_keys_decoded_total",
        kind: Kind::Counter,
        help: "Private keys decoded on demand, because a ClientHello needed one.",
        value: |counters| counters.keys_decoded.value(),
    },
    PerLane {
        name: "sealane_keys_evicted_total",
        kind: Kind::Counter,
        help: "Decoded private keys evicted from the cache.",
        value: |counters| counters.keys_evicted.value(),
    },
    PerLane {
        name: "sealane_keys_failed_total",
        kind: Kind::Counter,
        help: "Private keys that could not be decoded; sealane check lists them.",
        value: |counters| counters.keys_failed.value(),
    },
    PerLane {
        name: "sealane_keys_opened_total",
        kind: Kind::Counter,
        help: "Private keys decrypted from a certificate store.",
        value: |counters| counters.keys_opened.value(),
    },
    PerLane {
        name: "sealane_store_failures_total",
        kind: Kind::Counter,
        help: "Failed reads of a certificate store; sealane certificates verify shows the reason.",
        value: |counters| counters.store_failures.value(),
    },
    PerLane {
        name: "sealane_panics_total",
        kind: Kind::Counter,
        help: "Connections cut because their handler panicked: a bug in Sealane.",
        value: |counters| counters.panics.value(),
    },
    PerLane {
        name: "sealane_lane_turns_total",
        kind: Kind::Counter,
        help: "Turns of the event loop.",
        value: |counters| counters.turns.value(),
    },
    PerLane {
        name: "sealane_lane_generation",
        kind: Kind::Gauge,
        help: "The generation that new connections of this lane get.",
        value: |counters| counters.generation.value(),
    },
];

fn process(to: &mut Exposition, state: &ControlState) {
    to.family("sealane_build_info", Kind::Gauge, "Always 1; the version is a label.")
        .sample(&[("version", &env!("CARGO_PKG_VERSION"))], 1);
    let started = Timestamp::from(state.started.at);
    to.family("sealane_start_time_seconds", Kind::Gauge, "Start of the process, in Unix time.")
        .sample(&[], started.unix_ms() / 1_000);
    to.family("sealane_lanes", Kind::Gauge, "Event loops.").sample(&[], state.lanes.len());
    let help = "Event loops with a private file descriptor table.";
    to.family("sealane_lanes_with_own_file_table", Kind::Gauge, help)
        .sample(&[], state.lanes_with_own_table);
    let mut phases =
        to.family("sealane_phase", Kind::Gauge, "1 for the current phase of the process.");
    for phase in [Phase::Starting, Phase::Serving, Phase::Draining] {
        phases.sample(&[("phase", &phase.name())], u8::from(state.phase == phase));
    }
}

fn generations(to: &mut Exposition, state: &ControlState) {
    to.family("sealane_generation", Kind::Gauge, "The newest published generation.")
        .sample(&[], state.generations.newest());
    let help = "Generations in memory: the newest, and those with open connections.";
    to.family("sealane_generations_live", Kind::Gauge, help)
        .sample(&[], state.generations.live().count());
    let reloads = &state.reloads;
    to.family(
        "sealane_reloads_total",
        Kind::Counter,
        "Reloads by outcome; a refused one changed nothing.",
    )
    .sample(&[("outcome", &"accepted")], reloads.accepted)
    .sample(&[("outcome", &"refused")], reloads.refused);
    if let Some(last) = reloads.last() {
        let help = "Time of the last reload, in Unix time.";
        to.family("sealane_reload_last_time_seconds", Kind::Gauge, help)
            .sample(&[], last.at.unix_ms() / 1_000);
        let help = "1 if the last reload was published, 0 if it was refused.";
        to.family("sealane_reload_last_accepted", Kind::Gauge, help)
            .sample(&[], u8::from(last.verdict.is_accepted()));
    }
}

fn faults(to: &mut Exposition, state: &ControlState) {
    let faults = state.faults_now();
    let help = "Certificates, CRLs, keys, folders and stores with a fault.";
    to.family("sealane_material_faults", Kind::Gauge, help).sample(&[], faults.total);
    let help = "1 for each fault, at most 100; last_good is true if the last good state is in \
                use.";
    let mut family = to.family("sealane_material_fault", Kind::Gauge, help);
    // One file may have several faults, and a listener several that are in one folder.
    let mut seen = HashSet::new();
    for fault in &faults.shown {
        let (listener, path) = (fault.listener.as_deref().unwrap_or_default(), &fault.path);
        if !seen.insert((listener, path)) {
            continue;
        }
        let labels: [(&str, &dyn Display); 3] = [
            ("listener", &listener),
            ("path", &path.display()),
            ("last_good", &fault.without.is_none()),
        ];
        family.sample(&labels, 1);
    }
}

fn handshakes(to: &mut Exposition, lanes: &[Arc<Counters>]) {
    let help = "Completed handshakes; failed ones are in sealane_connections_ended_total.";
    let mut family = to.family("sealane_handshakes_total", Kind::Counter, help);
    for (lane, counters) in lanes.iter().enumerate() {
        for (version, resumed, group, count) in counters.handshakes.cells() {
            let labels: [(_, &dyn Display); 4] =
                [("lane", &lane), ("version", &version), ("resumed", &resumed), ("group", &group)];
            family.sample(&labels, count);
        }
    }
    let help = "Time from accept to the end of a completed handshake.";
    let mut family = to.family("sealane_handshake_duration_seconds", Kind::Histogram, help);
    for (lane, counters) in lanes.iter().enumerate() {
        let histogram = &counters.handshake_time;
        histogram_of_lane(&mut family, lane, histogram.cumulative(), histogram.sum_us());
    }
}

fn histogram_of_lane(family: &mut Family<'_>, lane: usize, cumulative: Cumulative, sum_us: u64) {
    for (bound_us, count) in Histogram::BOUNDS_US.into_iter().zip(cumulative) {
        family.suffixed("_bucket", &[("lane", &lane), ("le", &Seconds(bound_us))], count);
    }
    // The lane goes on counting meanwhile: the last bucket and the count must be one reading.
    let total = cumulative[Histogram::BOUNDS_US.len()];
    family
        .suffixed("_bucket", &[("lane", &lane), ("le", &"+Inf")], total)
        .suffixed("_sum", &[("lane", &lane)], Seconds(sum_us))
        .suffixed("_count", &[("lane", &lane)], total);
}

/// Counts at and below each bound, and in all.
type Cumulative = [u64; Histogram::BOUNDS_US.len() + 1];

fn connections_ended(to: &mut Exposition, lanes: &[Arc<Counters>]) {
    let help = "Ended connections by cause and by the side that caused it.";
    let mut family = to.family("sealane_connections_ended_total", Kind::Counter, help);
    for (lane, counters) in lanes.iter().enumerate() {
        for cause in Cause::ALL {
            let blame = blame_label(cause.blame());
            let labels: [(_, &dyn Display); 3] =
                [("lane", &lane), ("cause", &cause.label()), ("blame", &blame)];
            family.sample(&labels, counters.ended(cause).value());
        }
    }
}

fn plaintext_bytes(to: &mut Exposition, lanes: &[Arc<Counters>]) {
    let help = "Bytes of plaintext received from clients, and sent to them.";
    let mut family = to.family("sealane_plaintext_bytes_total", Kind::Counter, help);
    for (lane, counters) in lanes.iter().enumerate() {
        family
            .sample(&[("lane", &lane), ("direction", &"received")], counters.received_bytes.value())
            .sample(&[("lane", &lane), ("direction", &"sent")], counters.sent_bytes.value());
    }
}

fn certificates(to: &mut Exposition, state: &ControlState) {
    let mut family = to.family("sealane_certificates", Kind::Gauge, "Certificates by listener.");
    for listener in &state.listeners {
        family.sample(&[("listener", &listener.name)], listener.certificates.certificates);
    }
    let mut family = to.family("sealane_server_names", Kind::Gauge, "Names by listener.");
    for listener in &state.listeners {
        family.sample(&[("listener", &listener.name)], listener.certificates.names);
    }
    client_trust(to, state);
    stores(to, state);
    let soonest = state.soonest_to_expire().certificates;
    let help = "Expiry of a certificate, in Unix time; of many, the first to expire.";
    let mut family = to.family("sealane_certificate_not_after_seconds", Kind::Gauge, help);
    let mut seen = HashSet::new();
    for (listener, certificate) in &soonest {
        let name = certificate.names.first().unwrap_or(&certificate.source);
        let key = certificate.key_type.family();
        // Of certificates that differ in no label the first to expire is shown.
        if seen.insert((listener, name, key)) {
            let labels: [(_, &dyn Display); 3] =
                [("listener", listener), ("name", name), ("key", &key)];
            family.sample(&labels, certificate.not_after_s);
        }
    }
}

fn client_trust(to: &mut Exposition, state: &ControlState) {
    let asking =
        || state.listeners.iter().filter_map(|each| Some((&each.name, each.clients.as_ref()?)));
    let help = "First expiry of a CA in the listener's trust store, in Unix time.";
    let mut family = to.family("sealane_client_roots_not_after_seconds", Kind::Gauge, help);
    for (listener, clients) in asking() {
        for root in &clients.roots {
            let labels: [(_, &dyn Display); 2] = [("listener", listener), ("source", &root.source)];
            family.sample(&labels, root.not_after_s);
        }
    }
    let help = "Next update of a CRL, in Unix time.";
    let mut family = to.family("sealane_crl_expires_seconds", Kind::Gauge, help);
    for (listener, clients) in asking() {
        let mut soonest = BTreeMap::new();
        for list in &clients.lists {
            let known = soonest.entry(&list.issuer_text).or_insert(list.next_update_s);
            *known = list.next_update_s.min(*known);
        }
        for (issuer, next_update_s) in soonest {
            let labels: [(_, &dyn Display); 2] = [("listener", listener), ("issuer", issuer)];
            family.sample(&labels, next_update_s);
        }
    }
}

fn stores(to: &mut Exposition, state: &ControlState) {
    let stores = state.stores_now();
    let readable = || stores.iter().filter_map(|(name, _, now)| Some((name, now.as_ref().ok()?)));
    let help = "Certificates in the listener's store.";
    let mut family = to.family("sealane_store_certificates", Kind::Gauge, help);
    for (listener, now) in readable() {
        family.sample(&[("listener", listener)], now.certificates);
    }
    let help = "Server names in the listener's store.";
    let mut family = to.family("sealane_store_names", Kind::Gauge, help);
    for (listener, now) in readable() {
        family.sample(&[("listener", listener)], now.names);
    }
}

fn access_log(to: &mut Exposition, log: &AccessLogCounters) {
    let help = "Access log lines passed to the writer.";
    let mut family = to.family("sealane_access_log_lines_total", Kind::Counter, help);
    for (lane, counters) in log.lanes.iter().enumerate() {
        family.sample(&[("lane", &lane)], counters.lines.value());
    }
    let help = "Access log lines dropped because the writer was too slow.";
    let mut family = to.family("sealane_access_log_dropped_total", Kind::Counter, help);
    for (lane, counters) in log.lanes.iter().enumerate() {
        family.sample(&[("lane", &lane)], counters.dropped.value());
    }
    let writer = &log.writer;
    to.family("sealane_access_log_bytes_total", Kind::Counter, "Bytes written.")
        .sample(&[], writer.bytes.value());
    to.family("sealane_access_log_errors_total", Kind::Counter, "Failed writes and reopenings.")
        .sample(&[], writer.errors.value());
    to.family("sealane_access_log_lost_total", Kind::Counter, "Lines lost in failed writes.")
        .sample(&[], writer.lost.value());
}

#[cfg(test)]
mod tests;
