//! One trial, in a process of its own: server and client, what they counted, and what they left.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use rustls::RootCertStore;
use sealane_lab_harness::{
    descriptors,
    processor::process_cpu_ns,
    strategies::named,
    trial::{Body, Reply},
};
use sealane_lab_model::error::Error;
use sealane_lab_servers::load::{Crew, Load, Request, Roots, Tally, Until, Work};
use serde::{Deserialize, Serialize};

use crate::certificates::{
    Fault, Strategy,
    client::{self, Examiner},
    generation::{self, Generation},
    names, over_time,
    owner::Owner,
    server::{Server, Told},
};

/// Connections to one server under one strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertificateTask {
    /// Who decodes.
    pub strategy: Strategy,
    /// The folder of the certificates.
    pub folder: PathBuf,
    /// Plain HTTP instead of TLS.
    pub is_plain: bool,
    /// Connections that are counted.
    pub connections: usize,
    /// Connections that are held open meanwhile.
    pub held: usize,
    /// The server's threads.
    pub threads: usize,
    /// Connections under way at once.
    pub clients: usize,
    /// The rate at which connections begin, per second, in an open loop; without, each place that
    /// is free is taken at once.
    pub rate: Option<f64>,
    /// What the owner sleeps over each chain, milliseconds.
    pub owner_cost_ms: u64,
    /// Whether some certificates are replaced in the middle.
    pub replaces: bool,
    /// What is deployed in the middle, instead of so many connections that are counted.
    pub deployment: Option<Deployment>,
    /// What shuffles the names, or draws them.
    pub seed: u64,
    /// The exponent of the distribution that names are drawn by; without, each is asked for in
    /// turn.
    pub zipf: Option<f64>,
    /// A test interface.
    pub fault: Option<Fault>,
}

/// What decodes in the second half of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Who decodes then.
    pub strategy: Strategy,
    /// The length of each half.
    pub seconds: u64,
}

impl Body for CertificateTask {
    const NAME: &'static str = "certificates";

    fn perform(&self) -> Result<Reply, Error> {
        run(self)
    }
}

/// Does the task. If a connection failed, only the counts that tell so come back.
///
/// # Errors
/// The server cannot start, or connections do not come to their end.
fn run(task: &CertificateTask) -> Result<Reply, Error> {
    descriptors::allow(2 * (task.held + task.clients.max(AT_ONCE_MAX)) as u64)?;
    Trial::begin(task)?.run()
}

/// Both ends.
struct Trial<'t> {
    task: &'t CertificateTask,
    names: Vec<String>,
    roots: Arc<RootCertStore>,
    server: Server,
    owner: Option<Owner>,
    examiner: Option<Arc<Examiner>>,
    /// What comes in the middle, and the names that it replaces.
    next: Option<(Arc<Generation>, Vec<String>)>,
    figures: BTreeMap<String, f64>,
}

impl<'t> Trial<'t> {
    fn begin(task: &'t CertificateTask) -> Result<Self, Error> {
        let first = Generation::first(&task.folder)?;
        let next = task.replaces.then(|| Generation::next(&task.folder)).transpose()?;
        let next = next.map(|(next, replaced)| (Arc::new(next), replaced));
        let roots = Roots::store(&generation::root_file(&task.folder))?;
        let mut generations = vec![&first];
        generations.extend(next.as_ref().map(|(next, _)| &**next));
        let examiner = match task.is_plain {
            true => None,
            false => Some(Examiner::new(Arc::clone(&roots), &generations)?),
        };
        let owner = match task.strategy {
            Strategy::Central => Some(Owner::start(Duration::from_millis(task.owner_cost_ms))?.0),
            Strategy::Lane | Strategy::PerConnection => None,
        };
        let mut figures = BTreeMap::new();
        if task.strategy == Strategy::Lane && !task.is_plain {
            figures.insert("indexed".to_owned(), first.indexed() as f64);
        }
        let names = names::read(&generation::names_file(&task.folder))?;
        let server = Server::start(task, owner.clone(), first)?;
        Ok(Self { task, names, roots, server, owner, examiner, next, figures })
    }

    fn run(mut self) -> Result<Reply, Error> {
        let task = self.task;
        let count = task.held + task.connections;
        let asked = match task.zipf {
            Some(exponent) => names::zipf(&self.names, exponent, task.seed, count),
            None => names::in_turn(&self.names, task.seed, count),
        };
        let mut plan = client::plan(self.server.address, self.examiner.clone(), &asked)?;
        let seconds = task.deployment.map_or(0, |deployment| 2 * deployment.seconds);
        plan.seconds_apart = usize::try_from(seconds).unwrap_or(0);
        let mut crew = Crew::new(&plan, NonZeroUsize::MIN)?;
        let held = self.hold(&mut crew)?;
        let (before, cpu_before_ns) = (self.owner_so_far(), process_cpu_ns());
        let (tally, retired) = self.load(&mut crew, &plan.progress)?;
        self.settle(&tally)?;
        let server_ns = process_cpu_ns() - cpu_before_ns;
        self.count(&tally, before, server_ns.saturating_sub(tally.cpu_ns.iter().sum()));
        let mut handshakes = held + tally.handshake.count();
        if let Some((next, replaced)) = &self.next {
            let shown = self.show_replaced(next, replaced)?;
            handshakes += shown;
            self.figure("replaced_shown", shown);
        }
        self.figure("handshakes", if task.is_plain { 0 } else { handshakes });
        let mut times = BTreeMap::new();
        if tally.operations == self.asked(&tally) {
            if task.deployment.is_none() {
                times.insert(ROUND_TRIP.to_owned(), tally.intended.document()?);
            }
            for (second, of_second) in tally.by_second.iter().enumerate() {
                times.insert(over_time::name(second), of_second.document()?);
            }
        }
        let figures = self.end(&mut crew, held, retired.as_ref())?;
        Ok(Reply::Figures { figures, times })
    }

    /// Connections that stay open until all is counted.
    fn hold(&self, crew: &mut Crew) -> Result<u64, Error> {
        let work = Work::Establish(Some(Request::Get("/hold".into())));
        Ok(crew.run(&closed(work, self.task.clients, self.task.held))?.operations)
    }

    /// How many connections were counted, if all went well.
    fn asked(&self, tally: &Tally) -> u64 {
        match self.task.deployment {
            None => self.task.connections as u64,
            Some(_) => tally.operations + tally.failed(),
        }
    }

    /// The connections that are counted. What the next generation retires in the middle is told.
    fn load(
        &mut self,
        crew: &mut Crew,
        progress: &AtomicU64,
    ) -> Result<(Tally, Option<Weak<Generation>>), Error> {
        let CertificateTask { clients, connections, rate, deployment, .. } = *self.task;
        let work = Work::Connections(Some(Request::Echo));
        let count = Until::Count(connections as u64);
        let load = match (rate, deployment) {
            (Some(rate), _) => Load::open(work, rate, AT_ONCE_MAX, count),
            (None, None) => Load::closed(work, clients, count),
            (None, Some(Deployment { seconds, .. })) => {
                Load::closed(work, clients, Until::Elapsed(Duration::from_secs(2 * seconds)))
            }
        };
        let half = progress.load(Relaxed) + connections as u64 / 2;
        let began = Instant::now();
        let (loaded, deployed_after) = thread::scope(|scope| {
            let loading = scope.spawn(|| crew.run(&load));
            let deployed_after = deployment.map(|Deployment { strategy, seconds }| {
                while began.elapsed().as_secs() < seconds && !loading.is_finished() {
                    thread::sleep(STEP);
                }
                self.server.deploy(strategy);
                began.elapsed()
            });
            let retired = self.next.as_ref().map(|(next, _)| {
                while progress.load(Relaxed) < half && !loading.is_finished() {
                    thread::sleep(STEP);
                }
                Arc::downgrade(&self.server.publish(Arc::clone(next)))
            });
            let panicked = |_| Err(Error::Check("the client panicked".into()));
            let loaded = loading.join().unwrap_or_else(panicked);
            (loaded.map(|tally| (tally, retired)), deployed_after)
        });
        if let Some(after) = deployed_after {
            self.figures.insert(over_time::MOMENT.to_owned(), after.as_secs_f64());
        }
        loaded
    }

    /// Waits until the server has done with the counted connections, and the owner with their
    /// messages.
    fn settle(&self, tally: &Tally) -> Result<(), Error> {
        let asked = self.asked(tally);
        let is_idle = |owner: &Owner| owner.counts().is_idle();
        let done = || self.server.closed() >= asked && self.owner.as_ref().is_none_or(is_idle);
        match wait(SETTLE_TIME_MAX, done) {
            true => Ok(()),
            false => Err(Error::Check("the server does not come to rest".into())),
        }
    }

    /// What the owner did, and from now on how many messages wait.
    fn owner_so_far(&self) -> [u64; 2] {
        let Some(owner) = &self.owner else { return [0; 2] };
        let counts = owner.counts();
        counts.waiting_max.store(0, Relaxed);
        [counts.messages.load(Relaxed), counts.visited.load(Relaxed)]
    }

    fn count(&mut self, tally: &Tally, before: [u64; 2], server_ns: u64) {
        self.figure("verified", tally.operations);
        self.figure("failed", tally.failed());
        self.figure("timed", tally.handshake.count());
        let asked = self.asked(tally);
        if tally.operations < asked {
            return;
        }
        let waiting_max =
            self.owner.as_ref().map_or(0, |owner| owner.counts().waiting_max.load(Relaxed));
        let [messages, visited] = self.owner_so_far();
        let each = |count: u64| count as f64 / asked.max(1) as f64;
        let figures = [
            ("messages", each(messages - before[0])),
            ("visited", each(visited - before[1])),
            ("waiting", waiting_max as f64),
            ("cpu_us", each(server_ns) / 1e3),
            ("rate", tally.rate()),
            ("p50_ms", tally.intended.percentile_ns(50.0) as f64 / 1e6),
            ("p99_ms", tally.intended.percentile_ns(99.0) as f64 / 1e6),
        ];
        self.figures.extend(named::<_, _, BTreeMap<_, _>>(figures));
    }

    /// Asks for each of the replaced names once more: how many show what they were replaced with.
    fn show_replaced(&self, next: &Generation, replaced: &[String]) -> Result<u64, Error> {
        let examiner = Examiner::new(Arc::clone(&self.roots), &[next])?;
        let names: Vec<&str> = replaced.iter().map(String::as_str).collect();
        let plan = client::plan(self.server.address, Some(examiner), &names)?;
        let work = Work::Connections(Some(Request::Echo));
        let load = closed(work, self.task.clients, names.len());
        Ok(Crew::new(&plan, NonZeroUsize::MIN)?.run(&load)?.operations)
    }

    /// One more answer for each connection that was held, its close, and what is left of all.
    fn end(
        mut self,
        crew: &mut Crew,
        held: u64,
        retired: Option<&Weak<Generation>>,
    ) -> Result<BTreeMap<String, f64>, Error> {
        self.server.stop_accepting();
        let held = usize::try_from(held).unwrap_or(usize::MAX);
        let last = crew.run(&closed(Work::Requests(Request::Echo), held, held))?;
        crew.close()?;
        let Told { decoded, first_uses, held_answered } = self.server.stop()?;
        if held_answered != last.operations {
            return Err(Error::Check("client and server differ about the last answers".into()));
        }
        let (mut decoded, mut entries) = (decoded, 0);
        if let Some(owner) = &self.owner {
            let counts = owner.counts();
            wait(LEFT_TIME_MAX, || counts.is_idle() && counts.entries.load(Relaxed) == 0);
            entries = counts.entries.load(Relaxed);
            decoded += counts.decoded.load(Relaxed);
        }
        let generations = u64::from(retired.is_some_and(|retired| retired.strong_count() > 0));
        let figures = [
            ("decoded", decoded),
            ("first_uses", first_uses),
            ("held_answered", held_answered),
            ("left", entries + generations),
        ];
        self.figures.extend(figures.map(|(name, value)| (name.to_owned(), value as f64)));
        Ok(self.figures)
    }

    fn figure(&mut self, name: &str, value: u64) {
        self.figures.insert(name.to_owned(), value as f64);
    }
}

fn closed(work: Work, clients: usize, count: usize) -> Load {
    Load::closed(work, clients, Until::Count(count as u64))
}

/// Whether `done` came true within `time_max`.
fn wait(time_max: Duration, done: impl Fn() -> bool) -> bool {
    let until = Instant::now() + time_max;
    while !done() {
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(STEP);
    }
    true
}

/// The key of the times from when a connection was due to the last byte of the answer; in a closed
/// loop that is before its connect.
pub(super) const ROUND_TRIP: &str = "round_trip";
/// Connections that an open loop has under way: as many as the listener lets wait for a thread.
const AT_ONCE_MAX: usize = 128;
/// From the last close on, for whatever goes on behind it.
const LEFT_TIME_MAX: Duration = Duration::from_secs(1);
const SETTLE_TIME_MAX: Duration = Duration::from_secs(20);
/// So seldom that looking takes no processor time that would count.
const STEP: Duration = Duration::from_millis(1);
