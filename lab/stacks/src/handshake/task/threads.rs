//! The threads of a trial: all begin together, all work until the last window is closed.
//!
//! ```text
//! begin   warm-up, until every thread is warm   wait   |<-- the window, for all the same -->|
//!   |------------------------------------------|------|======================================|---|
//!   reports that it begins                      all meet, one names the start     works on
//! ```
//! The main thread only waits. Whatever fails, it says so and ends the process; a thread that never
//! comes, or leaves early, is found out by the times that it did not report.

use std::{
    sync::{
        Arc, Barrier, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::{
    credentials::Credentials,
    machine::Steal,
    phase,
    processor::{confine, thread_cpu_ns},
    trial::{Fixed, Reply, THREADS_MAX},
};
use sealane_lab_model::error::Error;

use super::{
    Handshakes,
    account::{self, Report, Times},
    fault::Fault,
    pair::{Clock, Pair, Part, Spans},
    turns::Turns,
};
use crate::{stack::Prepared, stacks};

/// Runs the trial; the line is its result.
///
/// # Errors
/// The first thing that failed on any thread.
pub(super) fn run(task: &Handshakes) -> Result<Reply, Error> {
    if task.threads == 0 || task.threads > THREADS_MAX {
        return Err(Error::Unsupported(format!(
            "1 to {THREADS_MAX} threads, not {}",
            task.threads
        )));
    }
    let misled = Fault::misled(task.fault, &task.scenario);
    let credentials = Credentials::at(&task.credentials);
    let stack = stacks::load(&task.stack)?;
    let prepared: Arc<dyn Prepared> = Arc::from(stack.prepare(&misled, &credentials)?);
    let meeting = Arc::new(Meeting::new(task.threads));
    let (sender, events) = mpsc::channel();
    let mut threads = Vec::new();
    for number in 0..task.threads {
        if task.fault == Some(Fault::MissingThread) && number + 1 == task.threads {
            continue;
        }
        let thread = Thread {
            number,
            task: task.clone(),
            prepared: Arc::clone(&prepared),
            meeting: Arc::clone(&meeting),
            events: sender.clone(),
        };
        let named = thread::Builder::new().name(format!("trial-{number}"));
        threads.push(named.spawn(move || thread.run()).map_err(Error::io("start a thread"))?);
    }
    // What is left of the channel is the threads'.
    drop(sender);
    let reports = collect(&events, task)?;
    for thread in threads {
        let _ = thread.join();
    }
    account::result(task, &reports, meeting.steal_percent())
}

/// What a thread tells the main thread.
enum Event {
    Begins,
    Ends(Result<Box<Report>, Error>),
}

/// Waits for every thread to begin, and then to end; never for ever.
fn collect(events: &Receiver<Event>, task: &Handshakes) -> Result<Vec<Report>, Error> {
    let (mut begun, mut reports) = (0, Vec::new());
    let begin_until = Instant::now() + BEGIN_TIME_MAX;
    let end_until = Instant::now() + work_time_max(task);
    while reports.len() < task.threads {
        let until = if begun < task.threads { begin_until } else { end_until };
        match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Begins) => begun += 1,
            Ok(Event::Ends(report)) => {
                let report = *report?;
                // At once: the others would wait for a thread that left early.
                report.is_whole()?;
                reports.push(report);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Check("a thread ended without a word".into()));
            }
            Err(RecvTimeoutError::Timeout) if begun < task.threads => {
                let missing = format!("{begun} of {} threads began", task.threads);
                return Err(Error::Check(missing));
            }
            Err(RecvTimeoutError::Timeout) => {
                let count = reports.len();
                let missing = format!("{count} of {} threads came to an end", task.threads);
                return Err(Error::Check(missing));
            }
        }
    }
    Ok(reports)
}

fn work_time_max(task: &Handshakes) -> Duration {
    match task.fixed {
        Some(_) => FIXED_TIME_MAX,
        None => Duration::from_millis(task.window_ms) + WINDOW_SLACK_MAX,
    }
}

/// Where the threads wait for each other. Nothing here is written inside the window, except once
/// per thread when it closes its own.
struct Meeting {
    threads: usize,
    /// More threads than processors. A thread that is pinned sees one processor only, so this is
    /// asked before any is.
    crowded: bool,
    all: Barrier,
    turns: Turns,
    origin: Instant,
    warm: AtomicUsize,
    closed: AtomicUsize,
    start_ns: AtomicU64,
    steal_before: OnceLock<Option<Steal>>,
    steal_after: OnceLock<Option<Steal>>,
}

impl Meeting {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            crowded: thread::available_parallelism().map_or(1, usize::from) < threads,
            all: Barrier::new(threads),
            turns: Turns::new(threads),
            origin: Instant::now(),
            warm: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            start_ns: AtomicU64::new(0),
            steal_before: OnceLock::new(),
            steal_after: OnceLock::new(),
        }
    }

    /// Meets all others; when the window opens, the same for all.
    fn agree_on_start(&self, clock: &Clock) -> u64 {
        if self.all.wait().is_leader() {
            let _ = self.steal_before.set(Steal::so_far());
            self.start_ns.store(clock.now_ns() + LEAD_NS, Ordering::Relaxed);
        }
        self.all.wait();
        self.start_ns.load(Ordering::Relaxed)
    }

    /// Without sleeping, which would end at some other time; but a thread that has its processor to
    /// itself cannot be in the way of another one.
    fn wait_for(&self, start_ns: u64, clock: &Clock) {
        while clock.now_ns() < start_ns {
            if self.crowded {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// The share of processor time that was stolen around the window; 0 if the kernel does not
    /// tell.
    fn steal_percent(&self) -> f64 {
        let read = |once: &OnceLock<Option<Steal>>| once.get().copied().flatten();
        Steal::percent(read(&self.steal_before), read(&self.steal_after))
    }
}

/// One thread of a trial.
struct Thread {
    number: usize,
    task: Handshakes,
    prepared: Arc<dyn Prepared>,
    meeting: Arc<Meeting>,
    events: Sender<Event>,
}

impl Thread {
    fn run(self) {
        let _ = self.events.send(Event::Begins);
        let guard = Gone { number: self.number, events: self.events.clone() };
        let report = self.work();
        let _ = self.events.send(Event::Ends(report.map(Box::new)));
        drop(guard);
    }

    fn work(&self) -> Result<Report, Error> {
        if let Some(processor) = self.task.pin.get(self.number) {
            confine(&[*processor])?;
        }
        let mut pair = Pair::new(self.prepared.worker()?, self.task.scenario.clone());
        match self.task.fixed {
            Some(fixed) => self.fixed(&mut pair, fixed),
            None => self.window(&mut pair),
        }
    }

    /// Exactly so many handshakes, in turns with the others: which locks, lines and blocks of
    /// memory meet must not depend on whom the system wakes first.
    fn fixed(&self, pair: &mut Pair, fixed: Fixed) -> Result<Report, Error> {
        let mut clock = Clock::new(self.meeting.origin);
        phase::announce();
        // What a fault clones is made before anything is counted.
        Fault::end((), self.task.fault);
        let turns = &self.meeting.turns;
        let mut kept = match self.task.bulk {
            true => Some(turns.take(self.number, || pair.connected(&mut clock))?),
            false => None,
        };
        let mut operate = |pair: &mut Pair, clock: &mut Clock| match &mut kept {
            Some((ends, negotiated)) => pair.transfer(ends, clock).map(|()| negotiated.clone()),
            None => pair.handshake(clock),
        };
        for _ in 0..fixed.warm_up {
            turns.take(self.number, || operate(pair, &mut clock))?;
        }
        let mut report = Report::new(self.number);
        self.meeting.all.wait();
        pair.fault = self.task.fault;
        clock.marks = true;
        for _ in 0..fixed.count {
            report.negotiated = Some(turns.take(self.number, || operate(pair, &mut clock))?);
            if !pair.was_of_its_kind() {
                return Err(Error::Check(
                    "a counted handshake resumed nothing: a kind that resumes needs a warm-up of \
                     1, and sessions that are shared must be enough for all threads"
                        .into(),
                ));
            }
            report.counted += 1;
        }
        // So that no thread's end is among what another one does.
        self.meeting.all.wait();
        report.warm_up = fixed.warm_up;
        Ok(report)
    }

    fn window(&self, pair: &mut Pair) -> Result<Report, Error> {
        let meeting = &self.meeting;
        let mut clock = Clock::new(meeting.origin);
        let mut report = Report::new(self.number).with_laps()?;
        self.warm_up(pair, &mut clock, &mut report)?;
        let start_ns = meeting.agree_on_start(&clock);
        let end_ns = start_ns + self.task.window_ms * 1_000_000;
        meeting.wait_for(start_ns, &clock);

        let cpu_before_ns = thread_cpu_ns();
        clock.window_end_ns = end_ns;
        // Whoever comes late has lost that time to somebody else.
        clock.at_ns = start_ns;
        clock.end(Part::Other);
        report.times = Times { end_ns, first_ns: clock.at_ns, ..Times::default() };
        // After the warm-up, when all goes well.
        let fault = self.task.fault;
        pair.fault = fault;
        let mut closed = false;
        while !closed || meeting.closed.load(Ordering::Relaxed) < meeting.threads {
            if self.commit(fault, &mut clock) {
                break;
            }
            clock.lap = Spans::default();
            report.negotiated = Some(pair.handshake(&mut clock)?);
            if clock.at_ns <= end_ns {
                if pair.was_of_its_kind() {
                    report.count(&clock.lap);
                } else {
                    report.discarded += 1;
                }
            } else if !closed {
                closed = true;
                report.times.cpu_ns = thread_cpu_ns() - cpu_before_ns;
                report.times.cpu_wall_ns = clock.at_ns - start_ns;
                if meeting.closed.fetch_add(1, Ordering::Relaxed) + 1 == meeting.threads {
                    let _ = meeting.steal_after.set(Steal::so_far());
                }
            }
            clock.end(Part::Other);
        }
        report.times.last_ns = clock.at_ns;
        report.spans = clock.window;
        Ok(report)
    }

    /// Until the rate stands still, or long enough; and then until every thread is there.
    fn warm_up(
        &self,
        pair: &mut Pair,
        clock: &mut Clock,
        report: &mut Report,
    ) -> Result<(), Error> {
        let window_ns = (self.task.window_ms * 1_000_000 / WARM_UP_PARTS).max(1);
        let begun_ns = clock.now_ns();
        let (mut window_begun_ns, mut in_window) = (begun_ns, 0);
        let mut rates = Vec::new();
        let mut warm = false;
        while !warm || self.meeting.warm.load(Ordering::Relaxed) < self.meeting.threads {
            pair.handshake(clock)?;
            report.discarded += u64::from(!pair.was_of_its_kind());
            report.warm_up += 1;
            in_window += 1;
            let now_ns = clock.now_ns();
            if warm || now_ns - window_begun_ns < window_ns {
                continue;
            }
            rates.push(f64::from(in_window) / (now_ns - window_begun_ns) as f64);
            (window_begun_ns, in_window) = (now_ns, 0);
            let long_enough = now_ns - begun_ns >= window_ns * WARM_UP_WINDOWS_MAX;
            if long_enough || stands_still(&rates) {
                warm = true;
                self.meeting.warm.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Does what a pair cannot; `true` if the thread is to stop working.
    fn commit(&self, fault: Option<Fault>, clock: &mut Clock) -> bool {
        let is_last = self.number + 1 == self.meeting.threads;
        match fault {
            Some(Fault::Crash) => std::process::abort(),
            Some(Fault::EarlyEnd) => is_last,
            Some(Fault::UnaccountedTime) => {
                thread::sleep(Duration::from_millis(1));
                clock.at_ns = clock.now_ns();
                false
            }
            _ => false,
        }
    }
}

/// Says so if a thread panics; a library's panic is a failure like any other.
struct Gone {
    number: usize,
    events: Sender<Event>,
}

impl Drop for Gone {
    fn drop(&mut self) {
        if thread::panicking() {
            let gone = Error::Check(format!("thread {} panicked", self.number));
            let _ = self.events.send(Event::Ends(Err(gone)));
        }
    }
}

/// The last three within the tolerance of each other.
fn stands_still(rates: &[f64]) -> bool {
    let Some(last) = rates.last_chunk::<WARM_UP_STEADY_WINDOWS>() else { return false };
    let least = last.iter().copied().fold(f64::INFINITY, f64::min);
    let most = last.iter().copied().fold(0.0, f64::max);
    most <= least * WARM_UP_TOLERANCE
}

/// A thread begins within that, or it is missing.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(3);
/// Warm-up and everything else around a window.
const WINDOW_SLACK_MAX: Duration = Duration::from_secs(60);
/// A fixed number may run under an instrument that slows it down a thousand times.
const FIXED_TIME_MAX: Duration = Duration::from_secs(3_600);
/// From the threads' meeting to the start: each must have woken up by then.
const LEAD_NS: u64 = 1_000_000;
/// A window of the warm-up is this part of the real one.
const WARM_UP_PARTS: u64 = 20;
/// So the warm-up takes at most as long as the window.
const WARM_UP_WINDOWS_MAX: u64 = 20;
const WARM_UP_STEADY_WINDOWS: usize = 3;
const WARM_UP_TOLERANCE: f64 = 1.02;

#[cfg(test)]
mod tests;
