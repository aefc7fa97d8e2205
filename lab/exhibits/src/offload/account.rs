//! What the server counts about itself: [`Account`], which it prints when it is asked.

use std::{
    fs,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustix::thread::Pid;
use sealane_lab_model::{document::Histogram, error::Error, histogram::Times};
use serde::{Deserialize, Serialize};

/// Everything since the account before.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Account {
    /// What only grows, less what it was before.
    #[serde(flatten)]
    pub(crate) sums: Sums,
    /// How long the loop was in each turn that had something to do.
    pub(crate) tick: Histogram,
    /// The processor time of the same turns: what a wait for a processor does not lengthen.
    pub(crate) tick_cpu: Histogram,
}

impl Account {
    /// What came from `earlier` to `later`, with the turns of that time.
    pub(super) fn between(earlier: Sums, later: Sums, ticks: &Ticks) -> Result<Self, Error> {
        let sums = Sums {
            accepted: later.accepted - earlier.accepted,
            broken: later.broken - earlier.broken,
            wakes: later.wakes.since(earlier.wakes),
            loop_ns: later.loop_ns.saturating_sub(earlier.loop_ns),
            workers_ns: later.workers_ns.saturating_sub(earlier.workers_ns),
        };
        Ok(Self { sums, tick: ticks.wall.document()?, tick_cpu: ticks.cpu.document()? })
    }
}

/// What only grows, from the server's start on.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Sums {
    /// Connections taken.
    pub(crate) accepted: u64,
    /// Connections that did not end as they should: by a reset, or by bytes that are not TLS.
    pub(crate) broken: u64,
    /// Both ways, all threads.
    pub(crate) wakes: Wakes,
    /// Processor time of the loop's thread.
    pub(crate) loop_ns: u64,
    /// Processor time of all workers' threads.
    pub(crate) workers_ns: u64,
}

impl Sums {
    /// Processor time of all threads.
    pub(crate) fn cpu_ns(self) -> u64 {
        self.loop_ns + self.workers_ns
    }
}

/// How long the loop's turns took.
pub(super) struct Ticks {
    wall: Times,
    cpu: Times,
}

impl Ticks {
    /// No tick yet.
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { wall: Times::new()?, cpu: Times::new()? })
    }

    /// One more turn, in nanoseconds.
    pub(super) fn record(&mut self, wall_ns: u64, cpu_ns: u64) {
        self.wall.record(wall_ns);
        self.cpu.record(cpu_ns);
    }
}

/// Notices, and what it took to have them noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Wakes {
    /// A thread had something for another one.
    pub(crate) events: u64,
    /// What was handed over together.
    pub(crate) batches: u64,
    /// System calls that rouse whoever may sleep.
    pub(crate) calls: u64,
}

impl Wakes {
    /// All of `other` too.
    pub(crate) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.batches += other.batches;
        self.calls += other.calls;
    }

    /// What came since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            events: self.events - earlier.events,
            batches: self.batches - earlier.batches,
            calls: self.calls - earlier.calls,
        }
    }
}

/// One worker's counters: it alone writes them, the loop reads them when it is asked.
#[derive(Default)]
pub(super) struct Ledger {
    events: AtomicU64,
    batches: AtomicU64,
    calls: AtomicU64,
    broken: AtomicU64,
    thread: OnceLock<Pid>,
}

impl Ledger {
    /// The worker's thread says which it is.
    pub(super) fn begin(&self) {
        let _ = self.thread.set(rustix::thread::gettid());
    }

    /// The worker's sums so far.
    pub(super) fn write(&self, wakes: Wakes, broken: u64) {
        self.events.store(wakes.events, Relaxed);
        self.batches.store(wakes.batches, Relaxed);
        self.calls.store(wakes.calls, Relaxed);
        self.broken.store(broken, Relaxed);
    }

    /// The notices that the worker gave.
    pub(super) fn wakes(&self) -> Wakes {
        Wakes {
            events: self.events.load(Relaxed),
            batches: self.batches.load(Relaxed),
            calls: self.calls.load(Relaxed),
        }
    }

    /// Connections of the worker that did not end as they should.
    pub(super) fn broken(&self) -> u64 {
        self.broken.load(Relaxed)
    }

    /// Processor time of the worker's thread so far; 0 where the kernel does not tell.
    pub(super) fn cpu_ns(&self) -> u64 {
        let Some(thread) = self.thread.get() else { return 0 };
        let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
    }
}
