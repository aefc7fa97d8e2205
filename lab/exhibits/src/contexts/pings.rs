//! The trial of one strategy: clients on threads, each with its sockets, a ping over each.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use sealane_lab_harness::{
    processor::{process_cpu_ns, thread_cpu_ns},
    trial::Reply,
};
use sealane_lab_model::{error::Error, histogram::Times};

use crate::contexts::{
    connection::Connection,
    library::{self, ClientContext, Lane, Library, Options, SharedContext},
    target::{Peer, Protocol},
    task::{Fault, Pings, Strategy},
};

/// Does the task.
///
/// # Errors
/// The first connection or ping that failed.
pub(super) fn run(task: &Pings) -> Result<Reply, Error> {
    let library = library::load(&task.client.stack)?;
    let peer = Peer::find(&task.client.target)?;
    let (cpu_before_ns, begun) = (process_cpu_ns(), Instant::now());
    let meter = Meter::default();
    let done = {
        let crew = Crew::new(task, &*library, &peer, &meter)?;
        crew.work()?
    };
    if task.fault == Some(Fault::Leak) {
        std::mem::forget(library.build(&task.client.files)?);
    }
    let census = library.end();
    let wall_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let total_ns = process_cpu_ns() - cpu_before_ns;
    let (build_ns, first_ns) = (meter.all_ns.load(Relaxed), meter.first_ns.load(Relaxed));
    let share = |part_ns: u64| 100.0 * part_ns as f64 / total_ns as f64;
    let figures = [
        ("contexts_built", census.built as f64),
        ("contexts_freed", census.freed as f64),
        ("certificates_parsed", census.certificates as f64),
        ("sockets", done.sockets as f64),
        ("pings", done.pings as f64),
        ("build_cpu_ms", milliseconds(build_ns)),
        ("total_cpu_ms", milliseconds(total_ns)),
        ("wall_ms", milliseconds(wall_ns)),
        ("build_share", share(build_ns)),
        ("rebuild_share", share(build_ns - first_ns)),
        ("rate", done.sockets as f64 * 1e9 / wall_ns as f64),
    ];
    let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    let times = BTreeMap::from([("client".to_owned(), done.times.document()?)]);
    Ok(Reply::Figures { figures, times })
}

/// Nanoseconds as milliseconds.
pub(super) fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// CPU time in which contexts are built, or looked for.
#[derive(Default)]
struct Meter {
    all_ns: AtomicU64,
    /// The CPU time of the first.
    first_ns: AtomicU64,
    begun: AtomicBool,
}

impl Meter {
    fn time<T>(&self, build: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let is_first = !self.begun.swap(true, Relaxed);
        let before_ns = thread_cpu_ns();
        let built = build();
        let spent_ns = thread_cpu_ns() - before_ns;
        self.all_ns.fetch_add(spent_ns, Relaxed);
        if is_first {
            self.first_ns.store(spent_ns, Relaxed);
        }
        built
    }
}

/// All threads of a trial, and what they have in common.
struct Crew<'a> {
    task: &'a Pings,
    library: &'a dyn Library,
    peer: &'a Peer,
    meter: &'a Meter,
    /// By pool.
    pools: Vec<Pool<'a>>,
    /// Somebody failed: nobody goes on.
    failed: AtomicBool,
}

/// What the clients of one pool share.
struct Pool<'a> {
    options: Box<dyn Options + 'a>,
    /// Built with the pool, if that is the strategy.
    context: Option<SharedContext>,
}

/// What a thread, or all, did.
struct Done {
    sockets: u64,
    pings: u64,
    /// Times of a client, from its first step to its last answer.
    times: Times,
}

impl<'a> Crew<'a> {
    fn new(
        task: &'a Pings,
        library: &'a dyn Library,
        peer: &'a Peer,
        meter: &'a Meter,
    ) -> Result<Self, Error> {
        let files = &task.client.files;
        let build = || meter.time(|| library.build(files));
        let pool = |_| {
            let own = task.strategy == Strategy::PerPool;
            let context = own.then(build).transpose()?;
            Ok(Pool { options: library.options(files)?, context })
        };
        let pools = (0..task.pools).map(pool).collect::<Result<_, Error>>()?;
        Ok(Self { task, library, peer, meter, pools, failed: AtomicBool::new(false) })
    }

    /// Runs all clients to their end.
    fn work(&self) -> Result<Done, Error> {
        let mut all = Done { sockets: 0, pings: 0, times: Times::new()? };
        thread::scope(|scope| {
            let start = |number| {
                let stack = thread::Builder::new().stack_size(STACK_BYTES);
                stack.spawn_scoped(scope, move || {
                    let done = self.clients_of(number);
                    self.failed.fetch_or(done.is_err(), Relaxed);
                    done
                })
            };
            let threads: Vec<_> = (0..self.task.threads).map(start).collect();
            let mut failure = Ok(());
            for thread in threads {
                let ended = thread.map_err(Error::io("start a thread"));
                let crashed = |_| Error::Check("a client's thread panicked".into());
                match ended.and_then(|thread| thread.join().map_err(crashed)).flatten() {
                    Ok(done) => {
                        all.sockets += done.sockets;
                        all.pings += done.pings;
                        all.times.add(&done.times)?;
                    }
                    Err(error) => failure = failure.and(Err(error)),
                }
            }
            failure
        })?;
        Ok(all)
    }

    /// The clients that thread `number` has, one after the other.
    fn clients_of(&self, number: usize) -> Result<Done, Error> {
        let task = self.task;
        let mut done = Done { sockets: 0, pings: 0, times: Times::new()? };
        let own = (task.strategy == Strategy::PerLane).then(|| self.build()).transpose()?;
        let mut lanes = Lanes::default();
        for client in (number..task.clients).step_by(task.threads) {
            if self.failed.load(Relaxed) {
                break;
            }
            let begun = Instant::now();
            self.client(client, own.as_ref(), &mut lanes, &mut done)
                .map_err(|error| Error::Check(format!("client {client}: {error}")))?;
            done.times.record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(done)
    }

    /// One client; `own` is its thread's context, if that is the strategy.
    fn client(
        &self,
        client: usize,
        own: Option<&SharedContext>,
        lanes: &mut Lanes,
        done: &mut Done,
    ) -> Result<(), Error> {
        let mut alone;
        let mut kept: Option<&mut dyn Lane> = match self.shared(client, own)? {
            Some(context) => Some(lanes.of(&*context, self.meter)?),
            None if self.task.strategy == Strategy::PerClient => {
                alone = self.lane_of_its_own()?;
                Some(&mut *alone)
            }
            None => None,
        };
        for _ in 0..self.task.sockets {
            let mut fresh;
            let lane = match &mut kept {
                Some(lane) if self.task.fault != Some(Fault::Rebuild) => &mut **lane,
                _ => {
                    fresh = self.lane_of_its_own()?;
                    &mut *fresh
                }
            };
            let mut connection = Connection::open(lane.connect(&self.peer.name)?, self.peer)?;
            done.sockets += 1;
            connection.ping()?;
            done.pings += u64::from(self.peer.protocol != Protocol::Tls);
        }
        Ok(())
    }

    /// The context that this client shares with others.
    fn shared(
        &self,
        client: usize,
        own: Option<&SharedContext>,
    ) -> Result<Option<SharedContext>, Error> {
        let pool = &self.pools[client % self.pools.len()];
        Ok(match self.task.strategy {
            Strategy::PerSocket | Strategy::PerClient => None,
            Strategy::PerPool => pool.context.as_ref().map(Arc::clone),
            Strategy::PerLane => own.map(Arc::clone),
            Strategy::Digest => Some(self.meter.time(|| pool.options.context())?),
        })
    }

    fn build(&self) -> Result<SharedContext, Error> {
        self.meter.time(|| self.library.build(&self.task.client.files))
    }

    /// A lane that holds a new context alone.
    fn lane_of_its_own(&self) -> Result<Box<dyn Lane>, Error> {
        let context = self.build()?;
        self.meter.time(|| context.lane())
    }
}

/// A thread's ways to the contexts that its clients share, by where those lie: each keeps its
/// context alive.
#[derive(Default)]
struct Lanes(HashMap<usize, Box<dyn Lane>>);

impl Lanes {
    /// The one to `context`; making it counts as building.
    fn of(&mut self, context: &dyn ClientContext, meter: &Meter) -> Result<&mut dyn Lane, Error> {
        match self.0.entry(context.address()) {
            Entry::Occupied(found) => Ok(&mut **found.into_mut()),
            Entry::Vacant(place) => Ok(&mut **place.insert(meter.time(|| context.lane())?)),
        }
    }
}

/// Enough for a handshake; 256 threads have one each.
const STACK_BYTES: usize = 512 * 1024;
