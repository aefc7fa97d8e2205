//! The trial of `references`, in a process of its own: [`ReferencesTask`].

use std::{
    collections::BTreeMap,
    hint,
    sync::{
        Barrier, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::{
    phase::{self, Phase},
    processor::{self, thread_cpu_ns},
    strategies::named,
    trial::{Body, Fixed, Reply, THREADS_MAX},
};
use sealane_lab_model::error::Error;
use serde::{Deserialize, Serialize};

use super::{CPU_NS, RATE, Strategy};

/// References taken and given back by many threads under one strategy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReferencesTask {
    /// Who counts.
    pub strategy: Strategy,
    /// How many threads.
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
    /// Exactly so many references by each thread, between marks: for instruments.
    Fixed(Fixed),
    /// References as many as there is time for.
    Window {
        /// How long.
        window_ms: u64,
    },
}

impl Body for ReferencesTask {
    const NAME: &'static str = "references";

    fn perform(&self) -> Result<Reply, Error> {
        if self.threads == 0 || self.threads > THREADS_MAX {
            return Err(Error::Unsupported(format!("1 to {THREADS_MAX} threads")));
        }
        let parts = take_and_give_back(self)?;
        let sum = |of: fn(&Part) -> u64| parts.iter().map(of).sum::<u64>() as f64;
        let references = sum(|part| part.references);
        let mut figures: BTreeMap<_, _> = named([("references", references)]);
        if matches!(self.work, Work::Window { .. }) {
            let per_s = |part: &Part| part.references as f64 / part.wall.as_secs_f64();
            let rate = parts.iter().map(per_s).sum::<f64>() / parts.len() as f64;
            let cpu_ns = sum(|part| part.cpu_ns) / references;
            figures.extend([(RATE.to_owned(), rate), (CPU_NS.to_owned(), cpu_ns)]);
        }
        Ok(Reply::Figures { figures, times: BTreeMap::new() })
    }
}

/// What one thread did.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// References taken and given back.
    references: u64,
    /// How long it took.
    wall: Duration,
    /// The thread's processor time in it.
    cpu_ns: u64,
}

/// What each thread of `task` did. All begin together, and at the end nothing is left counted.
///
/// # Errors
/// A thread cannot be pinned, or a reference was lost.
fn take_and_give_back(task: &ReferencesTask) -> Result<Vec<Part>, Error> {
    let (all, shared) = (Barrier::new(task.threads), Counted::new(task.strategy));
    let parts = thread::scope(|scope| {
        let start = |number| {
            let (all, shared) = (&all, &shared);
            scope.spawn(move || {
                let pinned = processor::pin(&task.pin, number);
                // A lane counts what is its own.
                let own = Counted::new(task.strategy);
                let counted = if task.strategy == Strategy::Lane { &own } else { shared };
                let part = count(counted, task.work, all);
                pinned.and_then(|()| own.is_free()).map(|()| part)
            })
        };
        let threads: Vec<_> = (0..task.threads).map(start).collect();
        let panicked = |_| Err(Error::Check("a thread of the trial panicked".into()));
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked));
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    shared.is_free().map(|()| parts)
}

fn count(counted: &Counted, work: Work, all: &Barrier) -> Part {
    let one = || {
        counted.add(1);
        hint::black_box(counted).add(u64::MAX);
    };
    let turns = |count| (0..count).for_each(|_| one());
    match work {
        Work::Fixed(fixed) => {
            turns(fixed.warm_up);
            all.wait();
            for _ in 0..fixed.count {
                phase::enter(Phase::Server);
                one();
                phase::enter(Phase::Outside);
            }
            // So that no thread's end is among what another one does.
            all.wait();
            // An instrument has no use for times, and lengthens them.
            Part { references: fixed.count, wall: Duration::ZERO, cpu_ns: 0 }
        }
        Work::Window { window_ms } => {
            all.wait();
            let (begun, cpu_before_ns) = (Instant::now(), thread_cpu_ns());
            let (end, mut references) = (Duration::from_millis(window_ms), 0);
            while begun.elapsed() < end {
                turns(BATCH);
                references += BATCH;
            }
            Part { references, wall: begun.elapsed(), cpu_ns: thread_cpu_ns() - cpu_before_ns }
        }
    }
}

/// A number of references, on a cache line that holds nothing else.
#[repr(align(128))]
struct Counted(Number);

enum Number {
    Atomic(AtomicU64),
    Locked(Mutex<u64>),
}

impl Counted {
    fn new(strategy: Strategy) -> Self {
        Self(match strategy {
            Strategy::Lock => Number::Locked(Mutex::new(0)),
            // A lane's is as atomic as the others': only who shares it differs.
            Strategy::Atomic | Strategy::Lane => Number::Atomic(AtomicU64::new(0)),
        })
    }

    /// One more, or with the largest number one less.
    fn add(&self, difference: u64) {
        match &self.0 {
            Number::Atomic(number) => {
                number.fetch_add(difference, Relaxed);
            }
            Number::Locked(number) => {
                let mut number = number.lock().unwrap_or_else(PoisonError::into_inner);
                *number = number.wrapping_add(difference);
            }
        }
    }

    fn is_free(&self) -> Result<(), Error> {
        let left = match &self.0 {
            Number::Atomic(number) => number.load(Relaxed),
            Number::Locked(number) => *number.lock().unwrap_or_else(PoisonError::into_inner),
        };
        match left {
            0 => Ok(()),
            left => Err(Error::Check(format!("{left} references are left of an object"))),
        }
    }
}

/// References between two looks at the clock.
const BATCH: u64 = 256;
