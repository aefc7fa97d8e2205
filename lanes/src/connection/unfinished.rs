//! Bytes that connections keep because their rest has not come: the start of a hello, of a record,
//! or of a message over several records.

use std::collections::VecDeque;

/// What a lane's connections keep of such bytes in all.
pub(crate) struct Unfinished {
    units: usize,
    units_max: usize,
    /// Connections that keep some.
    holders: usize,
    /// Who began to keep some, in that order; for most of them the rest has come since.
    order: VecDeque<Wait>,
    /// Counts the waits, and begins again: two of one number would have to be of one connection.
    last: u16,
}

/// A connection's wait for the rest of something: one that begins again is another.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
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
    /// Without a limit until one is set.
    pub(crate) fn new() -> Self {
        Self { units: 0, units_max: usize::MAX, holders: 0, order: VecDeque::new(), last: 0 }
    }

    /// Allows `bytes_max` bytes in all from now on.
    pub(crate) fn limit(&mut self, bytes_max: usize) {
        self.units_max = bytes_max / UNIT_BYTES;
    }

    /// Notes that the connection of `token` keeps `bytes` now. Returns whether a wait begins or
    /// takes more: only then is there anything to be limited.
    pub(crate) fn note(&mut self, token: u64, kept: &mut Kept, bytes: usize) -> bool {
        // Sessions and the parser of hellos bound it, at a fifth of what fits.
        let units = u16::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u16::MAX);
        let before = kept.units;
        let is_another = std::mem::take(&mut kept.is_another) && units > 0;
        if units == before && !is_another {
            return false;
        }
        let begins = before == 0 || is_another;
        if begins {
            self.last = self.last.wrapping_add(1);
            kept.number = self.last;
            self.order.push_back(Wait { token, number: self.last });
        }
        self.holders += usize::from(before == 0);
        self.holders -= usize::from(units == 0);
        self.units = self.units - usize::from(before) + usize::from(units);
        kept.units = units;
        begins || units > before
    }

    /// Drops the waits that are over, by `is_over`, if they are too many.
    pub(crate) fn drop_stale(&mut self, is_over: impl Fn(&Wait) -> bool) {
        if self.order.len() > 2 * self.holders + STALE_WAITS_MAX {
            self.order.retain(|wait| !is_over(wait));
        }
    }

    /// The wait that began first, while all keep more than they may. It may be over.
    pub(crate) fn oldest_over_limit(&mut self) -> Option<Wait> {
        if self.units > self.units_max { self.order.pop_front() } else { None }
    }

    /// Forgets a connection that ended.
    pub(crate) fn forget(&mut self, kept: Kept) {
        self.units -= usize::from(kept.units);
        self.holders -= usize::from(kept.units > 0);
    }
}

impl Wait {
    /// The connection that waits.
    pub(crate) fn token(self) -> u64 {
        self.token
    }

    /// Whether the connection that keeps `kept` still waits so.
    pub(crate) fn goes_on(self, kept: Kept) -> bool {
        kept.number == self.number && kept.units > 0
    }
}
