//! What one lane remembers of its choices among the backends of a destination.

use sealane_config::BACKENDS_MAX;
use sealane_lanes::counters::Counter;

use super::selection::members;

/// What one lane remembers. It alone writes and reads it, so the lines are its own.
#[repr(align(128))]
pub struct LaneMemory {
    /// Those that checks have found down, by bit.
    down: Counter,
    of_backends: Box<[CacheLines]>,
}

/// Two cache lines, for the neighbour line is prefetched along.
#[derive(Default)]
#[repr(align(128))]
struct CacheLines([OfBackend; BACKENDS_OF_CACHE_LINES]);

#[derive(Default)]
struct OfBackend {
    /// What it is owed, in shares of a turn.
    credit: Counter,
    /// When it came back up, in milliseconds of the lane's clock; 0: it was never down.
    up_since_ms: Counter,
}

const BACKENDS_OF_CACHE_LINES: usize = 8;

impl LaneMemory {
    /// A memory of `count` backends, of which checks have found those down whose bits are set in
    /// `down`.
    pub fn of(count: usize, down: u64) -> Self {
        let lines = count.min(BACKENDS_MAX).div_ceil(BACKENDS_OF_CACHE_LINES);
        let of_backends = (0..lines).map(|_| CacheLines::default()).collect();
        let memory = Self { down: Counter::default(), of_backends };
        memory.down.set(down);
        memory
    }

    /// Checks have found these down, and all others up; only the lane may call this.
    pub fn note_checked(&self, down: u64, now_ms: u64) {
        for index in members(self.down.value() & !down) {
            self.note_back(index, now_ms);
        }
        self.down.set(down);
    }

    /// The backend at `index` has been back up since `at_ms`; only the lane may call this.
    pub fn note_back(&self, index: usize, at_ms: u64) {
        self.of_backend(index).up_since_ms.set(at_ms.max(1));
    }

    /// Those that checks have found down.
    pub(super) fn down(&self) -> u64 {
        self.down.value()
    }

    /// How long the backend at `index` has been back up; none if it was never down.
    pub(super) fn back_for_ms(&self, index: usize, now_ms: u64) -> Option<u64> {
        match self.of_backend(index).up_since_ms.value() {
            0 => None,
            since => Some(now_ms.saturating_sub(since)),
        }
    }

    /// What the backend at `index` is owed, in shares of a turn.
    pub(super) fn credit(&self, index: usize) -> i64 {
        self.of_backend(index).credit.value().cast_signed()
    }

    pub(super) fn set_credit(&self, index: usize, credit: i64) {
        self.of_backend(index).credit.set(credit.cast_unsigned());
    }

    fn of_backend(&self, index: usize) -> &OfBackend {
        &self.of_backends[index / BACKENDS_OF_CACHE_LINES].0[index % BACKENDS_OF_CACHE_LINES]
    }
}
