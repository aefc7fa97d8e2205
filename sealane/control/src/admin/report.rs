//! The JSON of `/state`.

mod processors;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::process;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::process::{getegid, geteuid};
use sealane_config::{ClientDemand, Limits, RootPlace, Tickets};
use sealane_engine::certificates::{Inventory, InventoryEntry, InventoryFailure};
use sealane_lanes::cause::Cause;
use sealane_lanes::counters::Counters;
use sealane_listeners::{ClientsSummary, NameSummary, StoreSummary, Summary};
use sealane_operator::timestamp::Timestamp;
use sealane_sandbox as sandbox;
use sealane_traffic::admission::RefusedClients;
use sealane_traffic::backends::{BackendCounters, monotonic_ms};
use serde_json::{Map, Value, json};

use crate::file_tables::FileTables;
use crate::process::{has_core_dumps, locked};
use crate::state::{
    AccessLogCounters, BackendSummary, ControlState, Faults, Reload, Reloads, SharedState,
    TicketRoots,
};

/// Everything that `/state` shows.
///
/// # Errors
/// Something of it is no JSON.
pub(super) fn json(state: &SharedState) -> Result<Vec<u8>, serde_json::Error> {
    // Of files, so that nobody waits for them.
    let cpu = processors::of_lanes();
    let state = &*state.lock();
    let live: Vec<_> = state.generations.live().take(GENERATIONS_SHOWN_MAX).collect();
    let soonest = state.soonest_to_expire();
    let certificates = soonest.certificates.iter();
    let mut body = serde_json::to_vec_pretty(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": process::id(),
        "process": own_process(state),
        "phase": state.phase.name(),
        "now": Timestamp::now(),
        "started": Timestamp::from(state.started.at),
        "uptime_s": state.started.clock.elapsed().as_secs(),
        "generation": {
            "newest": state.generations.newest(),
            "live": live,
            "live_total": state.generations.live().count(),
        },
        "reloads": reloads(&state.reloads),
        "faults": faults(&state.faults_now()),
        "listeners": state.listeners.iter().map(listener).collect::<Vec<_>>(),
        "certificates": {
            "total": soonest.total,
            "soonest_to_expire": certificates.map(certificate).collect::<Vec<_>>(),
        },
        "stores": state.stores_now().iter().map(store).collect::<Vec<_>>(),
        "backends": state.backends.iter().map(backend).collect::<Vec<_>>(),
        "backend_names": state.names.iter().map(backend_name).collect::<Vec<_>>(),
        "tickets": tickets(&state.tickets, &state.ticket_roots),
        "backend_certificates":
            state.listeners.iter().flat_map(backend_certificates).collect::<Vec<_>>(),
        "backends": state.backends.iter().map(backend).collect::<Vec<_>>(),
        "backend_names": state.names.iter().map(backend_name).collect::<Vec<_>>(),
        "limits": limits(&state.limits),
        "lanes": state.lanes.iter().enumerate().map(|(n, c)| lane(n, c, &cpu)).collect::<Vec<_>>(),
        "file_tables": file_tables(state),
        "access_log": state.access_log.as_ref().map(access_log),
        "refused_clients": refused_clients(&state.refused),
    }))?;
    body.push(b'\n');
    Ok(body)
}

/// The process as the kernel has it now.
fn own_process(state: &ControlState) -> Value {
    json!({
        "user": geteuid().as_raw(),
        "group": getegid().as_raw(),
        "core_dump": has_core_dumps(),
        "landlock": sandbox::version().ok(),
        "landlock_refusal": sandbox::version().err(),
        "memory_locked": locked::verdict().is_ok(),
        "memory_locked_refusal": locked::verdict().err(),
        "seccomp": state.filter_refusal.is_none(),
        "seccomp_refusal": state.filter_refusal,
    })
}

fn reloads(reloads: &Reloads) -> Value {
    let recent = reloads.recent.iter().map(|Reload { at, verdict }| {
        json!({
            "time": at,
            "outcome": verdict.outcome(),
            "generation": verdict.generation,
            "took_ms": verdict.took_ms,
            "errors": verdict.errors,
            "faults": verdict.faults,
            "warnings": verdict.warnings,
        })
    });
    json!({
        "accepted": reloads.accepted,
        "refused": reloads.refused,
        "recent": recent.collect::<Vec<_>>(),
    })
}

fn faults(faults: &Faults) -> Value {
    let shown = faults.shown.iter().map(|fault| {
        json!({
            "path": fault.path.to_string_lossy(),
            "listener": fault.listener,
            "what": fault.text,
            "consequence": fault.consequence(),
            "last_good": fault.without.is_none(),
        })
    });
    json!({ "total": faults.total, "shown": shown.collect::<Vec<_>>() })
}

fn backend(backend: &BackendSummary) -> Value {
    let sum =
        |value: fn(&BackendCounters) -> u64| backend.lanes.iter().map(|l| value(l)).sum::<u64>();
    let now_ms = monotonic_ms();
    json!({
        "backend": backend.label,
        "address": backend.address,
        "state": BackendState::of(backend, now_ms).name(),
        "why": backend_fault(backend, now_ms),
        "tls": backend.tls,
        "connections": sum(|lane| lane.active.value()),
        "connected": sum(|lane| lane.connected.value()),
        "failed": sum(|lane| lane.failed.value()),
    })
}

/// The clients that all lanes together have refused most often, the worst first.
fn refused_clients(lanes: &[Arc<RefusedClients>]) -> Value {
    let mut counts = HashMap::<IpAddr, u64>::new();
    for (client, count) in lanes.iter().flat_map(|lane| lane.clients()) {
        *counts.entry(client).or_default() += count;
    }
    let mut clients: Vec<_> = counts.into_iter().collect();
    clients.sort_unstable_by_key(|(client, count)| (Reverse(*count), *client));
    clients.truncate(REFUSED_SHOWN_MAX);
    clients.iter().map(|(client, count)| json!({ "client": client, "count": count })).collect()
}

fn backend_name(name: &NameSummary) -> Value {
    json!({
        "name": name.name,
        "addresses": name.addresses,
        "failures": name.failures,
        "failure": name.failure,
    })
}

/// The state of a backend for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackendState {
    /// A health check failed, or all lanes wait after failed attempts.
    Down,
    /// An operator drained it.
    Drained,
    /// The last attempt of a lane failed; the next client may be sent there.
    Failing,
    /// Nothing is known against it.
    Up,
}

impl BackendState {
    /// The state at `now_ms` by [`monotonic_ms`]. An operator's order comes before health checks,
    /// and these before the attempts of lanes.
    pub(super) fn of(backend: &BackendSummary, now_ms: u64) -> Self {
        let lanes = &backend.lanes;
        if lanes.iter().any(|lane| lane.is_drained()) {
            return Self::Drained;
        }
        let all_rest = !lanes.is_empty() && lanes.iter().all(|lane| lane.rest_left_ms(now_ms) > 0);
        match backend.checked {
            Some(Err(_)) => Self::Down,
            _ if all_rest => Self::Down,
            _ if lanes.iter().any(|lane| lane.is_failing()) => Self::Failing,
            _ => Self::Up,
        }
    }

    /// Whether a client may be sent there.
    pub(super) fn is_usable(self) -> bool {
        matches!(self, Self::Failing | Self::Up)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Drained => "drained",
            Self::Failing => "failing",
            Self::Up => "up",
        }
    }
}

/// Why a backend is down or failing: a health check's finding, or the attempts of lanes.
fn backend_fault(backend: &BackendSummary, now_ms: u64) -> Option<String> {
    if let Some(Err(found)) = &backend.checked {
        return Some(found.clone());
    }
    let in_a_row = backend.lanes.iter().map(|lane| lane.failed_in_a_row()).max();
    let attempts = match in_a_row.unwrap_or_default() {
        0 => return None,
        1 => "the last attempt to connect failed".to_owned(),
        count => format!("the last {count} attempts to connect failed"),
    };
    let rests = backend.lanes.iter().map(|lane| lane.rest_left_ms(now_ms));
    Some(match rests.min().unwrap_or_default() {
        0 => format!("{attempts}; the next client may be sent there"),
        rest_ms => format!("{attempts}; retry in {} s", rest_ms.div_ceil(1_000)),
    })
}

/// Epochs are counted from 1970, so that machines agree on them without a word.
fn tickets(tickets: &Tickets, roots: &TicketRoots) -> Value {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let lifetime_s = tickets.lifetime.as_secs().max(1);
    let epoch = unix.as_secs() / lifetime_s;
    let begins = |epoch: u64| {
        let begins_s = epoch.saturating_mul(lifetime_s);
        Timestamp::from_unix_s(i64::try_from(begins_s).unwrap_or(i64::MAX))
    };
    let announced = roots.announced.iter();
    let announced = announced.map(|epoch| json!({ "epoch": epoch, "from": begins(*epoch) }));
    json!({
        "announced": announced.collect::<Vec<_>>(),
        "count": tickets.count,
        "epoch": epoch,
        "epoch_ends": begins(epoch.saturating_add(1)),
        "is_shared": roots.is_shared,
        "lifetime_s": lifetime_s,
        "root": tickets.root.as_ref().map(RootPlace::to_string),
    })
}

fn listener(listener: &Summary) -> Value {
    json!({
        "name": listener.name,
        "addresses": listener.addresses,
        "can_serve": listener.can_serve,
        "backends": listener.backends,
        "balance": listener.balance,
        "certificates": listener.certificates.certificates,
        "clients": listener.clients.as_ref().map(clients),
        "server_names": listener.certificates.names,
        "speaks": listener.speaks,
        "passthrough": listener.passthrough,
        "proxy_from": listener.proxy_from,
        "proxy_header": listener.proxy_header,
        "limits": listener.limits,
        "routes": listener.routes,
        "routes_total": listener.routes_total,
        "tls": listener.tls,
    })
}

fn clients(clients: &ClientsSummary) -> Value {
    let roots = clients.roots.iter().map(|root| {
        let not_after = Timestamp::from_unix_s(root.not_after_s);
        json!({ "source": root.source, "not_after": not_after })
    });
    let lists = clients.lists.iter().map(|list| {
        let next_update = Timestamp::from_unix_s(list.next_update_s);
        json!({ "issuer": list.issuer_text, "next_update": next_update })
    });
    json!({
        "certificates": clients.demand.map_or("off", ClientDemand::name),
        "roots": roots.collect::<Vec<_>>(),
        "crls": lists.collect::<Vec<_>>(),
    })
}

fn store(
    (listener, store, now): &(&str, &StoreSummary, Result<Inventory, InventoryFailure>),
) -> Value {
    let path = store.path.to_string_lossy();
    match now {
        Ok(now) => json!({
            "listener": listener,
            "path": path,
            "certificates": now.certificates,
            "server_names": now.names,
            "error": null,
        }),
        Err(error) => json!({ "listener": listener, "path": path, "error": error.to_string() }),
    }
}

fn certificate((listener, certificate): &(String, InventoryEntry)) -> Value {
    json!({
        "listener": listener,
        "source": certificate.source,
        "key": certificate.key_type.family(),
        "names": certificate.names,
        "names_total": certificate.names_total,
        "not_after": Timestamp::from_unix_s(certificate.not_after_s),
    })
}

fn backend_certificates(listener: &Summary) -> impl Iterator<Item = Value> {
    listener.expiries.iter().map(|expiry| {
        json!({
            "listener": listener.name,
            "usage": expiry.usage.name(),
            "source": expiry.source,
            "not_after": Timestamp::from_unix_s(expiry.not_after_s),
        })
    })
}

fn limits(limits: &Limits) -> Value {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "backend_timeout_ms": limits.timeouts.backend.map(ms),
        "certificates_max": limits.certificates_max,
        "client_timeout_ms": limits.timeouts.client.map(ms),
        "connect_timeout_ms": ms(limits.connect_timeout),
        "connection_age_max_ms": limits.connection_age_max.map(ms),
        "connections_max": limits.connections_max,
        "connections_per_lane_max": limits.connections_per_lane_max,
        "decoded_keys_per_lane_max": limits.decoded_keys_per_lane_max,
        "drain_delay_ms": ms(limits.drain_delay),
        "drain_timeout_ms": ms(limits.drain_timeout),
        "half_closed_timeout_ms": ms(limits.timeouts.half_closed),
        "handshake_timeout_ms": ms(limits.timeouts.handshake),
        "handshakes_max": limits.handshakes_max,
        "health_delay_ms": ms(limits.health_delay),
        "hello_bytes_max": limits.hello_bytes_max,
        "idle_timeout_ms": ms(limits.timeouts.idle),
        "listeners_max": limits.listeners_max,
        "names_max": limits.names_max,
        "proxy_timeout_ms": ms(limits.proxy_timeout),
        "unfinished_bytes_per_lane_max": limits.unfinished_bytes_per_lane_max,
    })
}

fn lane(number: usize, counters: &Counters, cpu: &BTreeMap<usize, u64>) -> Value {
    let ended: Map<_, _> = Cause::ALL
        .into_iter()
        .map(|cause| (cause.label().to_owned(), counters.ended(cause).value()))
        .filter(|(_, count)| *count > 0)
        .map(|(label, count)| (label, count.into()))
        .collect();
    json!({
        "lane": number,
        "generation": counters.generation.value(),
        "connections": counters.connections.value(),
        "handshakes_in_flight": counters.handshaking.value(),
        "handshakes_waiting": counters.hellos_waiting.value(),
        "handshakes_gave_way": counters.gave_way(),
        "handshake_us": counters.hello_us.value(),
        "accepted": counters.accepted.value(),
        "accept_errors": counters.accept_errors.value(),
        "clients_by_expired_crl": counters.clients_by_ended_lists.value(),
        "handshakes": counters.handshakes.total(),
        "ended": ended,
        "received_bytes": counters.received_bytes.value(),
        "sent_bytes": counters.sent_bytes.value(),
        "keys_decoded": counters.keys_decoded.value(),
        "keys_evicted": counters.keys_evicted.value(),
        "keys_failed": counters.keys_failed.value(),
        "keys_opened": counters.keys_opened.value(),
        "store_failures": counters.store_failures.value(),
        "panics": counters.panics.value(),
        "turns": counters.turns.value(),
        "cpu_ms": cpu.get(&number),
    })
}

fn file_tables(state: &ControlState) -> Value {
    let own = state.lanes_with_own_table;
    let refusal = match &state.file_tables {
        FileTables::OfLanes => None,
        FileTables::Shared { refusal } => Some(refusal),
    };
    json!({
        "lanes_with_own": own,
        "lanes_that_share": state.lanes.len() - own,
        "refusal": refusal,
    })
}

fn access_log(log: &AccessLogCounters) -> Value {
    json!({
        "lines": log.lanes.iter().map(|lane| lane.lines.value()).sum::<u64>(),
        "dropped": log.lanes.iter().map(|lane| lane.dropped.value()).sum::<u64>(),
        "lost": log.writer.lost.value(),
        "errors": log.writer.errors.value(),
    })
}

/// Live generations that are listed by number.
const GENERATIONS_SHOWN_MAX: usize = 64;
/// Refused clients shown.
const REFUSED_SHOWN_MAX: usize = 10;
