//! One look at `/state`, with what of it is drawn.

use std::time::Instant;

use serde::Deserialize;

use crate::commands::running::Running;

/// What was seen, and when.
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) json: Vec<u8>,
    pub(super) state: State,
}

impl Look {
    pub(super) fn at(running: &Running<'_>) -> Result<Self, String> {
        let answered = running.show("/state").map_err(|error| error.to_string())?;
        let at = Instant::now();
        if answered.status != 200 {
            return Err(answered.words());
        }
        let state = answered.read().map_err(|error| {
            format!("its state is not understood: {error}; is it of this version?")
        })?;
        Ok(Self { at, json: answered.body, state })
    }
}

#[derive(Deserialize)]
pub(super) struct State {
    pub(super) version: String,
    pub(super) pid: u32,
    pub(super) process: Process,
    pub(super) phase: String,
    pub(super) uptime_s: u64,
    pub(super) generation: Generation,
    pub(super) reloads: Reloads,
    pub(super) faults: Faults,
    pub(super) tickets: Tickets,
    pub(super) lanes: Vec<Lane>,
    pub(super) backends: Vec<Backend>,
    pub(super) certificates: Certificates,
    #[serde(default)]
    pub(super) refused_clients: Vec<RefusedClient>,
}

/// A client, and how often it was refused.
#[derive(Deserialize)]
pub(super) struct RefusedClient {
    pub(super) client: String,
    pub(super) count: u64,
}

/// Why the process is not kept from what it does not need, where it is not.
#[derive(Deserialize)]
pub(super) struct Process {
    pub(super) landlock_refusal: Option<String>,
    pub(super) memory_locked_refusal: Option<String>,
    pub(super) seccomp_refusal: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Generation {
    pub(super) newest: u64,
    pub(super) live_total: u64,
}

#[derive(Deserialize)]
pub(super) struct Reloads {
    pub(super) accepted: u64,
    pub refused: u64,
    pub(super) recent: Vec<Reload>,
}

#[derive(Deserialize)]
pub(super) struct Reload {
    pub(super) time: String,
    pub(super) outcome: String,
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Faults {
    pub(super) total: u64,
    pub shown: Vec<Fault>,
}

#[derive(Deserialize)]
pub(super) struct Fault {
    pub(super) listener: Option<String>,
    pub(super) what: String,
    pub(super) consequence: String,
}

#[derive(Deserialize)]
pub(super) struct Tickets {
    pub(super) epoch: u64,
    pub(super) epoch_ends: String,
    #[serde(default)]
    pub(super) announced: Vec<AnnouncedRoot>,
    #[serde(default)]
    pub(super) is_shared: bool,
    #[serde(default)]
    pub(super) root: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct AnnouncedRoot {
    pub(super) from: String,
}

#[derive(Deserialize)]
pub(super) struct Lane {
    pub(super) lane: u64,
    pub(super) connections: u64,
    pub(super) handshakes_in_flight: u64,
    pub(super) handshakes_waiting: u64,
    pub(super) handshakes_gave_way: u64,
    pub(super) handshakes: u64,
    pub(super) cpu_ms: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Backend {
    pub(super) backend: String,
    pub(super) state: String,
    pub(super) connections: u64,
    pub(super) connected: u64,
    pub(super) failed: u64,
    /// What a check has found against it.
    pub(super) why: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Certificates {
    pub(super) total: u64,
    pub(super) soonest_to_expire: Vec<Certificate>,
}

#[derive(Deserialize)]
pub(super) struct Certificate {
    pub(super) listener: String,
    pub(super) source: String,
    pub(super) names: Vec<String>,
    pub(super) not_after: String,
}
