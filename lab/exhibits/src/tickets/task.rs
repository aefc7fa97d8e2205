//! The trial of `tickets`, in a process of its own: what it is to do, [`TicketsTask`], and the
//! threads that do it.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use sealane_engine::tickets::{LIFETIME_DEFAULT_S, LIFETIME_S_MIN, UnixSeconds};
use sealane_lab_harness::{
    processor,
    trial::{Body, Fixed, Reply, THREADS_MAX},
};
use sealane_lab_model::error::Error;
use serde::{Deserialize, Serialize};

use super::{
    rotation,
    strategy::{SharedKeys, Strategy},
    tally::Tally,
    window,
};

/// Tickets, issued and resumed by many threads under one strategy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketsTask {
    /// How they share keys.
    pub strategy: Strategy,
    /// How many.
    pub threads: usize,
    /// The processor of each thread, in order; empty: not pinned.
    #[serde(default)]
    pub pin: Vec<usize>,
    /// What they do.
    pub work: Work,
}

/// What the threads of a trial do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Exactly so many tickets issued and resumed by each thread, between marks: for instruments.
    Fixed(Fixed),
    /// Keys that change under load.
    Rotation {
        /// How long a lifetime of [`LIFETIME_S_MIN`] clock seconds really takes.
        lifetime_ms: u64,
        /// How many of them the trial takes.
        lifetimes: u64,
    },
    /// Tickets as many as there is time for, under keys that do not change.
    Window {
        /// How long.
        window_ms: u64,
    },
}

impl TicketsTask {
    /// How long it takes at most, the machine being busy.
    pub(super) fn time_max(&self) -> Duration {
        let ms = match self.work {
            Work::Fixed(_) => FIXED_MS_MAX,
            Work::Rotation { lifetime_ms, lifetimes } => lifetime_ms * lifetimes,
            Work::Window { window_ms } => window_ms,
        };
        Duration::from_millis(ms) + TIME_BESIDE
    }
}

impl Body for TicketsTask {
    const NAME: &'static str = "tickets";

    fn perform(&self) -> Result<Reply, Error> {
        run(self)
    }
}

/// Does the task; the line is its result.
///
/// # Errors
/// The first thread's that failed, or what is not as it must be.
fn run(task: &TicketsTask) -> Result<Reply, Error> {
    if task.threads == 0 || task.threads > THREADS_MAX {
        return Err(Error::Unsupported(format!("1 to {THREADS_MAX} threads")));
    }
    // The first keys are nobody's fault.
    let tally = Tally::default();
    let shared = |lifetime_s: u32| SharedKeys::new(task.strategy, START, lifetime_s.into(), &tally);
    match task.work {
        Work::Fixed(fixed) => window::fixed(task, &shared(LIFETIME_DEFAULT_S)?, fixed),
        Work::Rotation { lifetime_ms, lifetimes } => {
            rotation::run(task, &shared(LIFETIME_S_MIN)?, lifetime_ms, lifetimes)
        }
        Work::Window { window_ms } => {
            window::run(task, &shared(LIFETIME_DEFAULT_S)?, Duration::from_millis(window_ms))
        }
    }
}

/// All threads' results of `work`, each pinned to its processor and given its number.
///
/// # Errors
/// The first thread's that failed. `work` waits for the others before it can fail.
pub(super) fn on_all_threads<T: Send>(
    task: &TicketsTask,
    work: impl Fn(usize) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let pinned = |number| processor::pin(&task.pin, number);
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..task.threads)
            .map(|number| {
                scope.spawn(move || {
                    let pinned = pinned(number);
                    work(number).and_then(|done| pinned.map(|()| done))
                })
            })
            .collect();
        let panicked = || Err(Error::Check("a thread of the trial panicked".into()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    })
}

/// Where threads wait for each other, to begin at one time.
pub(super) struct Start {
    all: Barrier,
    origin: Instant,
    begin_ns: AtomicU64,
}

impl Start {
    pub(super) fn new(threads: usize) -> Self {
        Self { all: Barrier::new(threads), origin: Instant::now(), begin_ns: AtomicU64::new(0) }
    }

    /// Meets the others.
    pub(super) fn meet(&self) -> bool {
        self.all.wait().is_leader()
    }

    /// Meets the others, and returns at the time that it returns to all.
    pub(super) fn together(&self) -> Instant {
        if self.meet() {
            let begin = self.origin.elapsed() + LEAD;
            self.begin_ns.store(u64::try_from(begin.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        }
        self.meet();
        let begin = self.origin + Duration::from_nanos(self.begin_ns.load(Relaxed));
        // Without sleeping, which would end at some other time.
        while Instant::now() < begin {
            thread::yield_now();
        }
        begin
    }
}

/// In an epoch's first second, whatever its length.
pub(super) const START: UnixSeconds = UnixSeconds(40_000 * LIFETIME_DEFAULT_S as u64);
/// What a client's session comes to in TLS 1.3 without a client certificate: 60 to 110 bytes, by
/// hash, server name and ALPN.
pub(super) const SESSION_BYTES: usize = 100;
/// An instrument slows a trial down a thousand times.
const FIXED_MS_MAX: u64 = 600_000;
/// From the threads' meeting to the start: each must have woken up by then.
const LEAD: Duration = Duration::from_millis(1);
/// Process, threads, and a machine that is busy otherwise.
const TIME_BESIDE: Duration = Duration::from_secs(60);
