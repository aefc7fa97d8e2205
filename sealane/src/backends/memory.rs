//! What one lane remembers of its choices among the backends of a destination.

use sealane_lanes::counters::Counter;

use super::BACKENDS_MAX;

/// What one lane remembers. It alone writes and reads it, so the lines are its own.
pub struct LaneMemory(Box<[Line]>);

/// Two cache lines, for the neighbour line is prefetched along.
#[derive(Default)]
#[repr(align(128))]
struct Line([Counter; CREDITS_OF_LINE]);

const CREDITS_OF_LINE: usize = 16;

impl LaneMemory {
    /// With nothing to remember of `count` backends yet.
    pub fn of(count: usize) -> Self {
        let lines = count.min(BACKENDS_MAX).div_ceil(CREDITS_OF_LINE);
        Self((0..lines).map(|_| Line::default()).collect())
    }

    /// What the backend at `index` is owed, in shares of a turn.
    pub(super) fn credit(&self, index: usize) -> i64 {
        self.of_backend(index).value().cast_signed()
    }

    pub(super) fn set_credit(&self, index: usize, credit: i64) {
        self.of_backend(index).set(credit.cast_unsigned());
    }

    fn of_backend(&self, index: usize) -> &Counter {
        &self.0[index / CREDITS_OF_LINE].0[index % CREDITS_OF_LINE]
    }
}
