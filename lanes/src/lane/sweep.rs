//! The search for clients with certificates on a new revocation list: they are reset.

use sealane_engine::client_certificates::Distrust;

use crate::cause::Cause;
use crate::connection::phase::Phase;
use crate::connection::refused::Refused;
use crate::kernel::Kernel;
use crate::lane::connections::Connections;
use crate::replica::LaneGeneration;
use crate::service::Service;
use crate::turn::Entry;

/// A look at the connections of former generations, some in each turn of the lane.
pub(super) struct Sweep {
    due_ms: u64,
    slot: usize,
    /// Whether a handshake was under way that may still be completed by the lists of before.
    is_unsettled: bool,
}

impl Sweep {
    /// Begins at `now_ms`.
    pub(super) fn new(now_ms: u64) -> Self {
        Self { due_ms: now_ms, slot: 0, is_unsettled: false }
    }

    /// When it goes on.
    pub(super) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Looks at the next connections. Returns the rest of the sweep, if there is one.
    pub(super) fn go_on<S: Service, K: Kernel>(
        mut self,
        connections: &mut Connections<S, K>,
        current: &LaneGeneration<S::Settings>,
    ) -> Option<Self> {
        let last = connections.capacity();
        let until = last.min(self.slot + SWEPT_MAX);
        for slot in self.slot..until {
            match connections.in_slot(slot).map_or(Found::Nothing, |entry| look(entry, current)) {
                Found::Nothing => {}
                Found::Revoked => connections.end(slot, Cause::ClientRevoked),
                Found::Unsettled => self.is_unsettled = true,
            }
        }
        self.slot = until;
        if until == last && self.is_unsettled {
            self = Self::new(connections.reactor().now_ms + SWEEP_AGAIN_MS);
        }
        (self.slot < last).then_some(self)
    }
}

enum Found {
    Nothing,
    Revoked,
    Unsettled,
}

/// Compares a connection with the trust of its listener now.
fn look<S: Service>(entry: &mut Entry<S>, current: &LaneGeneration<S::Settings>) -> Found {
    if std::ptr::eq(&*entry.generation, current) {
        return Found::Nothing;
    }
    let keys = &entry.generation.listener(entry.listener).keys;
    let mut listeners = current.generation.listeners.iter();
    let same = listeners.position(|each| each.keys.iter().any(|key| keys.contains(key)));
    let Some(position) = same else { return Found::Nothing };
    let connection = &mut entry.connection;
    let replica = current.contexts(position).for_name(connection.hello.server_name.as_deref());
    let Some(context) = &replica.context else { return Found::Nothing };
    match (connection.tls.session(), connection.phase) {
        _ if !context.cuts_revoked() => Found::Nothing,
        (Some(session), Phase::Established) if context.has_revoked(session) => {
            let refused = Refused { distrust: Distrust::Revoked, certificate: None };
            connection.failed.refused = Some(Box::new(refused));
            Found::Revoked
        }
        (_, Phase::Handshake | Phase::Hello | Phase::Preamble | Phase::Waiting) => Found::Unsettled,
        _ => Found::Nothing,
    }
}

/// Connections that are looked at in one turn: about 2 ms, and 100,000 within a second.
const SWEPT_MAX: usize = 256;
/// Handshakes that were under way are looked for again after so long.
const SWEEP_AGAIN_MS: u64 = 500;
