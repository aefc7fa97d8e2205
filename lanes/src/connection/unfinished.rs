//! Bytes that connections keep because their rest has not come: the start of a hello, of a record,
//! or of a message over several records.

use std::collections::VecDeque;

use crate::cause::Cause;
use crate::connection::Connection;
use crate::connection::token::{Source, Token};
use crate::kernel::Kernel;
use crate::lane::Lane;
use crate::service::Service;

/// What a lane's connections keep of such bytes in all.
#[derive(Default)]
pub(crate) struct Unfinished {
    units: usize,
    /// Connections that keep some.
    holders: usize,
    /// Who began to keep some, in that order; for most of them the rest has come since.
    order: VecDeque<Wait>,
    /// Counts the waits, and begins again: two of one number would have to be of one connection.
    last: u16,
}

/// A connection's wait for the rest of something: one that begins again is another.
#[derive(Clone, Copy)]
struct Wait {
    token: u64,
    number: u16,
}

/// What one connection keeps. Small, because every connection has it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kept {
    /// In units of [`UNIT_BYTES`], rounded up.
    units: u16,
    /// The number of the wait.
    number: u16,
    /// What was waited for has come: what is kept now waits for something else.
    pub(crate) is_another: bool,
}

/// Bytes are counted by so many.
const UNIT_BYTES: usize = 16;
/// Waits that are over and may stand behind one that is not.
const STALE_WAITS_MAX: usize = 4096;

impl Unfinished {
    /// Takes note of what a connection keeps now. Returns whether a wait begins or takes more: only
    /// then is there anything to be limited.
    fn note(&mut self, connection: &mut Connection) -> bool {
        // Sessions and whoever looks at hellos bound it, at a fifth of what fits.
        let units = connection.unfinished_len().div_ceil(UNIT_BYTES);
        let units = u16::try_from(units).unwrap_or(u16::MAX);
        let kept = &mut connection.kept;
        let before = kept.units;
        let is_another = std::mem::take(&mut kept.is_another) && units > 0;
        if units == before && !is_another {
            return false;
        }
        let begins = before == 0 || is_another;
        if begins {
            self.last = self.last.wrapping_add(1);
            kept.number = self.last;
            self.order.push_back(Wait { token: connection.token, number: self.last });
        }
        self.holders += usize::from(before == 0);
        self.holders -= usize::from(units == 0);
        self.units = self.units - usize::from(before) + usize::from(units);
        kept.units = units;
        begins || units > before
    }

    /// Forgets a connection that ended.
    pub(crate) fn forget(&mut self, kept: Kept) {
        self.units -= usize::from(kept.units);
        self.holders -= usize::from(kept.units > 0);
    }
}

impl<S: Service, K: Kernel> Lane<S, K> {
    /// Takes note of what the connection keeps after a turn, and resets those that have waited
    /// longest while all keep more than they may.
    pub(crate) fn limit_unfinished(&mut self, slot: usize) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        if !self.reactor.unfinished.note(&mut entry.connection) {
            return;
        }
        if self.reactor.unfinished.order.len()
            > 2 * self.reactor.unfinished.holders + STALE_WAITS_MAX
        {
            let mut order = std::mem::take(&mut self.reactor.unfinished.order);
            order.retain(|wait| self.waiting_slot(*wait).is_some());
            self.reactor.unfinished.order = order;
        }
        let Some(current) = &self.current else { return };
        let units_max = current.generation.limits.unfinished_bytes_max / UNIT_BYTES;
        while self.reactor.unfinished.units > units_max {
            let Some(oldest) = self.reactor.unfinished.order.pop_front() else { return };
            if let Some(slot) = self.waiting_slot(oldest) {
                self.end(slot, Cause::LimitUnfinished);
            }
        }
    }

    /// Where the connection is that still waits so.
    fn waiting_slot(&self, wait: Wait) -> Option<usize> {
        let Source::Connection { slot, .. } = Token::from_bits(wait.token).source() else {
            return None;
        };
        let connection = &self.entries.get(slot)?.connection;
        let waits = connection.token == wait.token
            && connection.kept.number == wait.number
            && connection.kept.units > 0;
        waits.then_some(slot)
    }
}
