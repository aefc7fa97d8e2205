//! Clients whose certificates end their connection: in the handshake ([`Refused`]), or later, when
//! a revocation list comes that has them ([`Sweep`]).

use std::rc::Rc;

use sealane_engine::client_certificates::Distrust;
use sealane_engine::context::LaneContext;
use sealane_engine::session::SessionError;

use crate::cause::Cause;
use crate::connection::Phase;
use crate::kernel::Kernel;
use crate::lane::replicas::ListenerContexts;
use crate::lane::{Entry, Lane};
use crate::service::Service;
use crate::shared::generation::LaneGeneration;

/// A client's certificate that ended a connection.
pub(crate) struct Refused {
    pub(crate) distrust: Distrust,
    /// If no session has it: the client's own, without its issuers'.
    pub(crate) certificate: Option<Box<[u8]>>,
}

impl Refused {
    /// Why a handshake failed under `context`, if it was for the client's certificate.
    pub(crate) fn in_handshake(
        error: &SessionError,
        context: Option<&LaneContext>,
    ) -> Option<Self> {
        let distrust = Distrust::of_handshake(error)?;
        Some(Self { distrust, certificate: context.and_then(LaneContext::take_refused) })
    }
}

/// A look at the connections of former generations, some in each turn of the lane.
pub(crate) struct Sweep {
    /// When it goes on.
    pub(crate) due_ms: u64,
    slot: usize,
    /// Whether a handshake was under way that may still be completed by the lists of before.
    is_unsettled: bool,
}

impl<S: Service, K: Kernel> Lane<S, K> {
    /// A generation is new, and with it perhaps a revocation list.
    pub(crate) fn begin_sweep(&mut self) {
        let contexts = self.current.iter().flat_map(|current| current.all_contexts());
        let cuts = contexts.flat_map(ListenerContexts::all).any(|context| context.cuts_revoked());
        let due_ms = self.reactor.now_ms;
        self.sweep = cuts.then_some(Sweep { due_ms, slot: 0, is_unsettled: false });
    }

    /// Goes on with the sweep, if it is time.
    pub(crate) fn cut_revoked(&mut self) {
        let now_ms = self.reactor.now_ms;
        let Some(mut sweep) = self.sweep.take_if(|sweep| sweep.due_ms <= now_ms) else { return };
        let Some(current) = self.current.as_ref().map(Rc::clone) else { return };
        let last = self.entries.capacity();
        let until = last.min(sweep.slot + SWEPT_MAX);
        for slot in sweep.slot..until {
            match self.entries.get_mut(slot).map_or(Found::Nothing, |entry| look(entry, &current)) {
                Found::Nothing => {}
                Found::Revoked => self.end(slot, Cause::ClientRevoked),
                Found::Unsettled => sweep.is_unsettled = true,
            }
        }
        sweep.slot = until;
        if until == last && sweep.is_unsettled {
            let due_ms = now_ms + SWEEP_AGAIN_MS;
            sweep = Sweep { due_ms, slot: 0, is_unsettled: false };
        }
        if sweep.slot < last {
            self.sweep = Some(sweep);
        }
    }
}

enum Found {
    Nothing,
    Revoked,
    Unsettled,
}

/// Holds a connection against what its listener believes now.
fn look<S: Service>(entry: &mut Entry<S>, current: &LaneGeneration<S::Settings>) -> Found {
    if std::ptr::eq(&*entry.generation, current) {
        return Found::Nothing;
    }
    let keys = &entry.generation.listener(entry.listener).keys;
    let mut listeners = current.generation.listeners.iter();
    let same = listeners.position(|each| each.keys.iter().any(|key| keys.contains(key)));
    let Some(position) = same else { return Found::Nothing };
    let connection = &mut entry.connection;
    let replica = current.contexts(position).for_name(connection.server_name.as_deref());
    let Some(context) = &replica.context else { return Found::Nothing };
    match (&connection.session, connection.phase) {
        _ if !context.cuts_revoked() => Found::Nothing,
        (Some(session), Phase::Established) if context.has_revoked(session) => {
            let refused = Refused { distrust: Distrust::Revoked, certificate: None };
            connection.refused = Some(Box::new(refused));
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
