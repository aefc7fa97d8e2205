//! Tickets for a while, [`run`], or an exact number, [`fixed`], under keys that do not change.

use std::{
    collections::BTreeMap,
    sync::OnceLock,
    time::{Duration, Instant},
};

use sealane_lab_harness::{
    phase::{self, Phase},
    processor::{thread_cpu_ns, thread_waits},
    strategies::named,
    trial::{Fixed, Reply},
};
use sealane_lab_model::{error::Error, histogram::Times};

use super::{
    strategy::{Issuer, SharedKeys, Strategy},
    task::{SESSION_BYTES, START, Start, TicketsTask, on_all_threads},
};

/// Every thread issues and resumes until the window closes, the same for all.
///
/// # Errors
/// A ticket that was refused, or opened to something else.
pub(super) fn run(
    task: &TicketsTask,
    shared: &SharedKeys,
    window: Duration,
) -> Result<Reply, Error> {
    let start = Start::new(task.threads);
    let crew = Crew::new(task.threads);
    let parts = on_all_threads(task, |number| {
        let ready = Thread::new(shared, number).and_then(|mut thread| {
            thread.turn()?;
            crew.show(&thread)?;
            Ok((thread, Times::new()?))
        });
        start.meet();
        let ready = ready.and_then(|(thread, times)| {
            crew.check(&thread)?;
            Ok((thread, times))
        });
        let end = start.together() + window;
        let (mut thread, times) = ready?;
        thread.window(end, times)
    })?;
    result(task.strategy, &parts)
}

/// Every thread issues and resumes exactly so many tickets, marked as the server's and the client's
/// work.
///
/// # Errors
/// The same as those of [`run`].
pub(super) fn fixed(task: &TicketsTask, shared: &SharedKeys, fixed: Fixed) -> Result<Reply, Error> {
    let start = Start::new(task.threads);
    let counts = on_all_threads(task, |number| {
        let ready = Thread::new(shared, number).and_then(|mut thread| {
            (0..fixed.warm_up).try_for_each(|_| thread.turn().map(|_| ()))?;
            Ok(thread)
        });
        start.meet();
        let done = ready.and_then(|mut thread| {
            (0..fixed.count).try_for_each(|_| thread.marked_turn())?;
            Ok(thread.serial - fixed.warm_up)
        });
        // So that no thread's end is among what another one does.
        start.meet();
        done
    })?;
    let operations: u64 = counts.iter().sum();
    let figures = named([("operations", operations as f64)]);
    Ok(Reply::Figures { figures, times: BTreeMap::new() })
}

/// A ticket of each thread, which all others must open.
struct Crew(Vec<OnceLock<[Vec<u8>; 2]>>);

impl Crew {
    fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| OnceLock::new()).collect())
    }

    fn show(&self, thread: &Thread<'_>) -> Result<(), Error> {
        let ticket = thread.issuer.issue(&thread.session)?;
        if let Some(place) = self.0.get(thread.number) {
            let _ = place.set([ticket, thread.session.clone()]);
        }
        Ok(())
    }

    fn check(&self, thread: &Thread<'_>) -> Result<(), Error> {
        let mut shown = self.0.iter().filter_map(OnceLock::get);
        let opens = |[ticket, session]: &[Vec<u8>; 2]| {
            thread.issuer.resume(ticket).as_ref() == Some(session)
        };
        if shown.all(opens) { Ok(()) } else { Err(wrong("another thread's ticket")) }
    }
}

/// One thread of a trial.
struct Thread<'a> {
    number: usize,
    issuer: Issuer<'a>,
    session: Vec<u8>,
    /// Tickets issued and resumed.
    serial: u64,
}

impl<'a> Thread<'a> {
    fn new(shared: &'a SharedKeys, number: usize) -> Result<Self, Error> {
        let mut session = vec![0; SESSION_BYTES];
        fastrand::fill(&mut session);
        let mut issuer = shared.issuer(START);
        issuer.set(START)?;
        Ok(Self { number, issuer, session, serial: 0 })
    }

    /// One ticket, issued and resumed; when either was done.
    fn turn(&mut self) -> Result<[Instant; 3], Error> {
        self.next();
        let begin = Instant::now();
        let ticket = self.issuer.issue(&self.session)?;
        let issued = Instant::now();
        let session = self.issuer.resume(&ticket);
        let resumed = Instant::now();
        self.compare(session.as_deref())?;
        Ok([begin, issued, resumed])
    }

    /// The same, with marks in place of times.
    fn marked_turn(&mut self) -> Result<(), Error> {
        self.next();
        phase::enter(Phase::Server);
        let ticket = self.issuer.issue(&self.session);
        phase::enter(Phase::Outside);
        let ticket = ticket?;
        phase::enter(Phase::Client);
        let session = self.issuer.resume(&ticket);
        phase::enter(Phase::Outside);
        self.compare(session.as_deref())
    }

    /// No two sessions are alike.
    fn next(&mut self) {
        self.serial += 1;
        if let Some(start) = self.session.first_chunk_mut() {
            *start = self.serial.to_le_bytes();
        }
    }

    fn compare(&self, session: Option<&[u8]>) -> Result<(), Error> {
        if session == Some(&self.session) { Ok(()) } else { Err(wrong("a fresh ticket")) }
    }

    fn window(&mut self, end: Instant, mut times: Times) -> Result<Part, Error> {
        let (locks, waits) = self.locks();
        let generated = self.issuer.tally.generated.get();
        let waits_before = thread_waits()?;
        let cpu_before_ns = thread_cpu_ns();
        let begin = Instant::now();
        let mut last = begin;
        while last < end {
            let [begun, issued, resumed] = self.turn()?;
            for (from, to) in [(begun, issued), (issued, resumed)] {
                times.record(u64::try_from((to - from).as_nanos()).unwrap_or(u64::MAX));
            }
            last = resumed;
        }
        let cpu_ns = thread_cpu_ns() - cpu_before_ns;
        let kernel_waits = thread_waits()? - waits_before;
        let (locks, waits) = (self.locks().0 - locks, self.locks().1 - waits);
        let generated = self.issuer.tally.generated.get() - generated;
        let generated_locked = self.issuer.tally.generated_locked.get();
        let wall = last - begin;
        Ok(Part { wall, cpu_ns, kernel_waits, locks, waits, generated, generated_locked, times })
    }

    fn locks(&self) -> (u64, u64) {
        (self.issuer.tally.acquisitions.get(), self.issuer.tally.waits.get())
    }
}

/// One thread's window.
struct Part {
    /// To the end of the ticket that closed it.
    wall: Duration,
    cpu_ns: u64,
    kernel_waits: u64,
    locks: u64,
    waits: u64,
    generated: u64,
    generated_locked: u64,
    times: Times,
}

fn result(strategy: Strategy, parts: &[Part]) -> Result<Reply, Error> {
    let mut all = Times::new()?;
    let mut per_s = 0.0;
    for part in parts {
        all.add(&part.times)?;
        per_s += part.times.count() as f64 / part.wall.as_secs_f64() / parts.len() as f64;
    }
    let sum = |of: fn(&Part) -> u64| parts.iter().map(of).sum::<u64>() as f64;
    let tickets = all.count() as f64;
    let figures = [
        ("tickets_per_s", per_s),
        ("cpu_ns", sum(|part| part.cpu_ns) / tickets),
        ("p99_us", all.percentile_ns(99.0) as f64 / 1e3),
        ("lock_acquisitions", sum(|part| part.locks) / tickets),
        ("lock_waits", sum(|part| part.waits)),
        ("kernel_waits", sum(|part| part.kernel_waits)),
        ("keys_generated", sum(|part| part.generated)),
        ("keys_generated_locked", sum(|part| part.generated_locked)),
    ];
    let figures = figures.into_iter().filter(|(name, _)| strategy.tells(name));
    Ok(Reply::Figures { figures: named(figures), times: named([("ticket", all.document()?)]) })
}

fn wrong(what: &str) -> Error {
    Error::Check(format!("{what} was refused, or opened to another session"))
}
