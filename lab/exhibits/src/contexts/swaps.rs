//! The trial in which the context is swapped while threads connect: every handshake must see the
//! roots from before a swap or from after it, and never those of another moment.
//!
//! Each of the two sets of roots leads to one of two servers. A thread tries one server after the
//! other, and each must be trusted if, and only if, it was that one's turn: at some moment between
//! the last swap that had ended before the thread took the context and the last that had begun
//! after it. Nearly always that is one moment.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::trial::Reply;
use sealane_lab_model::error::Error;
use sealane_lab_stacks::stack::Endpoint;

use crate::contexts::{
    connection::Connection,
    library::{self, Census, Lane, Library, Slot},
    target::Peer,
    task::{Fault, Files, Swaps},
};

/// Does the task.
///
/// # Errors
/// The first handshake that saw something else, or what stopped it.
pub(super) fn run(task: &Swaps) -> Result<Reply, Error> {
    let library = library::load(&task.stack)?;
    let counts = {
        let course = Course::new(task, &*library)?;
        let counts = course.run()?;
        course.outlives_its_swap()?;
        counts
    };
    let Counts { trusted, refused, live_most, live_after } = counts;
    if task.fault == Some(Fault::Leak) {
        std::mem::forget(library.build(&files(task, 0))?);
    }
    let Census { built, freed, .. } = library.end();
    let figures = [
        ("swaps", task.swaps as f64),
        ("trusted", trusted as f64),
        ("refused", refused as f64),
        ("threads", task.threads as f64),
        ("live_most", live_most as f64),
        ("live_after", live_after as f64),
        ("contexts_built", built as f64),
        ("contexts_freed", freed as f64),
    ];
    let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    Ok(Reply::Figures { figures, times: BTreeMap::new() })
}

/// Handshakes of all threads, and contexts that were there.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    trusted: u64,
    refused: u64,
    /// The most contexts that were there when a swap had ended.
    live_most: u64,
    /// Contexts that were there when all threads had ended.
    live_after: u64,
}

struct Course<'a> {
    task: &'a Swaps,
    library: &'a dyn Library,
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
            library,
            peers: [Peer::find(one)?, Peer::find(other)?],
            slot: library.slot(&files(task, 0))?,
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }

    /// Swaps at the pace that was asked for, until all is done or a thread has failed.
    fn run(&self) -> Result<Counts, Error> {
        thread::scope(|scope| {
            let start = |number| scope.spawn(move || self.connect_until_over(number));
            let threads: Vec<_> = (0..self.task.threads).map(start).collect();
            let swapped = self.swap_all();
            self.over.store(true, SeqCst);
            let mut all = Counts::default();
            let mut failure = Ok(());
            // What a faulty program keeps is there until all has been counted.
            let hoard = match swapped {
                Ok((live_most, hoard)) => {
                    all.live_most = live_most;
                    hoard
                }
                Err(error) => {
                    failure = Err(error);
                    Vec::new()
                }
            };
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
            all.live_after = self.library.census().live();
            drop(hoard);
            failure.map(|()| all)
        })
    }

    /// The most contexts that were there after a swap, and what the fault of this name keeps.
    fn swap_all(&self) -> Result<(u64, Vec<Box<dyn Endpoint>>), Error> {
        let start = Instant::now();
        let (mut live_most, mut hoard) = (0, Vec::new());
        for number in 1..=self.task.swaps {
            let due = start + Duration::from_nanos(number * 1_000_000_000 / self.task.per_second);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if self.over.load(SeqCst) {
                break;
            }
            if self.task.fault == Some(Fault::Hoard) {
                hoard.push(self.slot.lane()?.connect(&self.peers[0].name)?);
            }
            self.begun.store(number, SeqCst);
            if self.task.fault != Some(Fault::TornSwap) {
                self.slot.swap(&files(self.task, number))?;
            }
            self.ended.store(number, SeqCst);
            live_most = live_most.max(self.library.census().live());
        }
        Ok((live_most, hoard))
    }

    /// Tries one server after the other, thread `number` beginning with its own; and then, when
    /// nothing is swapped any more, both.
    fn connect_until_over(&self, number: usize) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        let looked = self.slot.lane().and_then(|mut lane| {
            let mut server = number % 2;
            while !self.over.load(SeqCst) {
                self.look(&mut *lane, server, &mut counts)?;
                server = 1 - server;
            }
            self.look(&mut *lane, 0, &mut counts)?;
            self.look(&mut *lane, 1, &mut counts)?;
            Ok(counts)
        });
        self.over.fetch_or(looked.is_err(), SeqCst);
        looked
    }

    /// Tries a server and sees whether that was to be trusted at that moment.
    fn look(&self, lane: &mut dyn Lane, server: usize, counts: &mut Counts) -> Result<(), Error> {
        let before = self.ended.load(SeqCst);
        let tls = lane.connect(&self.peers[server].name)?;
        let after = self.begun.load(SeqCst);
        let trusted = self.trusts(tls, server)?;
        *if trusted { &mut counts.trusted } else { &mut counts.refused } += 1;
        if (before..=after).any(|swaps| (turn_of(swaps) == server) == trusted) {
            return Ok(());
        }
        let text = format!("after swap {before}, a handshake saw the roots from before it");
        Err(Error::Check(text))
    }

    /// Whether that server is trusted: it then answers a ping, or else its certificate is why not.
    fn trusts(&self, tls: Box<dyn Endpoint>, server: usize) -> Result<bool, Error> {
        match Connection::open(tls, &self.peers[server]) {
            Ok(mut connection) => connection.ping().map(|()| true),
            Err(error) if is_about_a_certificate(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A connection goes on over the context that it was made from, whatever is swapped meanwhile.
    fn outlives_its_swap(&self) -> Result<(), Error> {
        let server = turn_of(self.task.swaps);
        let peer = &self.peers[server];
        let mut connection = Connection::open(self.slot.lane()?.connect(&peer.name)?, peer)?;
        for more in 1..=2 {
            self.slot.swap(&files(self.task, self.task.swaps + more))?;
            connection.ping()?;
        }
        Ok(())
    }
}

/// Whether a handshake failed because the server's certificate was not trusted.
pub(super) fn is_about_a_certificate(error: &Error) -> bool {
    error.to_string().contains("certificate")
}

/// Whose turn it is after so many swaps.
fn turn_of(swaps: u64) -> usize {
    usize::from(swaps % 2 == 1)
}

/// The roots whose turn it is then.
fn files(task: &Swaps, swaps: u64) -> Files {
    Files { ca: task.roots[turn_of(swaps)].clone(), identification: None }
}
