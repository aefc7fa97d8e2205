//! Bytes that connections keep because their rest has not come: the start of a hello, of a record,
//! or of a message over several records.

use std::collections::VecDeque;

use crate::cause::Cause;
use crate::connection::Connection;
use crate::kernel::Kernel;
use crate::lane::Lane;
use crate::service::Service;
use crate::token::{Source, Token};

/// What a lane's connections keep of such bytes in all.
#[derive(Default)]
pub(crate) struct Unfinished {
    bytes: usize,
    /// Connections that keep some.
    holders: usize,
    /// Who began to keep some, in that order; for most of them the rest has come since.
    order: VecDeque<Wait>,
    /// Counts the waits.
    last: u32,
}

/// A connection's wait for the rest of something: one that begins again is another.
#[derive(Clone, Copy)]
struct Wait {
    token: u64,
    number: u32,
}

/// What one connection keeps.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kept {
    bytes: u32,
    /// The number of the wait.
    number: u32,
    /// What was waited for has come: what is kept now waits for something else.
    pub(crate) is_another: bool,
}

/// Waits that are over and may stand behind one that is not.
const STALE_WAITS_MAX: usize = 4096;

impl Unfinished {
    /// Takes note of what a connection keeps now. Only when it keeps more has anything to be done
    /// about it, which it says.
    fn note(&mut self, connection: &mut Connection) -> bool {
        let len = connection.unfinished_len();
        let kept = &mut connection.kept;
        let before = kept.bytes as usize;
        let is_another = std::mem::take(&mut kept.is_another) && len > 0;
        if len == before && !is_another {
            return false;
        }
        if before == 0 || is_another {
            self.last = self.last.wrapping_add(1);
            kept.number = self.last;
            self.order.push_back(Wait { token: connection.token, number: self.last });
        }
        self.holders += usize::from(before == 0);
        self.holders -= usize::from(len == 0);
        self.bytes = self.bytes - before + len;
        // A session bounds it at some 80 KiB, and so does whoever looks at hellos.
        kept.bytes = u32::try_from(len).unwrap_or(u32::MAX);
        len > before
    }

    /// Forgets a connection that ended.
    pub(crate) fn forget(&mut self, kept: Kept) {
        self.bytes -= kept.bytes as usize;
        self.holders -= usize::from(kept.bytes > 0);
    }
}

impl<S: Service, K: Kernel> Lane<S, K> {
    /// Takes note of what the connection keeps after a turn, and resets those that have waited
    /// longest while all keep more than they may.
    pub(crate) fn limit_unfinished(&mut self, slot: usize) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        if !self.core.unfinished.note(&mut entry.connection) {
            return;
        }
        if self.core.unfinished.order.len() > 2 * self.core.unfinished.holders + STALE_WAITS_MAX {
            let mut order = std::mem::take(&mut self.core.unfinished.order);
            order.retain(|wait| self.waiting_slot(*wait).is_some());
            self.core.unfinished.order = order;
        }
        let Some(current) = &self.current else { return };
        let bytes_max = current.generation.limits.unfinished_bytes_max;
        while self.core.unfinished.bytes > bytes_max {
            let Some(oldest) = self.core.unfinished.order.pop_front() else { return };
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
            && connection.kept.bytes > 0;
        waits.then_some(slot)
    }
}
