//! The trial in which the context is swapped while threads connect: every handshake must see the
//! roots from before a swap or from after it, and never those of another moment.
//!
//! Each of the two sets of roots leads to one of two servers. A thread takes the context, tries
//! both servers, and exactly one must be trusted: one of those whose turn it was between the last
//! swap that had ended before the thread looked and the last that had begun after it.

use std::{
    collections::BTreeMap,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    contexts::{
        connection::Connection,
        library::{self, Census, ClientContext, Library, Slot},
        target::Peer,
        task::{Fault, Files, Swaps},
    },
    error::Error,
    trial::Line,
};

/// Does the task.
///
/// # Errors
/// The first handshake that saw something else, or what stopped it.
pub(super) fn run(task: &Swaps) -> Result<Line, Error> {
    let library = library::load(&task.stack)?;
    let counts = {
        let course = Course::new(task, &*library)?;
        let counts = course.run()?;
        course.outlives_its_swap()?;
        counts
    };
    if task.fault == Some(Fault::Leak) {
        std::mem::forget(library.build(&course_files(task, 0))?);
    }
    let Census { built, freed, .. } = library.end();
    let figures = [
        ("swaps", task.swaps as f64),
        ("trusted", counts.trusted as f64),
        ("refused", counts.refused as f64),
        ("contexts_built", built as f64),
        ("contexts_freed", freed as f64),
    ];
    let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    Ok(Line::Figures { figures, times: BTreeMap::new() })
}

/// Handshakes of all threads.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    trusted: u64,
    refused: u64,
}

struct Course<'a> {
    task: &'a Swaps,
    peers: [Peer; 2],
    slot: Box<dyn Slot + 'a>,
    /// Swaps that have begun.
    begun: AtomicU64,
    /// Swaps that have ended.
    ended: AtomicU64,
    /// Somebody failed, or all swaps are done.
    over: AtomicBool,
}

impl<'a> Course<'a> {
    fn new(task: &'a Swaps, library: &'a dyn Library) -> Result<Self, Error> {
        let [one, other] = &task.targets;
        Ok(Self {
            task,
            peers: [Peer::find(one)?, Peer::find(other)?],
            slot: library.slot(&course_files(task, 0))?,
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }

    /// Swaps at the pace that was asked for, until all is done or a thread has failed.
    fn run(&self) -> Result<Counts, Error> {
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.task.threads).map(|_| scope.spawn(|| self.connect_until_over())).collect();
            let swapped = self.swap_all();
            self.over.store(true, Relaxed);
            let mut all = Counts::default();
            let mut failure = swapped;
            for thread in threads {
                let crashed = |_| Error::Check("a thread panicked while it connected".into());
                match thread.join().map_err(crashed).flatten() {
                    Ok(counts) => {
                        all.trusted += counts.trusted;
                        all.refused += counts.refused;
                    }
                    Err(error) => failure = failure.and(Err(error)),
                }
            }
            failure.map(|()| all)
        })
    }

    fn swap_all(&self) -> Result<(), Error> {
        let start = Instant::now();
        for number in 1..=self.task.swaps {
            let due = start + Duration::from_nanos(number * 1_000_000_000 / self.task.per_second);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if self.over.load(Relaxed) {
                break;
            }
            self.begun.store(number, SeqCst);
            if self.task.fault != Some(Fault::TornSwap) {
                self.slot.swap(&course_files(self.task, number))?;
            }
            self.ended.store(number, SeqCst);
        }
        Ok(())
    }

    fn connect_until_over(&self) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        while !self.over.load(Relaxed) {
            if let Err(error) = self.look(&mut counts) {
                self.over.store(true, Relaxed);
                return Err(error);
            }
        }
        Ok(counts)
    }

    /// Takes the context and finds out which roots it has.
    fn look(&self, counts: &mut Counts) -> Result<(), Error> {
        let before = self.ended.load(SeqCst);
        let context = self.slot.current()?;
        let after = self.begun.load(SeqCst);
        let trusts = [self.trusts(&*context, 0)?, self.trusts(&*context, 1)?];
        let set = match trusts {
            [true, false] => 0,
            [false, true] => 1,
            _ => {
                let text = format!("one context trusts neither or both of two roots: {trusts:?}");
                return Err(Error::Check(text));
            }
        };
        counts.trusted += 1;
        counts.refused += 1;
        if (before..=after).any(|swaps| swaps % 2 == set) {
            return Ok(());
        }
        let text = format!("after swap {before}, a handshake saw the roots from before it");
        Err(Error::Check(text))
    }

    /// Whether the server of that number is trusted: it then answers a ping, or else its
    /// certificate is why not.
    fn trusts(&self, context: &dyn ClientContext, number: usize) -> Result<bool, Error> {
        let peer = &self.peers[number];
        match Connection::open(context, peer, &peer.name) {
            Ok(mut connection) => connection.ping().map(|()| true),
            Err(error) if is_about_a_certificate(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A connection goes on over the context that it was made from, whatever is swapped meanwhile.
    fn outlives_its_swap(&self) -> Result<(), Error> {
        let context = self.slot.current()?;
        let number = usize::from(!self.trusts(&*context, 0)?);
        let mut connection =
            Connection::open(&*context, &self.peers[number], &self.peers[number].name)?;
        drop(context);
        for other in [number + 1, number] {
            self.slot.swap(&course_files(self.task, other as u64))?;
            connection.ping()?;
        }
        Ok(())
    }
}

/// Whether a handshake failed because the server's certificate was not trusted.
pub(super) fn is_about_a_certificate(error: &Error) -> bool {
    error.to_string().contains("certificate")
}

/// The roots whose turn it is after so many swaps.
fn course_files(task: &Swaps, swaps: u64) -> Files {
    let set = usize::from(swaps % 2 == 1);
    Files { ca: task.roots[set].clone(), identification: None }
}
